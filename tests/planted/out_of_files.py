"""Bugs of what is done where the system has no descriptor left."""

from __future__ import annotations

from functools import partial

import pytest

from raftlog.base import disk
from raftlog.base.disk import SyncNotBegun
from raftlog.broker.replicas.flusher import Flusher
from raftlog.broker.replicas.log_directories import LogDirectories
from raftlog.quorum import journal_writer
from raftlog.storage.flush import FlushTicket
from raftlog.storage.segment import Segment
from raftlog_chaos.scenarios.out_of_files import out_of_files
from tests.planted.plant import Plant


def take_it_for_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be opened to be synced takes its directory offline."""
    patch.setattr(Flusher, "_schedule_retry", lambda flusher, error: False)


def count_what_was_not_begun(patch: pytest.MonkeyPatch) -> None:
    """A sync that was not begun counts as done."""
    ended = Flusher._sync_ended

    def forgive(flusher: Flusher, error: OSError | None) -> None:
        ended(flusher, None if isinstance(error, SyncNotBegun) else error)

    patch.setattr(Flusher, "_sync_ended", forgive)


def take_every_open_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """A roll, a checkpoint or a read that finds no descriptor takes the directory offline."""
    patch.setattr(LogDirectories, "report", LogDirectories.fail)


def give_up_the_journal(patch: pytest.MonkeyPatch) -> None:
    """The metadata journal's file cannot be opened: the voter ends."""
    patch.setattr(journal_writer, "TRANSIENT_ERRNOS", disk.DISK_FULL)


def roll_anew(patch: pytest.MonkeyPatch) -> None:
    """A roll that was refused writes all of its index files again with each attempt."""
    save = Segment.save_indexes

    def save_all(segment: Segment, *, final: bool = False, sync: bool = False) -> None:
        segment._written = None
        save(segment, final=final, sync=sync)

    patch.setattr(Segment, "save_indexes", save_all)


def sync_anew(patch: pytest.MonkeyPatch) -> None:
    """A flush that was refused opens all of its files again with each attempt."""
    sync = FlushTicket.sync_files

    def sync_all(ticket: FlushTicket) -> None:
        paths = list(ticket.paths)
        sync(ticket)
        ticket.paths = paths

    patch.setattr(FlushTicket, "sync_files", sync_all)


scenario = partial(Plant, scenario=out_of_files, seconds=4.0)

PLANTS = [
    scenario("no-descriptor-fails-the-disk", "EMFILE in a flush", plant=take_it_for_a_failed_sync),
    scenario("sync-not-begun-counts", "ack without fsync", plant=count_what_was_not_begun),
    scenario("open-fails-the-disk", "EMFILE at an open", plant=take_every_open_for_the_disk),
    scenario("no-descriptor-ends-the-voter", "EMFILE in the journal", plant=give_up_the_journal),
    scenario("syncs-begin-anew", "EMFILE in a flush", plant=sync_anew),
    scenario("rolls-begin-anew", "EMFILE in a roll", plant=roll_anew),
]
