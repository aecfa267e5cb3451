"""Bugs of consumer groups (KIP-848): assignments, and what a new coordinator knows of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftlog.coordinator import offsets, partition_writer
from raftlog.coordinator.consumer import consumer_group, heartbeat, migration, reconcile
from raftlog.coordinator.consumer.consumer_group import ConsumerGroup
from raftlog.coordinator.consumer.consumer_membership import (
    NO_PARTITIONS,
    ConsumerMembership,
    CurrentAssignmentChanged,
    GroupEpochChanged,
    Partitions,
    TargetAssignmentChanged,
    TargetAssignmentEpochChanged,
)
from raftlog.coordinator.consumer.decision_builder import DecisionBuilder, PartitionsOfOthers
from raftlog.coordinator.consumer.heartbeat_requests import ConsumerGroupHeartbeat
from raftlog.coordinator.group_requests import CommitOffsets
from raftlog_chaos.scenarios.consumer_churn import consumer_churn, group_migration
from tests.planted.groups import answer_before_the_commit
from tests.planted.plant import Plant


def given_before_given_up(patch: pytest.MonkeyPatch) -> None:
    """A target is handed out at once, while another still has it."""
    patch.setattr(PartitionsOfOthers, "__call__", lambda holders, wanted: NO_PARTITIONS)


def revoked_when_told(patch: pytest.MonkeyPatch) -> None:
    """Partitions that a member has to revoke count as revoked, before it confirms."""

    def owns_nothing(owned: Partitions | None, partitions: Partitions) -> bool:
        return False

    patch.setattr(reconcile, "_owns_any", owns_nothing)


def revocations_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Records keep what members may read, and not what they have yet to give up: the next coordinator hands it out."""

    def without_revoking(record: Any) -> Any:
        if isinstance(record, CurrentAssignmentChanged) and record.current is not None:
            return msgspec.structs.replace(
                record, current=msgspec.structs.replace(record.current, revoking=NO_PARTITIONS)
            )
        return record

    _write_instead(patch, without_revoking)


def owners_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Targets are recorded, but not the owners: members are assumed to have no partitions after a failover."""

    def as_new(record: Any) -> Any:
        if isinstance(record, CurrentAssignmentChanged) and record.current is not None:
            return msgspec.structs.replace(
                record,
                current=msgspec.structs.replace(
                    record.current, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS
                ),
            )
        return record

    _write_instead(patch, as_new)


def epochs_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The group's epoch is recorded when it begins only: the next coordinator gives out the same epochs again."""

    def as_begun(record: Any) -> Any:
        if isinstance(record, GroupEpochChanged) and record.epoch:
            return msgspec.structs.replace(record, epoch=1)
        return record

    _write_instead(patch, as_begun)


def targets_of_leavers_stay(patch: pytest.MonkeyPatch) -> None:
    """A fenced member keeps its partitions: no other gets them."""

    def remove(builder: DecisionBuilder, *member_ids: str) -> None:
        builder.put(*(TargetAssignmentChanged(builder.group_id, each, None) for each in member_ids))

    patch.setattr(DecisionBuilder, "remove", remove)


def told_once(patch: pytest.MonkeyPatch) -> None:
    """A member gets its partitions in one response, and counts as their owner, whether or not that came."""
    patch.setattr(ConsumerGroup, "_note_told", lambda *_: None)


def _write_instead(patch: pytest.MonkeyPatch, change: Any) -> None:
    encode_all = partition_writer.encode_all
    patch.setattr(
        partition_writer, "encode_all", lambda records: encode_all([change(each) for each in records])
    )


def any_epoch_commits(patch: pytest.MonkeyPatch) -> None:
    """A commit is taken from every member, whatever epoch it names."""
    patch.setattr(offsets, "check_commit_epoch", lambda membership, request: None)


def only_the_newest_epoch_commits(patch: pytest.MonkeyPatch) -> None:
    """A member's commit is stale as soon as its coordinator has moved it on, as in Apache Kafka before KIP-1251."""

    def check(membership: ConsumerMembership, request: CommitOffsets) -> None:
        offsets.check_member_epoch(membership, request.member.member_id, request.generation)

    patch.setattr(offsets, "check_commit_epoch", check)


def assignment_epochs_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Records do not say in which epochs partitions were assigned: after a failover all count as assigned anew."""

    def without_epochs(record: Any) -> Any:
        if isinstance(record, CurrentAssignmentChanged) and record.current is not None:
            return msgspec.structs.replace(record, current=msgspec.structs.replace(record.current, since=()))
        return record

    _write_instead(patch, without_epochs)


def any_epoch_beats(patch: pytest.MonkeyPatch) -> None:
    """A member that slept through its session and others' epochs goes on as a member, if it still is a member."""

    def admit_anybody(builder: DecisionBuilder, beat: ConsumerGroupHeartbeat) -> Any:
        return builder.state.current_assignment_of(beat.member_id)

    patch.setattr(heartbeat, "_admit", admit_anybody)


