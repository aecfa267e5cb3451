"""A set of voters as an entry of the journal: Kafka's VotersRecord (KIP-853). Imported once there is one.

The newest set of a log is in force once it is appended, committed or not (Raft thesis §4.1). A log without a set has
the voters of the config. Consecutive sets differ by one voter, so that their majorities overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final
from uuid import UUID

import msgspec

from raftlog.base.types import NO_DIRECTORY
from raftlog.quorum.wal import VOTERS_PREFIX, DamagedJournal

MAX_CHANGES: Final = 20
"""The changes that a set remembers."""

MAX_PRINCIPAL_CHARS: Final = 255

NO_VOTER: Final = -1

Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
NodeId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Port = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class Voter(msgspec.Struct, frozen=True, array_like=True):
    """One voter: its id, its metadata directory, and the address of its controller listener."""

    voter_id: NodeId
    directory: Bytes16
    host: str
    port: Port

    @property
    def directory_id(self) -> UUID:
        return UUID(bytes=self.directory)

    @property
    def key(self) -> tuple[int, bytes]:
        """Kafka's ReplicaKey."""
        return self.voter_id, self.directory


class VoterChange(msgspec.Struct, frozen=True, array_like=True):
    """One change of the voters. `kind`: "dynamic" (the first set), "added", "removed" or "moved".

    `by`: the principal that asked for it, "" if unknown. `at_ms`: wall time of the leader.
    """

    kind: str
    voter_id: int = NO_VOTER
    directory: Bytes16 = NO_DIRECTORY.bytes
    by: str = ""
    at_ms: int = 0


class VotersRecord(msgspec.Struct, frozen=True, array_like=True):
    """A set of voters, ascending by id. `changes`: the last that led to it, oldest first.

    A reader that does not know `changes` ignores them, and they have no effect on the set.
    """

    voters: list[Voter]
    changes: list[VoterChange] = []

    @property
    def ids(self) -> list[int]:
        return [each.voter_id for each in self.voters]

    def find(self, voter_id: int) -> Voter | None:
        return next((each for each in self.voters if each.voter_id == voter_id), None)

    def directories(self) -> dict[int, UUID]:
        """Return the directory of each voter."""
        return {each.voter_id: each.directory_id for each in self.voters}

    def addresses(self) -> dict[int, tuple[str, int]]:
        """Return the address of each voter's controller listener."""
        return {each.voter_id: (each.host, each.port) for each in self.voters}

    def with_voter(self, voter: Voter) -> VotersRecord:
        """Return the set with one more voter."""
        return voters_record([*self.voters, voter])

    def with_moved(self, voter: Voter) -> VotersRecord:
        """Return the set with another address of a voter."""
        return VotersRecord([voter if each.key == voter.key else each for each in self.voters])

    def after(self, former: VotersRecord | None, change: VoterChange) -> VotersRecord:
        """Return the set with its history: that of the former set, and this change."""
        known = [] if former is None else former.changes
        return VotersRecord(self.voters, [*known, change][-MAX_CHANGES:])

    def without(self, voter_id: int) -> VotersRecord:
        """Return the set without a voter."""
        return VotersRecord([each for each in self.voters if each.voter_id != voter_id])


def voters_record(voters: Iterable[Voter]) -> VotersRecord:
    return VotersRecord(sorted(voters, key=lambda each: each.voter_id))


def differ_by_one(before: VotersRecord, after: VotersRecord) -> bool:
    """Return whether a set may follow another: both are not empty, and one voter at most was added or removed."""
    keys = {each.key for each in before.voters} ^ {each.key for each in after.voters}
    return bool(after.voters) and len(keys) <= 1


def first_record(
    addresses: Mapping[int, tuple[str, int]], directories: Mapping[int, UUID]
) -> VotersRecord | None:
    """Return the voters of the config as a set, or None if the directory of a voter is unknown."""
    if not addresses.keys() <= directories.keys():
        return None
    return voters_record(
        Voter(each, directories[each].bytes, host, port) for each, (host, port) in addresses.items()
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(VotersRecord)


def encode_voters(record: VotersRecord) -> bytes:
    """Return the command that holds a set."""
    return VOTERS_PREFIX + _encoder.encode(record)


def decode_voters(command: bytes) -> VotersRecord:
    """Return the set of a command that begins with VOTERS_PREFIX. Raises DamagedJournal."""
    try:
        record: VotersRecord = _decoder.decode(memoryview(command)[len(VOTERS_PREFIX) :])
    except msgspec.MsgspecError as error:
        raise DamagedJournal(f"a set of voters cannot be read: {error}") from error
    return record
