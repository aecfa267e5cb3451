"""The journal over a disk that loses power: at every single operation, and never what was promised."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.types import encode_uuid
from raftlog.quorum.journal import DIRECTORY_ID, Journal
from raftlog.quorum.snapshot import Snapshot, decode_snapshot, encode_snapshot
from raftlog.quorum.wal import (
    GROUP_BYTES,
    DamagedJournal,
    Entry,
    ForeignJournal,
    MissingEntries,
    RottenRecords,
)
from raftlog_chaos.simulator.disk import SimDisk

FOLDER = "/data/quorum"
State = tuple[list[Entry], int, int | None]


class PowerCut(Exception):
    pass


class PowerCutDisk:
    """A disk, or a file on it, on which the power fails before (or, for writes, after) the n-th change."""

    def __init__(self, inner: Any, fuse: list[int]) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "open":
            return lambda *args, **options: PowerCutDisk(value(*args, **options), self._fuse)
        if name in ("pwritev", "sync", "truncate", "rename", "remove", "mkdir", "sync_dir"):
            return lambda *args: self._burn(value, args)
        return value

    def write_file(self, path: str, data: bytes) -> None:
        """The same steps as a real disk's, each of them mortal."""
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.pwritev([data], 0)
        file.sync()
        self.rename(path + ".tmp", path)
        self.sync_dir(path.rpartition("/")[0])

    def _burn(self, change: Callable[..., Any], args: Sequence[Any]) -> Any:
        if self._fuse[0] == 0:
            raise PowerCut
        result = change(*args)
        self._fuse[0] -= 1
        if self._fuse[0] == 0:
            raise PowerCut
        return result


def state_of(journal: Journal) -> State:
    return journal[:], journal.getCurrentTerm(), journal.getVotedForNodeId()


def at(journal: Journal, index: int) -> Entry:
    return journal[index - journal.first_index]  # type: ignore[no-any-return]


def life(journal: Journal) -> Sequence[Callable[[], None]]:
    """A voter's life in rounds; each is synced as one group."""

    def grow(count: int, term: int, letter: bytes) -> None:
        for _ in range(count):
            journal.add(letter, journal.last_index + 1, term)

    def cut_and_grow() -> None:
        journal.truncate_from(4)
        grow(2, 2, b"other")

    def own_snapshot() -> None:
        index = 5
        snapshot = Snapshot(at(journal, index - 1), at(journal, index), b"state at 5")
        journal.snapshot_files.write(index, encode_snapshot(snapshot))
        journal.compact(index)

    def vote() -> None:
        journal.setCurrentTerm(2, 3)

    return [
        lambda: journal.add(b"noop", 1, 0),
        lambda: journal.setCurrentTerm(1, 2),
        lambda: grow(4, 1, b"first"),
        vote,
        cut_and_grow,
        own_snapshot,
        lambda: grow(2, 2, b"more"),
        lambda: journal.install(Snapshot((b"p", 19, 4), (b"l", 20, 4), b"state at 20")),
        lambda: grow(3, 4, b"after"),
    ]


def live(disk: Any) -> list[State]:
    """Live until the power fails; return the synced states, and last the state that was being synced."""
    states: list[State] = [([], 0, None)]
    try:
        journal = Journal(disk, FOLDER, 1)
        for step in range(len(life(journal))):
            states.append(states[-1])
            life(journal)[step]()
            states[-1] = state_of(journal)
            journal.take_staged()()
            states.append(states[-1])
    except PowerCut:
        pass
    return states


def operations() -> int:
    fuse = [10**6]
    live(PowerCutDisk(SimDisk(), fuse))
    return 10**6 - fuse[0]


