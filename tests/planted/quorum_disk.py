"""Bugs of the quorum's disk: votes, terms, entries and snapshots that are less durable than what was said of them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.quorum import wal
from raftlog.quorum.driver import Driver
from raftlog.quorum.journal import Journal
from raftlog.quorum.journal_writer import JournalWriter
from raftlog.quorum.snapshot import Snapshot, SnapshotFiles
from raftlog.quorum.snapshot_generator import SnapshotGenerator
from raftlog.quorum.state_machine import StateMachine
from raftlog_chaos.scenarios.quorum import quorum_storm
from tests.planted.plant import Plant

KIND_AT = 8
"""The offset of the kind in a journal's record."""

SECONDS = 6.0


def _without_sync(journal: wal.Wal, records: list[bytes]) -> None:
    assert journal._file is not None
    group = b"".join([wal.group_record(journal._end), *records])
    journal._end += journal._file.pwritev([group], journal._end)


def sync_no_votes(patch: pytest.MonkeyPatch) -> None:
    """Groups that hold a vote and no entry are written, not synced."""
    append = wal.Wal.append

    def votes_unsynced(journal: wal.Wal, records: list[bytes]) -> None:
        only_votes = all(record[KIND_AT] in (wal.VOTE, wal.COMMIT) for record in records)
        (_without_sync if only_votes else append)(journal, records)

    patch.setattr(wal.Wal, "append", votes_unsynced)


def sync_no_entries(patch: pytest.MonkeyPatch) -> None:
    """The log is written, never synced."""
    patch.setattr(wal.Wal, "append", _without_sync)


def keep_no_vote(patch: pytest.MonkeyPatch) -> None:
    """The journal keeps the term, but not the vote in it."""
    set_term = Journal.setCurrentTerm

    def forget(journal: Journal, term: int, votedForNodeId: int | None) -> None:
        set_term(journal, term, None)

    patch.setattr(Journal, "setCurrentTerm", forget)


def keep_no_term(patch: pytest.MonkeyPatch) -> None:
    """Term and vote live in memory only; a restart begins at the term of the log's last entry."""
    open_journal = Journal._open

    def reopen(journal: Journal, *where: object) -> None:
        open_journal(journal, *where)  # type: ignore[arg-type]
        journal._term, journal._voted_for = (journal._entries[-1][2] if journal._entries else 0), None

    patch.setattr(Journal, "_open", reopen)


def check_no_checksum(patch: pytest.MonkeyPatch) -> None:
    """A torn tail is read as data: every checksum of the log is right."""
    patch.setattr(wal, "crc32c", lambda data: 0)


def sync_no_rewritten_log(patch: pytest.MonkeyPatch) -> None:
    """The shortened log replaces the long log before its bytes are on the disk."""

    def replace(journal: wal.Wal, image: bytes) -> None:
        journal._disk.write_file(journal._path, image, sync=False)
        previous, journal._file = journal._file, journal._disk.open(journal._path)
        journal._end = len(image)
        if previous is not None:
            previous.close()

    patch.setattr(wal.Wal, "replace", replace)


def sync_no_snapshots(patch: pytest.MonkeyPatch) -> None:
    """The log is cut on the strength of a snapshot that is only in the page cache."""

    def write(files: SnapshotFiles, index: int, encoded: bytes) -> None:
        files._disk.write_file(files._path(index), encoded, sync=False)

    patch.setattr(SnapshotFiles, "write", write)


def _capture(machine: StateMachine) -> bytes:
    return machine.snapshot()()


def capture_snapshots_late(patch: pytest.MonkeyPatch) -> None:
    """A snapshot holds what the state machine knew when it was encoded, not when its index was chosen."""
    take = SnapshotGenerator.take_if_due

    def take_late(snapshots: SnapshotGenerator, applied_index: int) -> None:
        machine = snapshots._machine
        snapshots._machine = SimpleNamespace(snapshot=lambda: partial(_capture, machine))  # type: ignore[assignment]
        take(snapshots, applied_index)
        snapshots._machine = machine

    patch.setattr(SnapshotGenerator, "take_if_due", take_late)


def forget_the_snapshots_term(patch: pytest.MonkeyPatch) -> None:
    """An installed snapshot leaves a log whose last entry is of no term, so that every candidate seems newer."""
    install = Journal.install

    def install_termless(journal: Journal, snapshot: Snapshot) -> None:
        (before, _, _), (last, index, _), *_ = snapshot
        install(journal, snapshot._replace(previous=(before, index - 1, 0), last=(last, index, 0)))

    patch.setattr(Journal, "install", install_termless)


def send_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Votes and acknowledgements leave while what they promise is still being written."""
    then = JournalWriter.sync_then

    def send_first(writer: JournalWriter, stage: Any) -> None:
        driver: Driver = stage.__self__
        outbox, driver.core.outbox = driver.core.outbox, []
        for peer, message in outbox:
            driver.send(peer, message)
        then(writer, stage)

    patch.setattr(JournalWriter, "sync_then", send_first)


storm = partial(Plant, scenario=quorum_storm, seconds=SECONDS)

PLANTS = [
    storm("vote-not-synced", "P1 vote", plant=sync_no_votes, note="a power loss gives it a second vote"),
    storm("vote-forgotten", "P1 vote", plant=keep_no_vote, note="a restart gives it a second vote"),
    storm("term-forgotten", "P1 term", plant=keep_no_term, note="it takes part in a term that is over"),
    storm(
        "quorum-log-not-synced",
        "P2 sync",
        plant=sync_no_entries,
        note="acknowledged entries go with the power",
    ),
    storm(
        "quorum-sent-before-sync",
        "P2 sync",
        plant=send_before_sync,
        note="the promise outlives what it promises",
    ),
    storm(
        "quorum-rewrite-not-synced", "P2 sync", plant=sync_no_rewritten_log, note="term, vote and entries go"
    ),
    storm("quorum-torn-tail-read", "P3 torn", plant=check_no_checksum, note="half a write becomes an entry"),
    storm(
        "snapshot-not-synced",
        "P9 snapshot",
        plant=sync_no_snapshots,
        note="the log is cut, the snapshot gone",
    ),
    storm("snapshot-captured-late", "P9 snapshot", plant=capture_snapshots_late, note="entries count twice"),
    storm(
        "snapshot-without-term", "P9 snapshot", plant=forget_the_snapshots_term, note="it votes for the stale"
    ),
]
