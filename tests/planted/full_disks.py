"""Bugs of a broker that leads with a full disk, or that is not let lead once it has room."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.broker.replicas.log_directories import LogDirectories, LogVolume
from raftlog.controller import replica_placer
from raftlog.controller.broker_availability import BrokerAvailability, availability_of
from raftlog.controller.broker_liveness import BrokerLiveness
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.image import MetadataImage
from raftlog_chaos.scenarios.full_disk import full_disk
from tests.planted.plant import Plant


def keep_it_to_oneself(patch: pytest.MonkeyPatch) -> None:
    """Heartbeats do not report a full disk, as in 0.3.0."""
    patch.setattr(LogDirectories, "lacks_room", False)


def never_believe_in_room(patch: pytest.MonkeyPatch) -> None:
    """A directory that was full once is full until the process ends."""
    patch.setattr(LogVolume, "has_room", lambda volume, free, now: False)


def note_it_and_do_nothing(patch: pytest.MonkeyPatch) -> None:
    """The controller heeds a full disk in elections alone, and moves no leadership for it."""
    note = BrokerLiveness.note_room

    def note_only(liveness: BrokerLiveness, broker_id: int, *, lacks_room: bool) -> bool:
        note(liveness, broker_id, lacks_room=lacks_room)
        return False

    patch.setattr(BrokerLiveness, "note_room", note_only)


def elect_it_all_the_same(patch: pytest.MonkeyPatch) -> None:
    """The controller knows of the full disk, and elects the broker as any other."""
    patch.setattr(BrokerAvailability, "with_reports", lambda availability, **reports: availability)


def let_it_lead_new_partitions(patch: pytest.MonkeyPatch) -> None:
    """New partitions are led by any broker that the metadata does not name as drained."""
    place = replica_placer.ReplicaPlacer.__init__

    def place_by_the_image(
        placer: replica_placer.ReplicaPlacer,
        image: MetadataImage,
        random: Random,
        index: PartitionIndex,
        availability: BrokerAvailability,
    ) -> None:
        place(placer, image, random, index, availability_of(image))

    patch.setattr(replica_placer.ReplicaPlacer, "__init__", place_by_the_image)


PLANTS = [
    Plant("full-disk-not-reported", "full disk", full_disk, keep_it_to_oneself, 4.0),
    Plant("full-disk-only-noted", "full disk", full_disk, note_it_and_do_nothing, 4.0),
    Plant("full-disk-elected", "full disk", full_disk, elect_it_all_the_same, 4.0),
    Plant("full-disk-leads-new-topics", "full disk", full_disk, let_it_lead_new_partitions, 4.0),
    Plant("room-never-believed", "full disk: room", full_disk, never_believe_in_room, 4.0),
]