@pytest.mark.parametrize("fuse", range(operations()))
def test_power_fails_at_every_disk_operation_and_nothing_synced_is_lost(fuse: int) -> None:
    """WAL append, own snapshot, compaction and installed snapshot: reopened is the last synced state or the next."""
    for seed in range(5):
        disk = SimDisk(seed)
        states = live(PowerCutDisk(disk, [fuse]))
        disk.crash()
        reopened = Journal(disk, FOLDER, 1)
        entries, term, voted_for = state_of(reopened)
        synced, pending = states[-2] if len(states) > 1 else states[-1], states[-1]
        assert (term, voted_for) in (synced[1:], pending[1:])
        agreed = [entry for entry in synced[0] if entry in pending[0]]
        first = entries[0][1] if entries else 0
        assert [entry for entry in agreed if entry[1] >= first] == [
            entry for entry in entries if entry in agreed
        ], "an entry that both states hold is gone"
        assert all(entry in synced[0] or entry in pending[0] for entry in entries)
        if first > 1:
            assert reopened.snapshot is not None and reopened.snapshot.last == entries[1]


def lived() -> SimDisk:
    disk = SimDisk()
    journal = Journal(disk, FOLDER, 1)
    for step in range(7):
        life(journal)[step]()
        journal.take_staged()()
    journal.close()
    return disk


def test_the_folder_of_another_node_is_refused() -> None:
    """Mixed-up volumes must not give two nodes one vote."""
    with pytest.raises(ForeignJournal):
        Journal(lived(), FOLDER, 2)


def test_journal_of_another_directory_id_says_how_to_bring_the_former_back() -> None:
    """The copy beside meta.properties would undo it."""
    disk = SimDisk()
    Journal(disk, FOLDER, 1, UUID(int=1)).close()
    with pytest.raises(ForeignJournal, match=r"meta\.properties back, and remove meta\.properties\.crc32c"):
        Journal(disk, FOLDER, 1, UUID(int=2))


def test_lost_checksums_of_the_directory_id_are_written_again() -> None:
    """Without them the next rot of the id would count as another directory."""
    disk = SimDisk()
    Journal(disk, FOLDER, 1, UUID(int=1)).close()
    path = f"{FOLDER}/{DIRECTORY_ID}"
    disk.remove(path + CHECKSUMS)
    Journal(disk, FOLDER, 1, UUID(int=1)).close()
    disk.write_file(path, b"rot")
    Journal(disk, FOLDER, 1, UUID(int=1)).close()
    assert disk.read_file(path) == encode_uuid(UUID(int=1)).encode()


def test_a_snapshot_without_a_log_is_refused() -> None:
    """Term and vote are in the log: without it this voter could vote twice."""
    disk = lived()
    disk.remove(f"{FOLDER}/quorum.wal")
    with pytest.raises(MissingEntries):
        Journal(disk, FOLDER, 1)


def test_a_log_without_its_snapshot_is_refused() -> None:
    """A truncated log is useless alone; running empty, as PySyncObj does, could lead and lose everything."""
    disk = lived()
    disk.remove(f"{FOLDER}/{5:020d}.snapshot")
    with pytest.raises(MissingEntries):
        Journal(disk, FOLDER, 1)


def test_a_corrupt_snapshot_stops_the_boot_with_its_name() -> None:
    """PySyncObj logs it, swallows it and runs empty."""
    path = f"{FOLDER}/{5:020d}.snapshot"
    for position in range(len(lived().read_file(path))):
        disk = lived()
        disk.flip_bit(path, position)
        with pytest.raises(DamagedJournal, match=r"00005\.snapshot"):
            Journal(disk, FOLDER, 1)


def test_a_snapshot_ahead_of_the_log_keeps_what_follows_it() -> None:
    """A crash between snapshot and compaction: PySyncObj clears the whole log then, 300 acknowledged entries once."""
    disk = SimDisk()
    journal = Journal(disk, FOLDER, 1)
    for index in range(1, 10):
        journal.add(b"%d" % index, index, 1)
    journal.take_staged()()
    journal.snapshot_files.write(5, encode_snapshot(Snapshot((b"4", 4, 1), (b"5", 5, 1), b"")))
    reopened = Journal(disk, FOLDER, 1)
    assert [entry[1] for entry in reopened[:]] == [4, 5, 6, 7, 8, 9]
    assert reopened.dirty
    reopened.take_staged()()
    assert [entry[1] for entry in Journal(disk, FOLDER, 1)[:]] == [4, 5, 6, 7, 8, 9]


