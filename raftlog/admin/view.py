"""What a node hands to its admin API: ports, and nothing behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raftlog.base.config import NodeConfig
from raftlog.metadata.image import MetadataImage


@dataclass(slots=True)
class NodeView:
    """One node as its admin API sees it."""

    config: NodeConfig
    image: Callable[[], MetadataImage]
    """The newest metadata that this node has published."""
    hindrances: Callable[[], list[str]]
    """Why this node does not take part, in words; empty when it is ready."""
    wall_clock_ms: Callable[[], float]
    submit: Any = None
    """Asks the active controller; see `raftlog.broker.context.Submit`."""
    faults: Any = None
    """What a node that runs with --enable-faults can do to itself; None without."""
