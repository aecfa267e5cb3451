"""Sets of voters in the journal (KIP-853): in force once appended, undone by truncation, kept by snapshots."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from raftlog.quorum.journal import Journal
from raftlog.quorum.snapshot import Snapshot, decode_snapshot, encode_snapshot
from raftlog.quorum.voters_record import (
    MAX_CHANGES,
    Voter,
    VoterChange,
    VotersRecord,
    decode_voters,
    differ_by_one,
    encode_voters,
    first_record,
    voters_record,
)
from raftlog.quorum.wal import VOTERS_PREFIX, DamagedJournal
from raftlog_chaos.simulator.disk import SimDisk

FOLDER = "/data/quorum"


def voter(voter_id: int, directory: int | None = None) -> Voter:
    return Voter(voter_id, UUID(int=directory or voter_id).bytes, f"host{voter_id}", 9093)


def three() -> VotersRecord:
    return voters_record([voter(2), voter(3), voter(1)])


def written(journal: Journal) -> None:
    while journal.dirty:
        journal.take_staged()()


def opened(disk: SimDisk) -> Journal:
    return Journal(disk, FOLDER, 1)


def journal_with_sets(disk: SimDisk) -> Journal:
    """Return a journal with a no-op at 1 and 2, three voters at 3, a fourth at 5."""
    journal = opened(disk)
    for index, command in enumerate(
        [b"\x01", b"\x01", encode_voters(three()), b"\x00a", encode_voters(three().with_voter(voter(4)))], 1
    ):
        journal.add(command, index, 1)
    written(journal)
    return journal


class OlderRecord(msgspec.Struct, frozen=True, array_like=True):
    """A set as a release reads it that knows no changes."""

    voters: list[Voter]


def test_a_set_remembers_its_last_changes() -> None:
    """Who asked for each, and when. An older reader ignores them, and a set of an older writer has none."""
    record = three()
    for number in range(MAX_CHANGES + 5):
        record = record.after(record, VoterChange("added", 4, UUID(int=4).bytes, "User:ann", number))
    found = decode_voters(encode_voters(record))
    assert found == record and found.ids == [1, 2, 3]
    assert [each.at_ms for each in found.changes] == list(range(5, MAX_CHANGES + 5))
    body = encode_voters(record)[len(VOTERS_PREFIX) :]
    assert msgspec.msgpack.decode(body, type=OlderRecord) == OlderRecord(three().voters)
    older = VOTERS_PREFIX + msgspec.msgpack.encode(OlderRecord(three().voters))
    assert decode_voters(older) == three()


def test_a_set_reads_as_it_was_written() -> None:
    """Ascending by id, with directories and addresses."""
    found = decode_voters(encode_voters(three()))
    assert found == three() and found.ids == [1, 2, 3]
    assert found.directories()[2] == UUID(int=2) and found.addresses()[3] == ("host3", 9093)


@pytest.mark.parametrize("rest", [b"", b"\xff", b"\x91\x91\x94\x01\xc4\x01a\xa1h\x01"])
def test_a_set_that_cannot_be_read_is_damage(rest: bytes) -> None:
    """A voter does not go on with a log that it does not understand."""
    with pytest.raises(DamagedJournal):
        decode_voters(VOTERS_PREFIX + rest)


def test_consecutive_sets_differ_by_one_voter() -> None:
    """A voter is its id and its directory: another directory is two changes."""
    assert differ_by_one(three(), three().with_voter(voter(4)))
    assert differ_by_one(three(), three().without(2))
    assert not differ_by_one(three(), three().without(2).without(1))
    assert not differ_by_one(three(), three().without(2).with_voter(voter(2, 9)))
    assert not differ_by_one(voters_record([voter(1)]), voters_record([]))


def test_the_first_set_needs_all_directories() -> None:
    """A voter whose directory is unknown could not be counted."""
    addresses = three().addresses()
    assert first_record(addresses, three().directories()) == three()
    assert first_record(addresses, three().without(2).directories()) is None


def test_the_newest_set_is_in_force_once_appended() -> None:
    """Committed or not; and no longer once its entry is truncated (Raft thesis §4.1)."""
    journal = journal_with_sets(SimDisk())
    changes: list[list[int]] = []
    journal.on_voters = lambda: changes.append([] if journal.voters is None else journal.voters.ids)
    assert journal.voters is not None and journal.voters.ids == [1, 2, 3, 4] and journal.voters_index == 5
    journal.truncate_from(5)
    assert changes == [[1, 2, 3]] and journal.voters_index == 3
    journal.truncate_from(4)
    assert len(changes) == 1
    journal.truncate_from(3)
    assert changes[-1] == [] and journal.voters is None


def test_a_start_finds_the_set_of_the_tail() -> None:
    """Even if it was not committed."""
    disk = SimDisk()
    journal_with_sets(disk)
    disk.crash()
    found = opened(disk)
    assert found.voters is not None and found.voters.ids == [1, 2, 3, 4]
    assert found.former_voters is not None and found.former_voters.ids == [1, 2, 3]


@pytest.mark.parametrize(("index", "ids"), [(2, None), (3, [1, 2, 3]), (4, [1, 2, 3]), (5, [1, 2, 3, 4])])
def test_a_snapshot_has_the_set_up_to_its_end(index: int, ids: list[int] | None) -> None:
    """Not a later set, which may not be committed."""
    journal = journal_with_sets(SimDisk())
    voters = journal.voters_at(index)
    snapshot = Snapshot((b"\x01", index - 1, 1), (b"\x01", index, 1), b"state", voters)
    found = decode_snapshot(encode_snapshot(snapshot))
    assert found == snapshot
    assert (decode_voters(found.voters).ids if found.voters else None) == ids


def test_a_snapshot_without_a_set_is_one_of_0_3_0() -> None:
    """Older releases write and read the same bytes."""
    snapshot = Snapshot((b"p", 4, 1), (b"l", 5, 1), b"state")
    assert encode_snapshot(snapshot).startswith(b"RLQS\x01")
    assert encode_snapshot(snapshot._replace(voters=encode_voters(three()))).startswith(b"RLQS\x02")


def test_a_start_finds_the_set_of_the_snapshot_and_of_the_tail() -> None:
    """The log is cut to the snapshot, and keeps what follows."""
    disk = SimDisk()
    journal = journal_with_sets(disk)
    previous, last = journal.entries(3, 5)
    snapshot = Snapshot(previous, last, b"state", journal.voters_at(4))
    journal.snapshot_files.write(4, encode_snapshot(snapshot))
    journal.compact(4)
    written(journal)
    disk.crash()
    found = opened(disk)
    assert found.voters is not None and found.voters.ids == [1, 2, 3, 4]
    found.truncate_from(5)
    assert found.voters is not None and found.voters.ids == [1, 2, 3]


def test_a_received_snapshot_brings_its_set() -> None:
    """It replaces the log, and the sets of the log."""
    journal = journal_with_sets(SimDisk())
    journal.install(Snapshot((b"\x01", 19, 2), (b"\x01", 20, 2), b"state", encode_voters(three().without(1))))
    assert journal.voters is not None and journal.voters.ids == [2, 3]


def test_a_snapshot_without_a_new_set_changes_no_voters() -> None:
    """Otherwise a voter of a static quorum would dial others, which its links do not expect."""
    journal = opened(SimDisk())
    for index in (1, 2):
        journal.add(b"\x01", index, 1)
    changes: list[int] = []
    journal.on_voters = lambda: changes.append(1)
    journal.install(Snapshot((b"\x01", 19, 2), (b"\x01", 20, 2), b"state"))
    journal.install(Snapshot((b"\x01", 29, 2), (b"\x01", 30, 2), b"state", encode_voters(three())))
    journal.install(Snapshot((b"\x01", 39, 2), (b"\x01", 40, 2), b"state", encode_voters(three())))
    assert changes == [1]
