"""Faults of the node that is asked: inject, list, heal. Only a node that was started with --enable-faults does it."""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.admin.errors import FORBIDDEN, ApiError, not_found
from raftlog.admin.route import ALTER_CLUSTER, DESCRIBE_CLUSTER, Call, Route
from raftlog.admin.view import FaultSwitch
from raftlog.base.faults import NAMES, NodeFault

ALL: Final = "all"


class Faults(msgspec.Struct):
    """The faults of node `node_id`. `enabled`: it was started with --enable-faults; `available`: what it could do."""

    node_id: int
    enabled: bool
    available: list[str]
    active: list[NodeFault]


async def list_faults(call: Call) -> Faults:
    return _faults(call)


async def inject_fault(call: Call) -> Faults:
    """One of the same name is replaced."""
    fault: NodeFault = call.body
    _switch(call).inject(fault)
    call.audit.update(fault=msgspec.to_builtins(fault))
    return _faults(call)


async def heal_fault(call: Call) -> Faults:
    """Healing one that is not in force changes nothing; "all" heals every one."""
    switch, name = _switch(call), call.path["name"]
    if name not in (*NAMES, ALL):
        raise not_found(f"fault {name[:100]!r} ({', '.join(NAMES)} and {ALL} do)")
    switch.heal(name)
    return _faults(call)


def _switch(call: Call) -> FaultSwitch:
    if call.node.faults is None:
        text = f"node {call.node.config.node_id} was started without --enable-faults, which is for tests only"
        raise ApiError(403, text, code=FORBIDDEN)
    return call.node.faults


def _faults(call: Call) -> Faults:
    switch = call.node.faults
    active = [] if switch is None else switch.active()
    return Faults(call.node.config.node_id, switch is not None, list(NAMES), active)


ROUTES: Final = (
    Route(
        "GET", "/v1/faults", list_faults, "The faults in force on this node", Faults, rights=DESCRIBE_CLUSTER
    ),
    Route(
        "POST",
        "/v1/faults",
        inject_fault,
        "Have this node hurt itself",
        Faults,
        body=NodeFault,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        "/v1/faults/{name}",
        heal_fault,
        'Heal a fault of this node, or "all"',
        Faults,
        rights=ALTER_CLUSTER,
    ),
)
