"""Decisions of a share coordinator: pure functions of a share partition's state and a request (KIP-932).

Two epochs fence former leaders:

- A leader reads the state with its leader epoch. The read records that epoch, which fences the previous leader.
- A new start offset comes with a higher state epoch, which fences the leader that has the former state.

A state that was deleted and initialized again has no leader epoch. A leader has to read it before it can write.
"""

from __future__ import annotations

import msgspec

from raftlog.base.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from raftlog.base.machine import Decision
from raftlog.base.types import NO_OFFSET
from raftlog.coordinator.share_state.share_state import (
    NO_COUNT,
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareUpdate,
    merge,
)
from raftlog.coordinator.share_state.share_state_requests import (
    DeleteState,
    InitializeState,
    ReadState,
    WriteState,
)


def decide_initialize(state: ShareState, request: InitializeState, *, now_ms: int) -> Decision:
    """Initialize a state. Raise FencedStateEpoch.

    A retried or delayed request has the epoch of the state that it initialized. It has no effect, since a leader may
    have changed that state since then. Apache Kafka initializes again if the start offset differs. The leader epoch
    stays, so a former leader does not get the new state.
    """
    if state.exists:
        if request.state_epoch < state.state_epoch:
            raise FencedStateEpoch(f"the state epoch is {state.state_epoch}")
        if request.state_epoch == state.state_epoch:
            return Decision()
    begun = ShareState(
        state.snapshot_epoch + 1,
        request.state_epoch,
        state.leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=NO_COUNT if request.start_offset < 0 else 0,
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
    )
    return Decision((ShareSnapshot(request.key, begun),))


def decide_read(state: ShareState, request: ReadState) -> Decision:
    """Return the state, after its leader epoch is recorded. Raise InvalidRequest, FencedLeaderEpoch."""
    _check(state, request.leader_epoch)
    if request.leader_epoch <= state.leader_epoch:
        return Decision(reply=state)
    update = ShareUpdate(
        request.key,
        state.snapshot_epoch,
        request.leader_epoch,
        start_offset=-1,
        batches=(),
        delivery_complete_count=state.delivery_complete_count,
    )
    return Decision((update,), reply=msgspec.structs.replace(state, leader_epoch=request.leader_epoch))


def decide_write(
    state: ShareState, request: WriteState, *, updates_per_snapshot: int, now_ms: int
) -> Decision:
    """Record a change of the leader that has read the state. Raise InvalidRequest, FencedLeaderEpoch, FencedStateEpoch.

    An empty write has no record: a leader asks whether it is fenced. Apache Kafka lets leaders write that have not
    read the state.
    """
    _check(state, request.leader_epoch)
    if request.leader_epoch != state.leader_epoch:
        raise FencedLeaderEpoch("the leader has not read this state")
    if request.state_epoch < state.state_epoch:
        raise FencedStateEpoch(f"the state epoch is {state.state_epoch}")
    if request.start_offset == NO_OFFSET and not request.batches:
        return Decision()
    change = {
        "leader_epoch": request.leader_epoch,
        "start_offset": request.start_offset,
        "batches": request.batches,
        "delivery_complete_count": request.delivery_complete_count,
        "letters": request.letters,
    }
    if state.updates < updates_per_snapshot:
        return Decision((ShareUpdate(request.key, state.snapshot_epoch, **change),))  # type: ignore[arg-type]
    return Decision((_snapshot(request.key, merge(state, **change), now_ms),))  # type: ignore[arg-type]


def decide_snapshot(state: ShareState, key: SharePartitionKey, *, now_ms: int) -> Decision:
    """Write a snapshot of a state that has not changed for long, so that the records before it can be deleted."""
    return Decision((_snapshot(key, state, now_ms),) if state.exists else ())


def decide_delete(state: ShareState, request: DeleteState) -> Decision:
    """End a state; without one there is nothing to do.

    A request that comes late finds a state that was begun in its epoch or later, and leaves it.
    """
    is_meant = state.exists and state.state_epoch < request.state_epoch
    return Decision((ShareSnapshot(request.key, None),) if is_meant else ())


def _check(state: ShareState, leader_epoch: int) -> None:
    if not state.exists:
        raise InvalidRequest("the share partition is not initialized")
    if leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"the leader epoch is {state.leader_epoch}")


def _snapshot(key: SharePartitionKey, state: ShareState, now_ms: int) -> ShareSnapshot:
    epoch = state.snapshot_epoch + 1
    return ShareSnapshot(
        key, msgspec.structs.replace(state, snapshot_epoch=epoch, write_timestamp_ms=now_ms, updates=0)
    )
