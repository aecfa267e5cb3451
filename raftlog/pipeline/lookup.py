"""The driver's questions to a cluster: which partitions there are, and their earliest, latest and timed offsets.

One admin client, made when it is first needed, so that a Lookup can be sent to executors. Every wait is bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from raftlog.pipeline import clients
from raftlog.pipeline.login import DENIED, Door, Refused, denied, who
from raftlog.pipeline.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from raftlog.pipeline.options import ReadOptions

R = TypeVar("R")
PATIENCE_S: Final = 30.0
"""How long a cluster may be without a leader, or out of reach, before a query fails."""
ATTEMPT_S: Final = 10.0
PAUSE_S: Final = 0.1
NEW_TOPIC_S: Final = 1.0
"""How long a node may not know of a topic that another one has just made."""
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})


class UnknownTopic(RuntimeError):
    """A topic or partition that is to be read does not exist."""


class Lookup:
    """The driver's view of the partitions that a query reads."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._admin: Any = None
        self._door = Door(options.client)

    def __getstate__(self) -> ReadOptions:
        return self.options

    def __setstate__(self, options: ReadOptions) -> None:
        self.options, self._admin, self._door = options, None, Door(options.client)

    # --- the cluster

    def cluster_id(self) -> str:
        """Return the id of the cluster that is read."""
        return str(self._listed().cluster_id)

    # --- partitions

    def partitions(self) -> list[TopicPartition]:
        """Return what is subscribed to and exists now. Raises UnknownTopic for what is named and does not."""
        subscription = self.options.subscription
        if subscription.pattern is not None:
            counts = self._topics()
            names = [n for n in counts if n not in INTERNAL and re.fullmatch(subscription.pattern, n)]
            return _of_topics(sorted(names), counts)
        names = sorted({*subscription.topics, *(at.topic for at in subscription.assigned)})
        counts = self._known(names)
        if subscription.topics:
            return _of_topics(names, counts)
        for at in subscription.assigned:
            if at.partition >= counts[at.topic]:
                raise UnknownTopic(f"partition {at} does not exist: {at.topic} has {counts[at.topic]}")
        return list(subscription.assigned)

    def existing(self) -> list[TopicPartition]:
        """Return what is subscribed to and exists now, and leave out what does not."""
        counts = self._topics()
        subscription = self.options.subscription
        if subscription.pattern is not None:
            return self.partitions()
        return [at for at in _of_topics(sorted(counts), counts) if subscription.covers(at)]

    def _known(self, names: list[str]) -> dict[str, int]:
        deadline = time.monotonic() + NEW_TOPIC_S
        while missing := [name for name in names if name not in (counts := self._topics())]:
            if time.monotonic() > deadline:
                unseen = self._unseen()
                raise UnknownTopic(
                    f"topic {', '.join(missing)} does not exist{unseen} ({self.options.subscription})"
                )
            time.sleep(PAUSE_S)
        return counts

    def _unseen(self) -> str:
        """A cluster shows no topic to a user who may not describe it."""
        client = self.options.client
        return f", or {who(client)} has not the right DESCRIBE on it" if "sasl.username" in client else ""

    def _topics(self) -> dict[str, int]:
        """Return how many partitions each topic has."""
        listed = self._listed().topics
        return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None}

    def _listed(self) -> Any:
        return self._patiently(lambda admin: admin.list_topics(timeout=ATTEMPT_S), "list the topics")

    # --- offsets

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the first offset that each partition still has."""
        return self._offsets(dict.fromkeys(topic_partitions, EARLIEST))

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end of what is committed in each partition (isolation level as in the options)."""
        return self._offsets(dict.fromkeys(topic_partitions, LATEST))

    def at_times(self, times_ms: Offsets) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time in each partition; None where all is older."""
        found = self._offsets(times_ms, timed=True)
        return {at: None if offset < 0 else offset for at, offset in found.items()}

    def _offsets(self, wanted: Offsets, *, timed: bool = False) -> Offsets:
        from confluent_kafka import TopicPartition as KafkaTopicPartition
        from confluent_kafka import admin

        kinds: Any = admin.OffsetSpec  # type: ignore[attr-defined]

        def spec(offset: int) -> Any:
            if timed:
                return kinds.for_timestamp(offset)
            return kinds.earliest() if offset == EARLIEST else kinds.latest()

        if not wanted:
            return {}
        requests = {
            KafkaTopicPartition(at.topic, at.partition): spec(offset) for at, offset in wanted.items()
        }
        topics = [at.topic for at in wanted]
        return self._patiently(lambda admin: self._asked(admin, requests), "list offsets", topics)

    def _asked(self, admin: Any, requests: Mapping[Any, Any]) -> Offsets:
        from confluent_kafka import IsolationLevel

        committed = self.options.client.get("isolation.level", "read_committed") == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures: Mapping[Any, Future[Any]] = admin.list_offsets(
            requests, isolation_level=level, request_timeout=ATTEMPT_S
        )
        return {
            TopicPartition(tp.topic, tp.partition): future.result().offset for tp, future in futures.items()
        }

    def _patiently(self, ask: Callable[[Any], R], what: str, topics: Iterable[str] = ()) -> R:
        """Ask until there is an answer, for half a minute at most, as long as the error may heal by itself."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(self._client())
            except KafkaException as error:
                if error.args[0].name() in DENIED and topics:
                    raise denied(self.options.client, "read", topics) from None
                self._client().poll(0)  # the door only hears from here
                if self._door.failures:
                    raise Refused(self._door.reason) from None
                if error.args[0].name() not in clients.HEALING or time.monotonic() > deadline:
                    servers = self.options.client["bootstrap.servers"]
                    raise RuntimeError(f"cannot {what} at {servers}: {error.args[0].str()}") from error
            time.sleep(PAUSE_S)

    def _client(self) -> Any:
        if self._admin is None:
            self._admin = clients.admin(self.options.client, self._door)
        return self._admin


def _of_topics(names: Iterable[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name in names for number in range(counts[name])]
