"""Clients of a registry in memory: their history gets the right verdict, also if it loses responses or forgets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from raftlog.testing.progress import patient
from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.workloads.port import Definite, Indefinite
from raftlog_chaos.workloads.schema_workload import Answer, HttpRegistries, SchemaOptions, SchemaWorkload


class MemoryRegistry:
    """Gives ids in order. `forgets`: one registration in so many is acknowledged only. `reuses`: gives ids twice.

    `is_down`: no request reaches it.
    """

    nodes: Sequence[int] = (1, 2, 3)

    def __init__(self, *, forgets: int = 0, reuses: int = 0, is_down: bool = False) -> None:
        self.forgets, self.reuses, self.is_down = forgets, reuses, is_down
        self.leader, self.epoch = 1, 0
        self.read_at: list[int] = []
        """The leader of each reading of all schemas."""
        self.ids: dict[str, int] = {}
        self.subjects: dict[str, list[str]] = {}
        self.asked = 0

    async def ask(self, node: int, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.is_down:
            raise Definite("connection refused")
        words = path.split("/")[1:]
        if body is not None:
            found = self._register(words[1], body["schema"])
            if self.asked % 100 < 30:  # long enough for a client to try all nodes
                raise Indefinite("the response is lost")
            return found
        if path == "/schemas":
            self.read_at.append(self.leader)
            rows = [
                self._row(each, *row) for each, texts in self.subjects.items() for row in enumerate(texts, 1)
            ]
            return Answer(200, rows)
        if words[0] == "schemas":
            texts = [text for text, each in self.ids.items() if each == int(words[2])]
            return Answer(200, {"schema": texts[0]}) if texts else Answer(404, {})
        texts = self.subjects.get(words[1], [])
        if not texts:
            return Answer(404, {})
        return Answer(200, self._row(words[1], len(texts), texts[-1]))

    async def lead(self, node: int) -> int:
        if self.asked % 3 == 0:
            self.asked += 1
            raise Indefinite("there is no leader")
        self.epoch += node != self.leader
        self.leader = node
        return self.epoch

    def close(self) -> None:
        """Needed of a RegistryPort."""

    def _register(self, subject: str, text: str) -> Answer:
        texts = self.subjects.setdefault(subject, [])
        new = len(self.ids) + 1
        schema_id = self.ids.setdefault(text, new - 1 if self.reuses and new % self.reuses == 0 else new)
        if text not in texts:
            texts.append(text)
            found = self._row(subject, len(texts), text)
            if self.forgets and schema_id % self.forgets == 0:
                texts.pop()
            return Answer(200, found)
        return Answer(200, {**self._row(subject, texts.index(text) + 1, text), "id": schema_id})

    def _row(self, subject: str, version: int, text: str) -> dict[str, Any]:
        return {"subject": subject, "version": version, "id": self.ids[text], "schema": text}


def play(registry: MemoryRegistry) -> list[Op]:
    """Let three clients ask for some virtual seconds, and read all nodes."""
    ops: list[Op] = []

    async def program(loop: SimLoop) -> list[Op]:
        recorder = Recorder(lambda: int(loop.time() * 1e9), ops.append)
        load = SchemaWorkload(recorder, registry, loop.stream("load"), SchemaOptions(3))
        load.start()
        await asyncio.sleep(20)
        assert await load.finish(5.0) == []
        assert not load.faults
        return ops

    return simulate(program, seed=5, limit_s=patient(2_000)).result


def test_a_registry_that_loses_responses_is_right():
    """What was registered is there once, and all nodes are read."""
    ops = play(MemoryRegistry())
    assert judge(Header(), ops).anomalies == {}
    counts = Counter((op.f, op.type) for op in ops)
    assert counts["read-schemas", "ok"] == 3
    assert min(counts["register", "info"], counts["register", "ok"], counts["look-up", "ok"]) > 10
    lines = [json.loads(json.dumps(op.value)) for op in ops if op.f == "read-schemas" and op.type == "ok"]
    assert len(lines[0][0][2]) > 30
    assert {row[3] for row in lines[0][0][2]} > set(range(15)), "new schemas come all the time"


def test_each_node_leads_while_it_is_read():
    """The leader answers for all nodes, so three readings of one leader would show one node's state."""
    registry = MemoryRegistry()
    play(registry)
    assert set(registry.read_at) == {1, 2, 3}


def test_requests_that_reach_no_node_have_failed():
    """An outcome that counts as unknown would excuse what the registry does with it."""
    ops: list[Op] = []

    async def program(loop: SimLoop) -> None:
        recorder = Recorder(lambda: int(loop.time() * 1e9), ops.append)
        load = SchemaWorkload(recorder, MemoryRegistry(is_down=True), loop.stream("load"), SchemaOptions(3))
        load.start()
        await asyncio.sleep(5)
        await load.close()

    simulate(program, seed=5, limit_s=patient(2_000))
    assert {op.type for op in ops} == {"invoke", "fail"}


def test_a_registry_that_forgets_or_gives_an_id_twice_is_found_out():
    """Each breaks another law."""
    assert "lost-schema" in judge(Header(), play(MemoryRegistry(forgets=7))).anomalies
    assert "id-of-two-schemas" in judge(Header(), play(MemoryRegistry(reuses=7))).anomalies


async def _lead(request: web.Request) -> web.Response:
    return web.json_response(await request.json())


async def _replicas(_request: web.Request) -> web.Response:
    return web.json_response({"data": [{"leader_id": 1, "leader_epoch": 7}]})


async def _nodes() -> TestServer:
    """Start a stand-in for the HTTP APIs of two nodes, of which node 1 leads."""
    app = web.Application()
    app.router.add_post("/v1/topics/_schemas/partitions/0/leader", _lead)
    app.router.add_get("/v1/topics/_schemas/replicas", _replicas)
    server = TestServer(app)
    await server.start_server()
    return server


def test_a_refused_connection_is_a_failure_and_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch):
    """The request reached no node. A proxy of the environment would refuse all."""
    down = f"http://127.0.0.1:{unused_port()}"
    monkeypatch.setenv("http_proxy", down)
    monkeypatch.delenv("no_proxy", raising=False)

    async def program() -> int:
        server = await _nodes()
        url = str(server.make_url("")).rstrip("/")
        port = HttpRegistries({1: down, 2: down}, {1: url, 2: url})
        with pytest.raises(Definite, match=r"^node 1: URLError: .*Connection refused"):
            await port.ask(1, "/subjects")
        with pytest.raises(Indefinite, match=r"^node 2 does not know yet that it leads: "):
            await port.lead(2)
        epoch = await port.lead(1)
        port.close()
        with pytest.raises(RuntimeError):  # of the executor
            await port.ask(1, "/subjects")
        await server.close()
        return epoch

    assert asyncio.run(program()) == 7
