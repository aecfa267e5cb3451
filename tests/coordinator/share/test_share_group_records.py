"""The records of share groups are Apache Kafka's, byte for byte (KIP-932)."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentChanged,
    GroupEpochChanged,
    MemberChanged,
    MemberMetadata,
    TargetAssignmentChanged,
    TargetAssignmentEpochChanged,
)
from raftlog.coordinator.group_records import decode, encode
from raftlog.coordinator.share.share_membership import (
    ShareRecord,
    ShareStates,
    ShareStatesChanged,
    ShareTopic,
)

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC_HEX = TOPIC.bytes.hex()
HANDS = {TOPIC: frozenset({0, 2})}

RECORDS: list[tuple[ConsumerRecord | ShareStatesChanged, str, str]] = [
    (
        MemberChanged("work", "m1", MemberMetadata(client_id="c", client_host="/h", topics=("a", "b"))),
        "000a0004776f726b00026d31",
        "0000000263032f68030261026200",
    ),
    (
        MemberChanged(
            "work", "m1", MemberMetadata(rack_id="r", client_id="c", client_host="/h", topics=("a",))
        ),
        "000a0004776f726b00026d31",
        "000002720263032f6802026100",
    ),
    (GroupEpochChanged("work", 3, 258), "000b0004776f726b", "000000000003000000000000010200"),
    (TargetAssignmentEpochChanged("work", 3), "000c0004776f726b", "00000000000300"),
    (
        TargetAssignmentChanged("work", "m1", HANDS),
        "000d0004776f726b00026d31",
        f"000002{TOPIC_HEX}0300000000000000020000",
    ),
    (
        CurrentAssignmentChanged("work", "m1", CurrentAssignment(3, 2, assigned=HANDS)),
        "000e0004776f726b00026d31",
        f"000000000003000000020002{TOPIC_HEX}0300000000000000020000",
    ),
    (
        ShareStatesChanged(
            "work",
            ShareStates(
                {TOPIC: ShareTopic("a", frozenset({0, 2}))},
                {TOPIC: ShareTopic("a", frozenset({1}))},
                {TOPIC: "b"},
            ),
        ),
        "000f0004776f726b",
        f"000002{TOPIC_HEX}02610300000000000000020002{TOPIC_HEX}026102000000010002{TOPIC_HEX}02620000",
    ),
]
"""The bytes are of the messages ShareGroup…Key and ShareGroup…Value of Apache Kafka 4.3.0."""


@pytest.mark.parametrize(("record", "key", "value"), RECORDS)
def test_a_record_is_apache_kafkas(record: ConsumerRecord | ShareStatesChanged, key: str, value: str) -> None:
    """Types 10 to 15, written and read."""
    written = encode(ShareRecord(record))
    assert (written[0].hex(), (written[1] or b"").hex()) == (key, value)
    assert decode(*written) == ShareRecord(record)


@pytest.mark.parametrize("key", sorted({key for _, key, _ in RECORDS}))
def test_a_tombstone_ends_what_its_key_names(key: str) -> None:
    """A record without a value removes the entry."""
    record = decode(bytes.fromhex(key), None)
    assert isinstance(record, ShareRecord)
    assert encode(record) == (bytes.fromhex(key), None)


def test_the_time_of_an_assignment_is_skipped() -> None:
    """Apache Kafka 4.3 writes it in a tagged field (KIP-1263)."""
    value = bytes.fromhex("0000000000030100080000000000000005")
    assert decode(bytes.fromhex("000c0004776f726b"), value) == ShareRecord(
        TargetAssignmentEpochChanged("work", 3)
    )


def test_another_version_is_refused() -> None:
    """A value of an unknown version may mean anything."""
    with pytest.raises(CorruptMessage):
        decode(bytes.fromhex("000b0004776f726b"), bytes.fromhex("000100000003000000000000010200"))
