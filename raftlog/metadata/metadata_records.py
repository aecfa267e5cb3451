"""The records that change the metadata image, and their bytes (MessagePack arrays behind a version byte).

A batch is the unit of atomicity: it is applied whole or, when its fence (controller epoch, base offset) does not
match the image, skipped whole, on every node alike. A record has exactly one meaning:
`raftlog.metadata.record_replay` is the only interpreter.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from raftlog.base.types import NO_BROKER
from raftlog.metadata.causes import Cause
from raftlog.metadata.features import UnsupportedMetadata
from raftlog.metadata.image import Endpoint, SupportedFeature
from raftlog.security.acls import Acl
from raftlog.security.quotas import Entity
from raftlog.security.scram import ScramCredential
from raftlog.security.tokens import DelegationToken

UNCHANGED_LEADER = -2
"""In PartitionChanged: keep the leader and its epoch."""


class ClusterNamed(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """The first record of all: the cluster's id."""

    cluster_id: str


class ControllerElected(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """A new active controller, alone in its batch; its epoch is its Raft term. Older epochs are skipped after it."""

    controller_id: int
    controller_epoch: int


class BrokerRegistered(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """A broker (or a new incarnation) joined, fenced. Its broker epoch is this record's metadata offset."""

    broker_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directory_ids: tuple[UUID, ...]
    features: tuple[SupportedFeature, ...] = ()
    disk_lost: bool | None = None
    """True if it lacks a log directory, or has an older copy; None keeps what the last registration said."""


class BrokerChanged(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """A broker's fencing or shutdown state, whether it is drained of leaderships, and whether it lacks what a lost disk
    had; None keeps a field.
    """

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    draining: bool | None = None
    disk_lost: bool | None = None


class BrokerUnregistered(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """A broker is forgotten, except for log directories in which it held the last in-sync replica of a partition."""

    broker_id: int
    broker_epoch: int
    directory_ids: tuple[UUID, ...] = ()


class TopicCreated(msgspec.Struct, frozen=True, tag=6, array_like=True):
    name: str
    topic_id: UUID


class PartitionCreated(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """A partition at the next number of its topic; leader epoch and partition epoch start at 0."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int


class PartitionChanged(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """Bumps the partition epoch and, with a `leader`, the leader epoch. None keeps a field."""

    topic_id: UUID
    partition: int
    leader: int = UNCHANGED_LEADER
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    isr_lost: bool | None = None
    eligible: tuple[int, ...] | None = None


class TopicDeleted(msgspec.Struct, frozen=True, tag=9, array_like=True):
    topic_id: UUID


class ConfigChanged(msgspec.Struct, frozen=True, tag=10, array_like=True):
    """One dynamic config of one resource; value None removes it."""

    resource_type: str
    resource_name: str
    key: str
    value: str | None


class ProducerIdsAllocated(msgspec.Struct, frozen=True, tag=11, array_like=True):
    """Producer ids below `next_producer_id` are allocated."""

    broker_id: int
    next_producer_id: int


class FeatureChanged(msgspec.Struct, frozen=True, tag=12, array_like=True):
    """The finalized level of a feature."""

    name: str
    level: int


class AclCreated(msgspec.Struct, frozen=True, tag=13, array_like=True):
    acl: Acl


class AclRemoved(msgspec.Struct, frozen=True, tag=14, array_like=True):
    acl: Acl


class ScramCredentialChanged(msgspec.Struct, frozen=True, tag=15, array_like=True):
    """A user's credential for one mechanism; None removes it."""

    user: str
    mechanism: str
    credential: ScramCredential | None


class TokenChanged(msgspec.Struct, frozen=True, tag=20, array_like=True):
    """A delegation token is new, or expires at another time than before."""

    token: DelegationToken


class TokenRemoved(msgspec.Struct, frozen=True, tag=21, array_like=True):
    token_id: str


class ClientQuotaChanged(msgspec.Struct, frozen=True, tag=16, array_like=True):
    """One quota of one entity; None removes it."""

    entity: Entity
    key: str
    value: float | None


class VoterRegistered(msgspec.Struct, frozen=True, tag=22, array_like=True):
    """The directory that votes under a voter's id from now on (a part of Kafka's VotersRecord, KIP-853)."""

    voter_id: int
    directory_id: UUID


class DecommissionChanged(msgspec.Struct, frozen=True, tag=23, array_like=True):
    """A broker is decommissioned: its replicas move to `replace_with`, or to any broker (NO_BROKER).

    `ended`: an operator has ended that before the broker was empty.
    """

    broker_id: int
    replace_with: int = NO_BROKER
    ended: bool = False


Record = (
    ClusterNamed
    | ControllerElected
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | TopicCreated
    | PartitionCreated
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsAllocated
    | FeatureChanged
    | AclCreated
    | AclRemoved
    | ScramCredentialChanged
    | TokenChanged
    | TokenRemoved
    | ClientQuotaChanged
    | VoterRegistered
    | DecommissionChanged
)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One entry that the quorum replicates. `base_offset` is the metadata offset of its first record.

    `at_ms` (wall time, 0: unknown) and `causes` are for people; they do not affect the state, and older batches lack
    them.
    """

    controller_epoch: int
    base_offset: int
    records: tuple[Record, ...]
    at_ms: int = 0
    causes: tuple[Cause, ...] = ()


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(Batch)
_VERSION = b"\x01"


def encode_batch(batch: Batch) -> bytes:
    return _VERSION + _encoder.encode(batch)


def decode_batch(data: bytes | memoryview) -> Batch:
    """Raise UnsupportedMetadata for records unknown to this release, msgspec.DecodeError for damaged bytes."""
    if bytes(data[:1]) != _VERSION:
        raise UnsupportedMetadata(f"metadata batch version {bytes(data[:1])!r} is unknown to this release")
    try:
        return _decoder.decode(data[1:])
    except msgspec.ValidationError as error:
        raise UnsupportedMetadata(f"a metadata batch has what this release does not know: {error}") from error
