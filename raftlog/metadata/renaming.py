"""Another id of the cluster in metadata that is written already: for a copy of a cluster that is to be another one."""

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
"""The level from which on brokers tell clusters apart by their ids, see `broker.links.peer_auth`."""


def check_renaming(image: MetadataImage) -> None:
    """Raise UnsupportedVersion if a copy of a cluster with another id would not be kept apart from it.

    Raises UnsupportedMetadata for the metadata of a newer release, part of which would be lost.
    """
    check_levels(SUPPORTED_FEATURES, image)
    level = finalized_level(image, RAFTLOG_METADATA_VERSION)
    if level < RENAMED_SINCE:
        raise UnsupportedVersion(
            f"the cluster's {RAFTLOG_METADATA_VERSION} is {level}, at which brokers do not tell clusters apart: run"
            " `raftlog cluster upgrade` on the cluster, and back it up again"
        )


def rename_in_batch(written: bytes, cluster_id: str) -> bytes:
    """Return an encoded batch that names the cluster so, if it names it at all."""
    batch = decode_batch(written)
    if not any(isinstance(each, ClusterNamed) for each in batch.records):
        return written
    records = tuple(
        ClusterNamed(cluster_id) if isinstance(each, ClusterNamed) else each for each in batch.records
    )
    return encode_batch(replace(batch, records=records))


def rename_in_image(written: bytes, cluster_id: str) -> bytes:
    """Return an encoded image of a cluster that is called so."""
    return encode_image(replace(decode_image(written), cluster_id=cluster_id))
