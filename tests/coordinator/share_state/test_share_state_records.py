"""The records of `__share_group_state` are Apache Kafka's, byte for byte."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.share_state.share_state import (
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareUpdate,
    merge,
)
from raftlog.coordinator.share_state.share_state_records import decode, encode
from raftlog.sharing.dead_letter import DeadLetters
from raftlog.sharing.delivery import DeliveryState, StateBatch

KEY = SharePartitionKey("work", UUID("00112233-4455-6677-8899-aabbccddeeff"), 3)
STATE = ShareState(
    2,
    7,
    5,
    100,
    (StateBatch(100, 109, DeliveryState.AVAILABLE, 2), StateBatch(110, 110, DeliveryState.ACKNOWLEDGED, 1)),
    create_timestamp_ms=1_700_000_000_000,
    write_timestamp_ms=1_700_000_001_000,
)
UPDATE = ShareUpdate(KEY, 2, 5, -1, (StateBatch(100, 109, DeliveryState.ARCHIVED, 5),), 10)

SNAPSHOT_KEY = "00000004776f726b00112233445566778899aabbccddeeff00000003"
SNAPSHOT_VALUE = (
    "000000000002000000070000000500000000000000640000018bcfe568000000018bcfe56be803000000000000006400"
    "0000000000006d00000200000000000000006e000000000000006e0200010000"
)
UPDATE_KEY = "00010004776f726b00112233445566778899aabbccddeeff00000003"
UPDATE_VALUE = "00000000000200000005ffffffffffffffff020000000000000064000000000000006d040005000100040000000a"

int16s = st.integers(0, 2**15 - 1)
int32s = st.integers(-1, 2**31 - 1)
int64s = st.integers(-1, 2**63 - 1)
batches = st.lists(
    st.builds(StateBatch, int64s, int64s, st.sampled_from(DeliveryState), int16s), max_size=4
).map(tuple)
keys = st.builds(SharePartitionKey, st.text(max_size=10), st.uuids(), st.integers(0, 2**31 - 1))
snapshots = st.builds(ShareState, int32s, int32s, int32s, int64s, batches, int32s, int64s, int64s, st.just(0))


def test_a_snapshot_is_apache_kafkas() -> None:
    """The bytes are of the ShareSnapshotKey and ShareSnapshotValue of Apache Kafka 4.3.0."""
    key, value = encode(ShareSnapshot(KEY, STATE))
    assert (key.hex(), (value or b"").hex()) == (SNAPSHOT_KEY, SNAPSHOT_VALUE)


def test_an_update_is_apache_kafkas() -> None:
    """The bytes are of the ShareUpdateKey and ShareUpdateValue of Apache Kafka 4.3.0, with the count of KIP-1226."""
    key, value = encode(UPDATE)
    assert (key.hex(), (value or b"").hex()) == (UPDATE_KEY, UPDATE_VALUE)


def test_dead_letters_are_a_field_of_raftlogs_own() -> None:
    """Apache Kafka skips its tag. It survives the round trip in snapshots and updates."""
    letters = DeadLetters(9, 4, 100, 109, 5, KEY.topic_id, 2)
    update = UPDATE._replace(letters=letters)
    snapshot = ShareSnapshot(KEY, msgspec.structs.replace(STATE, letters=letters))
    assert decode(*encode(update)) == update
    assert decode(*encode(snapshot)) == snapshot
    assert (
        merge(
            STATE, leader_epoch=5, start_offset=-1, batches=(), delivery_complete_count=0, letters=letters
        ).letters
        == letters
    )


def test_a_key_is_hashed_as_in_apache_kafka() -> None:
    """The text of a key decides about its partition: group, topic id in Kafka's base64, partition."""
    assert str(KEY) == "work:ABEiM0RVZneImaq7zN3u_w:3"


@given(keys, snapshots)
def test_a_snapshot_survives_the_round_trip(key: SharePartitionKey, state: ShareState) -> None:
    """encode and decode are inverse."""
    assert decode(*encode(ShareSnapshot(key, state))) == ShareSnapshot(key, state)
    assert decode(*encode(ShareSnapshot(key, None))) == ShareSnapshot(key, None)


@given(keys, int32s, int32s, int64s, batches, int32s)
def test_an_update_survives_the_round_trip(
    key: SharePartitionKey,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    changed: tuple[StateBatch, ...],
    count: int,
) -> None:
    """encode and decode are inverse."""
    update = ShareUpdate(key, snapshot_epoch, leader_epoch, start_offset, changed, count)
    assert decode(*encode(update)) == update


def test_unknown_types_are_skipped_and_unknown_versions_refused() -> None:
    """A newer release may have more types. It does not change a value without another version."""
    assert decode(bytes.fromhex("0007"), b"") is None
    assert decode(None, b"") is None
    assert decode(bytes.fromhex(UPDATE_KEY), None) is None
    for value in ("0001", SNAPSHOT_VALUE[:-10], SNAPSHOT_VALUE.replace("6e02", "6e09")):
        with pytest.raises(CorruptMessage):
            decode(bytes.fromhex(SNAPSHOT_KEY), bytes.fromhex(value))
