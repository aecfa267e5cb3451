"""Claims about the histories of voters' directories: older copies and restarted directories are distinguished."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import Disk, RealDisk
from raftlog.base.types import NO_DIRECTORY
from raftlog.quorum import incarnations
from raftlog.quorum.incarnations import (
    MAX_DIRECTORIES,
    OWN,
    Heard,
    HeardVoters,
    Incarnations,
    next_incarnation,
)

D1, D2 = UUID(int=1), UUID(int=2)
CHANCE = random.Random(1)


class HeldEntries:
    """A journal: its term, and the terms of its entries from `first_index` on."""

    def __init__(self, term: int = 0, *terms: int, first_index: int = 1) -> None:
        self.term = term
        self.first_index = first_index
        self.terms = terms

    def getCurrentTerm(self) -> int:
        return self.term

    def entry_term(self, index: int) -> int | None:
        position = index - self.first_index
        return self.terms[position] if 0 <= position < len(self.terms) else None


EMPTY = HeldEntries()


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], Incarnations]:
    """Open the directory as a new process."""
    return lambda: Incarnations(RealDisk(), str(tmp_path), D1, CHANCE)


def incarnations_of(opened: Incarnations, term: int = 0, index: int = 0, entry_term: int = 0) -> Heard:
    return Heard(opened.directory_id.bytes, opened.current, term, index, entry_term)


def copy_of(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def bring_back(folder: Path, copied: dict[str, bytes]) -> None:
    for name, content in copied.items():
        (folder / name).write_bytes(content)


def rot(folder: Path) -> None:
    """Let all files of a folder rot, each in its own way."""
    for number, each in enumerate(folder.iterdir()):
        each.write_bytes(bytes([0x80 + number]) * 40)


def test_a_restarted_voter_is_no_older_copy(start: Callable[[], Incarnations]) -> None:
    """However many processes opened its directory since, and were heard by no voter."""
    heard = incarnations_of(start())
    for _ in range(5):
        assert not start().is_older(heard, EMPTY)


def test_an_older_copy_lacks_what_was_heard(start: Callable[[], Incarnations], tmp_path: Path) -> None:
    """The number that was heard is missing in it, or another process has it."""
    start()
    copied = copy_of(tmp_path)
    start()
    heard = incarnations_of(start())
    bring_back(tmp_path, copied)
    assert start().is_older(heard, EMPTY), "its number is lower"
    assert start().is_older(heard, EMPTY), "its number is the same, and its process is not"
    assert start().is_older(heard, EMPTY), "its number is higher"


def test_what_is_before_the_history_is_no_reason(
    start: Callable[[], Incarnations], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A voter that was away for a thousand restarts of another one knows an incarnation that is dropped since."""
    monkeypatch.setattr(incarnations, "MAX_INCARNATIONS", 3)
    heard = incarnations_of(start())
    opened = [start() for _ in range(4)]
    assert not opened[-1].is_older(heard, EMPTY)
    assert not opened[-1].is_older(incarnations_of(opened[1]), EMPTY)


def test_another_directory_of_the_voter_is_no_reason(start: Callable[[], Incarnations]) -> None:
    """A new disk has a history of its own, and voters remember the history of the former disk."""
    former = Heard(D2.bytes, b"\0" * 7 + b"\x09" * 9)
    assert not start().is_older(former, EMPTY)


@pytest.mark.parametrize(
    ("journal", "is_older"),
    [
        (HeldEntries(4, 1, 2, 4), True),
        (HeldEntries(5, 1, 2), True),
        (HeldEntries(5, 1, 2, 4), True),
        (HeldEntries(5, 1, 2, 5), False),
        (HeldEntries(5, 5, first_index=7), False),
        (HeldEntries(6), False),
    ],
    ids=["an older term", "a shorter log", "another entry", "the same entry", "compacted", "a newer term"],
)
def test_a_log_without_what_its_leader_counted_is_older(
    start: Callable[[], Incarnations], journal: HeldEntries, is_older: bool
) -> None:
    """A follower's log never shrinks in a term below what that term's leader counted (Raft §5.3)."""
    opened = start()
    assert opened.is_older(incarnations_of(opened, 5, 3, 5), journal) is is_older


