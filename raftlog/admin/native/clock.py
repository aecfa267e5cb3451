"""The wall clock of the serving node, as used for deleting data by age; see `raftlog.base.record_ages`."""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.admin.route import Call, Route
from raftlog.base.record_ages import NOTHING_IS_OLD_MS
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER


class Clock(msgspec.Struct):
    """The clock of node `node_id`.

    `jump_ms`: how far it is ahead, or (negative) behind, of the time that the node believes; 0: it believes its clock.
    `deletes_by_age`: false while the clock is in doubt or not confirmed yet, or too many other brokers' clocks say
    something else. A controller without the broker role is confirmed while it is active.
    """

    node_id: int
    wall_clock_ms: int
    jump_ms: int
    deletes_by_age: bool


async def get_clock(call: Call) -> Clock:
    return _clock(call)


async def accept_clock(call: Call) -> Clock:
    """Trust this node's clock; no effect if it is trusted already. Nodes whose clocks agree with it trust
    theirs, too.
    """
    ages = call.node.ages
    if ages is not None:
        call.audit.update(jump_ms=ages.jump_ms(), accepted=ages.accept())
    return _clock(call)


def _clock(call: Call) -> Clock:
    node = call.node
    jump_ms = 0 if node.ages is None else node.ages.jump_ms()
    deletes_by_age = node.ages is None or node.ages.now_ms() != NOTHING_IS_OLD_MS
    return Clock(node.config.node_id, int(node.wall_clock_ms()), jump_ms, deletes_by_age)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/clock",
        get_clock,
        "The wall clock of this node, and whether it is trusted",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/clock/accept",
        accept_clock,
        "Trust this node's wall clock, which is right: deletion by age resumes",
        rights=ALTER_CLUSTER,
    ),
)
