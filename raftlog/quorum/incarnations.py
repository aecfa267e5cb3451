"""Detects directories of voters that are older copies: a restored backup of one voter, or the snapshot of its machine.

A voter with an older directory has lost entries and votes that others count on. Its directory id does not show that. So
each process that opens the directory first writes an *incarnation* there: a number, one higher than the previous, and
random bytes. The list of the newest incarnations is the directory's history.

Every voter writes down the last incarnation of each other voter, before that voter's messages count. In the handshake
it reports this to that voter. A directory is an older copy if its history lacks what another voter has heard. The voter
finds that out by itself, so that no other voter has to know its history.

- A restart needs no leader: the history holds all that any voter heard, and newer incarnations are fine.
- A crash between writing an incarnation and sending it leaves a number that no voter has heard.
- A leader also says how far it has counted this voter's log, and in which term. A log without that entry is older,
  although no other process opened the directory since it was copied.

An older copy is a lost disk. Its voter takes another directory id (`Incarnations.renew`), kept beside the journal. It
votes again once a leader has caught it up and had that id recorded (`voter_set`). meta.properties keeps its id.

Limits: only that term's leader detects a copy that was made during the newest incarnation, while its process lives. Two
voters that both missed an incarnation cannot know of it. A single voter has no other voter to ask.
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

OWN: Final = "voter-incarnations"
"""The file beside the log that holds the directory's id as a voter and its history."""

OTHERS: Final = "peer-incarnations"
"""The file beside the log that holds what this voter heard of other voters. A restored backup has none."""

MAX_INCARNATIONS: Final = 1_000
"""The length of a history. An older copy goes unnoticed after so many starts without a link to an informed voter."""

MAX_DIRECTORIES: Final = 3
"""Directories that are remembered of one voter: more than one while a new directory is not recorded yet."""

_NONE: Final[Mapping[UUID, bytes]] = {}
_NUMBER: Final = struct.Struct(">Q")
_CHANCE_BYTES: Final = 8

Bytes16 = Annotated[bytes, msgspec.Meta(max_length=16)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """The newest process of another voter's directory that a voter has heard, reported in each handshake.

    As leader of `term` it counted the other's log up to `index`, an entry of `entry_term`.
    """

    directory_id: Bytes16
    incarnation: Bytes16
    term: Number = 0
    index: Number = 0
    entry_term: Number = 0


HeardList = Annotated[list[Heard], msgspec.Meta(max_length=MAX_DIRECTORIES)]


class HoldsEntries(Protocol):
    """A journal, for detecting what a voter has lost."""

    @property
    def first_index(self) -> int: ...

    def getCurrentTerm(self) -> int: ...

    def entry_term(self, index: int) -> int | None: ...


def next_incarnation(before: bytes, chance: Random) -> bytes:
    """Return the incarnation after another, the first after b""."""
    number = _NUMBER.unpack_from(before)[0] + 1 if before else 1
    return _NUMBER.pack(number) + chance.randbytes(_CHANCE_BYTES)


def _number(incarnation: bytes) -> bytes:
    return incarnation[: _NUMBER.size]


class Incarnations:
    """The history of the directory of one voter, this process included.

    Without a directory id (NO_DIRECTORY) no file is written, and no copy is detected.
    """

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, chance: Random) -> None:
        """Write a new incarnation, durably. Raise OSError.

        A rotted history counts as absent. Other voters have heard of it, so this directory is an older copy to them.
        """
        self._disk = disk
        self._path = f"{directory}/{OWN}"
        self._chance = chance
        self.directory_id = directory_id
        """The voter's id to others: that of meta.properties, until the directory went back in time."""
        self._history: list[bytes] = []
        if directory_id != NO_DIRECTORY:
            self._read()
        self._history.append(next_incarnation(self._history[-1] if self._history else b"", chance))
        self._write()

    @property
    def current(self) -> bytes:
        """Return the incarnation of this process."""
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
        found = read_checked(self._disk, self._path)
        if found is None:
            return
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

    Ordering law: `take_staged` is on the disk before a message of the noted incarnation counts.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Raise OSError. A rotted file counts as absent: then older copies go undetected."""
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

    def knows(self, voter: int, directory_id: UUID, incarnation: bytes) -> bool:
        """Return whether `note` would not change anything."""
        return self._heard.get(voter, _NONE).get(directory_id) == incarnation

    def note(self, voter: int, directory_id: UUID, incarnation: bytes, *, recorded: UUID) -> None:
        """Note the incarnation with which a voter is linked. `recorded`: the directory that the metadata names."""
        if not incarnation or directory_id == NO_DIRECTORY or self.knows(voter, directory_id, incarnation):
            return
        before = self.of(voter)
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
