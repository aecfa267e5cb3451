"""The wall clock of the node that is asked, as far as data is deleted by it; see `raftlog.base.record_ages`."""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.admin.route import ALTER_CLUSTER, DESCRIBE_CLUSTER, Call, Route


class Clock(msgspec.Struct):
    """The clock of node `node_id`. `jump_ms`: how far it jumped, ahead or (negative) back; 0: it is believed."""

    node_id: int
    wall_clock_ms: int
    jump_ms: int


async def get_clock(call: Call) -> Clock:
    return _clock(call)


async def accept_clock(call: Call) -> Clock:
    """Nothing happens if the clock is believed anyway."""
    ages = call.node.ages
    if ages is not None:
        call.audit.update(jump_ms=ages.jump_ms(), accepted=ages.accept())
    return _clock(call)


def _clock(call: Call) -> Clock:
    node = call.node
    jump_ms = 0 if node.ages is None else node.ages.jump_ms()
    return Clock(node.config.node_id, int(node.wall_clock_ms()), jump_ms)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/clock",
        get_clock,
        "The wall clock of this node, and whether it jumped",
        Clock,
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/clock/accept",
        accept_clock,
        "Believe this node's wall clock after a jump: deletion by age goes on",
        Clock,
        rights=ALTER_CLUSTER,
    ),
)
