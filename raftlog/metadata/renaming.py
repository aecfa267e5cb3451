"""Changes the cluster id in written metadata, for a copy of a cluster that becomes a cluster of its own."""

from __future__ import annotations

from msgspec.structs import replace

from raftlog.base.errors import UnsupportedVersion
from raftlog.metadata.features import (
    RAFTLOG_METADATA_VERSION,
    SUPPORTED_FEATURES,
    check_levels,
    finalized_level,
)
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import ClusterNamed, decode_batch, encode_batch
from raftlog.metadata.snapshot import decode_image, encode_image

RENAMED_SINCE = 1
"""The level since which brokers distinguish clusters by their ids, see `broker.links.peer_auth`."""


def check_renaming(image: MetadataImage) -> None:
    """Raise UnsupportedVersion if brokers would not distinguish a copy of a cluster by its id.

    Raise UnsupportedMetadata for the metadata of a newer release, part of which would be lost.
    """
    check_levels(SUPPORTED_FEATURES, image)
    level = finalized_level(image, RAFTLOG_METADATA_VERSION)
    if level < RENAMED_SINCE:
        raise UnsupportedVersion(
            f"the cluster's {RAFTLOG_METADATA_VERSION} is {level}, at which brokers do not check the cluster's id: run"
            " `raftlog cluster upgrade` on the cluster, and back it up again"
        )


def rename_in_batch(written: bytes, cluster_id: str) -> bytes:
    """Return an encoded batch with its cluster id, if any, replaced."""
    batch = decode_batch(written)
    if not any(isinstance(each, ClusterNamed) for each in batch.records):
        return written
    records = tuple(
        ClusterNamed(cluster_id) if isinstance(each, ClusterNamed) else each for each in batch.records
    )
    return encode_batch(replace(batch, records=records))


def rename_in_image(written: bytes, cluster_id: str) -> bytes:
    """Return an encoded image with the cluster id replaced."""
    return encode_image(replace(decode_image(written), cluster_id=cluster_id))
