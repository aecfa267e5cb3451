"""The driver's questions to a cluster: which partitions there are, and their earliest, latest and timed offsets.

A Lookup holds options, so that it can be sent to executors; its client is made when it is first needed. Every wait is
bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from raftlog.pipeline.clients import PAUSE_S, Administrator
from raftlog.pipeline.login import who
from raftlog.pipeline.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from raftlog.pipeline.options import ReadOptions

ATTEMPT_S: Final = 10.0
NEW_TOPIC_S: Final = 1.0
"""How long a node may not know a topic that another node has just created."""
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})


class UnknownTopic(RuntimeError):
    """A topic or partition that is to be read does not exist."""


class Lookup:
    """The driver's view of the partitions that a query reads."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._admin = Administrator(options.client)

    def __getstate__(self) -> ReadOptions:
        return self.options

    def __setstate__(self, options: ReadOptions) -> None:
        self.options, self._admin = options, Administrator(options.client)

    # --- the cluster

    def cluster_id(self) -> str:
        """Return the id of the cluster that is read."""
        return str(listed(self._admin).cluster_id)

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
                raise UnknownTopic(
                    f"topic {', '.join(missing)} does not exist{self.unseen} ({self.options.subscription})"
                )
            time.sleep(PAUSE_S)
        return counts

    @property
    def unseen(self) -> str:
        """The other reason for a missing topic: a cluster hides topics from users without DESCRIBE."""
        client = self.options.client
        return f", or {who(client)} has not the right DESCRIBE on it" if "sasl.username" in client else ""

    def _topics(self) -> dict[str, int]:
        """Return how many partitions each topic has."""
        found = listed(self._admin).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

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
        return self._admin.ask(lambda admin: self._asked(admin, requests), "list offsets", topics=topics)

    def _asked(self, admin: Any, requests: Mapping[Any, Any]) -> Offsets:
        from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException

        committed = self.options.client.get("isolation.level", "read_committed") == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures: Mapping[Any, Future[Any]] = admin.list_offsets(
            requests, isolation_level=level, request_timeout=ATTEMPT_S
        )
        try:
            found = {
                TopicPartition(tp.topic, tp.partition): future.result().offset
                for tp, future in futures.items()
            }
            if OFFSET_INVALID in found.values():  # not an error to librdkafka where other leaders answered
                raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "a leader does not answer"))
        except KafkaException:
            admin.list_topics(timeout=ATTEMPT_S)  # else the next attempt would ask the same leaders
            raise
        return found


def listed(admin: Administrator) -> Any:
    """Return what a cluster says of itself and of its topics."""
    return admin.ask(lambda client: client.list_topics(timeout=ATTEMPT_S), "list the topics")


def _of_topics(names: Iterable[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name in names for number in range(counts[name])]
