"""Clients of a schema registry that register and look up schemas at any node, and a history of all answers.

A schema is a number: a record with one field of that name, and a default, so that each is compatible with each. Few
numbers are in use, so clients register the same ones again and again. The ordering law is that of `log_workload`: all
nodes are read once no client registers any more.
"""

from __future__ import annotations

import asyncio
import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final, NamedTuple, Protocol

from raftlog.testing.progress import Signs, Stalled, Wait, no_signs
from raftlog_chaos.history import Outcome, Recorder
from raftlog_chaos.workloads.port import Indefinite

SUBJECTS: Final = ("orders-value", "orders-key", "users-value")
NUMBERS: Final = 60
"""So many schemas, each in any subject."""
ASK_S: Final = 5.0
"""A client gives a request up after this: the node hangs, or waits for a new leader."""
REGISTERS: Final = 0.6
PAUSE_S: Final = 0.1
"""Between two requests of a client, on average."""
NO_SUCH: Final = 404
OK: Final = 200
UNCERTAIN: Final = 500
"""From this status on, it is unknown whether a change happened."""


class Answer(NamedTuple):
    """Status and body of a response."""

    status: int
    body: Any


class RegistryPort(Protocol):
    """The registries of all nodes."""

    @property
    def nodes(self) -> Sequence[int]:
        """The nodes with a registry."""

    async def ask(self, node: int, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Send a GET, or a POST of a body, to a node's registry. Raise Indefinite without a response."""


class HttpRegistries:
    """See RegistryPort: `urls` are those of the nodes' registries."""

    def __init__(self, urls: Mapping[int, str]) -> None:
        self._urls = urls

    @property
    def nodes(self) -> Sequence[int]:
        return sorted(self._urls)

    async def ask(self, node: int, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        try:
            return await asyncio.to_thread(self._ask, node, path, body)
        except (OSError, ValueError, HTTPException) as error:
            raise Indefinite(f"node {node}: {type(error).__name__}: {error}") from None

    def _ask(self, node: int, path: str, body: Mapping[str, Any] | None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._urls[node] + path, content, headers)  # noqa: S310 - a loopback URL
        try:
            with urllib.request.urlopen(request, timeout=ASK_S) as response:  # noqa: S310 - as above
                return Answer(response.status, json.loads(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.loads(error.read()))


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The size of the workload."""

    clients: int


class SchemaWorkload:
    """`start`, then `finish`, or `stop` and `close`. `chance` is its only source of randomness."""

    def __init__(
        self, recorder: Recorder, port: RegistryPort, chance: random.Random, options: SchemaOptions
    ) -> None:
        self.recorder = recorder
        self.port = port
        self.chance = chance
        self.options = options
        self.stopping = False
        self.faults: list[str] = []
        """Answers that no client may get."""
        self.registered = 0
        self.read: set[int] = set()
        """Nodes that were read at the end."""
        self._ids: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Let the clients begin."""
        self._tasks = [asyncio.create_task(self._client()) for _ in range(self.options.clients)]

    def stop(self) -> None:
        """Make each client end after its present request; returns at once."""
        self.stopping = True

    async def close(self) -> None:
        """Stop, and wait until every client has ended. Raises the errors inside clients."""
        self.stop()
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)

    async def finish(self, stall_s: float = 200.0, *, signs: Callable[[], Signs] = no_signs) -> list[int]:
        """Stop the clients, and read all that each node has. Returns nodes that could not be read."""
        await self.close()
        process = self.recorder.new_process()
        wait = Wait(
            "all registries are read",
            seen=lambda: len(self.read),
            signs=signs,
            clock=asyncio.get_running_loop().time,
            stall_s=stall_s,
        )
        with suppress(Stalled):
            while left := self._left():
                if not await self._read_all(process, left[0]):
                    wait.pause()
                    await asyncio.sleep(PAUSE_S)
        return self._left()

    def _left(self) -> list[int]:
        return [each for each in self.port.nodes if each not in self.read]

    async def _client(self) -> None:
        process = self.recorder.new_process()
        while not self.stopping:
            node = self.chance.choice(self.port.nodes)
            subject = self.chance.choice(SUBJECTS)
            drawn = self.chance.random()
            if drawn < REGISTERS:
                await self._register(process, node, subject, self.chance.randrange(NUMBERS))
            elif drawn < (1 + REGISTERS) / 2 and self._ids:
                schema_id = self.chance.choice(sorted(self._ids))
                await self._look_up(process, node, f"/schemas/ids/{schema_id}", ("", 0, schema_id))
            else:
                await self._look_up(process, node, f"/subjects/{subject}/versions/latest", None)
            await asyncio.sleep(self.chance.expovariate(1 / PAUSE_S))

    async def _register(self, process: int, node: int, subject: str, number: int) -> None:
        value: list[Any] = ["register", subject, number]
        self.recorder.note(process, "invoke", "register", [value])
        outcome: Outcome = "info"
        try:
            answer = await self.port.ask(node, f"/subjects/{subject}/versions", {"schema": text_of(number)})
        except Indefinite as error:
            self.recorder.note(process, "info", "register", [value], error=str(error))
            return
        if answer.status == OK:
            outcome = "ok"
            value = [*value, [answer.body["id"], answer.body["version"]]]
            self.registered += 1
            self._ids.add(answer.body["id"])
        elif answer.status < UNCERTAIN:
            outcome = "fail"
            self.faults.append(f"node {node} refused a registration of {subject}: {answer}")
        self.recorder.note(
            process, outcome, "register", [value], error=None if outcome == "ok" else str(answer)
        )

    async def _look_up(self, process: int, node: int, path: str, place: tuple[str, int, int] | None) -> None:
        """Look a schema up. `place`: its subject, version and id, unless the response has them."""
        value: list[Any] = ["look-up", node]
        self.recorder.note(process, "invoke", "look-up", [value])
        try:
            answer = await self._get(node, path)
        except Indefinite as error:
            self.recorder.note(
                process, "fail", "look-up", [value], error=str(error)
            )  # a read leaves nothing behind
            return
        found = [] if answer is None else [row_of(answer, place)]
        self.recorder.note(process, "ok", "look-up", [[*value, found]])

    async def _read_all(self, process: int, node: int) -> bool:
        """Read every version of every subject at a node; return whether that was possible."""
        value: list[Any] = ["read-schemas", node]
        self.recorder.note(process, "invoke", "read-schemas", [value])
        found = []
        try:
            for subject in SUBJECTS:
                for version in await self._get(node, f"/subjects/{subject}/versions") or ():
                    answer = await self._get(node, f"/subjects/{subject}/versions/{version}")
                    if answer is not None:
                        found.append(row_of(answer, None))
        except Indefinite as error:
            self.recorder.note(process, "fail", "read-schemas", [value], error=str(error))
            return False
        self.recorder.note(process, "ok", "read-schemas", [[*value, found]])
        self.read.add(node)
        return True

    async def _get(self, node: int, path: str) -> Any:
        """Return a body, None for 404. Raise Indefinite."""
        answer = await self.port.ask(node, path)
        if answer.status not in (OK, NO_SUCH):
            raise Indefinite(f"node {node}: {answer}")
        return answer.body if answer.status == OK else None


def text_of(number: int) -> str:
    """Return the schema with a number."""
    field = {"name": f"f{number}", "type": "int", "default": 0}
    return json.dumps({"type": "record", "name": "R", "fields": [field]})


def row_of(body: Any, place: tuple[str, int, int] | None) -> list[Any]:
    """Return subject, version, id and number of a response."""
    subject, version, schema_id = place or (body["subject"], body["version"], body["id"])
    return [subject, version, schema_id, int(json.loads(body["schema"])["fields"][0]["name"][1:])]
