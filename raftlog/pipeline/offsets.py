"""Offsets of partitions: their JSON, which is Spark's Kafka source's, and what to read of them. Pure; asks no cluster.

`end` is exclusive. -2 stands for the earliest offset and -1 for the latest, as on the wire.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

LOG: Final = logging.getLogger("raftlog.pipeline")
EARLIEST: Final = -2
LATEST: Final = -1


class TopicPartition(NamedTuple):
    """One partition of a topic; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


class DataLoss(RuntimeError):
    """Records that were to be read are gone, or may be; with failOnDataLoss=false this is only a warning."""


class EndBeforeStart(ValueError):
    """Reading is to end before the offset at which it is to begin."""


def report_loss(what: str, *, fail: bool) -> None:
    """Raise DataLoss, or only warn of it."""
    if fail:
        raise DataLoss(
            f"{what}. Records may be lost; the option failOnDataLoss=false continues with the remaining records"
        )
    LOG.warning("%s; going on (failOnDataLoss=false)", what)


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets of one partition that one task reads: from `start` up to, not including, `end`."""

    at: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.at} [{self.start}, {self.end})"


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as `{"topic": {"0": 23}}`, in one order, since Spark compares them as text."""
    found: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def from_json(text: str | Mapping[str, Any], *, lowest: int = EARLIEST) -> Offsets:
    """Return the offsets of `{"topic": {"0": 23}}`. Raises ValueError; no number is below `lowest`."""
    topics = _loaded(text)
    found: Offsets = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f'topic "{topic}" must have an object of partitions, not {partitions!r}')
        for number, offset in partitions.items():
            if not number.isdecimal():
                raise ValueError(f'topic "{topic}": "{number}" is not a partition number')
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < lowest:
                raise ValueError(f"{topic}-{number}: {offset!r} is not a number of at least {lowest}")
            found[TopicPartition(topic, int(number))] = offset
    return found


def assigned_from_json(text: str) -> list[TopicPartition]:
    """Return the partitions of `{"topic": [0, 1]}`. Raises ValueError saying what is wrong."""
    found = []
    for topic, numbers in _loaded(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f'topic "{topic}" must have a list of partition numbers, not {numbers!r}')
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f'topic "{topic}": {number!r} is not a partition number')
            found.append(TopicPartition(topic, number))
    return sorted(set(found))


def _loaded(text: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON ({error})") from None
        if not text:
            raise ValueError("not a JSON object of topics")
    if not isinstance(text, Mapping):
        raise ValueError("not a JSON object of topics")
    return text


# --- how much a trigger takes


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """Return ends that take `most` offsets in all, from each partition in proportion to what it has.

    Each non-empty partition gives at least one offset, so it may be more than `most` by the number of partitions.
    """
    ends = dict(end)
    total = waiting(start, end)
    left = min(most, total)
    for tp in end:
        if (size := end[tp] - start[tp]) > 0:
            share = max(1, left * size // total)
            ends[tp] = start[tp] + share
            left, total = max(0, left - share), total - size  # the last one gives all that is left
    return ends


def waiting(start: Offsets, end: Offsets) -> int:
    """Return how many offsets lie between two positions; a partition that went backwards counts 0."""
    return sum(max(0, end[at] - start[at]) for at in end)


# --- how tasks share it


def ranges_of(start: Offsets, end: Offsets) -> list[Range]:
    """Return what is to be read, a range for each partition that has records. Raises EndBeforeStart."""
    ranges = [Range(at, start[at], end[at]) for at in sorted(end)]
    if backwards := [each for each in ranges if each.size < 0]:
        raise EndBeforeStart(
            f"{', '.join(map(str, backwards))}: the starting offset is greater than the ending offset"
        )
    return [each for each in ranges if each.size]


def split(
    ranges: Iterable[Range], *, least: int | None = None, most_records: int | None = None
) -> list[Range]:
    """Cut ranges so that there are at least `least` (as far as there are offsets) and none above `most_records`."""
    parts = [part for each in ranges for part in _cut(each, _pieces(each, most_records))]
    if not parts or least is None or len(parts) >= least:
        return parts
    return [
        part for each, count in zip(parts, _counts(parts, least), strict=True) for part in _cut(each, count)
    ]


def _pieces(each: Range, most_records: int | None) -> int:
    return 1 if most_records is None else -(-each.size // most_records)


def _counts(ranges: Sequence[Range], wanted: int) -> list[int]:
    """Return into how many pieces to cut each range: the range with the largest pieces is cut further."""
    counts = [max(1, wanted * each.size // max(1, sum(r.size for r in ranges))) for each in ranges]
    while sum(counts) < wanted:
        index = max(range(len(ranges)), key=lambda i: ranges[i].size / counts[i])
        if counts[index] >= ranges[index].size:
            break
        counts[index] += 1
    return counts


def _cut(each: Range, pieces: int) -> list[Range]:
    pieces = max(1, min(pieces, each.size))
    edges = [each.start + each.size * i // pieces for i in range(pieces + 1)]
    return [replace(each, start=a, end=b) for a, b in pairwise(edges)]
