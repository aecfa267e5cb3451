"""The records of `__consumer_offsets` are Apache Kafka's, byte for byte."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.group import (
    CommittedOffset,
    GroupChanged,
    GroupRecord,
    Member,
    Membership,
    OffsetCommitted,
)
from raftlog.coordinator.group_records import decode, encode
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.records.batch import build_batch, new_record

texts = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.uuids().filter(lambda each: each.int)
offsets = st.builds(CommittedOffset, int64s, int32s, texts, int64s, topic_id=st.none() | topic_ids)
members = st.builds(
    Member,
    texts,
    st.none() | texts,
    texts,
    texts,
    int32s,
    int32s,
    st.binary(max_size=9),
    st.binary(max_size=9),
)
memberships = st.builds(
    Membership,
    st.none() | st.text(min_size=1, max_size=9),
    int32s,
    st.none() | texts,
    st.none() | texts,
    int64s,
    st.lists(members, max_size=3, unique_by=lambda each: each.member_id).map(
        lambda found: {each.member_id: each for each in found}
    ),
)
expiring = st.builds(CommittedOffset, int64s, st.just(-1), texts, int64s, st.integers(0, 2**63 - 1))
TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
V4 = "0004000000000000000500000001036d640000000000000009"
"""An offset's value without its tagged fields."""
records = st.builds(OffsetCommitted, texts, texts, int32s, st.none() | offsets | expiring) | st.builds(
    GroupChanged, texts, st.none() | memberships
)


@given(records)
def test_records_survive_the_round_trip(record: GroupRecord) -> None:
    """encode and decode are inverse; None is a tombstone."""
    assert decode(*encode(record)) == record


@given(records, st.data())
def test_a_record_cut_off_anywhere_is_corrupt(record: GroupRecord, data: st.DataObject) -> None:
    """No prefix of a value reads as a value, and none raises anything but CorruptMessage."""
    key, value = encode(record)
    if value:
        cut = data.draw(st.integers(0, len(value) - 1))
        with pytest.raises(CorruptMessage):
            decode(key, value[:cut])
    with pytest.raises(CorruptMessage):
        decode(key[: data.draw(st.integers(0, len(key) - 1))], value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    """Garbage gives a record, None, or CorruptMessage."""
    try:
        decode(key, value)
    except CorruptMessage:
        pass


def test_an_offset_commit_has_kafkas_bytes() -> None:
    """OffsetCommitKey v1 and OffsetCommitValue v4, as kafka-group-coordinator 4.3.0 writes them."""
    key, value = encode(OffsetCommitted("grp", "top", 2, CommittedOffset(5, 1, "md", 9, topic_id=TOPIC_ID)))
    assert key.hex() == "000100036772700003746f7000000002"
    assert value is not None
    assert (
        value.hex() == "0004000000000000000500000001036d640000000000000009"
        "0100100102030405060708090a0b0c0d0e0f10"
    )
    _, value = encode(OffsetCommitted("grp", "top", 2, CommittedOffset(5, 1, "md", 9)))
    assert value is not None
    assert value.hex() == "0004000000000000000500000001036d64000000000000000900"


def test_group_metadata_has_kafkas_bytes() -> None:
    """GroupMetadataKey v2 and GroupMetadataValue v3."""
    member = Member("m", None, "c", "/h", 300_000, 45_000, b"\x01", b"\x02\x03")
    key, value = encode(GroupChanged("grp", Membership("consumer", 4, "range", "m", 9, {"m": member})))
    assert key.hex() == "00020003677270"
    assert value is not None
    assert value.hex() == (
        "0003" "0008636f6e73756d6572" "00000004" "000572616e6765" "00016d" "0000000000000009"
        "00000001" "00016d" "ffff" "000163" "00022f68" "000493e0" "0000afc8" "0000000101" "000000020203"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000" "0000000000000005" "00026d64" "0000000000000009", CommittedOffset(5, -1, "md", 9)),
        ("0001" "0000000000000005" "00026d64" "0000000000000009" "ffffffffffffffff", CommittedOffset(5, -1, "md", 9)),
        ("0002" "0000000000000005" "00026d64" "0000000000000009", CommittedOffset(5, -1, "md", 9)),
        ("0003" "0000000000000005" "00000001" "00026d64" "0000000000000009", CommittedOffset(5, 1, "md", 9)),
        ("0004" "0000000000000005" "00000001" "036d64" "0000000000000009" "00", CommittedOffset(5, 1, "md", 9)),
        (f"{V4}010010" + 16 * "00", CommittedOffset(5, 1, "md", 9)),
        (f"{V4}020010{TOPIC_ID.hex}0502abcd", CommittedOffset(5, 1, "md", 9, topic_id=TOPIC_ID)),
    ],
)  # fmt: skip
def test_older_and_newer_offset_values_are_read(value: str, expected: CommittedOffset) -> None:
    """Versions 0 to 4, so that a folder written by Apache Kafka can be taken over."""
    key, _ = encode(OffsetCommitted("g", "t", 0, None))
    record = decode(key, bytes.fromhex(value))
    assert isinstance(record, OffsetCommitted)
    assert record.committed == expected


