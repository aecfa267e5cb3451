"""Bugs of share groups (KIP-932), at the leaders of their partitions and at the share coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.config import GroupConfig
from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.base.machine import Decision
from raftlog.broker.coordination import led_share_partition, share_state_client
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.broker.coordination.share_state_client import ShareStateClient, StoredState
from raftlog.broker.handlers.shared import share_reader
from raftlog.coordinator.share_state import decisions
from raftlog.coordinator.share_state.share_state import ShareSnapshot, ShareState
from raftlog.coordinator.share_state.share_state_coordinator import ShareStateCoordinator
from raftlog.coordinator.share_state.share_state_replay import ShareStateReplay
from raftlog.coordinator.share_state.share_state_requests import WriteState
from raftlog.replication.partition import Partition
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireRequest,
    ByHand,
    DeliveryState,
    FetchedBatch,
    ShareLimits,
    StateBatch,
)
from raftlog.sharing.delivery_history import DeliveryEnd
from raftlog.sharing.in_flight import InFlightRange, InFlightRanges
from raftlog.sharing.share_partition import SharePartition
from raftlog_chaos.scenarios.share_groups import share_groups as play
from tests.planted.plant import Plant


def answer_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement is answered when it is noted, before the share coordinator has it."""

    async def acknowledge(
        led: LedSharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> None:
        led.machine.acknowledge(member_id, acknowledgements, now=led._now())
        led._settle()

    patch.setattr(LedSharePartition, "acknowledge", acknowledge)


def answer_what_gathers(patch: pytest.MonkeyPatch) -> None:
    """The acknowledgements that gather during a write are answered with it, before their own."""
    answer = LedSharePartition._answer

    def answer_both(led: LedSharePartition, number: int, error: KafkaError | None) -> None:
        answer(led, number, error)
        answer(led, number + 1, error)

    patch.setattr(LedSharePartition, "_answer", answer_both)


def answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The share coordinator answers when its record is appended, before followers have it and before any sync."""
    decide = ShareStateCoordinator._decide

    def decide_at_once(coordinator: ShareStateCoordinator, request: Any, *rest: Any) -> None:
        decide(coordinator, request, *rest)
        runner = coordinator._machines.get(request.key)
        if runner is not None:
            runner.committed(runner.end_offset)

    patch.setattr(ShareStateCoordinator, "_decide", decide_at_once)


def go_on_before_own_writes(patch: pytest.MonkeyPatch) -> None:
    """A leader that has the share coordinator on its own broker does not wait until its writes are committed."""
    begin = ShareStateClient.__init__

    def begin_hasty(client: ShareStateClient, broker: Any, write_here: Callable[[WriteState], Any]) -> None:
        async def write_at_once(request: WriteState) -> None:
            write_here(request).add_done_callback(lambda it: it.cancelled() or it.exception())

        begin(client, broker, write_at_once)

    patch.setattr(ShareStateClient, "__init__", begin_hasty)


def fence_no_leader(patch: pytest.MonkeyPatch) -> None:
    """A leader that has lost its lead, and does not know it yet, still writes states."""
    write = decisions.decide_write

    def decide_any(state: ShareState, request: WriteState, **rest: Any) -> Decision:
        leader_epoch = max(request.leader_epoch, state.leader_epoch)
        return write(state, replace(request, leader_epoch=leader_epoch), **rest)

    patch.setattr(decisions, "decide_write", decide_any)


def read_only_the_start(patch: pytest.MonkeyPatch) -> None:
    """A new leader goes on from the start offset, and does not know what was acknowledged behind it."""
    read = ShareStateClient.read

    async def read_start(client: ShareStateClient, *key: Any, **rest: Any) -> StoredState:
        return (await read(client, *key, **rest))._replace(batches=())

    patch.setattr(ShareStateClient, "read", read_start)


def begin_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A leader does not write where its group begins, so the next leader begins at the end of its own log."""

    async def write_nothing(led: LedSharePartition, start_offset: int) -> None:
        """Leave the start offset to the first acknowledgement."""

    patch.setattr(LedSharePartition, "_write_start", write_nothing)


def write_no_counts(patch: pytest.MonkeyPatch) -> None:
    """States are written without delivery counts, so the next leader counts from the beginning."""
    batches = SharePartition._batches

    def without_counts(machine: SharePartition, *span: int) -> Iterator[StateBatch]:
        for each in batches(machine, *span):
            yield each._replace(delivery_count=0 if each.state is DeliveryState.AVAILABLE else 1)

    patch.setattr(SharePartition, "_batches", without_counts)


def keep_the_locks_of_ended_sessions(patch: pytest.MonkeyPatch) -> None:
    """After the end of a member's session its records wait until their locks expire."""
    patch.setattr(SharePartition, "release_members", lambda machine, member_ids: False)


def expire_nothing(patch: pytest.MonkeyPatch) -> None:
    """The records of a member that vanished are locked for ever."""
    last_for(patch, lambda lock_s: inf)


def expire_late(patch: pytest.MonkeyPatch) -> None:
    """A member that comes after its lock was over is still heard."""
    last_for(patch, lambda lock_s: lock_s + 0.5)


def last_for(patch: pytest.MonkeyPatch, seconds: Callable[[float], float]) -> None:
    """Let locks last longer than the group's config says."""
    limits = led_share_partition.share_limits

    def longer(config: GroupConfig) -> ShareLimits:
        found = limits(config)
        return found._replace(lock_s=seconds(found.lock_s))

    patch.setattr(led_share_partition, "share_limits", longer)


def skip_what_is_released(patch: pytest.MonkeyPatch) -> None:
    """A record that a member gives back is archived at once, however many deliveries it has left."""
    patch.setattr(ShareLimits, "state_after_release", lambda limits, delivery_count: DeliveryState.ARCHIVED)


def deliver_without_end(patch: pytest.MonkeyPatch) -> None:
    """A record that is out of deliveries becomes available again."""
    patch.setattr(ShareLimits, "state_after_release", lambda limits, delivery_count: DeliveryState.AVAILABLE)


def start_past_what_is_acquired(patch: pytest.MonkeyPatch) -> None:
    """The start offset that is written passes records that members still have."""

    def end_of_taken(ranges: InFlightRanges) -> int:
        for each in ranges:
            if each.is_available:
                return each.first_offset
        return ranges.end_offset

    patch.setattr(InFlightRanges, "end_of_final", end_of_taken)


def hear_any_member(patch: pytest.MonkeyPatch) -> None:
    """Any member may acknowledge any acquired record."""

    def check(machine: SharePartition, member_id: str, spans: Sequence[Any]) -> None:
        check_held(machine, member_id, [])
        for first_offset, end_offset, _ in spans:
            if end_offset > machine.end_offset or first_offset < machine.start_offset:
                raise InvalidRequest("these offsets were not acquired")
            for each in machine._ranges.overlapping(first_offset, end_offset):
                if not each.is_held:
                    raise InvalidRequest("these offsets are not held")

    check_held = SharePartition._check
    patch.setattr(SharePartition, "_check", check)


def give_what_others_have(patch: pytest.MonkeyPatch) -> None:
    """A record that a member has acquired counts as available to the others."""
    states = (DeliveryState.AVAILABLE, DeliveryState.ACQUIRED)
    patch.setattr(
        InFlightRange, "is_available", property(lambda each: each.state in states and each.pending is None)
    )


def take_archived_for_available(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes only accepted records for final."""
    begin = SharePartition.__init__

    def begin_with_archived(
        machine: SharePartition, start_offset: int, batches: Iterable[StateBatch] = (), **rest: Any
    ) -> None:
        read = [
            each._replace(state=DeliveryState.AVAILABLE) if each.state is DeliveryState.ARCHIVED else each
            for each in batches
        ]
        begin(machine, start_offset, read, **rest)

    patch.setattr(SharePartition, "__init__", begin_with_archived)


def wait_for_deleted_records(patch: pytest.MonkeyPatch) -> None:
    """Records that were deleted from the log stay in flight, so the group waits for them for ever."""
    patch.setattr(SharePartition, "advance_log_start", lambda machine, log_start_offset: None)


def deliver_deleted_records(patch: pytest.MonkeyPatch) -> None:
    """After a deletion, members get the locks of records that the log no longer has."""
    candidates = SharePartition._candidates

    def from_the_start(machine: SharePartition, batches: Sequence[Any]) -> Iterator[Any]:
        first = batches[0]._replace(first_offset=min(machine.next_fetch_offset(), batches[0].first_offset))
        return candidates(machine, [first, *batches[1:]])

    patch.setattr(SharePartition, "_candidates", from_the_start)
    patch.setattr(SharePartition, "_archive", lambda machine, first_offset, end_offset: None)
    patch.setattr(SharePartition, "advance_log_start", lambda machine, log_start_offset: None)


def renew_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A renewed lock never expires."""
    acknowledge = SharePartition.acknowledge

    def and_keep(
        machine: SharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement], *, now: float
    ) -> int | None:
        number = acknowledge(machine, member_id, acknowledgements, now=now)
        for each in acknowledgements:
            if AcknowledgeType.RENEW in each.types:
                for _, held in machine._ranges.cut([(each.first_offset, each.last_offset + 1)]):
                    held.lock_expires_at = inf
        return number

    patch.setattr(SharePartition, "acknowledge", and_keep)


def renew_nothing(patch: pytest.MonkeyPatch) -> None:
    """A renewal is answered, and the lock expires as if there was none."""
    acknowledge = SharePartition.acknowledge

    def without(
        machine: SharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement], *, now: float
    ) -> int | None:
        kept = [each for each in acknowledgements if AcknowledgeType.RENEW not in each.types]
        return acknowledge(machine, member_id, kept, now=now)

    patch.setattr(SharePartition, "acknowledge", without)


