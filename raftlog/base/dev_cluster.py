"""A cluster of `raftlog dev` as one of its nodes reaches it. The process that started the nodes controls them."""

from __future__ import annotations

from typing import Any, Protocol


class DevRefused(Exception):
    """The process refused an action on a node, or it does not answer."""


class DevCluster(Protocol):
    """The process that controls the nodes. Actions are those of `raftlog dev`: kill, pause, resume, restart, stop."""

    def ask(self, action: str, node_id: int | None = None) -> list[dict[str, Any]]:
        """Act on a node and return each node's state; `status` only returns it. Blocks. Raise DevRefused."""

    def ask_soon(self, action: str, node_id: int) -> None:
        """Request an action that may end this process, once the response has left. Its answer is ignored."""