def static_ids_are_taken_over(patch: pytest.MonkeyPatch) -> None:
    """A static id goes to the last client that asks: its former incarnation goes on reading."""
    succeed = heartbeat._succeed

    def succeed_at_once(builder: DecisionBuilder, beat: ConsumerGroupHeartbeat, holder: str) -> Any:
        current = builder.state.current_assignment_of(holder)
        builder.put(
            CurrentAssignmentChanged(builder.group_id, holder, msgspec.structs.replace(current, epoch=-2))
        )
        return succeed(builder, beat, holder)

    patch.setattr(heartbeat, "_succeed", succeed_at_once)


def sleepers_stay(patch: pytest.MonkeyPatch) -> None:
    """No session ends: the partitions of dead members are not read."""
    patch.setattr(ConsumerGroup, "on_member_timeouts", lambda group, member_ids, at, what: None)


def told_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The coordinator answers what it has appended."""
    answer_before_the_commit(patch)


def upgrades_forget_owners(patch: pytest.MonkeyPatch) -> None:
    """A group that becomes a consumer group knows its classic members, and not what they read."""
    by_id = migration.by_id

    def nothing_of_it(partitions: Any, image: Any) -> Any:
        by_id(partitions, image)
        return {}

    patch.setattr(migration, "by_id", nothing_of_it)


def downgrades_keep_members_of_both_kinds(patch: pytest.MonkeyPatch) -> None:
    """A group becomes classic as soon as any classic member is in it: the others have no protocol there."""
    downgraded = migration.downgrade_to_classic

    def too_early(state: ConsumerMembership, **rules: Any) -> Any:
        offers = migration.classic_protocols(state)
        classic = {each: it for each, it in state.members.items() if each in offers}
        return downgraded(msgspec.structs.replace(state, members=classic), **rules)

    patch.setattr(consumer_group, "downgrade_to_classic", too_early)


def numbers_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """Epochs are counted from the beginning when a classic group becomes a consumer group."""
    converted = migration._converted

    def from_one(*args: Any) -> Any:
        return tuple(
            msgspec.structs.replace(each, epoch=0) if isinstance(each, GroupEpochChanged) else each
            for each in converted(*args)
            if not isinstance(each, TargetAssignmentEpochChanged)
        )

    patch.setattr(migration, "_converted", from_one)


def upgrades_believe_assignments(patch: pytest.MonkeyPatch) -> None:
    """Between the phases of a cooperative rebalance a member still reads partitions that the leader left unassigned."""
    taken_over = migration._taken_over
    patch.setattr(
        migration, "_taken_over", lambda generation, has, gives_up: taken_over(generation, has, NO_PARTITIONS)
    )


PLANTS = [
    Plant(
        "upgrades-believe-assignments",
        "KIP-429 two owners at once",
        group_migration,
        upgrades_believe_assignments,
        6.0,
    ),
    Plant("upgrades-forget-owners", "two owners at once", group_migration, upgrades_forget_owners, 6.0),
    Plant(
        "downgraded-too-early",
        "two owners at once",
        group_migration,
        downgrades_keep_members_of_both_kinds,
        6.0,
    ),
    Plant("numbers-begin-anew", "two owners of one epoch", group_migration, numbers_begin_anew, 6.0),
    Plant("given-before-given-up", "two owners at once", consumer_churn, given_before_given_up, 6.0),
    Plant("revoked-when-told", "two owners at once", consumer_churn, revoked_when_told, 6.0),
    Plant("revocations-forgotten", "two owners after a failover", consumer_churn, revocations_forgotten, 6.0),
    Plant("owners-forgotten", "two owners after a failover", consumer_churn, owners_forgotten, 6.0),
    Plant("epochs-forgotten", "two owners of one epoch", consumer_churn, epochs_forgotten, 6.0),
    Plant(
        "leavers-keep-theirs", "partitions that nobody reads", consumer_churn, targets_of_leavers_stay, 6.0
    ),
    Plant("any-epoch-commits", "regressed commits", consumer_churn, any_epoch_commits, 6.0),
    Plant(
        "newest-epoch-commits", "KIP-1251 stale commits", consumer_churn, only_the_newest_epoch_commits, 6.0
    ),
    Plant(
        "assignment-epochs-lost", "KIP-1251 stale commits", consumer_churn, assignment_epochs_forgotten, 6.0
    ),
    Plant("any-epoch-beats", "two owners at once", consumer_churn, any_epoch_beats, 6.0),
    Plant(
        "static-id-taken-over", "KIP-345 two lives at once", consumer_churn, static_ids_are_taken_over, 6.0
    ),
    Plant(
        "told-once",
        "partitions that nobody reads",
        consumer_churn,
        told_once,
        6.0,
        test=(
            "tests/coordinator/test_consumer_heartbeat.py"
            "::test_assigned_partitions_are_repeated_until_the_member_reports_them"
        ),
    ),
    Plant("consumer-sleepers-stay", "partitions that nobody reads", consumer_churn, sleepers_stay, 6.0),
    Plant("heartbeats-answered-early", "two owners at once", consumer_churn, told_before_the_commit, 6.0),
]