def test_a_topic_id_of_another_length_is_corrupt() -> None:
    """And no other error is raised."""
    key, _ = encode(OffsetCommitted("g", "t", 0, None))
    with pytest.raises(CorruptMessage):
        decode(key, bytes.fromhex(f"{V4}01000101"))


def test_offsets_of_one_topic_share_its_id() -> None:
    """A broker has millions of offsets and few topics: an object of its own for each id would double them."""
    records = [
        encode(OffsetCommitted("g", "t", each, CommittedOffset(5, topic_id=TOPIC_ID))) for each in (0, 1)
    ]
    first, second = (decode(*each) for each in records)
    assert isinstance(first, OffsetCommitted) and isinstance(second, OffsetCommitted)
    assert first.committed and second.committed and first.committed.topic_id is second.committed.topic_id


HEAD = "0001700000000400017200016d"
MEMBER = "00016d000163000168"
OPAQUE = "00000001010000000102"


@pytest.mark.parametrize(
    ("value", "timestamp", "instance"),
    [
        (f"0000 {HEAD} 00000001 {MEMBER} 00000007 {OPAQUE}", -1, None),
        (f"0001 {HEAD} 00000001 {MEMBER} 00000007 00000007 {OPAQUE}", -1, None),
        (f"0002 {HEAD} 0000000000000009 00000001 {MEMBER} 00000007 00000007 {OPAQUE}", 9, None),
        (
            "0004 0270 00000004 0272 026d 0000000000000009"
            "02 026d 0269 0263 0268 00000007 00000007 0201 0202 00 00",
            9,
            "i",
        ),
    ],
)
def test_older_and_newer_group_values_are_read(value: str, timestamp: int, instance: str | None) -> None:
    """GroupMetadataValue versions 0 to 4."""
    key, _ = encode(GroupChanged("g", None))
    record = decode(key, bytes.fromhex(value))
    member = Member("m", instance, "c", "h", 7, 7, b"\x01", b"\x02")
    assert record == GroupChanged("g", Membership("p", 4, "r", "m", timestamp, {"m": member}))


def test_replay_skips_what_it_does_not_know_and_counts_it() -> None:
    """Records of coordinators that are not built (key type 3 and up) and damaged values do no harm."""
    good = encode(OffsetCommitted("g", "t", 0, CommittedOffset(1)))
    key, value = encode(OffsetCommitted("g", "t", 1, CommittedOffset(1)))
    assert value is not None
    found = [good, (b"\x00\x03abc", b"x"), (key, value[:-1])]
    batch = build_batch([new_record(*each, timestamp=0) for each in found], base_offset=10)
    replay = GroupReplay()
    assert replay.feed(batch) == 13
    assert (replay.skipped, [dict(each.offsets) for each in replay.groups()]) == (
        2,
        [{("t", 0): CommittedOffset(1)}],
    )
