"""The application against a real cluster: pip install PATH-OF-RAFTLOG celery confluent-kafka pytest, then pytest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from celery import Task
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tasks import app, call_back, charge, pack, refuse, send_mail

T = TypeVar("T")
ROOT = Path(__file__).parent
WAIT_S = 60.0
ACCEPTED = re.compile(r"(\S+-\d+@\d+): accept$", re.MULTILINE)
RELEASED = re.compile(r"\S+-\d+@\d+: release$", re.MULTILINE)
REJECTED = re.compile(r"\S+-\d+@\d+: reject$", re.MULTILINE)


class Shop:
    """Starts workers, and looks at what they have done."""

    def __init__(self, folder: Path, cluster: Any) -> None:
        self.folder = folder
        self.servers: str = cluster.bootstrap_servers
        self.workers: list[subprocess.Popen[bytes]] = []
        self.connection = app.connection_for_write(
            transport_options={"kafka": {"bootstrap.servers": self.servers}}
        )

    def send(self, task: Task, *arguments: object, **options: object) -> None:
        """Send a task; it is replicated and synced when this returns."""
        task.apply_async(arguments, options, connection=self.connection)

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--loglevel", "INFO"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat", *options]
        number = len(self.workers)
        with (self.folder / f"worker-{number}.log").open("wb") as log:
            worker = subprocess.Popen(
                [*command, "--hostname", f"w{number}@shop"],
                cwd=ROOT,
                env={
                    **os.environ,
                    "BOOTSTRAP_SERVERS": self.servers,
                    "DONE_FOLDER": str(self.folder / "done"),
                    "VISIBILITY_TIMEOUT": "15",
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker with all its processes, as a machine that goes down."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def done(self) -> Counter[str]:
        """Return how often each task was carried out."""
        return Counter(each.name.rpartition(".")[0] for each in (self.folder / "done").glob("*"))

    def logs(self) -> str:
        return "\n".join(each.read_text(errors="replace") for each in self.folder.glob("worker-*.log"))

    def wait_for(self, *names: str) -> Counter[str]:
        """Wait until each of these tasks was carried out."""
        return self.wait_until(lambda: set(names) <= self.done().keys() and self.done())

    def wait_until(self, look: Callable[[], T]) -> T:
        """Wait until the value is true, and return it."""
        until = time.monotonic() + WAIT_S
        while not (found := look()):
            assert time.monotonic() < until, f"done: {sorted(self.done())}\n{self.logs()[-8000:]}"
            time.sleep(0.1)
        return found

    def accepted(self) -> Counter[str]:
        """Return how often a broker has confirmed that each message was accepted."""
        return Counter(ACCEPTED.findall(self.logs()))

    def close(self) -> None:
        for each in self.workers:
            if each.poll() is None:
                self.kill(each)
        self.connection.release()


@pytest.fixture
def shop(tmp_path: Path, raftlog_cluster: Any) -> Iterator[Shop]:
    made = Shop(tmp_path, raftlog_cluster)
    yield made
    made.close()


def mails(numbers: range) -> list[str]:
    return [f"mail-{number}" for number in numbers]


def test_a_message_is_accepted_released_or_rejected(shop: Shop) -> None:
    """Each of Celery's answers, with a pool of processes and a pool of threads."""
    shop.send(charge, 1, failures=2)
    shop.send(call_back, 2)
    shop.send(refuse, 3)
    shop.send(send_mail, 4)
    shop.start_worker("--concurrency", "2")
    shop.start_worker("--pool", "threads", "--concurrency", "2")
    done = shop.wait_for("charge-1", "call-2-1", "refuse-3", "mail-4")
    assert [done[f"try-1-{count}"] for count in (1, 2, 3)] == [1, 1, 1], "released twice, with a higher count"
    shop.wait_until(lambda: sum(shop.accepted().values()) == 4)  # both messages of call_back among them
    logs = shop.logs()
    assert (len(RELEASED.findall(logs)), len(REJECTED.findall(logs))) == (2, 1)
    assert max(shop.accepted().values()) == 1 and shop.done()["refuse-3"] == 1


def test_a_refused_task_leaves_a_dead_letter_with_its_message(shop: Shop) -> None:
    """The group's configs name the topic (KIP-1191), in `group_config` or afterwards."""
    admin = AdminClient({"bootstrap.servers": shop.servers})
    topic = NewTopic("dlq.celery", 1, config={"errors.deadletterqueue.group.enable": "true"})
    configs = {
        "errors.deadletterqueue.topic.name": topic.topic,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in configs.items()]
    group = ConfigResource(ResourceType.GROUP, "celery", incremental_configs=entries)
    for done in (*admin.create_topics([topic]).values(), *admin.incremental_alter_configs([group]).values()):
        done.result()
    shop.send(refuse, 7)
    shop.start_worker("--concurrency", "1")
    reader = Consumer({"bootstrap.servers": shop.servers, "group.id": "letters"})
    try:
        reader.assign([TopicPartition(topic.topic, 0, OFFSET_BEGINNING)])
        letter = shop.wait_until(lambda: reader.poll(0.5))
    finally:
        reader.close()
    assert letter.error() is None and b"tasks.refuse" in letter.value()
    assert dict(letter.headers())["__dlq.errors.group"] == b"celery"
    assert shop.done()["refuse-7"] == 1


def test_no_task_is_lost_when_a_worker_dies(shop: Shop) -> None:
    """It dies with messages in its hands; another worker gets them. No message is accepted twice."""
    gate = shop.folder / "gate"
    for number in range(2):
        shop.send(pack, number, str(gate))
    for number in range(50):
        shop.send(send_mail, number)
    first = shop.start_worker("--concurrency", "3")
    shop.wait_for("packing-0", "packing-1", "mail-10")
    shop.kill(first)
    gate.touch()
    assert not {"pack-0", "pack-1"} & shop.done().keys()
    shop.start_worker("--concurrency", "3")
    done = shop.wait_for("pack-0", "pack-1", *mails(range(50)))
    assert [done[f"packing-{number}"] for number in range(2)] == [2, 2]
    assert max(shop.accepted().values()) == 1


def test_no_task_is_lost_when_a_leader_dies(shop: Shop, raftlog_cluster: Any) -> None:
    """Messages are sent, and tasks carried out, before, during and after that. No message is accepted twice."""
    shop.send(send_mail, 0)
    for _ in range(2):
        shop.start_worker("--concurrency", "2")
    shop.wait_for("mail-0")
    for number in range(1, 40):
        shop.send(send_mail, number, seconds=0.05)
    raftlog_cluster.kill_leader("celery")
    for number in range(40, 60):
        shop.send(send_mail, number, seconds=0.05)
    shop.wait_for(*mails(range(60)))
    assert max(shop.accepted().values()) == 1
