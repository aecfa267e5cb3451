"""Definitions that every room shares. Offsets are record counts from the start of a partition, `end_*` is exclusive."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple
from uuid import UUID

NO_BROKER: Final = -1
"""The id of an unknown or absent leader or broker."""

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
MAX_OFFSET: Final = 2**63 - 1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1

NO_DIRECTORY: Final = UUID(int=0)
"""The id of an unknown directory, as in Kafka."""

METADATA_FOLDER: Final = "raftlog-metadata"
"""Below metadata.log.dir: a voter's journal and snapshots."""

KEPT_SECRET: Final = "cluster-secret"  # noqa: S105 (the name of a file)
"""A file in that folder: a cluster secret that derives from the config's voters, once these can change."""

NAME_MAX_CHARS: Final = 249
"""Characters of a name that clients choose: of topics (Kafka's limit), groups, their members, and transactional ids.

Kafka limits only the names of topics. But all names are hashed, logged and stored.
"""

TOPIC_NAME_RULE: Final = (
    "a topic name is 1 to 249 of the characters [a-zA-Z0-9._-], but neither . nor .. alone"
)
_LEGAL_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
SCHEMAS_TOPIC: Final = "_schemas"
"""The store of schema registries. It is no internal topic: another registry may write it."""
METADATA_TOPIC: Final = "__cluster_metadata"
"""The quorum's own log, which is not a topic of the cluster."""


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EpochEnd(NamedTuple):
    """The largest leader epoch ≤ a requested epoch, and its end offset (exclusive). (-1, -1) if unknown."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


def is_legal_topic_name(name: str) -> bool:
    """Return whether a topic can have this name, by TOPIC_NAME_RULE."""
    return _LEGAL_TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def encode_uuid(value: UUID) -> str:
    """Return Kafka's text form of a UUID: URL-safe base64 of its 16 bytes, no padding."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """Return the UUID of Kafka's text form. ValueError if it is invalid."""
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
