"""Frames to real nodes over loopback, from a process of its own: `python -m raftlog_chaos.fuzz.live`, configured by
JSON.

It judges answers only: each comes in its turn and decodes, or the connection is closed. The parent process judges nodes
and bystanders (`raftlog_chaos.attacks.session`).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Final

import msgspec

from raftlog_chaos.attacks import facts
from raftlog_chaos.attacks.__main__ import restrain
from raftlog_chaos.attacks.target import ATTACKER, Target
from raftlog_chaos.fuzz.decoding import decode
from raftlog_chaos.fuzz.draw import STRINGS, KnownValues
from raftlog_chaos.fuzz.frames import Frame, Frames
from raftlog_chaos.fuzz.handshakes import draw_handshake
from raftlog_chaos.fuzz.http_requests import HttpRequests
from raftlog_chaos.fuzz.wire import WAITING, FuzzWire, Tally, name_of

WIRES_PER_NODE: Final = 4
BURST: Final = 12
ANSWER_S: Final = 20.0
PATIENCE_S: Final = 0.5
LOOK_S: Final = 0.001
CONNECT_S: Final = 5.0
RETRY_S: Final = 0.2
GONE_S: Final = 15.0
"""A run ends when no node took a connection or answered for so long."""
HTTP_SHARE: Final = 50
"""One HTTP request, and one handshake at a controller's port, for so many frames."""
UNTOUCHED: Final = frozenset({33, 44})
"""Alterations of configs: a change of broker configs would affect the bystanders."""
HARMLESS: Final = tuple(each for each in STRINGS if not each.startswith("__"))
"""STRINGS without the names of internal topics: to delete that of all groups' offsets ends the bystanders' group."""
SUSPECTS: Final = 40
LAST_FRAMES: Final = 16


class Order(msgspec.Struct, frozen=True):
    """The target and the number of frames."""

    target: Target
    frames: int
    seed: str


class Report(msgspec.Struct):
    """Counts, and wrong answers. `suspects`: hex of frames that decode, although their connection was closed."""

    frames: int = 0
    answered: int = 0
    closed: int = 0
    given_up: int = 0
    http: int = 0
    handshakes: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = {}
    wrong: list[str] = []
    suspects: list[list[str]] = []


class Fuzzing:
    """All connections of one run."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.tally = Tally()
        self.report = Report()
        self._http = HttpRequests(order.seed, *_document(order.target))
        self._chance = random.Random(order.seed)
        self._alive_at = time.monotonic()

    async def run(self) -> Report:
        """Send everything."""
        began, nodes = time.monotonic(), sorted(self._order.target.nodes)
        jobs = [self._fuzz(node, number) for node in nodes for number in range(WIRES_PER_NODE)]
        async with asyncio.TaskGroup() as group:
            for job in [*jobs, self._ask_over_http(), self._greet_controllers()]:
                group.create_task(job)
        report, tally = self.report, self.tally
        report.frames, report.answered, report.closed = tally.frames, tally.answered, tally.closed
        report.given_up, report.seconds = tally.given_up, time.monotonic() - began
        if self._gone:
            report.wrong.append(f"no node took a connection or answered for {GONE_S:g} s")
        report.errors = {str(code): count for code, count in Counter(tally.errors).most_common(12)}
        return report

    def _over(self) -> bool:
        return self.tally.frames >= self._order.frames or self._gone

    @property
    def _gone(self) -> bool:
        return time.monotonic() - self._alive_at > GONE_S

    async def _fuzz(self, node: int, number: int) -> None:
        known = KnownValues()
        frames = Frames(f"{self._order.seed}/{node}/{number}", known, without=UNTOUCHED, strings=HARMLESS)
        wire: FuzzWire | None = None
        while not self._over():
            if wire is None or wire.closed or wire.given_up:
                wire = await self._connect(node, known)
            if wire is None:
                await asyncio.sleep(RETRY_S)
                continue
            burst = [frames.next() for _ in range(1 + self.tally.frames % BURST)]
            for frame in burst:
                wire.send(frame)
            answered = self.tally.answered
            await self._answers(wire, burst)
            if self.tally.answered > answered:
                self._alive_at = time.monotonic()
            del wire.sent[:-LAST_FRAMES]
        if wire is not None:
            wire.abort()

    async def _connect(self, node: int, known: KnownValues) -> FuzzWire | None:
        loop = asyncio.get_running_loop()
        host, port = self._order.target.address("kafka", node)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, wire = await loop.create_connection(
                    lambda: FuzzWire(self.tally, known), host, port, local_addr=(ATTACKER, 0)
                )
        except OSError:
            return None
        self._alive_at = time.monotonic()
        return wire

    async def _answers(self, wire: FuzzWire, burst: list[Frame]) -> None:
        began = time.monotonic()
        while wire.pending and not wire.closed and not wire.wrong:
            waited_s = time.monotonic() - began
            may_wait = any(api in WAITING for api, _, _ in wire.pending)
            if waited_s > (PATIENCE_S if may_wait else ANSWER_S):
                if not may_wait:
                    api_key, version, _ = wire.pending[0]
                    self.report.wrong.append(f"{name_of(api_key)} v{version}: no answer")
                wire.give_up()
                return
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(LOOK_S)
        if wire.is_stuck and not wire.closed:
            wire.give_up()
            return
        if wire.wrong:
            self.report.wrong.append(f"{wire.wrong}; sent {wire.sent[-1].hex()[:400]}")
            wire.abort()
        if wire.closed:
            self.tally.closed += 1
            self._suspect(burst)

    def _suspect(self, burst: list[Frame]) -> None:
        """Keep a burst that decodes, although its connection was closed: code behind the decoders refused it."""
        if len(self.report.suspects) < SUSPECTS and all(decode(each.data) == "understood" for each in burst):
            self.report.suspects.append([each.data.hex() for each in burst])

    # --- the other ports

    async def _ask_over_http(self) -> None:
        while not self._over():
            if self.report.http * HTTP_SHARE > self.tally.frames:
                await asyncio.sleep(LOOK_S)
                continue
            self.report.http += 1
            await self._say("http", self._http.next(), 0.3)

    async def _greet_controllers(self) -> None:
        while not self._over():
            if self.report.handshakes * HTTP_SHARE > self.tally.frames:
                await asyncio.sleep(LOOK_S)
                continue
            self.report.handshakes += 1
            await self._say("controller", draw_handshake(self._chance), 0.01)

    async def _say(self, port: str, data: bytes, listen_s: float) -> None:
        """Send bytes on a connection of their own, listen for a moment, and hang up."""
        node = self._chance.choice(sorted(self._order.target.nodes))
        host, number = self._order.target.address(port, node)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(host, number, local_addr=(ATTACKER, 0))
                writer.write(data)
                try:
                    async with asyncio.timeout(listen_s):
                        await reader.read(1 << 16)
                except TimeoutError:
                    pass
                writer.transport.abort()
        except OSError:
            await asyncio.sleep(RETRY_S)


def _document(target: Target) -> tuple[dict[str, object], str]:
    """Return the first node's OpenAPI document, and the cluster's id."""
    doors = target.nodes[min(target.nodes)]
    document = json.loads(facts.ask(doors, "/openapi.json"))
    cluster = json.loads(facts.ask(doors, "/v3/clusters"))["data"][0]["cluster_id"]
    return document, str(cluster)


def main() -> None:
    """Fuzz once."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    restrain()
    report = asyncio.run(Fuzzing(order).run())
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
