"""The registry's one thread: who waits for it, for how long, and what a cancelled request leaves to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.store import NotLeading
from raftlog.base.types import NO_EPOCH
from raftlog.schemas.errors import STORE_TIMED_OUT, SchemaError
from raftlog.schemas.schema import Schema
from raftlog_chaos.simulator import SimLoop, simulate
from tests.schemas.test_store import Replica, store_of

INT = Schema("AVRO", '"int"')


class Threads:
    """Threads whose work ends when the test says so."""

    def __init__(self) -> None:
        self.working: list[asyncio.Future[None]] = []

    async def __call__(self, call: Callable[[], Any]) -> Any:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.working.append(end)
        await end
        return call()


def play(scenario: Callable[[Registry, Replica, Threads], Awaitable[None]]) -> None:
    """Play a scenario of a node that leads."""

    async def program(loop: SimLoop) -> None:
        replica, threads = Replica(), Threads()
        replica.move(epoch=1)
        registry = Registry(store_of(replica), threads, None)  # type: ignore[arg-type]
        await scenario(registry, replica, threads)

    simulate(program)


async def settled() -> None:
    await asyncio.sleep(0.01)


def test_a_cancelled_request_keeps_the_thread_until_its_work_ends() -> None:
    """Clients that come and go would otherwise fill all threads of the node, which are for its disk."""

    async def scenario(registry: Registry, replica: Replica, threads: Threads) -> None:
        gone = asyncio.ensure_future(registry.prepare(INT, normalize=False))
        await settled()
        gone.cancel()
        waiting = asyncio.ensure_future(registry.prepare(INT, normalize=False))
        await settled()
        assert len(threads.working) == 1
        threads.working[0].set_result(None)
        await settled()
        threads.working[1].set_result(None)
        assert (await waiting)[0] == INT

    play(scenario)


def test_a_request_waits_for_the_thread_for_a_limited_time() -> None:
    """50002: one slow schema does not keep all other requests for ever."""

    async def scenario(registry: Registry, replica: Replica, threads: Threads) -> None:
        slow = asyncio.ensure_future(registry.prepare(INT, normalize=False))
        await settled()
        with pytest.raises(SchemaError, check=lambda error: error.code == STORE_TIMED_OUT):
            await registry.prepare(INT, normalize=False)
        threads.working[0].set_result(None)
        assert (await slow)[0] == INT

    play(scenario)


def test_a_node_that_does_not_lead_parses_nothing() -> None:
    """It forwards, and tries again while there is no leader: its thread has no part in that."""

    async def scenario(registry: Registry, replica: Replica, threads: Threads) -> None:
        replica.move(epoch=NO_EPOCH)
        with pytest.raises(NotLeading):
            await registry.prepare(INT, normalize=False)
        assert not threads.working

    play(scenario)
