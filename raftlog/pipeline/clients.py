"""The client library's clients and their settings: what the pipeline decides, and what the options may change."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from raftlog.pipeline.login import DENIED, Door, denied, redacted, who
from raftlog.pipeline.options import PREFIX, OptionFaults

R = TypeVar("R")
PATIENCE_S: Final = 30.0
"""How long a cluster may be without a leader, or out of reach, before a question to it fails."""
PAUSE_S: Final = 0.1
QUEUE_KBYTES: Final = 32_768
"""The bytes that a consumer fetches ahead, at most."""
UNSENT_KBYTES: Final = 65_536
"""The bytes that a producer holds and that are not acknowledged yet, at most."""
CONSUMERS_ONLY: Final = (
    "isolation.",
    "group.",
    "session.",
    "heartbeat.",
    "max.poll.",
    "queued.",
    "auto.",
    "fetch.",
    "max.partition.",
    "partition.assignment.",
    "check.crcs",
    "coordinator.",
    "allow.auto.create.topics",
)
"""Settings that an admin client warns about."""
QUIET: Final = {"log_level": "2", "log.connection.close": "false"}
"""Idle clients would log every node that ends; errors that stop a query are raised."""
HEALING: Final = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_RESOLVE",
        "_WAIT_COORD",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "REPLICA_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PART",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
    }
)
"""Errors that pass by themselves: a leader that is being elected, a broker that is out of reach."""

_consumers: dict[tuple[tuple[str, str], ...], Inbox] = {}
_producers: dict[tuple[tuple[str, str], ...], Outbox] = {}
"""The idle clients of this process, by settings: connecting takes longer than a small batch. At most one client for
each.
"""


class Administrator:
    """An admin client, created on first use, with retries of temporary errors."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._door = Door(settings)
        self._client: Any = None

    def ask(
        self, question: Callable[[Any], R], what: str, *, doing: str = "read", topics: Iterable[str] = ()
    ) -> R:
        """Return the answer to a question within half a minute. `what` is the name of the question.

        Raise OptionFaults for settings that the library does not know, Refused, or RuntimeError. `topics`: the topics
        for which authorization may be missing, as `doing` requires.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self._client is None:  # not `or`: a client with an empty queue is false
                self._client = self._new_client()
            client = self._client
            try:
                answer = question(client)
            except KafkaException as error:
                if error.args[0].name() in DENIED and topics:
                    raise denied(self._settings, doing, topics) from None
                client.poll(0)  # the door only hears from here
                self._door.check()
                if error.args[0].name() not in HEALING or time.monotonic() > deadline:
                    servers = self._settings["bootstrap.servers"]
                    raise RuntimeError(f"cannot {what} at {servers}: {error.args[0].str()}") from error
            else:
                client.poll(0)  # what failed before the answer must not be heard after it
                self._door.passed()
                return answer
            time.sleep(PAUSE_S)

    def _new_client(self) -> Any:
        from confluent_kafka.admin import AdminClient

        own = {name: value for name, value in self._settings.items() if not name.startswith(CONSUMERS_ONLY)}
        return _made(AdminClient, {**QUIET, **own, "error_cb": self._door})


class Outbox:
    """A producer, and what was refused of what it was given. One task has it at a time."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        from confluent_kafka import Producer

        decided = {"acks": "all", "enable.idempotence": "true", "delivery.report.only.error": True}
        defaults = {
            **QUIET,
            "partitioner": "murmur2_random",  # as Java's producers, so that several writers agree on a key's partition
            "queue.buffering.max.kbytes": str(UNSENT_KBYTES),
            "linger.ms": "20",
        }
        self.refused: list[str] = []
        self.door = Door(settings)
        self._settings = settings
        callbacks = {"on_delivery": self._delivered, "error_cb": self.door}
        self.producer = _made(Producer, {**defaults, **settings, **decided, **callbacks})

    def _delivered(self, error: Any, message: Any) -> None:
        """Librdkafka calls this for what was not delivered only."""
        if error is not None:
            self.refused.append(refusal(error, message, self._settings))


def refusal(error: Any, message: Any, settings: Mapping[str, str]) -> str:
    """Return why a record was not written, with the right that it needs where that is the reason."""
    needed = f"; {who(settings)} needs the right WRITE on the topic" if error.name() in DENIED else ""
    return f"{message.topic()}-{message.partition()}: {error.str()}{needed}"


def borrow_outbox(settings: Mapping[str, str]) -> Outbox:
    """Return an idle producer of this process with these settings, or a new producer. Raise OptionFaults."""
    return _producers.pop(_key(settings), None) or Outbox(settings)


def return_outbox(outbox: Outbox, settings: Mapping[str, str]) -> None:
    """Keep a producer that has sent everything for the next task."""
    outbox.door.passed()
    _producers[_key(settings)] = outbox


def consumer_settings(settings: Mapping[str, str], group_id_prefix: str) -> dict[str, str]:
    """Return a consumer's settings: committed records unless asked otherwise, no group's offsets, no guess where."""
    defaults = {
        **QUIET,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": str(QUEUE_KBYTES),
        "queued.min.messages": "100000",
        "fetch.queue.backoff.ms": "5",  # how soon to look again whether the queue has room
        "fetch.wait.max.ms": "20",  # a range is there already: no long wait for new records
        "group.id": group_id_prefix,
    }
    decided = {
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
    }
    return {**defaults, **settings, **decided}


class Inbox:
    """A consumer, and the logins of it that failed. One task has it at a time."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        from confluent_kafka import Consumer

        self.door = Door(settings)
        decided = {"group.id": f"{settings['group.id']}-{uuid.uuid4()}", "error_cb": self.door}
        self.consumer = _made(Consumer, {**settings, **decided})


def borrow_inbox(settings: Mapping[str, str]) -> Inbox:
    """Return an idle consumer of this process with these settings, or a new consumer. Raise OptionFaults."""
    return _consumers.pop(_key(settings), None) or Inbox(settings)


def return_inbox(inbox: Inbox, settings: Mapping[str, str]) -> None:
    """Keep a consumer for the next task, if there is none kept yet."""
    inbox.consumer.unassign()
    if _consumers.setdefault(_key(settings), inbox) is not inbox:
        inbox.consumer.close()


def _key(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))


def _made(kind: Any, settings: Mapping[str, Any]) -> Any:
    from confluent_kafka import KafkaException

    try:
        return kind(dict(settings))
    except KafkaException as error:
        raise OptionFaults([redacted(f"{PREFIX}*: {error.args[0].str()}", settings)]) from None