def snapshot_without_batches(patch: pytest.MonkeyPatch) -> None:
    """A snapshot has the start offset and the epochs, and not the records behind it."""
    snapshot = decisions._snapshot

    def empty(*given: Any) -> ShareSnapshot:
        found = snapshot(*given)
        assert found.state is not None
        return found._replace(state=replace(found.state, batches=()))

    patch.setattr(decisions, "_snapshot", empty)


def replay_the_first_snapshot_last(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that reads its log back ignores a snapshot of a state that it has already."""
    take = ShareStateReplay._take

    def take_first(replay: ShareStateReplay, key: bytes, value: bytes | None, offset: int) -> None:
        before = dict(replay.states)
        take(replay, key, value, offset)
        for name, state in before.items():
            if name in replay.states and replay.states[name].snapshot_epoch > state.snapshot_epoch:
                replay.states[name] = state

    patch.setattr(ShareStateReplay, "_take", take_first)


def take_back_what_is_written(patch: pytest.MonkeyPatch) -> None:
    """After a slow write the leader answers its members, and keeps their records acquired."""
    complete = SharePartition.complete
    patch.setattr(
        SharePartition,
        "complete",
        lambda machine, write, *, is_written: complete(machine, write, is_written=False),
    )


def answer_what_was_passed(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement of records that the start offset has passed in memory is answered before that is written."""
    patch.setattr(SharePartition, "_is_passed_unwritten", lambda machine, acknowledgement: False)


def ignore_the_isolation_level(patch: pytest.MonkeyPatch) -> None:
    """A group with read_committed gets records before their transactions end."""
    patch.setattr(LedSharePartition, "read_committed", property(lambda led: False))


def deliver_aborted_records(patch: pytest.MonkeyPatch) -> None:
    """A group with read_committed waits for the end of transactions, whatever it is."""
    found = led_share_partition.fetched_batches
    patch.setattr(
        share_reader,
        "fetched_batches",
        lambda records, aborted, *, read_committed: found(records, (), read_committed=read_committed),
    )


def take_aborted_in_order_of_their_ends(patch: pytest.MonkeyPatch) -> None:
    """Of aborted transactions that overlap, the records of the last to end are delivered."""
    patch.setattr(led_share_partition, "sorted", lambda aborted, **_: list(aborted)[::-1], raising=False)


def go_on_after_a_reset(patch: pytest.MonkeyPatch) -> None:
    """A leader without anything to write does not learn that an administrator has set another start offset."""

    async def check_nothing(led: LedSharePartition) -> None:
        pass

    patch.setattr(LedSharePartition, "check", check_nothing)


def wait_behind_aborted_records(patch: pytest.MonkeyPatch) -> None:
    """The machine forgets what it withheld, so a group waits at its first aborted record for ever."""
    patch.setattr(SharePartition, "_archive", lambda machine, first_offset, end_offset: None)


def prune_up_to_the_newest_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The records before the newest snapshot are deleted, though other states have none since."""

    def before_the_newest(coordinator: ShareStateCoordinator) -> int:
        return max(coordinator._snapshots.values(), default=coordinator._machines.committed_offset)

    patch.setattr(ShareStateCoordinator, "redundant_before", property(before_the_newest))


def write_with_any_state_epoch(patch: pytest.MonkeyPatch) -> None:
    """A leader that knows the former start offset writes, after an administrator has set another."""
    write = decisions.decide_write

    def decide_any(state: ShareState, request: WriteState, **rest: Any) -> Decision:
        return write(state, replace(request, state_epoch=state.state_epoch), **rest)

    patch.setattr(decisions, "decide_write", decide_any)


def keep_what_empty_groups_had(patch: pytest.MonkeyPatch) -> None:
    """A leader goes on from its memory after all members have left, and does not ask if that is the state."""
    patch.setattr(LedSharePartition, "is_idle", property(lambda led: False))
    go_on_after_a_reset(patch)


def look_only_behind_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A fetch takes a log for read that has only records in flight, though some of these were released."""

    def has_nothing_new(led: LedSharePartition, replica: Partition) -> bool:
        return led.over is None and replica.is_leader and led.machine.end_offset >= replica.high_watermark

    patch.setattr(LedSharePartition, "has_nothing_in", has_nothing_new)


def wake_for_nothing_new(patch: pytest.MonkeyPatch) -> None:
    """A member that waits takes a new record for one that another member got, and waits until its time is over."""
    patch.setattr(share_reader.ShareReader, "_has_nothing", lambda reader, partition: partition is not None)


def answer_a_hand_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """An operator is answered when records are archived in memory, before the share coordinator has it."""

    async def acknowledge(
        led: LedSharePartition, type_: AcknowledgeType, first_offset: int, last_offset: int
    ) -> ByHand:
        found, _ = led.machine.acknowledge_by_hand(type_, first_offset, last_offset, now=led._now())
        led._settle()
        return found

    patch.setattr(LedSharePartition, "acknowledge_by_hand", acknowledge)


def hang_up_on_what_does_not_commit(patch: pytest.MonkeyPatch) -> None:
    """A broker waits for a share coordinator no longer than that waits for the commit, and closes the connection."""
    patch.setattr(share_state_client, "GRACE_S", 0.0)


def leave_the_lock_that_a_hand_took(patch: pytest.MonkeyPatch) -> None:
    """A record that an operator releases stays with its member."""
    release = SharePartition._release

    def release_others(machine: SharePartition, held: Iterable[InFlightRange], *rest: Any) -> bool:
        is_by_hand = rest == (DeliveryEnd.BY_HAND, AcknowledgeType.RELEASE)
        return release(machine, () if is_by_hand else held, *rest)

    patch.setattr(SharePartition, "_release", release_others)


def archive_by_hand_without_letters(patch: pytest.MonkeyPatch) -> None:
    """A record that an operator archives gets no dead letter."""
    release = SharePartition._release

    def release_without(machine: SharePartition, held: Iterable[InFlightRange], *rest: Any) -> bool:
        limits = machine.limits
        if rest == (DeliveryEnd.BY_HAND, AcknowledgeType.REJECT):
            machine.limits = limits._replace(has_dead_letters=False)
        changed = release(machine, held, *rest)
        machine.limits = limits
        return changed

    patch.setattr(SharePartition, "_release", release_without)


def wait_for_removed_records(patch: pytest.MonkeyPatch) -> None:
    """Available records that compaction has removed stay in flight, so the group waits for them for ever."""
    acquire = SharePartition.acquire

    def from_the_first_batch(
        machine: SharePartition,
        request: AcquireRequest,
        batches: Sequence[FetchedBatch],
        *,
        fetch_offset: int,
        now: float,
    ) -> list[Acquired]:
        first_offset = batches[0].first_offset if batches else fetch_offset
        return acquire(machine, request, batches, fetch_offset=min(first_offset, machine.end_offset), now=now)

    patch.setattr(SharePartition, "acquire", from_the_first_batch)


def archive_what_is_locked(patch: pytest.MonkeyPatch) -> None:
    """Records that compaction has removed are archived though a member has their locks, and it is refused."""

    def archive(machine: SharePartition, first_offset: int, end_offset: int) -> None:
        if first_offset >= end_offset:
            return
        machine._ranges.extend(end_offset)
        for _, each in machine._ranges.cut([(first_offset, end_offset)]):
            if each.is_available or each.is_held:
                each.settle(DeliveryState.ARCHIVED)
        machine._ranges.join(first_offset, end_offset)

    patch.setattr(SharePartition, "_archive", archive)


def be_sure(patch: pytest.MonkeyPatch) -> None:
    """A fetch that could not see all partitions is over without another look, though their records can be read."""
    patch.setattr(
        share_reader.ShareReader,
        "_is_unsure",
        property(lambda reader: False, lambda reader, is_unsure: None),
        raising=False,
    )


STATES = "tests/coordinator/share_state/test_share_state_coordinator.py"

BY_HAND = "tests/sharing/test_acknowledge_by_hand.py"

PLANTS = [
    Plant(
        "share-hand-answered-unwritten", "KIP-932 archived again", play, answer_a_hand_before_the_write, 6.0
    ),
    Plant(
        "share-states-hung-up",
        "KIP-932 one stuck coordinator",
        play,
        hang_up_on_what_does_not_commit,
        6.0,
        test="tests/node/test_stuck_share_states.py::test_a_write_that_does_not_commit_fails_no_other",
    ),
    Plant(
        "share-hand-leaves-the-lock",
        "KIP-932 locks",
        play,
        leave_the_lock_that_a_hand_took,
        6.0,
        test=f"{BY_HAND}::test_an_operator_releases_what_a_member_holds",
    ),
    Plant(
        "share-hand-without-letters",
        "KIP-1191 letter lost",
        play,
        archive_by_hand_without_letters,
        6.0,
        test=f"{BY_HAND}::test_an_operator_archives_what_members_hold_and_what_is_available_again",
    ),
    Plant(
        "share-passed-answered-unwritten",
        "KIP-932 accepted again",
        play,
        answer_what_was_passed,
        6.0,
        test="tests/sharing/test_share_partition.py::test_the_log_start_drops_what_is_before_it",
    ),
    Plant("share-isolation-ignored", "KIP-932 read_committed", play, ignore_the_isolation_level, 6.0),
    Plant("share-aborted-delivered", "KIP-932 read_committed", play, deliver_aborted_records, 6.0),
    Plant(
        "share-overlapping-aborted-delivered",
        "KIP-932 read_committed",
        play,
        take_aborted_in_order_of_their_ends,
        6.0,
    ),
    Plant("share-resets-unseen", "KIP-932 record lost", play, go_on_after_a_reset, 6.0),
    Plant("share-waits-for-aborted", "KIP-932 read_committed", play, wait_behind_aborted_records, 6.0),
    Plant("share-released-unseen", "KIP-932 record lost", play, look_only_behind_what_is_in_flight, 6.0),
    Plant(
        "share-wakes-lost",
        "KIP-932 record late",
        play,
        wake_for_nothing_new,
        6.0,
        test="tests/node/test_share_waits.py::test_a_member_that_was_woken_in_vain_is_woken_again",
    ),
    Plant("share-live-snapshots-pruned", "KIP-932 state lost", play, prune_up_to_the_newest_snapshot, 6.0),
    Plant(
        "share-offsets-set-unheard",
        "KIP-932 offsets set",
        play,
        keep_what_empty_groups_had,
        6.0,
        test="tests/node/test_share_failover.py::test_a_group_without_members_begins_where_its_offsets_are_set",
    ),
    Plant(
        "share-state-epochs-ignored",
        "KIP-932 state epochs",
        play,
        write_with_any_state_epoch,
        6.0,
        test=f"{STATES}::test_another_start_offset_fences_the_leader_that_knows_the_former",
    ),
    Plant("share-answered-unwritten", "KIP-932 accepted again", play, answer_before_the_write, 6.0),
    Plant("share-gathered-answered", "KIP-932 accepted again", play, answer_what_gathers, 6.0),
    Plant("share-answered-uncommitted", "KIP-932 accepted again", play, answer_before_the_commit, 6.0),
    Plant("share-own-writes-unawaited", "KIP-932 accepted again", play, go_on_before_own_writes, 6.0),
    Plant(
        "share-leaders-unfenced",
        "KIP-932 leader epochs",
        play,
        fence_no_leader,
        6.0,
        test=f"{STATES}::test_the_next_leaders_epoch_fences_the_leader_before",
    ),
    Plant("share-batches-unread", "KIP-932 accepted again", play, read_only_the_start, 6.0),
    Plant("share-begins-at-each-end", "KIP-932 record lost", play, begin_at_the_end, 6.0),
    Plant("share-counts-unwritten", "KIP-932 delivery count", play, write_no_counts, 6.0),
    Plant("share-locks-outlive-sessions", "KIP-932 locks", play, keep_the_locks_of_ended_sessions, 6.0),
    Plant("share-locks-never-expire", "KIP-932 locks", play, expire_nothing, 6.0),
    Plant("share-locks-expire-late", "KIP-932 locks", play, expire_late, 6.0),
    Plant("share-released-skipped", "KIP-932 record lost", play, skip_what_is_released, 6.0),
    Plant("share-deliveries-unlimited", "KIP-932 delivery count", play, deliver_without_end, 6.0),
    Plant("share-start-passes-acquired", "KIP-932 record lost", play, start_past_what_is_acquired, 6.0),
    Plant("share-any-member-heard", "KIP-932 locks", play, hear_any_member, 6.0),
    Plant("share-two-holders", "KIP-932 two holders", play, give_what_others_have, 6.0),
    Plant("share-archived-again", "KIP-932 rejected again", play, take_archived_for_available, 6.0),
    Plant("share-waits-for-deleted", "KIP-932 retention", play, wait_for_deleted_records, 6.0),
    Plant("share-deleted-delivered", "KIP-932 retention", play, deliver_deleted_records, 6.0),
    Plant("share-waits-for-removed", "KIP-932 compaction", play, wait_for_removed_records, 6.0),
    Plant("share-removed-refused", "KIP-932 compaction", play, archive_what_is_locked, 6.0),
    Plant("share-surely-nothing", "KIP-932 record late", play, be_sure, 6.0),
    Plant("share-renewed-for-ever", "KIP-1222", play, renew_for_ever, 6.0),
    Plant("share-renewals-ignored", "KIP-1222", play, renew_nothing, 6.0),
    Plant("share-snapshots-empty", "KIP-932 accepted again", play, snapshot_without_batches, 6.0),
    Plant("share-snapshots-unread", "KIP-932 accepted again", play, replay_the_first_snapshot_last, 6.0),
    Plant("share-written-taken-back", "KIP-932 accepted again", play, take_back_what_is_written, 6.0),
]
