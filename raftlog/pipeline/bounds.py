"""The first and last offsets of a query: resolves its options to an offset per partition, and checks these."""

from __future__ import annotations

from raftlog.pipeline.lookup import Lookup
from raftlog.pipeline.offsets import EARLIEST, LATEST, Offsets, TopicPartition, report_loss
from raftlog.pipeline.options import AtOffsets, AtTimes, Bound, Everywhere, OptionFaults


def starts(lookup: Lookup, topic_partitions: list[TopicPartition]) -> Offsets:
    """Return the first offset to read of each partition. Raises OptionFaults, DataLoss."""
    late = LATEST if lookup.options.latest_if_too_late else None
    return _resolved(lookup, topic_partitions, lookup.options.start, late)


def ends(lookup: Lookup, topic_partitions: list[TopicPartition]) -> Offsets:
    """Return the end offset (exclusive) of each partition. Raises OptionFaults, DataLoss."""
    return _resolved(lookup, topic_partitions, lookup.options.end, LATEST)


def _resolved(
    lookup: Lookup, topic_partitions: list[TopicPartition], bound: Bound, late: int | None
) -> Offsets:
    match bound:
        case Everywhere(offset):
            return _named(lookup, dict.fromkeys(topic_partitions, offset))
        case AtOffsets(offsets):
            _check_all_given(offsets, topic_partitions)
            return _inside(lookup, _named(lookup, offsets), given=offsets)
        case AtTimes(common_ms, own_ms, option):
            if common_ms is None:
                _check_all_given(own_ms, topic_partitions)
            times = dict.fromkeys(topic_partitions, common_ms) if common_ms is not None else own_ms
            return _at_times(lookup, times, late, option)


def _named(lookup: Lookup, offsets: Offsets) -> Offsets:
    """Replace -2 and -1 by the earliest and the latest offsets of this moment."""
    early = lookup.earliest(at for at, offset in offsets.items() if offset == EARLIEST)
    late = lookup.latest(at for at, offset in offsets.items() if offset == LATEST)
    return {**offsets, **early, **late}


def _inside(lookup: Lookup, offsets: Offsets, *, given: Offsets) -> Offsets:
    """Report offsets outside the log as data loss, and move them to the nearest end of the log."""
    numbered = [at for at, offset in given.items() if offset >= 0]
    low, high = lookup.earliest(numbered), lookup.latest(numbered)
    found = dict(offsets)
    for at in numbered:
        if not low[at] <= offsets[at] <= high[at]:
            report_loss(
                f"{at}: offset {offsets[at]} is not in the log, which has [{low[at]}, {high[at]})",
                fail=lookup.options.fail_on_data_loss,
            )
            found[at] = min(max(offsets[at], low[at]), high[at])
    return found


def _at_times(lookup: Lookup, times_ms: Offsets, late: int | None, option: str) -> Offsets:
    found = lookup.at_times(times_ms)
    missing = [at for at, offset in found.items() if offset is None]
    if missing and late is None:
        listed = ", ".join(f"{at} has no records since {times_ms[at]}" for at in missing)
        raise OptionFaults(
            [f"{option}: {listed}; startingOffsetsByTimestampStrategy=latest begins at the end"]
        )
    return {**{at: offset for at, offset in found.items() if offset is not None}, **lookup.latest(missing)}


def _check_all_given(offsets: Offsets, topic_partitions: list[TopicPartition]) -> None:
    missing, foreign = (
        sorted(set(topic_partitions) - offsets.keys()),
        sorted(offsets.keys() - set(topic_partitions)),
    )
    if missing or foreign:
        lists = (("no value for", missing), ("not subscribed to", foreign))
        listed = [f"{what} {', '.join(map(str, which))}" for what, which in lists if which]
        raise OptionFaults(
            [f"JSON of offsets or times names every partition and no other: {'; '.join(listed)}"]
        )
