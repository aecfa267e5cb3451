"""The wall clocks of this node and of others, as used for deleting data by age; see `raftlog.base.record_ages`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from raftlog.admin.errors import ApiError
from raftlog.admin.native.passing_on import ask_node
from raftlog.admin.route import Call, Route
from raftlog.base.record_ages import MOST_APART_MS, NOTHING_IS_OLD_MS, OtherClocks
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

ANSWER_S: Final = 1.0
"""Longest wait for the clocks of other nodes, in parallel."""


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


async def broker_clocks(call: Call) -> list[Clock]:
    """Return the clocks of the unfenced brokers, as far as their HTTP APIs answer this node within ANSWER_S."""
    unfenced = [each.broker_id for each in call.node.image().brokers.values() if not each.fenced]
    clocks = await asyncio.gather(*(_clock_of(call, each) for each in unfenced))
    return [each for each in clocks if each is not None]


async def _clock_of(call: Call, broker_id: int) -> Clock | None:
    if broker_id == call.node.config.node_id:
        return _clock(call)
    try:
        async with asyncio.timeout(ANSWER_S):
            found: Clock = await ask_node(call, broker_id, "GET /v1/clock", Clock, with_login=False)
    except (ApiError, TimeoutError):
        return None
    return found


def compare(clock: Clock, clocks: Iterable[Clock]) -> OtherClocks:
    """Return how the other brokers' clocks differ from one, as the active controller compares them."""
    ahead = sorted(
        each.wall_clock_ms - clock.wall_clock_ms for each in clocks if each.node_id != clock.node_id
    )
    agreeing = sum(abs(each) <= MOST_APART_MS for each in ahead)
    median_ms = ahead[len(ahead) // 2] if ahead else 0
    return OtherClocks(len(ahead), len(ahead), agreeing, ahead_ms=median_ms)


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
