"""Read everything back with kafka-python and compare it with the text: lost, duplicated, out of order, changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from raftlog.cli.demo.text import Text
from raftlog.testing.progress import Stalled, Wait, signs_of_descendants


@dataclass(slots=True)
class Verdict:
    """The findings, in records. `unacknowledged`: sent, never acknowledged, and so allowed to be missing."""

    read: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    different: int = 0
    unacknowledged: int = 0

    @property
    def clean(self) -> bool:
        return not (
            self.lost or self.duplicated or self.out_of_order or self.different or self.unacknowledged
        )

    def as_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(slots=True)
class Checker:
    """Compares records, in the order of each partition, with the text they came from."""

    text: Text
    sent: int
    verdict: Verdict = field(default_factory=Verdict)
    _times_seen: bytearray = field(init=False)
    _last_of_key: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times_seen = bytearray(self.sent)

    def saw(self, partition: int, number: int, key: bytes | None, value: bytes | None) -> None:
        """Take in one record read back; `number` is what its header says it was."""
        self.verdict.read += 1
        if not 0 <= number < self.sent or (key, value) != self.text.record(number):
            self.verdict.different += 1
            return
        if self._times_seen[number]:
            self.verdict.duplicated += 1
            return
        self._times_seen[number] = 1
        assert key is not None
        home, last = self._last_of_key.get(key, (partition, -1))
        if partition != home or number < last:
            self.verdict.out_of_order += 1
        self._last_of_key[key] = (partition, number)

    def conclude(self, failed: Iterable[int]) -> Verdict:
        """Judge what is missing; `failed` are the numbers that were never acknowledged."""
        unacknowledged = set(failed)
        missing = {number for number in range(self.sent) if not self._times_seen[number]}
        self.verdict.lost = len(missing - unacknowledged)
        self.verdict.unacknowledged = len(unacknowledged)
        return self.verdict


def read_back(bootstrap: str, topic: str, *, checker: Checker, progress: Callable[[int], None]) -> None:
    """Feed every record of a topic to the checker, from the first offset to the end as it is now.

    A record that is not read before progress stops counts as lost.
    """
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        partitions = [
            TopicPartition(topic, each) for each in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        _read_to(consumer, ends, checker=checker, progress=progress)
    finally:
        consumer.close()


def _read_to(
    consumer: Any, ends: dict[Any, int], *, checker: Checker, progress: Callable[[int], None]
) -> None:
    wait = Wait("the next record is read", seen=lambda: checker.verdict.read, signs=signs_of_descendants)
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        batches = consumer.poll(timeout_ms=500, max_records=5_000)
        for partition, records in batches.items():
            for record in records:
                number = int.from_bytes(dict(record.headers).get("n", b""), "big", signed=True)
                checker.saw(partition.partition, number, record.key, record.value)
        try:
            wait.pause()
        except Stalled:
            return
        progress(checker.verdict.read)
