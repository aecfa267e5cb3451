"""The settings of one broker as they are at this moment: default < file < all brokers' < the broker's own (KIP-226).

Code that uses a dynamic setting keeps no copy of it, and reads it here each time.
"""

from __future__ import annotations

from raftlog.base.config import NodeConfig, broker_config
from raftlog.metadata.image import MetadataImage


def effective_broker_config(started_with: NodeConfig, image: MetadataImage) -> NodeConfig:
    """Return the settings in force of the broker that was started with these: a cached object for each change."""
    return broker_config(started_with, image.broker_configs(started_with.node_id))
