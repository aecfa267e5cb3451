"""Callbacks that act for a connection end that connection, not the node."""

from __future__ import annotations

import asyncio
from typing import Any

from raftlog.base.guard import Guard


class Line(Guard):
    """A connection that remembers how it ended."""

    def __init__(self) -> None:
        self.crashes: list[str] = []

    def crash(self, what: str) -> None:
        self.crashes.append(what)


def fail(*args: object) -> None:
    raise ValueError(args)


async def test_an_exception_in_a_guarded_callback_closes_its_connection_and_reaches_no_exception_handler() -> (
    None
):
    """The loop's exception handler ends the node, so no exception that a connection causes may get there."""
    loop, reached = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _loop, context: reached.append(context))
    line, future = Line(), loop.create_future()
    loop.call_soon(line.guarded(fail, 1))
    future.add_done_callback(line.guarded(fail))
    future.set_result(None)
    await asyncio.sleep(0)
    assert (line.crashes, reached) == (["fail", "fail"], [])


def test_a_guarded_callback_gets_its_own_arguments_and_those_of_the_loop() -> None:
    """`add_done_callback` hands over the future behind what was given."""
    seen: list[tuple[object, ...]] = []
    line = Line()
    line.guarded(lambda *args: seen.append(args), 1)(2)
    assert (seen, line.crashes) == ([(1, 2)], [])
