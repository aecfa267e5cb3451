"""The state of one share partition as a value, and the effect of its records.

A snapshot has all of it. Updates follow, each with what changed, until the next snapshot. Every record of a partition's
topic before the oldest live snapshot is redundant, so that topic is pruned instead of compacted.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from raftlog.base.errors import InvalidRequest
from raftlog.base.types import NO_EPOCH, NO_OFFSET, decode_uuid, encode_uuid
from raftlog.sharing.dead_letter import DeadLetters
from raftlog.sharing.delivery import StateBatch
from raftlog.sharing.state_batches import combine

NO_COUNT: Final = -1
"""The number of completed records, where the writer does not know it."""


class SharePartitionKey(NamedTuple):
    """A partition of a topic, in a share group."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """Return the text that Apache Kafka hashes to find its share coordinator (KIP-932)."""
        return f"{self.group_id}:{encode_uuid(self.topic_id)}:{self.partition}"


def read_share_partition_key(text: str) -> SharePartitionKey:
    """Return the key of a share partition by its text; a group id may have colons. Raise InvalidRequest."""
    group_id, _, rest = text.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    try:
        key = SharePartitionKey(group_id, decode_uuid(topic_id), int(rest))
    except ValueError as error:
        raise InvalidRequest("the key of a share partition is its group, topic id and number") from error
    if not group_id.strip() or str(key) != text:
        raise InvalidRequest("the key of a share partition is its group, topic id and number")
    return key


class ShareState(msgspec.Struct, frozen=True):
    """The state of one share partition. `start_offset` is -1 until its first leader knows where to begin.

    `state_epoch` rises when an administrator sets the start offset, `leader_epoch` when another leader reads the state:
    both fence writers that know less. `updates` counts the updates since the snapshot.
    """

    snapshot_epoch: int = NO_EPOCH
    state_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    start_offset: int = NO_OFFSET
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = NO_COUNT
    create_timestamp_ms: int = -1
    write_timestamp_ms: int = -1
    updates: int = 0
    letters: DeadLetters | None = None
    """The last dead letters, whose batch may not be in the dead-letter topic yet."""

    @property
    def exists(self) -> bool:
        """Whether the state is initialized."""
        return self.snapshot_epoch != NO_EPOCH


UNINITIALIZED: Final = ShareState()


class ShareSnapshot(NamedTuple):
    """The whole state; None removes it."""

    key: SharePartitionKey
    state: ShareState | None


class ShareUpdate(NamedTuple):
    """A change of a state. `start_offset` is -1 if it is unchanged, `letters` None."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int = NO_COUNT
    letters: DeadLetters | None = None


ShareRecord = ShareSnapshot | ShareUpdate


def apply(state: ShareState, records: tuple[ShareRecord, ...]) -> ShareState:
    """Return the state after the records. Updates after the last snapshot are merged at once."""
    updates: list[ShareUpdate] = []
    for record in records:
        if isinstance(record, ShareUpdate):
            updates.append(record)
        else:
            updates, state = [], UNINITIALIZED if record.state is None else record.state
    return _updated(state, updates) if updates else state


def _updated(state: ShareState, updates: list[ShareUpdate]) -> ShareState:
    after = merge(
        state,
        leader_epoch=updates[-1].leader_epoch,
        start_offset=max(each.start_offset for each in updates),
        batches=tuple(batch for each in updates for batch in each.batches),
        delivery_complete_count=updates[-1].delivery_complete_count,
        letters=next((each.letters for each in reversed(updates) if each.letters is not None), None),
    )
    return msgspec.structs.replace(after, updates=state.updates + len(updates))


def merge(
    state: ShareState,
    *,
    leader_epoch: int,
    start_offset: int,
    batches: tuple[StateBatch, ...],
    delivery_complete_count: int,
    letters: DeadLetters | None = None,
) -> ShareState:
    """Return the state after an update. The start offset never goes back."""
    start_offset = max(start_offset, state.start_offset)
    return msgspec.structs.replace(
        state,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        batches=combine((*state.batches, *batches), start_offset=max(start_offset, 0)),
        delivery_complete_count=delivery_complete_count,
        updates=state.updates + 1,
        letters=letters or state.letters,
    )
