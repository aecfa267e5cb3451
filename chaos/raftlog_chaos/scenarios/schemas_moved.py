"""The lead of `_schemas` moves faster than requests are answered, and no registration waits longer than it must.

Clients register at all nodes, as by HTTP: a node that does not lead forwards the request, and retries. No node crashes,
so a leader is nearly always there. A request must not wait at a node that does not lead, for it may never lead again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from raftlog.admin.errors import ApiError
from raftlog.admin.schema_registry.answers import SchemaBody, by_leader
from raftlog.admin.schema_registry.forwarding import Forwarder
from raftlog.admin.schema_registry.registry import Registry
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.metadata.controller_api import LeadershipTransfer, TransferLeaderships
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.schemas import SUBJECTS, Schemas, register
from raftlog_chaos.simulator.loop import SimLoop

MOVES: Final = 6
"""In a row."""
MOVE_EVERY_S: Final = 0.2
STILL_S: Final = 5.0
"""After them. A request at the wrong node would wait through it."""
LONGEST_S: Final = 3.0
"""A registration takes no longer, virtual seconds."""
GIVEN_UP_S: Final = 30.0


class MovedSchemas(Schemas):
    """The stage of `schemas`, whose clients ask as by HTTP."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.registries: dict[Any, Registry] = {}
        """By the node's life."""
        self.moves = self.forwarded = 0
        self.longest_s = 0.0

    async def _ask(self, chosen: Any) -> None:
        """Register a schema at a node, and blame an answer that comes late or is an error."""
        subject = self.chance.choice(SUBJECTS)
        text = self.some_text("F")
        began = self.loop.time()
        asking = chosen.host.start(self.asked(chosen, subject, text))
        await asyncio.wait([asking], timeout=GIVEN_UP_S)
        took_s = self.loop.time() - began
        self.longest_s = max(self.longest_s, took_s)
        if not asking.done():
            asking.cancel()
        elif isinstance(asking.result(), int):
            self.answered.append((subject, text, asking.result()))
        else:
            self.history.blame(f"node {chosen.node_id} registered no schema: {asking.result()}")
        if took_s > LONGEST_S:
            self.history.blame(f"node {chosen.node_id} took {took_s:.1f} s to register a schema")

    async def asked(self, at: Any, subject: str, text: str, *, is_forwarded: bool = False) -> int | ApiError:
        """Return the id that a node answers, or its error."""
        broker = at.node.broker
        context = broker.context
        if broker not in self.registries:
            no_copy: Any = None
            self.registries[broker] = Registry(
                self._store_at(at), context.env.offload, forwarder=SimForwarder(self), copy=no_copy
            )
        node = SimpleNamespace(registry=self.registries[broker], image=context.image, config=context.config)
        call: Any = SimpleNamespace(
            node=node,
            raw=SimpleNamespace(remote="127.0.0.1"),  # as in tests of a cluster on one machine
            caller=SimpleNamespace(principal=""),
            body=SchemaBody(schema=text),
            is_forwarded=is_forwarded,
            subject=subject,
        )
        try:
            found = await by_leader(partial(_register, takes_s=self.a_while(0.0, 0.01, 0.1)))(call)
        except ApiError as error:
            return error
        return found.id if hasattr(found, "id") else int(found.body)

    async def round(self) -> None:
        """Move the lead some times, and then not for longer."""
        before = len(self.answered)
        for _ in range(MOVES):
            state = self.cluster.state(SCHEMAS_TOPIC, 0)
            if state is not None and len(state.isr) > 1:
                others = [each for each in state.isr if each != state.leader]
                move = LeadershipTransfer(SCHEMAS_TOPIC, 0, self.chance.choice(others))
                await self.submit(TransferLeaderships((move,)))
                self.moves += 1
            await asyncio.sleep(MOVE_EVERY_S)
        await asyncio.sleep(STILL_S)
        if len(self.answered) == before:
            self.history.blame("no schema was registered while the lead moved and rested")


class SimForwarder(Forwarder):
    """Asks the registry of another simulated node, where a Forwarder sends HTTP."""

    def __init__(self, scene: MovedSchemas) -> None:
        self._scene = scene

    async def _send(self, call: Any, leader: int) -> Any:
        """Return the other node's answer, after the time that the way takes."""
        scene = self._scene
        scene.forwarded += 1
        await asyncio.sleep(scene.a_while(0.0, 0.01))
        chosen = scene.cluster.nodes[leader]
        found = await chosen.host.start(
            scene.asked(chosen, call.subject, call.body.schema, is_forwarded=True)
        )
        await asyncio.sleep(scene.a_while(0.0, 0.01))
        if isinstance(found, ApiError):
            return SimpleNamespace(status=found.status, body=msgspec.json.encode(found.body))
        return SimpleNamespace(status=HTTPStatus.OK, body=str(found).encode())


async def _register(call: Any, registry: Registry, *, takes_s: float) -> Any:
    return await register(registry.store, call.subject, call.body.schema, takes_s)


async def schemas_moved(loop: SimLoop, seconds: float = 12.0) -> Report:
    """Move the lead of `_schemas` for some virtual seconds. Raises AssertionError."""
    scene = MovedSchemas(loop)
    await scene.begin()
    await scene.storm(seconds)
    scene.check()
    report = await scene.end()
    seen = {"registration": len(scene.answered), "move": scene.moves, "forwarded request": scene.forwarded}
    return replace(report, faults={**report.faults, **seen})
