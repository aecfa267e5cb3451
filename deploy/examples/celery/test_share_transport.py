"""The transport alone, with a share group that is a list of records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import share_transport
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, TopicPartition
from kombu import Connection
from kombu.utils.json import dumps


class Group:
    """Has the records of a queue, and which consumer holds each: with None it is free, without an entry done."""

    def __init__(self, size: int) -> None:
        self.holders: dict[int, Consumer | None] = dict.fromkeys(range(size))

    def expire(self) -> None:
        """Let the time of all locks pass."""
        self.holders = dict.fromkeys(self.holders)


class Consumer:
    """As a ShareConsumer: it polls again only when every record of its last poll is acknowledged."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._polled: set[int] = set()
        self._refused = False

    def subscribe(self, topics: list[str]) -> None:
        self._topic = topics[0]

    def poll(self, seconds: float) -> list[Any]:
        assert not self._polled, "a record of the last poll is not acknowledged"
        free = [offset for offset, holder in self._group.holders.items() if holder is None][:1]
        self._polled = set(free)
        self._group.holders.update(dict.fromkeys(free, self))
        return [self._record(each) for each in free]

    def _record(self, offset: int) -> Any:
        body = dumps({"headers": {}, "body": "", "properties": {"delivery_info": {}}}).encode()
        values = {"topic": self._topic, "partition": 0, "offset": offset, "value": body}
        return SimpleNamespace(
            **{name: lambda value=value: value for name, value in values.items()},
            error=lambda: None,
            delivery_count=lambda: 1,
        )

    def acknowledge_offset(self, topic: str, partition: int, offset: int, kind: AcknowledgeType) -> None:
        self._polled.remove(offset)
        self._refused = self._group.holders.get(offset) is not self
        if not self._refused:
            del self._group.holders[offset]

    def commit_sync(self, seconds: float) -> dict[TopicPartition, Exception | None]:
        late = KafkaException(KafkaError(KafkaError.INVALID_RECORD_STATE)) if self._refused else None
        return {TopicPartition(self._topic, 0): late}

    def close(self) -> None:
        pass


def test_a_task_that_outstays_its_lock_keeps_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes again on another lane of its worker. Each answer goes by its own lane, so both poll again."""
    group = Group(size=1)
    monkeypatch.setattr(share_transport, "ShareConsumer", lambda settings: Consumer(group))
    with Connection("share://localhost:9092") as connection:
        channel = connection.channel()
        late = channel.basic_get("celery")
        group.expire()
        again = channel.basic_get("celery")
        channel.basic_ack(late.delivery_tag)
        assert len(group.holders) == 1, "the late answer is not accepted"
        channel.basic_ack(again.delivery_tag)
        assert not group.holders
        assert not any(lane.is_busy for lane in channel._lanes["celery"])
        group.holders = dict.fromkeys(range(1, 1 + share_transport.LANES))
        found = [channel.basic_get("celery") for _ in range(share_transport.LANES)]
        assert None not in found, "every lane takes another task"