def test_an_older_copy_goes_on_as_another_directory(start: Callable[[], Incarnations]) -> None:
    """It takes another id, for good, with a history of its own: what was heard of the former one counts no more."""
    opened = start()
    heard = incarnations_of(opened)
    opened.renew()
    assert opened.directory_id not in (D1, NO_DIRECTORY)
    again = start()
    assert again.directory_id == opened.directory_id
    assert not again.is_older(heard, EMPTY)
    assert not again.is_older(incarnations_of(opened), EMPTY)


@pytest.mark.parametrize("lost", [(OWN, OWN + CHECKSUMS), (OWN + CHECKSUMS,), (OWN,)])
@pytest.mark.parametrize("is_rotten", [True, False])
def test_voter_with_a_lost_history_counts_as_an_older_copy(
    start: Callable[[], Incarnations], tmp_path: Path, lost: tuple[str, ...], is_rotten: bool
) -> None:
    """Another voter has heard of it. A history without its checksums is lost, too; from its copy it comes back."""
    heard = incarnations_of(start())
    for name in lost:
        if is_rotten:
            (tmp_path / name).write_bytes(bytes([0x80 + len(name)]) * 40)
        else:
            (tmp_path / name).unlink()
    again = start()
    comes_back = lost == (OWN,) and is_rotten
    assert again.is_older(heard, EMPTY) is not comes_back
    assert start().directory_id == again.directory_id == D1
    later = incarnations_of(again)
    again.renew()
    assert not start().is_older(later, EMPTY)


def test_a_voter_without_a_directory_id_writes_nothing(tmp_path: Path) -> None:
    """Parts of a quorum in tests have none."""
    opened = Incarnations(RealDisk(), str(tmp_path), NO_DIRECTORY, CHANCE)
    assert not opened.is_older(Heard(NO_DIRECTORY.bytes, b"\xff" * 16), EMPTY)
    assert not list(tmp_path.iterdir())


def written(heard: HeardVoters, disk: Disk, folder: Path) -> HeardVoters:
    assert heard.dirty
    heard.write(heard.take_staged())
    assert not heard.dirty
    return HeardVoters(disk, str(folder))


def test_what_was_heard_is_found_again(tmp_path: Path) -> None:
    """Also of several directories of a voter: the metadata may still name the former directory."""
    disk = RealDisk()
    heard = HeardVoters(disk, str(tmp_path))
    first, second = next_incarnation(b"", CHANCE), next_incarnation(b"", CHANCE)
    heard.note(3, D1, first, recorded=D1)
    heard.note(3, D2, second, recorded=D1)
    found = written(heard, disk, tmp_path)
    assert dict(found.of(3)) == {D1: first, D2: second}
    assert not found.of(2)


def test_nothing_is_written_for_what_is_known(tmp_path: Path) -> None:
    """Every message is a sign of the same process, and few are news."""
    heard = HeardVoters(RealDisk(), str(tmp_path))
    incarnation = next_incarnation(b"", CHANCE)
    heard.note(3, D1, incarnation, recorded=D1)
    heard.take_staged()
    heard.note(3, D1, incarnation, recorded=D1)
    heard.note(3, D1, b"", recorded=D1)
    heard.note(3, NO_DIRECTORY, incarnation, recorded=D1)
    assert not heard.dirty


def test_the_recorded_directory_is_remembered_longest(tmp_path: Path) -> None:
    """A node with an empty folder that starts again and again must not make others forget the voter."""
    heard = HeardVoters(RealDisk(), str(tmp_path))
    for number in range(1, 10):
        heard.note(3, UUID(int=number), next_incarnation(b"", CHANCE), recorded=D1)
    assert list(heard.of(3)) == [D1, UUID(int=8), UUID(int=9)]
    assert len(heard.of(3)) == MAX_DIRECTORIES


def test_rotten_memories_count_as_none(tmp_path: Path) -> None:
    """They protect from older copies of others only, so a voter starts without them."""
    disk = RealDisk()
    heard = HeardVoters(disk, str(tmp_path))
    heard.note(3, D1, next_incarnation(b"", CHANCE), recorded=D1)
    written(heard, disk, tmp_path)
    rot(tmp_path)
    assert not HeardVoters(disk, str(tmp_path)).of(3)
