"""The registry's one thread: waiting for it has a limit, and a cancelled request leaves its work to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from yarl import URL

from raftlog.admin.errors import ApiError
from raftlog.admin.schema_registry import forwarding
from raftlog.admin.schema_registry.answers import AnyQuery, SchemaBody
from raftlog.admin.schema_registry.forwarding import Forwarder
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.store import NotLeading
from raftlog.admin.schema_registry.subjects import register_schema
from raftlog.base.types import NO_EPOCH
from raftlog.schemas.errors import FORWARDING_FAILED, STORE_TIMED_OUT, SchemaError
from raftlog.schemas.formats import identity
from raftlog.schemas.records import ConfigWritten, SchemaRemoved, SchemaWritten
from raftlog.schemas.registry_state import LEVEL, Identified, RegistryState, Version
from raftlog.schemas.schema import Schema
from raftlog_chaos.simulator import SimLoop, simulate
from tests.schemas.test_store import Replica, store_of

INT = Schema("AVRO", '"int"')
UNUSED: Any = None
"""Ports that no test here needs."""


class Threads:
    """Threads. A test ends their work."""

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
        registry = Registry(store_of(replica), threads, forwarder=UNUSED, copy=UNUSED)
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


def test_a_version_that_is_deleted_meanwhile_is_compared_all_the_same() -> None:
    """A permanent deletion may come while a thread parses: it is compared all the same."""

    async def scenario(registry: Registry, replica: Replica, threads: Threads) -> None:
        state, long = RegistryState(), Schema("AVRO", '"long"')
        state.apply(ConfigWritten(None, {LEVEL: "BACKWARD_TRANSITIVE"}))
        for version, schema in ((1, long), (2, INT)):
            state.apply(SchemaWritten("s", version, version, schema), identity(schema))
        new = Identified(INT, identity(INT))
        asking = asyncio.ensure_future(registry.compare(state, "s", new, state.versions("s")))
        await settled()
        state.apply(SchemaRemoved("s", 1))
        while not asking.done():
            threads.working.pop().set_result(None)
            await settled()
        assert "TYPE_MISMATCH" in (await asking)[0]

    play(scenario)


def test_a_registration_answers_with_what_was_decided() -> None:
    """A permanent deletion may come between the commit and the answer."""

    class DeletedSince(Registry):
        async def register(self, wanted: Any) -> Version:
            return Version(wanted.subject, 1, 7, deleted=False)

    async def program(loop: SimLoop) -> None:
        replica = Replica()
        replica.move(epoch=1)

        async def offload(work: Callable[[], Any]) -> Any:
            return work()

        call = SimpleNamespace(
            path={"subject": "s"},
            body=SchemaBody(INT.text),
            query=AnyQuery(),
            audit={},
            demand=lambda *right: None,
        )
        registry = DeletedSince(store_of(replica), offload, forwarder=UNUSED, copy=UNUSED)
        found = await register_schema(cast("Any", call), registry)
        assert (found.id, found.version, found.schema) == (7, 1, INT.text)

    simulate(program)


def test_a_response_beyond_the_limit_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """502 with 50003, instead of half a list with status 200."""
    monkeypatch.setattr(forwarding, "RESPONSE_MAX_BYTES", 1_000)

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(["x" * 96] * int(request.query["length"]))

    async def ask() -> None:
        app = web.Application()
        app.router.add_get("/subjects", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        forwarder = Forwarder(cast("Any", SimpleNamespace(image=None)))
        url = URL(f"http://127.0.0.1:{runner.addresses[0][1]}/subjects")
        raw = SimpleNamespace(method="GET", headers={}, url=url)
        broker = cast("Any", SimpleNamespace(broker_id=1))
        call = cast("Any", SimpleNamespace(raw=raw, body=None, request_id="1"))
        try:
            found = await forwarder._ask(call, f"{url}?length=9", broker)
            assert len(json.loads(cast("bytes", found.body))) == 9
            with pytest.raises(ApiError) as caught:
                await forwarder._ask(call, f"{url}?length=11", broker)
            assert (caught.value.status, caught.value.body.error_code) == (502, FORWARDING_FAILED)
        finally:
            await forwarder.close()
            await runner.cleanup()

    asyncio.run(ask())
