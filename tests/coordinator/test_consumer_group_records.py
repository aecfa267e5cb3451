"""The records of consumer groups in `__consumer_offsets` are Apache Kafka's, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.consumer.consumer_membership import (
    ClassicProtocols,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentChanged,
    GroupEpochChanged,
    MemberChanged,
    MemberMetadata,
    MemberState,
    RegexResolved,
    ResolvedRegex,
    TargetAssignmentChanged,
    TargetAssignmentEpochChanged,
    apply_consumer,
    consumer_group_tombstones,
)
from raftlog.coordinator.group_records import decode, encode

texts = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.lists(texts, max_size=4).map(tuple)
partitions = st.dictionaries(st.uuids(), st.frozensets(int32s, min_size=1, max_size=4), max_size=3)
classic = st.builds(
    ClassicProtocols, int32s, st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple)
)
subscribers = st.builds(
    MemberMetadata,
    st.none() | texts,
    st.none() | texts,
    texts,
    texts,
    names,
    st.none() | texts,
    int32s,
    st.none() | texts,
    st.none() | classic,
)
currents = st.builds(CurrentAssignment, int32s, int32s, st.sampled_from(MemberState), partitions, partitions)
records = st.one_of(
    st.builds(GroupEpochChanged, texts, int32s, int64s) | st.builds(GroupEpochChanged, texts, st.none()),
    st.builds(MemberChanged, texts, texts, st.none() | subscribers),
    st.builds(TargetAssignmentEpochChanged, texts, st.none() | int32s),
    st.builds(TargetAssignmentChanged, texts, texts, st.none() | partitions),
    st.builds(CurrentAssignmentChanged, texts, texts, st.none() | currents),
    st.builds(RegexResolved, texts, texts, st.none() | st.builds(ResolvedRegex, names, int64s)),
)


@given(records)
def test_records_survive_the_round_trip(record: ConsumerRecord) -> None:
    """encode and decode are inverse; None is a tombstone."""
    assert decode(*encode(record)) == record


@given(records, st.data())
def test_cut_records_are_corrupt_never_a_crash(record: ConsumerRecord, data: st.DataObject) -> None:
    """CorruptMessage, whatever is missing."""
    key, value = encode(record)
    if value:
        cut = data.draw(st.integers(0, len(value) - 1))
        with pytest.raises(CorruptMessage):
            decode(key, value[:cut])


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (GroupEpochChanged("g", 5), "0003 0001 67", "0000 00000005 00"),
        (GroupEpochChanged("g", 5, 1), "0003 0001 67", "0000 00000005 01 00 08 0000000000000001"),
        (TargetAssignmentEpochChanged("g", 5), "0006 0001 67", "0000 00000005 00"),
        (TargetAssignmentChanged("g", "m", {}), "0007 0001 67 0001 6d", "0000 01 00"),
        (
            CurrentAssignmentChanged("g", "m", CurrentAssignment(2, 1, MemberState.UNRELEASED_PARTITIONS)),
            "0008 0001 67 0001 6d",
            "0000 00000002 00000001 02 01 01 00",
        ),
        (
            MemberChanged("g", "m", MemberMetadata(None, None, "c", "h", ("t",), None, 9, "range")),
            "0005 0001 67 0001 6d",
            "0000 00 00 0263 0268 02 0274 00 00000009 0672616e6765 00",
        ),
        (
            RegexResolved("g", "a", ResolvedRegex(("t",), 1)),
            "0010 0001 67 0001 61",
            f"0000 02 0274 {0:016x} {1:016x} 00",
        ),
    ],
)
def test_bytes_are_those_of_the_schemas(record: ConsumerRecord, key: str, value: str) -> None:
    """Keys without, values with flexible fields; put together by hand from Kafka's ConsumerGroup*Key and *Value."""
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))


def test_the_old_record_of_topics_is_passed_over() -> None:
    """Type 4 was replaced by a hash in the epoch's record (KIP-1101)."""
    assert decode(bytes.fromhex("0004 0001 67"), b"\0\0") is None


@given(st.lists(records, max_size=20))
def test_tombstones_end_all_of_a_group(found: list[ConsumerRecord]) -> None:
    """The rest of the group has no epoch, and its maps are empty."""
    membership = apply_consumer(None, [GroupEpochChanged("g", 1), *found, GroupEpochChanged("g", 2)])
    assert membership is not None
    ended = consumer_group_tombstones("g", membership)
    assert apply_consumer(membership, ended) is None
    empty = apply_consumer(membership, [*ended, GroupEpochChanged("g", 1)])
    assert empty is not None and not (
        empty.members or empty.target_assignments or empty.current_assignments or empty.regexes
    )
