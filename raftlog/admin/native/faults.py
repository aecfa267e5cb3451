"""Faults of a node: inject, list, heal. Only a node that was started with --enable-faults does it.

A node of `raftlog dev` can also be cut off from the others without that option, for some seconds.

It forwards requests for another node to that node's HTTP API, as the caller.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from raftlog.admin.errors import FORBIDDEN, ApiError, not_found
from raftlog.admin.native.passing_on import ask_node
from raftlog.admin.route import Call, Route
from raftlog.admin.view import FaultSwitch
from raftlog.base.faults import LONGEST_S, NAMES, CutOff, NodeFault, name_of
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

ALL: Final = "all"


class WhichNode(msgspec.Struct, forbid_unknown_fields=True):
    """The target node; null: the serving node. Another node must have an HTTP API without TLS."""

    node_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class Faults(msgspec.Struct):
    """The faults of node `node_id`. `enabled`: it was started with --enable-faults; `available`: what it could do.

    A node of `raftlog dev` without the option can be cut off for some seconds.
    """

    node_id: int
    enabled: bool
    available: list[str]
    active: list[NodeFault]


async def list_faults(call: Call) -> Faults:
    if _is_elsewhere(call):
        return await _pass_on(call, "GET")
    return _faults(call)


async def inject_fault(call: Call) -> Faults:
    """Inject a fault, in place of a fault of the same name."""
    fault: NodeFault = call.body
    call.audit.update(fault=msgspec.to_builtins(fault), node_id=call.query.node_id)
    switch = _switch(call)
    if _is_elsewhere(call):
        return await _pass_on(call, "POST", body=msgspec.json.encode(fault))
    if name_of(fault) not in switch.available:
        raise _not_enabled(call)
    if not switch.enabled and isinstance(fault, CutOff) and not fault.seconds:
        raise ApiError(
            422, f"$.seconds: without --enable-faults it must be more than 0, and at most {LONGEST_S}"
        )
    switch.inject(fault)
    return _faults(call)


async def heal_fault(call: Call) -> Faults:
    """Heal a fault, or every fault for "all"; no effect if it is not in force."""
    switch, name = _switch(call), call.path["name"]
    if name not in (*NAMES, ALL):
        raise not_found(f"fault {name[:100]!r} ({', '.join(NAMES)} and {ALL} do)")
    if _is_elsewhere(call):
        return await _pass_on(call, "DELETE", f"/{name}")
    switch.heal(name)
    return _faults(call)


def _is_elsewhere(call: Call) -> bool:
    return call.query.node_id not in (None, call.node.config.node_id)


async def _pass_on(
    call: Call, method: Literal["GET", "POST", "DELETE"], path: str = "", *, body: bytes | None = None
) -> Faults:
    """Forward to another node as the caller. Raise ApiError, also for that node's errors."""
    _switch(call)  # a node without faults forwards no requests
    node_id = call.query.node_id
    request = f"{method} /v1/faults{path}?node_id={node_id}"
    found: Faults = await ask_node(call, node_id, request, Faults, body=body)
    return found


def _switch(call: Call) -> FaultSwitch:
    if call.node.faults is None:
        raise _not_enabled(call)
    return call.node.faults


def _not_enabled(call: Call) -> ApiError:
    text = f"node {call.node.config.node_id} was started without --enable-faults, which is for tests only"
    return ApiError(403, text, code=FORBIDDEN)


def _faults(call: Call) -> Faults:
    switch = call.node.faults
    node_id, enabled = call.node.config.node_id, call.node.faults_enabled
    if switch is None:
        return Faults(node_id, enabled, list(NAMES), [])
    return Faults(node_id, enabled, list(switch.available), switch.active())


ROUTES: Final = (
    Route(
        "GET",
        "/v1/faults",
        list_faults,
        "The faults in force on a node",
        query=WhichNode,
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/faults",
        inject_fault,
        "Inject a fault into a node",
        query=WhichNode,
        body=NodeFault,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        "/v1/faults/{name}",
        heal_fault,
        'Heal a fault of a node, or "all"',
        query=WhichNode,
        rights=ALTER_CLUSTER,
    ),
)
