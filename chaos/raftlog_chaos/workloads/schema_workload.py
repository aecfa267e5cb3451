"""Clients of a schema registry that register and look up schemas at any node, and a history of all answers.

A schema is a number: a record with one field of that name, and a default, so that each is compatible with each. Some
registrations bring the next number, for as long as the workload lasts. The others repeat a recent number, so clients
register the same schemas at the same time.

The ordering law is that of `log_workload`: all nodes are read once no client registers any more. The leader of
`_schemas` answers for all registries. So each node leads in turn, and is read while it leads: by its own state, after
it has applied its own log.
"""

from __future__ import annotations

import asyncio
import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final, NamedTuple, Protocol

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.testing.progress import Signs, Stalled, Wait, no_signs
from raftlog_chaos.history import Outcome, Recorder
from raftlog_chaos.workloads.port import Definite, Indefinite

SUBJECTS: Final = ("orders-value", "orders-key", "users-value")
NEW: Final = 0.2
"""The share of registrations that bring a new schema."""
RECENT: Final = 40
"""The other registrations repeat one of this many schemas."""
REGISTERS: Final = 0.6
"""The share of registrations among all requests; the others look schemas up."""
ASK_S: Final = 2.0
"""A client gives a request up after this: the node hangs, or waits for a new leader. Then it asks the next node."""
PAUSE_S: Final = 0.1
"""Between two requests of a client, on average."""
THREADS: Final = 64
"""As many requests may wait at once as a case may have registrars."""
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
        """Send a GET, or a POST of a body, to a node's registry.

        Raise Definite if it did not reach the node, Indefinite without a response.
        """

    async def lead(self, node: int) -> int:
        """Have a node lead `_schemas`, and return its leader epoch. Raise Definite or Indefinite until it leads."""

    def close(self) -> None:
        """Send no further request."""


class HttpRegistries:
    """See RegistryPort. `urls` are those of the nodes' registries, `admin_urls` those of their HTTP APIs."""

    def __init__(self, urls: Mapping[int, str], admin_urls: Mapping[int, str]) -> None:
        self._urls = urls
        self._admin_urls = admin_urls
        self._threads = ThreadPoolExecutor(THREADS, "registry")
        """Requests to nodes that hang must not keep the harness from its default executor."""
        # the environment's proxies would get requests to loopback
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def nodes(self) -> Sequence[int]:
        return sorted(self._urls)

    async def ask(self, node: int, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        return await self._ask(node, self._urls[node] + path, body)

    async def lead(self, node: int) -> int:
        topic = f"{self._admin_urls[node]}/v1/topics/{SCHEMAS_TOPIC}"
        for url, body in ((f"{topic}/partitions/0/leader", {"leader": node}), (f"{topic}/replicas", None)):
            answer = await self._ask(node, url, body)
            if answer.status != OK:
                raise Indefinite(f"node {node} does not lead: {answer}")
        (row,) = answer.body["data"]
        if row["leader_id"] != node:  # a node that knows itself as the leader forwards no request
            raise Indefinite(f"node {node} does not know yet that it leads: {row}")
        return int(row["leader_epoch"])

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, node: int, url: str, body: Mapping[str, Any] | None) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._open, url, body)
        except (OSError, ValueError, HTTPException) as error:
            refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
            kind = Definite if refused else Indefinite
            raise kind(f"node {node}: {type(error).__name__}: {error}") from None

    def _open(self, url: str, body: Mapping[str, Any] | None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, content, {"Content-Type": "application/json"})  # noqa: S310 - a loopback URL
        try:
            with self._opener.open(request, timeout=ASK_S) as response:
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
        self._numbers = 0
        """How many schemas were used so far."""
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
            subject = self.chance.choice(SUBJECTS)
            drawn = self.chance.random()
            if drawn < REGISTERS:
                await self._register(process, subject, self._draw())
            elif drawn < (1 + REGISTERS) / 2 and self._ids:
                schema_id = self.chance.choice(sorted(self._ids))
                await self._look_up(process, f"/schemas/ids/{schema_id}", ("", 0, schema_id))
            else:
                await self._look_up(process, f"/subjects/{subject}/versions/latest", None)
            await asyncio.sleep(self.chance.expovariate(1 / PAUSE_S))

    def _draw(self) -> int:
        """Return the next schema, or a recent one."""
        if not self._numbers or self.chance.random() < NEW:
            self._numbers += 1
            return self._numbers - 1
        return self.chance.randrange(max(0, self._numbers - RECENT), self._numbers)

    async def _register(self, process: int, subject: str, number: int) -> None:
        """Register a schema at some node; without a response, at the next node, as one operation."""
        value: list[Any] = ["register", subject, number]
        self.recorder.note(process, "invoke", "register", [value])
        outcome: Outcome = "fail"
        said = []
        for node in self.chance.sample(self.port.nodes, len(self.port.nodes)):
            try:
                answer = await self.port.ask(
                    node, f"/subjects/{subject}/versions", {"schema": text_of(number)}
                )
            except Definite as error:
                said.append(str(error))
                continue
            except Indefinite as error:
                outcome = "info"
                said.append(str(error))
                continue
            if answer.status == OK:
                found = [answer.body["id"], answer.body["version"]]
                self.registered += 1
                self._ids.add(found[0])
                self.recorder.note(process, "ok", "register", [[*value, found]])
                return
            said.append(f"node {node}: {answer}")
            if answer.status < UNCERTAIN:
                self.faults.append(f"node {node} refused a registration of {subject}: {answer}")
                break
            outcome = "info"
        self.recorder.note(process, outcome, "register", [value], error="; ".join(said))

    async def _look_up(self, process: int, path: str, place: tuple[str, int, int] | None) -> None:
        """Look a schema up at some node. `place`: its subject, version and id, unless the response has them."""
        node = self.chance.choice(self.port.nodes)
        value: list[Any] = ["look-up", node]
        self.recorder.note(process, "invoke", "look-up", [value])
        try:
            answer = await self._get(node, path)
        except (Definite, Indefinite) as error:
            # a read without a response has changed nothing
            self.recorder.note(process, "fail", "look-up", [value], error=str(error))
            return
        found = [] if answer is None else [row_of(answer, place)]
        self.recorder.note(process, "ok", "look-up", [[*value, found]])

    async def _read_all(self, process: int, node: int) -> bool:
        """Have a node lead, and read every version of every subject; return whether that was possible."""
        value: list[Any] = ["read-schemas", node]
        self.recorder.note(process, "invoke", "read-schemas", [value])
        try:
            epoch = await self.port.lead(node)
            found = [row_of(each, None) for each in await self._get(node, "/schemas")]
            if await self.port.lead(node) != epoch:
                raise Indefinite(f"node {node} led in several epochs, so another node may have answered")
        except (Definite, Indefinite) as error:
            self.recorder.note(process, "fail", "read-schemas", [value], error=str(error))
            return False
        self.recorder.note(process, "ok", "read-schemas", [[*value, found]])
        self.read.add(node)
        return True

    async def _get(self, node: int, path: str) -> Any:
        """Return a body, None for 404. Raise Definite or Indefinite."""
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
