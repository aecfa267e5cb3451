"""The messages of the handshake between two nodes, as values and as bytes (MessagePack arrays).

They carry the levels of the metadata that a node supports; all nodes refuse a node that lacks the cluster's level. A
field that a release added is at the end and has a default: older releases neither send it nor read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol
from uuid import UUID

import msgspec

from raftlog.base.types import NO_DIRECTORY
from raftlog.quorum.incarnations import Heard, HeardList

ChannelKind = Literal["raft", "rpc", "heartbeat", "observe"]

NodeId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
ShortBytes = Annotated[bytes, msgspec.Meta(max_length=16)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="raftlog hello"):
    """The connecting end's first message. For the fields from `directory_id` on see `Introduced`."""

    protocol: int
    kind: ChannelKind
    node_id: NodeId
    cluster_id: str
    nonce: bytes
    lowest_level: int = 0
    highest_level: int = 0
    directory_id: ShortBytes = b""
    incarnation: ShortBytes = b""
    new_journal: bool = False
    heard: HeardList = []
    observes: bool = False


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="raftlog challenge"):
    node_id: NodeId
    cluster_id: str
    nonce: bytes
    lowest_level: int = 0
    """As `highest_level`: of the metadata, that the node supports. Releases up to 0.2.0 omit it, and support 0."""
    highest_level: int = 0
    directory_id: ShortBytes = b""
    incarnation: ShortBytes = b""
    new_journal: bool = False
    heard: HeardList = []
    observes: bool = False


class Proof(msgspec.Struct, frozen=True, array_like=True, tag="raftlog proof"):
    proof: bytes


class Verdict(msgspec.Struct, frozen=True, array_like=True, tag="raftlog verdict"):
    """The listener's answer to a correct proof; with a `reason` it still refuses this peer."""

    proof: bytes
    reason: str


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag="raftlog refusal"):
    """Unauthenticated, for the other side's log."""

    reason: str


class Introduced(msgspec.Struct, frozen=True):
    """The peer's own part of a hello or challenge. Releases up to 0.3.0 send only `node_id`."""

    node_id: int = -1
    directory_id: UUID = NO_DIRECTORY
    """The id of its metadata directory (Kafka's directory.id)."""
    incarnation: bytes = b""
    """The id of its process (`incarnations`). If two processes share node id and directory id, one is a copy."""
    new_journal: bool = False
    """Whether its metadata log is empty and has never seen a term."""
    heard: tuple[Heard, ...] = ()
    """What it remembers of the receiver's directories."""
    observes: bool = False
    """Whether it counts itself a voter only by a set of its log, not by its config."""


def introduced(message: Hello | Challenge) -> Introduced:
    """Return the content of a message about its sender."""
    directory_id = UUID(bytes=message.directory_id) if len(message.directory_id) == 16 else NO_DIRECTORY
    return Introduced(
        message.node_id,
        directory_id,
        message.incarnation,
        message.new_journal,
        tuple(message.heard),
        message.observes,
    )


class IntroducesVoter(Protocol):
    """A voter's answers for handshakes; see `Introduced`."""

    @property
    def directory_id(self) -> UUID: ...

    @property
    def incarnation(self) -> bytes: ...

    @property
    def new_journal(self) -> bool: ...

    @property
    def observes(self) -> bool: ...

    def incarnations_of(self, voter: int) -> list[Heard]: ...


def directory_fields(
    voter: IntroducesVoter | None, peer: int | None, directory_id: UUID
) -> tuple[bytes, bytes, bool, list[Heard], bool]:
    """Return the last fields of a hello or of a challenge to a peer (None: unknown which)."""
    if voter is None:
        return directory_id.bytes, b"", False, [], False
    heard = [] if peer is None else voter.incarnations_of(peer)
    return voter.directory_id.bytes, voter.incarnation, voter.new_journal, heard, voter.observes


encode_handshake = msgspec.msgpack.Encoder().encode
decode_handshake = msgspec.msgpack.Decoder(Hello | Challenge | Proof | Verdict | Refusal).decode


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of the metadata that a node supports, both inclusive, and the finalized level of the cluster."""

    lowest: int = 0
    highest: int = 0
    finalized: Callable[[], int | None] = lambda: None
    """None: not known yet."""


def why_too_old(ours: Levels, node_id: int, theirs: tuple[int, int]) -> str | None:
    """Return the reason to refuse a peer of a release that does not support the cluster's level, or None."""
    finalized, (lowest, highest) = ours.finalized(), theirs
    if finalized is None or lowest <= finalized <= highest:
        return None
    return (
        f"node {node_id} supports levels {lowest} to {highest} of raftlog.metadata.version, "
        f"and the cluster's is {finalized}: install the cluster's release on node {node_id}"
    )
