"""Brokers that get no new replicas, since all their log directories are cordoned (KIP-1066)."""

from __future__ import annotations

from collections.abc import Set

from raftlog.base.config.cordon import ALL_DIRS
from raftlog.metadata.image import MetadataImage


def cordoned_brokers(image: MetadataImage, reported: Set[int] = frozenset()) -> frozenset[int]:
    """Return the brokers of which all log directories are cordoned (KIP-1066).

    A broker's dynamic config counts at once, also while it is away. Only the broker knows what its file says, so
    without a dynamic config its last heartbeat counts: `reported`.
    """
    found = set()
    for broker_id, broker in image.brokers.items():
        text = image.config("broker", str(broker_id)).get("cordoned.log.dirs")
        named = set() if text is None else {each.strip() for each in text.split(",") if each.strip()}
        all_named = bool(named) and (ALL_DIRS in named or 0 < len(broker.directory_ids) <= len(named))
        if all_named or (text is None and broker_id in reported):
            found.add(broker_id)
    return frozenset(found)
