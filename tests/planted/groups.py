"""Bugs of the group coordinator: what it answers for, and what it takes over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raftlog.base.errors import CoordinatorLoadInProgress, RebalanceInProgress
from raftlog.base.machine import Answer, Runner
from raftlog.broker.coordination.shard import CoordinatorShard
from raftlog.broker.handlers import sync_group
from raftlog.coordinator import offsets, partition_writer
from raftlog.coordinator.classic import group as classic_group
from raftlog.coordinator.classic import rules as classic_rules
from raftlog.coordinator.classic.group import ClassicGroup
from raftlog.coordinator.classic.pending_rebalance import PendingRebalance
from raftlog.coordinator.classic.rules import find_member
from raftlog.coordinator.group import (
    COMPLETING_REBALANCE,
    Group,
    GroupChanged,
    Member,
    Membership,
    OffsetCommitted,
)
from raftlog.coordinator.group_expiration import GroupExpiration
from raftlog.coordinator.group_records import decode
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.coordinator.group_requests import MemberRef, SyncGroupResult
from raftlog.coordinator.groups import AnyGroup, Groups
from raftlog.coordinator.partition_map import PartitionKey
from raftlog.coordinator.pending_deletion import PendingDeletion
from raftlog.coordinator.timer import Moment
from raftlog.records.header import BatchHeader
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.commits import commits
from raftlog_chaos.scenarios.exactly_once import exactly_once
from raftlog_chaos.scenarios.group_churn import group_churn
from raftlog_chaos.scenarios.group_ends import group_ends
from tests.planted.plant import Plant


class Hasty(Runner[Group]):
    """Takes for committed what it has appended."""

    __slots__ = ()

    def handle(self, decide: Any, answer: Answer) -> None:
        super().handle(decide, answer)
        self.committed(self.end_offset)


def answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The coordinator answers what it has appended."""
    runner = Groups._runner

    def hasty_runner(groups: Groups, group: Group) -> Runner[Group]:
        made = runner(groups, group)
        made.__class__ = Hasty
        return made

    patch.setattr(Groups, "_runner", hasty_runner)


def read_back_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator begins before what its predecessor wrote is known to be committed."""
    read_back = CoordinatorShard._read_back

    class Committed:
        """A partition with a log that ends at its known committed end."""

        def __init__(self, partition: Partition) -> None:
            self._partition = partition
            self.log_end_offset = partition.high_watermark

        def __getattr__(self, name: str) -> Any:
            return getattr(self._partition, name)

    async def read_less(shard: CoordinatorShard[Any, Any], partition: Partition) -> Any:
        return await read_back(shard, Committed(partition))  # type: ignore[arg-type]

    patch.setattr(CoordinatorShard, "_read_back", read_less)


def any_generation_commits(patch: pytest.MonkeyPatch) -> None:
    """A commit is taken from every member, whatever generation it names: a sleeper overwrites its successor."""

    def check_who(membership: Membership, member: MemberRef, generation: int) -> Member:
        return find_member(membership, member)

    patch.setattr(offsets, "check_member", check_who)


def former_lives_go_on(patch: pytest.MonkeyPatch) -> None:
    """A static id is enough: the process that another one replaced is not fenced."""

    def find_anybody(group: Membership, member: MemberRef) -> Member:
        holder = group.member_of_instance(member.group_instance_id or "")
        return holder or find_member(group, member)

    patch.setattr(classic_rules, "find_member", find_anybody)
    patch.setattr(classic_group, "find_member", find_anybody)


def replaced_members_join_again(patch: pytest.MonkeyPatch) -> None:
    """A static member that waits for its assignment is not fenced when another takes its place: it comes back."""
    admit = ClassicGroup._admit_returned

    def admit_quietly(group: ClassicGroup, holder: Member, *rest: Any) -> None:
        waiting = group._syncs.pop(holder.member_id, None)
        admit(group, holder, *rest)
        if waiting is not None:
            group._reply(RebalanceInProgress(), waiting)

    patch.setattr(ClassicGroup, "_admit_returned", admit_quietly)


def syncs_meet_a_loading_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A sync is answered COORDINATOR_LOAD_IN_PROGRESS, at which consumers of Java and aiokafka end."""
    patch.setattr(sync_group, "RebalanceInProgress", CoordinatorLoadInProgress)


