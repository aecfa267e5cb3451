"""What voters say to each other, as values and as bytes (MessagePack arrays). Nothing here is ever unpickled."""

from __future__ import annotations

import msgspec

from raftlog.quorum.wal import Entry


class AppendEntries(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Raft §5.3; no entries: a heartbeat."""

    term: int
    commit_index: int
    prev_index: int
    prev_term: int
    entries: list[Entry]


class NextIndex(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer to AppendEntries. `success`: everything below `next_index` matches; `reset`: send from there."""

    term: int
    next_index: int
    reset: bool
    success: bool


class RequestVote(msgspec.Struct, frozen=True, array_like=True, tag=3):
    term: int
    last_index: int
    last_term: int


class VoteGranted(msgspec.Struct, frozen=True, array_like=True, tag=4):
    term: int


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Leadership transfer (Raft thesis §3.10): stand at once."""

    term: int


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Bytes [start, start + len(data)) of the snapshot at `index`, `total` bytes long in all."""

    term: int
    index: int
    total: int
    start: int
    data: bytes


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Would you vote for me in `term`? (Raft thesis §9.6)"""

    term: int
    last_index: int
    last_term: int


class PreVoteGranted(msgspec.Struct, frozen=True, array_like=True, tag=8):
    term: int


class HigherTerm(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """You speak of an older term than this one; step down."""

    term: int


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Keeps a silent link known to be alive."""


Message = (
    AppendEntries
    | NextIndex
    | RequestVote
    | VoteGranted
    | TimeoutNow
    | SnapshotChunk
    | PreVote
    | PreVoteGranted
    | HigherTerm
    | Ping
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Raises msgspec.MsgspecError for anything that is not a message."""
    return _decoder.decode(data)  # type: ignore[no-any-return]
