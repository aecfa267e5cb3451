"""The cluster of docker-compose.yml, as `make compose-test` has brought it up, and stock clients on this machine."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.probe import view_topics
from tests.kit import waits

ROOT = Path(__file__).parents[2]
BOOTSTRAP = "localhost:19091,localhost:19092,localhost:19093"


@pytest.fixture(scope="module", autouse=True)
def _only_with_an_engine() -> None:
    if "COMPOSE_PROJECT_NAME" not in os.environ:
        pytest.skip("needs a docker engine: make compose-test")


def run(*command: str, check: bool = True) -> str:
    """Return the output of a command; if it fails, the error has the output."""
    done = waits.run(command, cwd=ROOT, text=True)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def compose(*arguments: str, check: bool = True) -> str:
    return run("docker", "compose", *arguments, check=check)


def container(service: str) -> str:
    return compose("ps", "--all", "--quiet", service).strip()


def inspect(name: str) -> dict[str, Any]:
    (found,) = json.loads(run("docker", "inspect", name))
    return dict(found)


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until it holds, and fail once no container changes or says anything."""
    waits.until(holds, what, seen=progress)


def progress() -> str:
    """Return the containers' states, and how many lines they have logged."""
    states = compose("ps", "--all", "--format", "{{.Name}} {{.State}} {{.Health}}", check=False)
    return f"{'; '.join(states.splitlines())}; {compose('logs', '--no-color', check=False).count(chr(10))} lines logged"


def in_sync(topic: str, *, port: int = 19091) -> list[int]:
    """Return how many in-sync replicas each partition has, as the node at that port says."""
    try:
        topics = view_topics("localhost", port)
    except (OSError, IndexError, ValueError):
        return []
    return [len(each.isr) for (name, _), (_, each) in topics.partitions.items() if name == topic]


def healthy(*services: str) -> bool:
    return all(
        inspect(container(each))["State"].get("Health", {}).get("Status") == "healthy" for each in services
    )


@pytest.fixture
def topic() -> Iterator[str]:
    """A new topic of three partitions and three replicas, all in sync."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"compose-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(name, 3, 3)], operation_timeout=waits.PATIENCE_S)[name].result(
        2 * waits.PATIENCE_S
    )
    wait_until(lambda: in_sync(name) == [3, 3, 3], f"{name} is in sync")
    yield name


class ComposeProducer:
    """Numbers in sequence, acks=all, until stopped; every failure is kept."""

    def __init__(self, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.acked: list[int] = []
        self.failures: list[str] = []
        self.longest_gap_s = 0.0
        self._last_at = time.monotonic()
        self._next = 0
        settings = {"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**settings, "error_cb": self._failed})

    def _failed(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(str(error))

    def write(self, holds: Callable[[], bool]) -> None:
        """Write a record every few milliseconds as long as that holds, then wait for all acknowledgements."""
        while holds():
            number = self._next
            self._next += 1

            def told(error: Any, _message: Any, number: int = number) -> None:
                now = time.monotonic()
                if error is not None:
                    self.failures.append(str(error))
                    return
                self.longest_gap_s = max(self.longest_gap_s, now - self._last_at)
                self._last_at = now
                self.acked.append(number)

            self._producer.produce(
                self.topic, str(number).encode(), key=str(number).encode(), on_delivery=told
            )
            self._producer.poll(0.005)
        waits.until(
            lambda: self._producer.flush(0.2) == 0, "all is acknowledged", seen=lambda: len(self.acked)
        )


def read_all(topic: str) -> list[int]:
    """Return every number of a topic, in the order of the partitions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(3)])
        numbers: list[int] = []
        ended = 0
        wait = waits.waiting("all is read", seen=lambda: len(numbers))
        while ended < 3:
            wait.pause()
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                ended += message.error().name() == "_PARTITION_EOF"
            elif message is not None:
                numbers.append(int(message.value()))
        return numbers
    finally:
        consumer.close()
