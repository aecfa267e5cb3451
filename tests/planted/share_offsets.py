"""Bugs of what administrators do with share groups: set and delete offsets, delete groups (KIP-932)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.machine import Decision
from raftlog.coordinator.groups import Groups
from raftlog.coordinator.share import share_group
from raftlog.coordinator.share.share_heartbeat import ShareDecisionBuilder
from raftlog.coordinator.share.share_offsets import ShareStateChange
from raftlog.coordinator.share_state import decisions
from raftlog.coordinator.share_state.share_state import ShareState
from raftlog.coordinator.share_state.share_state_requests import DeleteState, WriteState
from raftlog_chaos.scenarios.share_offsets import share_offsets as play
from tests.planted.plant import Plant


def set_offsets_in_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """Setting offsets begins no group epoch: the share coordinator takes the request for one that comes late."""
    alter = share_group.decide_alter_offsets

    def decide(builder: ShareDecisionBuilder, request: Any) -> ShareStateChange:
        bump, builder.bump_group_epoch = builder.bump_group_epoch, lambda: None  # type: ignore[method-assign]
        change = alter(builder, request)
        builder.bump_group_epoch = bump  # type: ignore[method-assign]
        return change

    patch.setattr(share_group, "decide_alter_offsets", decide)


def let_any_leader_write(patch: pytest.MonkeyPatch) -> None:
    """A leader writes a state that it has not read, and knows the one before."""
    write = decisions.decide_write

    def decide(state: ShareState, request: WriteState, **rest: Any) -> Decision:
        known = max(state.leader_epoch, request.leader_epoch)
        epochs = {"leader_epoch": known, "state_epoch": state.state_epoch}
        return write(replace(state, leader_epoch=known), replace(request, **epochs), **rest)

    patch.setattr(decisions, "decide_write", decide)


def forget_without_deleting(patch: pytest.MonkeyPatch) -> None:
    """The share coordinator answers a deletion, and keeps the state."""
    patch.setattr(decisions, "decide_delete", lambda state, request: Decision())


def delete_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """A deletion that comes late deletes the state that was begun since."""
    delete = decisions.decide_delete

    def decide(state: ShareState, request: DeleteState) -> Decision:
        return delete(state, replace(request, state_epoch=2**31 - 1))

    patch.setattr(decisions, "decide_delete", decide)


def begin_every_group_at_epoch_zero(patch: pytest.MonkeyPatch) -> None:
    """A group counts its epochs from zero, though a deleted group of its name had higher epochs."""
    patch.setattr(Groups, "_first_share_epoch", lambda groups: 0)


def assign_what_is_initialized(patch: pytest.MonkeyPatch) -> None:
    """A group reads the partitions of a new topic that have states. The others count as added, and begin at 0."""
    patch.setattr(
        ShareDecisionBuilder, "note_ready", lambda builder, ready: builder.note_made(ready.partitions)
    )


GROUPS = "tests/coordinator/share/test_share_group.py"
STATES = "tests/coordinator/share_state/test_share_state_coordinator.py"

PLANTS = [
    Plant("share-offsets-set-without-epoch", "KIP-932 offsets set", play, set_offsets_in_the_same_epoch, 6.0),
    Plant(
        "share-unread-states-written",
        "KIP-932 state epochs",
        play,
        let_any_leader_write,
        6.0,
        test=f"{STATES}::test_a_leader_writes_only_what_it_has_read",
    ),
    Plant("share-late-states-at-zero", "KIP-932 first offset", play, assign_what_is_initialized, 6.0),
    Plant("share-states-outlive-groups", "KIP-932 group deleted", play, forget_without_deleting, 6.0),
    Plant(
        "share-states-deleted-late",
        "KIP-932 state lost",
        play,
        delete_whatever_is_there,
        6.0,
        test=f"{STATES}::test_a_deletion_that_comes_late_finds_a_newer_state",
    ),
    Plant(
        "share-epochs-begin-at-zero",
        "KIP-932 state lost",
        play,
        begin_every_group_at_epoch_zero,
        6.0,
        test=f"{GROUPS}::test_a_new_group_begins_after_the_epochs_of_the_deleted_group",
    ),
]
