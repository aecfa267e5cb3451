"""The messages between voters, as values and as bytes (MessagePack arrays). They are never unpickled."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from raftlog.quorum.wal import MAX_COMMAND_BYTES

CHUNK_BYTES: Final = 1024 * 1024

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""An index, a term, or a count of bytes: within what the log and the core can hold. Any other value makes a message
invalid.
"""

DirectoryId = Annotated[bytes, msgspec.Meta(max_length=16)]
Incarnation = Annotated[bytes, msgspec.Meta(max_length=16)]
Listed = Annotated[tuple[Number, ...], msgspec.Meta(max_length=100)]
"""The ids of the voters of a config, ascending."""


class MessageSizes(NamedTuple):
    """Limits of one message in bytes. Simulations make both tiny, so that few entries are many messages.

    `batch_bytes`: an append_entries message holds at most this and one more command. Every command must be smaller.
    `chunk_bytes`: of a snapshot.
    """

    batch_bytes: int = 2 * MAX_COMMAND_BYTES
    chunk_bytes: int = CHUNK_BYTES


class AppendEntries(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Raft §5.3; no entries: a heartbeat."""

    term: Number
    commit_index: Number
    prev_index: Number
    prev_term: Number
    entries: list[tuple[bytes, Number, Number]]


class AppendEntriesResponse(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer to AppendEntries. `success`: everything below `next_index` matches; `reset`: send from there."""

    term: Number
    next_index: Number
    reset: bool
    success: bool


class RequestVote(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Raft §5.2. Releases up to 0.3.0 lack the fields from `directory_id` on."""

    term: Number
    last_index: Number
    last_term: Number
    directory_id: DirectoryId = b""
    """The receiver's, as the sender's metadata names it (Kafka's VoterDirectoryId); see `VoterSet.claim`."""
    forming: bool = False
    """Whether the sender's metadata names no cluster yet."""
    voters: Listed = ()
    """The list of voters that the receiver's config must have; empty: any."""


class VoteGranted(msgspec.Struct, frozen=True, array_like=True, tag=4):
    term: Number


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Leadership transfer (Raft thesis §3.10): stand at once."""

    term: Number


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Bytes [start, start + len(data)) of the snapshot at `index`, `total` bytes long in all."""

    term: Number
    index: Number
    total: Number
    start: Number
    data: bytes


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Asks for a pre-vote in `term` (Raft thesis §9.6). It ends with the last fields of RequestVote."""

    term: Number
    last_index: Number
    last_term: Number
    directory_id: DirectoryId = b""
    forming: bool = False
    voters: Listed = ()


class PreVoteGranted(msgspec.Struct, frozen=True, array_like=True, tag=8):
    term: Number


class HigherTerm(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The receiver's message was of an older term: step down."""

    term: Number


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Keeps a silent link known to be alive."""


class LinkClaim(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Asks a linked voter whether it has another process of a voter. `in_use`: the link is in use. Releases up to 0.3.0
    do not know this message.
    """

    voter: Number
    incarnation: Incarnation
    in_use: bool = False


class LinkAnswer(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """`denied`: the sender has another process of that voter."""

    voter: Number
    incarnation: Incarnation
    denied: bool


class KnownVoters(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The newest set of voters of the sender, for nodes that look for the leader. Only sent where the voters change.

    `command`: as in the log.
    """

    command: bytes


Message = (
    AppendEntries
    | AppendEntriesResponse
    | RequestVote
    | VoteGranted
    | TimeoutNow
    | SnapshotChunk
    | PreVote
    | PreVoteGranted
    | HigherTerm
    | Ping
    | LinkClaim
    | LinkAnswer
    | KnownVoters
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Decode a message. Raises msgspec.MsgspecError for anything that is not a message."""
    message: Message = _decoder.decode(data)  # msgspec has named this type since 0.23 only
    return message
