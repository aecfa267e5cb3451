"""The image's bytes: a version byte, then MessagePack arrays in the image's own order.

Equal records in equal order give equal bytes. An image is immutable, so encoding may run in another thread while
the cluster moves on. Checksums and files are the quorum's.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from raftlog.base.types import NO_EPOCH
from raftlog.metadata.features import UnsupportedMetadata
from raftlog.metadata.image import BrokerState, MetadataImage, TopicState, only_directories
from raftlog.metadata.persistent_map import PersistentMap
from raftlog.metadata.usage import usage_of
from raftlog.security.acls import Acl
from raftlog.security.quotas import Entity
from raftlog.security.scram import ScramCredential
from raftlog.security.tokens import DelegationToken

MAX_IMAGE_BYTES: Final = 512 * 1024 * 1024
"""Largest encoded image. The controller refuses growth beyond it: a larger image has no snapshot."""

_VERSION = b"\x01"


class VoterState(msgspec.Struct, frozen=True, array_like=True):
    """One voter; later releases may add fields."""

    voter_id: int
    directory_id: UUID


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    controller_epoch: int
    controller_id: int
    cluster_id: str
    brokers: list[BrokerState]
    topics: list[TopicState]
    configs: list[tuple[str, str, dict[str, str]]]
    next_producer_id: int
    topics_offset: int = 0
    features: dict[str, int] = {}
    features_epoch: int = 0
    departed: dict[int, tuple[UUID, ...]] = {}
    acls: list[Acl] = []
    scram: list[tuple[str, str, ScramCredential]] = []
    tokens: list[DelegationToken] = []
    quotas: list[tuple[Entity, dict[str, float]]] = []
    voters: list[VoterState] = []
    decommissions: dict[int, int] = {}
    unregistered: list[BrokerState] = []


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def encode_image(image: MetadataImage) -> bytes:
    """Return the image's bytes (about 20 per partition, 10 million partitions a second)."""
    snapshot = _Snapshot(
        offset=image.offset,
        controller_epoch=image.controller_epoch,
        controller_id=image.controller_id,
        cluster_id=image.cluster_id,
        brokers=list(image.brokers.values()),
        topics=list(image.topics.values()),
        configs=[(*resource, dict(values)) for resource, values in image.configs.items()],
        next_producer_id=image.next_producer_id,
        topics_offset=image.topics_offset,
        features=dict(image.features),
        features_epoch=image.features_epoch,
        departed={each.broker_id: each.directory_ids for each in image.unregistered.values()},
        acls=list(image.acls),
        scram=[(*key, credential) for key, credential in image.scram.items()],
        tokens=list(image.tokens.values()),
        quotas=[(entity, dict(values)) for entity, values in image.quotas.items()],
        voters=[VoterState(*each) for each in image.voters.items()],
        decommissions=dict(image.decommissions),
        unregistered=[each for each in image.unregistered.values() if each.broker_epoch != NO_EPOCH],
    )
    return _VERSION + _encoder.encode(snapshot)


def decode_image(data: bytes | memoryview) -> MetadataImage:
    """Return the image of `encode_image`'s bytes.

    Raise UnsupportedMetadata for what this release does not know, msgspec.DecodeError for damaged bytes. A newer
    release's snapshot may have more fields, which are ignored: the finalized levels show whether that is safe.
    """
    if bytes(data[:1]) != _VERSION:
        raise UnsupportedMetadata(f"metadata snapshot version {bytes(data[:1])!r} is unknown to this release")
    try:
        snapshot = _decoder.decode(data[1:])
    except msgspec.ValidationError as error:
        raise UnsupportedMetadata(
            f"a metadata snapshot has what this release does not know: {error}"
        ) from error
    older = {broker_id: only_directories(broker_id, ids) for broker_id, ids in snapshot.departed.items()}
    image = MetadataImage(
        offset=snapshot.offset,
        controller_epoch=snapshot.controller_epoch,
        controller_id=snapshot.controller_id,
        cluster_id=snapshot.cluster_id,
        brokers={broker.broker_id: broker for broker in snapshot.brokers},
        topics=PersistentMap({topic.name: topic for topic in snapshot.topics}),
        topic_names=PersistentMap({topic.topic_id: topic.name for topic in snapshot.topics}),
        configs=PersistentMap({(kind, name): values for kind, name, values in snapshot.configs}),
        next_producer_id=snapshot.next_producer_id,
        topics_offset=snapshot.topics_offset,
        features=snapshot.features,
        features_epoch=snapshot.features_epoch,
        unregistered=older | {broker.broker_id: broker for broker in snapshot.unregistered},
        acls=PersistentMap(dict.fromkeys(snapshot.acls, True)),
        scram=PersistentMap({(user, mechanism): found for user, mechanism, found in snapshot.scram}),
        tokens=PersistentMap({token.token_id: token for token in snapshot.tokens}),
        quotas=PersistentMap(dict(snapshot.quotas)),
        voters={voter.voter_id: voter.directory_id for voter in snapshot.voters},
        decommissions=snapshot.decommissions,
    )
    return replace(image, usage=usage_of(image))