def members_forget_offsets(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator takes over the members of a group and not what it committed before they came."""
    note = GroupReplay._note

    def note_less(replay: GroupReplay, header: BatchHeader, key: bytes | None, value: bytes | None) -> None:
        note(replay, header, key, value)
        record = decode(key, value)
        if isinstance(record, GroupChanged):
            replay._offsets.pop(record.group_id, None)

    patch.setattr(GroupReplay, "_note", note_less)


def generation_told_before_it_is_recorded(patch: pytest.MonkeyPatch) -> None:
    """Only assignments are recorded, so the next coordinator gives out the same generation to others."""
    encode_all = partition_writer.encode_all

    def encode_stable(records: Any) -> Any:
        kept = [each for each in records if not _begins_a_generation(each)]
        return encode_all(kept or [OffsetCommitted(records[0].group_id, "nothing", 0, None)])

    patch.setattr(partition_writer, "encode_all", encode_stable)


def _begins_a_generation(record: Any) -> bool:
    changed = record.membership if isinstance(record, GroupChanged) else None
    return changed is not None and changed.state == COMPLETING_REBALANCE


def everybody_reads_the_leaders_share(patch: pytest.MonkeyPatch) -> None:
    """A member that waited for the assignments gets the leader's."""
    synced = classic_rules.sync_result

    def synced_as_leader(group: Membership, member_id: str) -> SyncGroupResult:
        return synced(group, group.elected)

    patch.setattr(classic_group, "sync_result", synced_as_leader)


def members_answered_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """As `answer_before_the_commit`, but in responses to members instead of lone committers."""
    answer_before_the_commit(patch)


def sleepers_stay_in_rebalances(patch: pytest.MonkeyPatch) -> None:
    """A rebalance includes every earlier member, back or not: absent members keep their partitions."""
    patch.setattr(PendingRebalance, "members_not_rejoined", lambda rebalance: [])
    patch.setattr(ClassicGroup, "on_session_timeout", lambda group, member_id, at: None)
    patch.setattr(ClassicGroup, "on_rebalance_timeout", _completes_only)


def _completes_only(group: ClassicGroup, at: Moment) -> None:
    if group._rebalance is not None:
        group._complete(group._rebalance, at)


def deletion_answered_before_its_end(patch: pytest.MonkeyPatch) -> None:
    """A client that deletes a group gets its response after the first of several batches."""
    decide = PendingDeletion.decide_next_batch
    is_done = PendingDeletion.is_done
    begun: set[int] = set()

    def decide_one(deletion: PendingDeletion, group: Group) -> Any:
        begun.add(id(deletion))
        return decide(deletion, group)

    patch.setattr(PendingDeletion, "decide_next_batch", decide_one)
    patch.setattr(
        PendingDeletion,
        "is_done",
        lambda deletion, group: (
            (deletion.deletes_group and id(deletion) in begun) or is_done(deletion, group)
        ),
    )


def topics_forgotten_after_the_next_commit(patch: pytest.MonkeyPatch) -> None:
    """Offsets of a deleted topic go by its name, in time, and what was committed for its successor goes with them."""

    def left(deletion: PendingDeletion, group: Group) -> Iterator[PartitionKey]:
        topic_partitions = dict.fromkeys(group.partitions())
        return iter(
            [each for each in topic_partitions if deletion.deletes_group or each[0] in deletion.topics]
        )

    patch.setattr(GroupExpiration, "finish_deletion", lambda upkeep, group: None)
    patch.setattr(PendingDeletion, "remaining", left)


def what_has_to_go_is_shown(patch: pytest.MonkeyPatch) -> None:
    """A new topic with the name of a deleted topic is read from the old topic's offset: records are skipped."""
    patch.setattr(PendingDeletion, "without_deleted", lambda deletion, group: group)


def successors_inherit_offsets(patch: pytest.MonkeyPatch) -> None:
    """A topic is deleted and made again, and the coordinator dies: the next one takes the old offsets for the new's."""
    patch.setattr(GroupReplay, "_note_topic", lambda replay, record, topic_id: None)


def ended_transactions_are_not_weighed(patch: pytest.MonkeyPatch) -> None:
    """The offsets of an aborted transaction are counted for ever: after a while no commit is admitted."""

    def take(groups: Groups, group: AnyGroup, records: Any, end_offset: int) -> None:
        group.runner.take(records, end_offset)
        groups.refresh(group)

    patch.setattr(Groups, "apply_appended", take)


PLANTS = [
    Plant("offset-commit-answered-early", "lost commits", commits, answer_before_the_commit),
    Plant("groups-read-back-in-part", "regressed commits", commits, read_back_to_the_high_watermark),
    Plant("members-answered-early", "lost commits", group_churn, members_answered_before_the_commit, 6.0),
    Plant("any-generation-commits", "regressed commits", group_churn, any_generation_commits, 6.0),
    Plant("static-member-not-fenced", "KIP-345 two lives at once", group_churn, former_lives_go_on, 6.0),
    Plant(
        "replaced-sync-not-fenced",
        "KIP-345 two lives at once",
        group_churn,
        replaced_members_join_again,
        6.0,
        test=(
            "tests/coordinator/test_classic_rules.py"
            "::test_a_static_member_that_waits_for_its_assignment_is_fenced_by_the_next_one"
        ),
    ),
    Plant(
        "syncs-end-with-loading",
        "consumers that end",
        group_churn,
        syncs_meet_a_loading_coordinator,
        6.0,
        test=(
            "tests/broker/handlers/test_groups.py"
            "::test_a_sync_has_its_member_join_again_while_the_coordinator_is_loading"
        ),
    ),
    Plant("members-forget-offsets", "lost commits", group_churn, members_forget_offsets, 6.0),
    Plant(
        "generation-not-recorded",
        "two owners of one generation",
        group_churn,
        generation_told_before_it_is_recorded,
        6.0,
        "Apache Kafka does so: a generation is recorded with its assignments only",
    ),
    Plant("leaders-share-for-all", "two owners at once", group_churn, everybody_reads_the_leaders_share, 6.0),
    Plant(
        "deletion-answered-early", "a group goes in parts", group_ends, deletion_answered_before_its_end, 4.0
    ),
    Plant("forgotten-too-late", "lost commits", group_ends, topics_forgotten_after_the_next_commit, 4.0),
    Plant("gone-is-shown", "records skipped", group_ends, what_has_to_go_is_shown, 4.0),
    Plant("successors-inherit-offsets", "records skipped", group_ends, successors_inherit_offsets, 4.0),
    Plant("memory-leaks-away", "bounds that close", exactly_once, ended_transactions_are_not_weighed, 6.0),
    Plant("sleepers-stay", "partitions that nobody reads", group_churn, sleepers_stay_in_rebalances, 6.0),
]