def test_a_snapshot_that_contradicts_the_log_replaces_it() -> None:
    """It was installed from a leader, so it is committed and the log's tail is not (Raft §7)."""
    disk = SimDisk()
    journal = Journal(disk, FOLDER, 1)
    for index in range(1, 10):
        journal.add(b"%d" % index, index, 1)
    journal.take_staged()()
    journal.snapshot_files.write(5, encode_snapshot(Snapshot((b"x", 4, 2), (b"y", 5, 2), b"")))
    assert Journal(disk, FOLDER, 1)[:] == [(b"x", 4, 2), (b"y", 5, 2)]


def test_a_full_disk_leaves_the_log_as_it_was_and_the_same_job_may_run_again() -> None:
    """ENOSPC half way through a group is not torn state: the group is written anew at the same place."""
    disk = SimDisk()
    journal = Journal(disk, FOLDER, 1)
    journal.add(b"noop", 1, 0)
    journal.take_staged()()
    journal.add(b"x" * 100, 2, 0)
    job = journal.take_staged()
    disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(OSError):
        job()
    disk.mend()
    assert [entry[1] for entry in Journal(disk, FOLDER, 1)[:]] == [1]
    journal = Journal(disk, FOLDER, 1)
    journal.add(b"x" * 100, 2, 0)
    job = journal.take_staged()
    disk.fail("sync", error=errno.ENOSPC)
    with pytest.raises(OSError):
        job()
    disk.mend()
    job()
    disk.crash()
    assert [entry[1] for entry in Journal(disk, FOLDER, 1)[:]] == [1, 2]


def test_a_snapshot_reads_back_as_written() -> None:
    """The pair of entries and the state survive encoding, also when empty."""
    for snapshot in (
        Snapshot((b"", 1, 0), (b"", 2, 0), b""),
        Snapshot((b"p", 7, 1), (b"ll", 8, 3), b"state" * 99),
    ):
        assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


def test_rot_in_the_last_records_of_a_voter_that_stopped_by_itself_stops_the_boot() -> None:
    """It left a mark that all before it was synced: what is unreadable now was not torn."""
    disk = lived()
    path = f"{FOLDER}/quorum.wal"
    whole = len(disk.read_file(path))
    for position in range(whole - GROUP_BYTES - 40, whole - GROUP_BYTES):
        disk.flip_bit(path, position, position % 8)
        with pytest.raises(RottenRecords):
            Journal(disk, FOLDER, 1)
        disk.flip_bit(path, position, position % 8)
    Journal(disk, FOLDER, 1)


def test_rot_in_what_a_voter_had_at_its_start_stops_the_boot_though_it_was_killed() -> None:
    """Its start wrote the file anew, with a mark at the end, whatever was written after that."""
    disk = lived()
    path = f"{FOLDER}/quorum.wal"
    Journal(disk, FOLDER, 1)
    disk.crash()
    size = len(disk.read_file(path))
    Journal(disk, FOLDER, 1)
    assert len(disk.read_file(path)) == size, "a mark more with each start"
    disk.crash()
    disk.flip_bit(path, size - GROUP_BYTES - 1)
    with pytest.raises(DamagedJournal):
        Journal(disk, FOLDER, 1)


def test_rot_in_the_mark_itself_costs_nothing() -> None:
    """It holds no record."""
    disk = lived()
    before = Journal(disk, FOLDER, 1)
    disk.crash()
    path = f"{FOLDER}/quorum.wal"
    disk.flip_bit(path, len(disk.read_file(path)) - 1)
    again = Journal(disk, FOLDER, 1)
    assert again[:] == before[:] and again.getCurrentTerm() == before.getCurrentTerm()


def test_rot_in_an_earlier_group_stops_the_boot() -> None:
    """This voter's promise is unreadable while later groups are whole: it must not pretend to a shorter log."""
    disk = lived()
    size = len(disk.read_file(f"{FOLDER}/quorum.wal"))
    journal = Journal(disk, FOLDER, 1)
    journal.add(b"later", journal.last_index + 1, 2)
    journal.take_staged()()
    disk.flip_bit(f"{FOLDER}/quorum.wal", size - 3)
    with pytest.raises(RottenRecords):
        Journal(disk, FOLDER, 1)
