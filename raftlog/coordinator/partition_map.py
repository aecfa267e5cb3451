"""Maps by topic and partition, for groups with very many partitions.

A copy shares unchanged topics, so that the next state of a group costs only its changes. Changing a copy does not
affect the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TypeVar

Value = TypeVar("Value")

PartitionKey = tuple[str, int]
"""A topic's name and a partition of it."""


class PartitionMap(MutableMapping[PartitionKey, Value]):
    """In the order in which topics came, and a topic's partitions in theirs."""

    __slots__ = ("_count", "_own", "_topics")

    def __init__(self, before: Mapping[PartitionKey, Value] | None = None) -> None:
        self._topics: dict[str, dict[int, Value]] = {}
        self._own: set[str] = set()
        """Topics with partitions that no other map shares."""
        self._count = 0
        if isinstance(before, PartitionMap):
            before._own.clear()
            self._topics = dict(before._topics)
            self._count = before._count
        elif before:
            self.update(before)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PartitionKey]:
        for topic, partitions in self._topics.items():
            for partition in partitions:
                yield topic, partition

    def __contains__(self, tp: object) -> bool:
        assert isinstance(tp, tuple)
        return tp[1] in self._topics.get(tp[0], ())

    def __getitem__(self, tp: PartitionKey) -> Value:
        return self._topics[tp[0]][tp[1]]

    def __setitem__(self, tp: PartitionKey, value: Value) -> None:
        partitions = self._owned(tp[0])
        self._count += tp[1] not in partitions
        partitions[tp[1]] = value

    def __delitem__(self, tp: PartitionKey) -> None:
        topic, partition = tp
        if tp not in self:
            raise KeyError(tp)
        partitions = self._owned(topic)
        del partitions[partition]
        self._count -= 1
        if not partitions:
            del self._topics[topic]
            self._own.discard(topic)

    def _owned(self, topic: str) -> dict[int, Value]:
        if topic not in self._own:
            self._own.add(topic)
            self._topics[topic] = dict(self._topics.get(topic, ()))
        return self._topics[topic]

    def topics(self) -> Iterable[str]:
        """Return the topics in the map."""
        return self._topics.keys()

    def of_topic(self, topic: str) -> Mapping[int, Value]:
        """Return the values of one topic, by partition."""
        return self._topics.get(topic, {})

    def without(self, topics: Iterable[str], goes: Callable[[str, Value], bool]) -> PartitionMap[Value]:
        """Return the map without the entries of these topics that `goes` selects."""
        rest = PartitionMap(self)
        for topic in topics:
            before = rest._topics.pop(topic, {})
            kept = {partition: value for partition, value in before.items() if not goes(topic, value)}
            if kept:
                rest._topics[topic] = kept
                rest._own.add(topic)
            rest._count -= len(before) - len(kept)
        return rest
