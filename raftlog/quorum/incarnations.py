"""Which directories of voters are older copies: a restored backup of one voter, or the snapshot of its machine.

A voter whose directory went back in time has lost entries and votes that others count on. Its directory id does not
show that. So each process that opens the directory first writes an *incarnation* there: a number, one higher than that
of the process before, and bytes drawn by chance. The list of the newest ones is the directory's history.

Every voter writes down which incarnation of each other voter it last heard, before that voter's messages count. In the
handshake it says so to that voter. A directory whose history lacks what another voter has heard is an older copy. The
voter finds that out by itself, so that no other voter has to know its history.

- A restart needs no leader: the history holds all that anybody heard, and what is newer than that is no reason.
- A crash between writing an incarnation and saying it leaves a number that no voter has heard.
- A leader also says how far it has counted this voter's log, and in which term. A log without that entry is older,
  although no other process opened the directory since it was copied.

An older copy is a lost disk. Its voter takes another directory id (`Incarnations.renew`), kept beside the journal. It
votes again once a leader has caught it up and had that id recorded (`voter_set`). meta.properties keeps its id.

Limits: a copy that was made during the newest incarnation is found out by that term's leader only, while its process
lives. Two voters that both missed an incarnation cannot know of it. A voter that votes alone has no other to ask.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from random import Random
from typing import Annotated, Final, Protocol
from uuid import UUID

import msgspec

from raftlog.base.checked_files import read_checked, write_checked
from raftlog.base.disk import Disk
from raftlog.base.types import NO_DIRECTORY, decode_uuid, encode_uuid
from raftlog.quorum.wal import DamagedJournal

OWN: Final = "voter-incarnations"
"""The file beside the log that holds the directory's id as a voter and its history."""

OTHERS: Final = "peer-incarnations"
"""The file beside the log that holds what this voter heard of the others. A restored backup has none."""

MAX_INCARNATIONS: Final = 1_000
"""Of a history. An older copy passes that was started so often since without meeting a voter that knows."""

MAX_DIRECTORIES: Final = 3
"""Of one voter, that others remember: more than one while a new one is not recorded yet."""

_NUMBER: Final = struct.Struct(">Q")
_CHANCE_BYTES: Final = 8

Bytes16 = Annotated[bytes, msgspec.Meta(max_length=16)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """The newest process of another voter's directory that a voter has heard; it says so in each handshake.

    `index` is up to where, as a leader of `term`, it counted the other's log, and `entry_term` the term of that entry.
    """

    directory_id: Bytes16
    incarnation: Bytes16
    term: Number = 0
    index: Number = 0
    entry_term: Number = 0


HeardList = Annotated[list[Heard], msgspec.Meta(max_length=MAX_DIRECTORIES)]


class HoldsEntries(Protocol):
    """A journal, as far as it shows what a voter has forgotten."""

    @property
    def first_index(self) -> int: ...

    def getCurrentTerm(self) -> int: ...

    def entry_term(self, index: int) -> int | None: ...


def next_incarnation(before: bytes, chance: Random) -> bytes:
    """Return the incarnation after another one; after b"" the first."""
    number = _NUMBER.unpack_from(before)[0] + 1 if before else 1
    return _NUMBER.pack(number) + chance.randbytes(_CHANCE_BYTES)


def _number(incarnation: bytes) -> bytes:
    return incarnation[: _NUMBER.size]


class Incarnations:
    """The history of the directory of one voter, this process included.

    Without a directory id (NO_DIRECTORY) no file is written, and no copy is ever an older one.
    """

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, chance: Random) -> None:
        """Write a new incarnation, durably. Raises OSError, or DamagedJournal if the history has rotted."""
        self._disk = disk
        self._path = f"{directory}/{OWN}"
        self._chance = chance
        self.directory_id = directory_id
        """As the voter's, by which others know it: that of meta.properties until the directory went back in time."""
        self._history: list[bytes] = []
        if directory_id != NO_DIRECTORY:
            self._read()
        self._history.append(next_incarnation(self._history[-1] if self._history else b"", chance))
        self._write()

    @property
    def current(self) -> bytes:
        """Of this process."""
        return self._history[-1]

    def is_older(self, heard: Heard, journal: HoldsEntries) -> bool:
        """Return whether this directory and its journal lack what was heard."""
        if heard.directory_id != self.directory_id.bytes or self.directory_id == NO_DIRECTORY:
            return False
        if _number(heard.incarnation) >= _number(self._history[0]) and heard.incarnation not in self._history:
            return True
        term, index = journal.getCurrentTerm(), heard.index
        if term != heard.term:
            return term < heard.term
        return index >= journal.first_index and journal.entry_term(index) != heard.entry_term

    def renew(self) -> None:
        """Take another directory id, durably: this one went back in time. Raises OSError."""
        self.directory_id = UUID(int=self._chance.getrandbits(128), version=4)
        self._history = [next_incarnation(b"", self._chance)]
        self._write()

    def _read(self) -> None:
        if not self._disk.exists(self._path):
            return
        found = read_checked(self._disk, self._path)
        if found is None:
            raise DamagedJournal(
                f"{self._path} has rotted, and so has its copy: bring both back from a backup"
            )
        first, *history = found.decode().split()
        self.directory_id = decode_uuid(first)
        self._history = [bytes.fromhex(each) for each in history]

    def _write(self) -> None:
        if self.directory_id == NO_DIRECTORY:
            return
        self._history = self._history[-MAX_INCARNATIONS:]
        lines = [encode_uuid(self.directory_id), *(each.hex() for each in self._history)]
        write_checked(self._disk, self._path, ("\n".join(lines) + "\n").encode(), copy=True)


class HeardVoters:
    """This voter's memory of the others.

    Ordering law: `take_staged` is on the disk before a message counts that came with what was noted.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Raises OSError. A file that has rotted counts as absent: then older copies are not known as such."""
        self._disk = disk
        self._path = f"{directory}/{OTHERS}"
        self._heard: dict[int, dict[UUID, bytes]] = {}
        self.dirty = False
        found = read_checked(disk, self._path)
        for line in (found or b"").decode().splitlines():
            voter, directory_id, incarnation = line.split()
            self._heard.setdefault(int(voter), {})[decode_uuid(directory_id)] = bytes.fromhex(incarnation)

    def of(self, voter: int) -> Mapping[UUID, bytes]:
        """Return the newest incarnation that was heard of each directory of a voter."""
        return self._heard.get(voter, {})

    def note(self, voter: int, directory_id: UUID, incarnation: bytes, *, recorded: UUID) -> None:
        """Note the incarnation with which a voter is linked. `recorded`: the directory that the metadata names."""
        before = self.of(voter)
        if not incarnation or directory_id == NO_DIRECTORY or before.get(directory_id) == incarnation:
            return
        kept = {each: heard for each, heard in before.items() if each != directory_id}
        while len(kept) >= MAX_DIRECTORIES:
            del kept[next(each for each in kept if each != recorded)]
        self._heard[voter] = {**kept, directory_id: incarnation}
        self.dirty = True

    def take_staged(self) -> bytes:
        """Return what is to be written; see `write`."""
        self.dirty = False
        return "".join(
            f"{voter} {encode_uuid(directory_id)} {incarnation.hex()}\n"
            for voter, directories in sorted(self._heard.items())
            for directory_id, incarnation in directories.items()
        ).encode()

    def write(self, content: bytes) -> None:
        """Write the file, durably; may run on a worker thread. Raises OSError."""
        write_checked(self._disk, self._path, content)
