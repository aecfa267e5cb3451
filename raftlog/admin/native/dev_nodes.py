"""Nodes of a cluster of `raftlog dev`: kill, pause, resume, restart and stop them, as its commands do.

Other clusters refuse it. An action that may end the node which was asked comes after the response.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from raftlog.admin.errors import FORBIDDEN, ApiError, not_found
from raftlog.admin.route import Call, Route
from raftlog.base.dev_cluster import DevCluster, DevRefused
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

if TYPE_CHECKING:
    from concurrent.futures import Executor

MOST_ASKED: Final = 4
"""Requests to the process that runs the nodes, at a time; others wait."""


class DevNode(msgspec.Struct):
    """A node and its addresses. `pid` is null while no process runs."""

    node_id: int
    state: Literal["running", "starting", "paused", "down"]
    pid: int | None
    kafka: str
    http: str


class DevNodes(msgspec.Struct):
    """All nodes, as node `node_id` answers. `enabled`: `raftlog dev` runs them; otherwise there is no data."""

    node_id: int
    enabled: bool
    data: list[DevNode]


class DevAction(msgspec.Struct, forbid_unknown_fields=True):
    """An action on a node. `kill` is SIGKILL, `pause` is SIGSTOP; `restart` kills it first if it runs."""

    action: Literal["kill", "pause", "resume", "restart", "stop"]


async def list_dev_nodes(call: Call) -> DevNodes:
    """Ask the process that runs the cluster for the states of its nodes."""
    if call.node.dev is None:
        return DevNodes(call.node.config.node_id, enabled=False, data=[])
    return _nodes(call, await _ask(call.node.dev, "status"))


async def act_on_dev_node(call: Call) -> DevNodes:
    """Return the states after the action, or before it if it is about the node that answers."""
    own, node_id, action = call.node.config.node_id, call.path["node_id"], call.body.action
    call.audit.update(node_id=node_id, action=action)
    if call.node.dev is None:
        text = (
            f"node {own} was not started by `raftlog dev`: only nodes of its clusters can be killed over HTTP"
        )
        raise ApiError(403, text, code=FORBIDDEN)
    states = await _ask(call.node.dev, "status")
    if all(each["node"] != node_id for each in states):
        raise not_found(f"node {node_id}")
    if node_id == own and action != "resume":
        call.node.dev.ask_soon(action, node_id)
        return _nodes(call, states)
    return _nodes(call, await _ask(call.node.dev, action, node_id))


@cache
def _threads() -> Executor:
    """Return threads of their own: an action takes up to a minute, and logins need those of the loop."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(MOST_ASKED, "dev-nodes")


async def _ask(dev: DevCluster, action: str, node_id: int | None = None) -> list[dict[str, Any]]:
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads(), dev.ask, action, node_id)
    except DevRefused as refused:
        raise ApiError(409, str(refused), code=409) from None


def _nodes(call: Call, states: list[dict[str, Any]]) -> DevNodes:
    data = [DevNode(each["node"], each["state"], each["pid"], each["kafka"], each["http"]) for each in states]
    return DevNodes(call.node.config.node_id, enabled=True, data=data)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/dev/nodes",
        list_dev_nodes,
        "The nodes of a cluster of `raftlog dev`, and their states",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/dev/nodes/{node_id:int}",
        act_on_dev_node,
        "Kill, pause, resume, restart or stop a node of a cluster of `raftlog dev`",
        body=DevAction,
        rights=ALTER_CLUSTER,
    ),
)
