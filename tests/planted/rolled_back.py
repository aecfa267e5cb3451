"""Bugs around a node with folders that went back in time, and around a killed node that passes for such a node."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.types import NO_EPOCH
from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.broker.replicas.log_directories import LogDirectories
from raftlog.controller import brokers, elections
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.leader_and_isr import NO_LOST_REPLICAS
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata import record_replay
from raftlog.metadata.broker_requests import PreviousOpening, RegisterBroker
from raftlog.metadata.features import NEWEST_METADATA_LEVEL
from raftlog.metadata.image import BrokerState, MetadataImage, new_incarnation
from raftlog.metadata.metadata_records import BrokerChanged, PartitionChanged
from raftlog.replication.follower_progress import FollowerProgress
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog.storage.log_directory import LogDirectory
from raftlog_chaos.scenarios.rolled_back import rolled_back
from raftlog_chaos.scenarios.rolled_back_unnoticed import rolled_back_unnoticed
from raftlog_chaos.scenarios.rolled_back_unregistered import rolled_back_unregistered
from tests.planted.plant import Plant


def compare_no_incarnations(patch: pytest.MonkeyPatch) -> None:
    """A directory with the right id is trusted, as in 0.3.0."""
    patch.setattr(brokers, "_went_back", lambda broker, opening: False)


def forget_unregistered_incarnations(patch: pytest.MonkeyPatch) -> None:
    """Of an unregistered broker only the directories' ids are kept, so that an older copy of them passes."""
    patch.setattr(record_replay, "KEEPS_UNREGISTERED", NEWEST_METADATA_LEVEL + 1)


def compare_clean_stops_only(patch: pytest.MonkeyPatch) -> None:
    """Only the epoch in the clean-shutdown marker is compared, so that a copy without one passes."""

    def is_older(broker: BrokerState, opening: PreviousOpening) -> bool:
        return NO_EPOCH != opening.clean_epoch < broker.broker_epoch

    patch.setattr(brokers, "_went_back", is_older)


def compare_the_first_directory_only(patch: pytest.MonkeyPatch) -> None:
    """The other log directories of a broker are believed."""
    compare = brokers._older_directories

    def compare_one(existing: BrokerState, request: RegisterBroker) -> tuple[UUID, ...]:
        return tuple(each for each in compare(existing, request) if each == request.directory_ids[0])

    patch.setattr(brokers, "_older_directories", compare_one)


def only_say_it(patch: pytest.MonkeyPatch) -> None:
    """The older copy is logged, and its replicas stay in sync."""
    patch.setattr(brokers, "LostReplicas", lambda broker_id, damaged=None, reads_on=False: NO_LOST_REPLICAS)


def write_incarnations_too_late(patch: pytest.MonkeyPatch) -> None:
    """A process names itself in its folders only once it has registered: a crash in between looks like an old copy."""

    def name_nowhere(directories: LogDirectories) -> None:
        directories.incarnation_id = new_incarnation(
            directories._env.unguessable.getrandbits(128), written=True
        )

    patch.setattr(LogDirectories, "_note_incarnation", name_nowhere)


def write_incarnations_without_sync(patch: pytest.MonkeyPatch) -> None:
    """A power cut takes the name of the process that had registered with it."""
    note = LogDirectory.note_incarnation

    def note_unsynced(directory: LogDirectory, incarnation_id: UUID) -> None:
        disk = directory._disk
        with pytest.MonkeyPatch.context() as within:
            write = type(disk).write_file
            within.setattr(
                type(disk),
                "write_file",
                lambda disk, path, data, *, sync=True: write(disk, path, data, sync=False),
            )
            note(directory, incarnation_id)

    patch.setattr(LogDirectory, "note_incarnation", note_unsynced)


def name_the_last_process_only(patch: pytest.MonkeyPatch) -> None:
    """A process that is killed before it registers removes the name of its predecessor."""
    patch.setattr(LogDirectory, "note_incarnation", LogDirectory.confirm_incarnation)


def join_without_refetching(patch: pytest.MonkeyPatch) -> None:
    """A replica that once was in sync is taken back with its first fetch."""
    consider = LeaderRole._consider_joining

    def take_back(role: LeaderRole, progress: FollowerProgress) -> None:
        offset, progress.end_offset = progress.end_offset, role.log.log_end_offset
        try:
            consider(role, progress)
        finally:
            progress.end_offset = offset

    patch.setattr(LeaderRole, "_consider_joining", take_back)


