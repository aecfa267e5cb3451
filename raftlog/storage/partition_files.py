"""The names and the small text file of a partition's folder, as Apache Kafka has them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from raftlog.base.types import decode_uuid, encode_uuid

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
DAMAGE_MARK: Final = "raftlog-damage"
"""Not Kafka's: acknowledged records may be missing, see `raftlog.storage.damage.Damage`."""
TRUNCATION_MARK: Final = "raftlog-truncated-to"
"""Not Kafka's: a truncation below a recovery point that the directory's checkpoint may still name."""
GAPS_MARK: Final = "raftlog-gaps"
"""Not Kafka's: the log is or was compacted, so that offsets need not follow each other."""
LEFTOVER_SUFFIXES: Final = (".deleted", ".cleaned", ".swap", ".tmp")
OFFSET_DIGITS: Final = 20


def offsets_in_names(names: list[str], suffix: str) -> list[int]:
    """Return the sorted offsets of the files `<20 digits><suffix>`."""
    stems = [name[:OFFSET_DIGITS] for name in names if name[OFFSET_DIGITS:] == suffix]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the bytes of a `partition.metadata` file."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(file_bytes: bytes) -> UUID:
    """Return the topic id of a `partition.metadata` file. ValueError if it is malformed."""
    fields = dict(line.split(": ", 1) for line in file_bytes.decode("ascii").splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("not a partition.metadata file of version 0")
    return decode_uuid(fields["topic_id"].strip())
