"""The records of consumer groups in `__consumer_offsets` are Apache Kafka's, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.consumer.state import (
    ClassicProtocols,
    ConsumerRecord,
    Current,
    CurrentChanged,
    EpochChanged,
    MemberChanged,
    MemberState,
    RegexResolved,
    Resolved,
    Subscriber,
    TargetChanged,
    TargetEpochChanged,
    apply_consumer,
    tombstones,
)
from raftlog.coordinator.records import decode, encode

texts = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.lists(texts, max_size=4).map(tuple)
partitions = st.dictionaries(st.uuids(), st.frozensets(int32s, min_size=1, max_size=4), max_size=3)
classic = st.builds(
    ClassicProtocols, int32s, st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple)
)
subscribers = st.builds(
    Subscriber,
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
currents = st.builds(Current, int32s, int32s, st.sampled_from(MemberState), partitions, partitions)
records = st.one_of(
    st.builds(EpochChanged, texts, int32s, int64s) | st.builds(EpochChanged, texts, st.none()),
    st.builds(MemberChanged, texts, texts, st.none() | subscribers),
    st.builds(TargetEpochChanged, texts, st.none() | int32s),
    st.builds(TargetChanged, texts, texts, st.none() | partitions),
    st.builds(CurrentChanged, texts, texts, st.none() | currents),
    st.builds(RegexResolved, texts, texts, st.none() | st.builds(Resolved, names, int64s)),
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
        (EpochChanged("g", 5), "0003 0001 67", "0000 00000005 00"),
        (EpochChanged("g", 5, 1), "0003 0001 67", "0000 00000005 01 00 08 0000000000000001"),
        (TargetEpochChanged("g", 5), "0006 0001 67", "0000 00000005 00"),
        (TargetChanged("g", "m", {}), "0007 0001 67 0001 6d", "0000 01 00"),
        (
            CurrentChanged("g", "m", Current(2, 1, MemberState.UNRELEASED_PARTITIONS)),
            "0008 0001 67 0001 6d",
            "0000 00000002 00000001 02 01 01 00",
        ),
        (
            MemberChanged("g", "m", Subscriber(None, None, "c", "h", ("t",), None, 9, "range")),
            "0005 0001 67 0001 6d",
            "0000 00 00 0263 0268 02 0274 00 00000009 0672616e6765 00",
        ),
        (
            RegexResolved("g", "a", Resolved(("t",), 1)),
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
    """What remains has no epoch, and nothing in its maps either."""
    membership = apply_consumer(None, [EpochChanged("g", 1), *found, EpochChanged("g", 2)])
    assert membership is not None
    ended = tombstones("g", membership)
    assert apply_consumer(membership, ended) is None
    empty = apply_consumer(membership, [*ended, EpochChanged("g", 1)])
    assert empty is not None and not (empty.members or empty.targets or empty.currents or empty.regexes)