def cut_below_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower cuts whatever its leader does not have, as in 0.3.0."""
    patch.setattr(FollowerRole, "_check_cut", lambda role, offset: None)


def take_every_leader_for_unclean(patch: pytest.MonkeyPatch) -> None:
    """A follower asks whether its leader's epoch is later than its records, not whether it was elected uncleanly."""
    begin = FollowerRole.__init__

    def begin_below_all(role: FollowerRole, partition: Partition, state: Any) -> None:
        begin(role, partition, state)
        role._unclean_epoch = state.leader_epoch

    patch.setattr(FollowerRole, "__init__", begin_below_all)


def forget_high_watermarks(patch: pytest.MonkeyPatch) -> None:
    """A replica that starts takes its whole log for uncommitted."""
    begin = Partition.__init__

    def begin_with_nothing(partition: Partition, *names: Any, **rest: Any) -> None:
        begin(partition, *names, **{**rest, "high_watermark": 0})

    patch.setattr(Partition, "__init__", begin_with_nothing)


def write_high_watermarks_seldom(patch: pytest.MonkeyPatch) -> None:
    """High watermarks are written every five seconds, as Kafka writes them."""
    write = Housekeeping.checkpoint_high_watermarks
    written_at: dict[Housekeeping, float] = {}

    async def write_every_fifth(chores: Housekeeping) -> None:
        now = asyncio.get_running_loop().time()
        if now - written_at.setdefault(chores, now) >= 5:
            written_at[chores] = now
            await write(chores)

    patch.setattr(Housekeeping, "checkpoint_high_watermarks", write_every_fifth)


def elect_an_emptied_replica(patch: pytest.MonkeyPatch) -> None:
    """An unclean election makes an emptied replica lead, though those that have its records will be back at once."""
    elect = elections._elected_uncleanly

    def elect_whoever_lives(
        image: MetadataImage, *names: Any, availability: BrokerAvailability
    ) -> PartitionChanged:
        return elect(msgspec.structs.replace(image, brokers={}), *names, availability=availability)

    patch.setattr(elections, "_elected_uncleanly", elect_whoever_lives)


def record_no_lost_disk(patch: pytest.MonkeyPatch) -> None:
    """The metadata does not say that a broker came back with an empty disk, so it leads at an operator's word."""
    patch.setattr(brokers, "_recorded_as_lost", lambda image, broker_id, index: None)


def take_a_new_disk_for_refilled(patch: pytest.MonkeyPatch) -> None:
    """A broker counts as refilled with its first heartbeat, whether its replicas are in sync or not."""

    def refilled(
        image: MetadataImage, broker: BrokerState, index: PartitionIndex
    ) -> tuple[BrokerChanged, ...]:
        changed = BrokerChanged(broker.broker_id, broker.broker_epoch, disk_lost=False)
        return (changed,) if broker.disk_lost else ()

    patch.setattr(brokers, "_refilled", refilled)


PLANTS = [
    Plant("older-copies-trusted", "older copy", rolled_back, compare_no_incarnations, 4.0),
    Plant(
        "unregistered-incarnations-forgotten",
        "older copy",
        rolled_back_unregistered,
        forget_unregistered_incarnations,
        3.0,
    ),
    Plant("unclean-copies-trusted", "older copy", rolled_back, compare_clean_stops_only, 4.0),
    Plant("first-directory-compared", "one older disk", rolled_back, compare_the_first_directory_only, 4.0),
    Plant("older-copies-only-logged", "older copy", rolled_back, only_say_it, 4.0),
    Plant("incarnation-written-late", "killed node", rolled_back, write_incarnations_too_late, 4.0),
    Plant("incarnation-not-synced", "killed node", rolled_back, write_incarnations_without_sync, 4.0),
    Plant("one-incarnation-named", "killed node", rolled_back, name_the_last_process_only, 4.0),
    Plant("joins-without-refetch", "older copy", rolled_back, join_without_refetching, 4.0),
    Plant("committed-records-cut", "older leader", rolled_back_unnoticed, cut_below_the_high_watermark, 2.0),
    Plant("every-leader-unclean", "older leader", rolled_back_unnoticed, take_every_leader_for_unclean, 2.0),
    Plant("high-watermarks-forgotten", "older leader", rolled_back_unnoticed, forget_high_watermarks, 2.0),
    Plant("high-watermarks-old", "older leader", rolled_back_unnoticed, write_high_watermarks_seldom, 2.0),
    Plant("emptied-replica-elected", "empty disk", rolled_back_unnoticed, elect_an_emptied_replica, 2.0),
    Plant("lost-disk-unrecorded", "empty disk", rolled_back_unnoticed, record_no_lost_disk, 2.0),
    Plant("lost-disk-refilled-early", "empty disk", rolled_back_unnoticed, take_a_new_disk_for_refilled, 2.0),
]
