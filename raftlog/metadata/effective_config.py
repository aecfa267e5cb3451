"""The settings of one broker as they are at this moment: default < file < all brokers' < the broker's own (KIP-226).

Code that uses a dynamic setting keeps no copy of it, and reads it here each time. Brokers with cordoned log directories
are found here, too.
"""

from __future__ import annotations

from collections.abc import Set

from raftlog.base.config import NodeConfig, broker_config
from raftlog.base.config.cordon import ALL_DIRS
from raftlog.metadata.image import MetadataImage


def effective_broker_config(started_with: NodeConfig, image: MetadataImage) -> NodeConfig:
    """Return the settings in force of the broker that was started with these: a cached object for each change."""
    return broker_config(started_with, image.broker_configs(started_with.node_id))


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
