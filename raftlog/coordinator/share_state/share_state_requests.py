"""The requests to a share coordinator, each for one share partition. Values only; failures are KafkaErrors."""

from __future__ import annotations

import msgspec

from raftlog.base.config.setting import INT_MAX
from raftlog.base.types import NO_EPOCH, NO_OFFSET
from raftlog.coordinator.share_state.share_state import NO_COUNT, SharePartitionKey
from raftlog.sharing.dead_letter import DeadLetters
from raftlog.sharing.delivery import StateBatch


class InitializeState(msgspec.Struct, frozen=True):
    """Begin a state, or set its start offset anew. The group coordinator sends it with the group's epoch."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int = NO_OFFSET


class ReadState(msgspec.Struct, frozen=True):
    """Read a state as the leader of the partition. A higher leader epoch fences the leader before."""

    key: SharePartitionKey
    leader_epoch: int = NO_EPOCH


class DeleteState(msgspec.Struct, frozen=True):
    """End a state that was begun before an epoch; by default, whatever its epoch is."""

    key: SharePartitionKey
    state_epoch: int = INT_MAX


class WriteState(msgspec.Struct, frozen=True):
    """Change a state as the leader of the partition; `start_offset` -1 leaves it where it is."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = NO_COUNT
    letters: DeadLetters | None = None
