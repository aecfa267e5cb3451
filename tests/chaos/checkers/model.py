"""A correct model of Kafka, and the histories that its clients write.

Sends take effect somewhere between their two lines (unknown sends perhaps later, perhaps never), polls read on from the
consumer's position, transactions become visible whole. Only the effect of an operation is kept, so a history of
millions of lines can be written as it is made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raftlog_chaos.history import Op

STEP_NS = 50_000


@dataclass
class Shape:
    """The format of a history."""

    operations: int = 200
    writers: int = 3
    readers: int = 3
    keys: int = 2
    """So many are in use at a time."""
    values_per_key: int = 40
    poll_records: int = 5
    subscribe: bool = False
    txn: bool = False
    trouble: float = 0.1
    """The share of operations that do not simply succeed."""


@dataclass
class Log:
    """A partition. `open`: offsets of undecided transactions; `hidden`: offsets of aborted transactions."""

    records: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    next_value: int = 0
    open: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)

    def append(self, value: int, chance: random.Random) -> int:
        if chance.random() < 0.05:
            self.end += 1  # a control record
        self.records.append((self.end, value))
        self.end += 1
        return self.end - 1

    def read(self, position: int, count: int) -> tuple[int, list[list[int]]]:
        """Return the next place and the visible records from a place on."""
        found: list[list[int]] = []
        while position < len(self.records) and len(found) < count:
            offset, value = self.records[position]
            if offset in self.open:
                break
            position += 1
            if offset not in self.hidden:
                found.append([offset, value])
        return position, found


@dataclass
class Client:
    """One process, what it has under way, and where it stands in each key that it reads."""

    process: int
    writes: bool
    places: dict[str, int] = field(default_factory=dict)
    running: Op | None = None
    done: list[Any] = field(default_factory=list)
    rewind: dict[str, int] = field(default_factory=dict)
    late: bool = False
    """It takes effect when it ends, not when it begins."""
    dead: bool = False
    """It has a send of unknown fate under way; its own next send must not overtake that."""


class ModelCluster:
    """Yields operations, in real-time order."""

    def __init__(self, chance: random.Random, shape: Shape) -> None:
        self.chance = chance
        self.shape = shape
        self.logs: dict[str, Log] = {}
        self.current: list[str] = []
        self.index = 0
        self.time_ns = 0
        self.processes = 0
        self.late: list[tuple[str, int]] = []
        self.clients = [self._client(at < shape.writers) for at in range(shape.writers + shape.readers)]
        while len(self.current) < shape.keys:
            self._new_key()

    def _client(self, writes: bool) -> Client:
        self.processes += 1
        return Client(self.processes, writes)

    def _new_key(self) -> None:
        name = f"t{len(self.logs) // 2}-{len(self.logs) % 2}"
        self.logs[name] = Log()
        self.current.append(name)

    def _note(self, client: Client, type: str, f: str, value: Any, **rest: Any) -> Op:
        self.index += 1
        self.time_ns += self.chance.randrange(1, STEP_NS)
        return Op(
            index=self.index - 1,
            time_ns=self.time_ns,
            process=client.process,
            type=type,  # type: ignore[arg-type]
            f=f,  # type: ignore[arg-type]
            value=value,
            **rest,
        )

    # --- the run

    def run(self) -> Iterator[Op]:
        begun = 0
        while begun < self.shape.operations:
            at = self.chance.randrange(len(self.clients))
            client = self.clients[at]
            if client.running is not None:
                yield self._finish(client)
                continue
            begun += 1
            if client.dead or self.chance.random() < 0.005:
                yield self._note(client, "invoke", "crash", None)
                yield self._note(client, "info", "crash", None)
                self.clients[at] = self._client(client.writes)
                continue
            yield self._begin(client)
            if self.late and self.chance.random() < 0.3:
                self._apply_late()
        yield from self._end()

    def _apply_late(self) -> None:
        key, value = self.late.pop()
        self.logs[key].append(value, self.chance)

    def _begin(self, client: Client) -> Op:
        chance = self.chance
        if client.writes and not self.shape.txn:
            client.running = self._note(client, "invoke", "send", [self._new_send()])
        elif not client.places or chance.random() < 1 / 64:
            f = "subscribe" if self.shape.subscribe else "assign"
            client.running = self._note(client, "invoke", f, list(self.current))
        elif self.shape.txn:
            micros = [
                self._new_send() if chance.random() < 0.5 else ["poll"] for _ in range(chance.randint(1, 4))
            ]
            kinds = {micro[0] for micro in micros}
            f = "txn" if len(kinds) > 1 else kinds.pop()
            client.running = self._note(client, "invoke", f, micros)
        else:
            client.running = self._note(client, "invoke", "poll", [["poll"]])
        self._work(client, chance.random() < 0.5)
        return client.running

    def _new_send(self) -> list[Any]:
        key = self.chance.choice(self.current)
        log = self.logs[key]
        log.next_value += 1
        if log.next_value == self.shape.values_per_key:
            self.current.remove(key)
            self._new_key()
        return ["send", key, log.next_value]

    def _work(self, client: Client, now: bool) -> None:
        """Let an operation take effect, either now or when it is finished."""
        client.late = not now
        if now:
            self._take_effect(client)

    def _take_effect(self, client: Client) -> None:
        assert client.running is not None
        client.done, client.rewind = [], dict(client.places)
        for micro in client.running.value or ():
            if micro[0] == "send":
                offset = self.logs[micro[1]].append(micro[2], self.chance)
                if self.shape.txn:
                    self.logs[micro[1]].open.add(offset)
                client.done.append(["send", micro[1], [offset, micro[2]]])
            elif micro[0] == "poll":
                client.done.append(["poll", self._poll(client)])

    def _poll(self, client: Client) -> dict[str, list[list[int]]]:
        found = {}
        for key, position in client.places.items():
            client.places[key], records = self.logs[key].read(position, self.shape.poll_records)
            if records:
                found[key] = records
        return found

    def _finish(self, client: Client) -> Op:
        op, chance = client.running, self.chance
        assert op is not None
        client.running = None
        if op.f in ("assign", "subscribe"):
            client.places = {key: client.places.get(key, 0) for key in op.value or ()}
            return self._note(client, "ok", op.f, op.value)
        troubled = chance.random() < self.shape.trouble
        if client.late and troubled:
            return self._refuse(client, op)
        if client.late:
            client.running = op
            self._take_effect(client)
            client.running = None
        if troubled:
            return self._doubt(client, op)
        self._decide(client.done, commit=True)
        return self._note(client, "ok", op.f, client.done)

    def _refuse(self, client: Client, op: Op) -> Op:
        """It did not take effect; of an unknown send that may still come."""
        unknown = self.chance.random() < 0.5
        if unknown and op.f == "send" and not self.shape.txn and self.chance.random() < 0.5:
            self.late.append((op.value[0][1], op.value[0][2]))  # type: ignore[index]
            client.dead = True
        return self._note(client, "info" if unknown else "fail", op.f, op.value, error="trouble")

    def _doubt(self, client: Client, op: Op) -> Op:
        """It took effect, or a transaction was aborted, and the consumer goes back to where it was."""
        client.places = client.rewind
        if self.shape.txn and self.chance.random() < 0.5:
            self._decide(client.done, commit=False)
            return self._note(client, "fail", op.f, client.done, error="aborted")
        self._decide(client.done, commit=True)
        told = client.done if self.chance.random() < 0.5 else op.value
        return self._note(client, "info", op.f, told, error="no answer")

    def _decide(self, done: list[Any], *, commit: bool) -> None:
        for micro in done if self.shape.txn else ():
            if micro[0] == "send":
                log = self.logs[micro[1]]
                log.open.discard(micro[2][0])
                if not commit:
                    log.hidden.add(micro[2][0])

    def _end(self) -> Iterator[Op]:
        """Finish what runs, then read everything once more."""
        for client in self.clients:
            if client.running is not None:
                yield self._finish(client)
        while self.late:
            self._apply_late()
        reader = self._client(writes=False)
        reader.places = dict.fromkeys(self.logs, 0)
        yield self._note(reader, "invoke", "assign", list(self.logs), seek_to_beginning=True)
        yield self._note(reader, "ok", "assign", list(self.logs), seek_to_beginning=True)
        found: dict[str, list[list[int]]] = {"": []}
        while found:
            yield self._note(reader, "invoke", "poll", [["poll"]])
            self.shape.poll_records = 500
            found = self._poll(reader)
            yield self._note(reader, "ok", "poll", [["poll", found]])


def history(seed: int, shape: Shape | None = None) -> Iterator[Op]:
    """Yield the operations of a run without failures."""
    return ModelCluster(random.Random(seed), shape or Shape()).run()
