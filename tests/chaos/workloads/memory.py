"""A log in memory behind ClientPorts, in the time of `raftlog_chaos.simulator`.

It keeps every promise, apart from a promise to break on request; it fails as often as configured.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raftlog_chaos.workloads.port import Damaged, Definite, Indefinite, Kind

POLL_RECORDS = 20


@dataclass
class MemoryCluster:
    """`trouble`: share of calls that fail in one way or another. `hidden`: offsets that no poll returns."""

    chance: random.Random
    trouble: float = 0.0
    logs: dict[str, list[int]] = field(default_factory=dict)
    committed: dict[tuple[str, str], int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    hidden: set[tuple[str, int]] = field(default_factory=set)
    damaged: bool = False
    transactional: bool = False
    open: int = 0

    def __call__(self, process: int, kind: Kind) -> MemoryPort:
        self.open += 1
        return MemoryPort(self, kind)

    def troubled(self) -> bool:
        return self.chance.random() < self.trouble


class MemoryPort:
    """See ClientPort."""

    spent = False

    def __init__(self, cluster: MemoryCluster, kind: Kind) -> None:
        self.cluster = cluster
        self.kind = kind
        self.transactional = cluster.transactional
        self.positions: dict[str, int] = {}
        self.group = ""
        self.uncommitted: dict[str, int] = {}
        self.closed = False

    async def create_topic(
        self, topic: str, *, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        if self.cluster.troubled():
            raise Definite("no topic today")
        self.cluster.topics.add(topic)
        for index in range(partitions):
            self.cluster.logs.setdefault(f"{topic}-{index}", [])

    def send(self, key: str, value: int) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        cluster, log = self.cluster, self.cluster.logs[key]
        troubled, taken = cluster.troubled(), cluster.chance.random() < 0.5
        if troubled and cluster.chance.random() < 0.5:
            done.set_exception(Definite("refused"))
            return done
        if taken or not troubled:
            log.append(value)
        if troubled:
            done.set_exception(Indefinite("the answer was lost"))
        else:
            done.set_result(len(log) - 1)
        return done

    async def assign(self, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        if self.cluster.troubled():
            raise Definite("not now")
        known = {} if seek_to_beginning else self.positions
        self.positions = {key: known.get(key, 0) for key in keys}

    async def subscribe(self, topics: Sequence[str], group: str) -> None:
        if self.cluster.troubled():
            raise Definite("not now")
        self.group = group
        keys = [key for key in self.cluster.logs if key.rpartition("-")[0] in topics]
        self.positions = {key: self.cluster.committed.get((group, key), 0) for key in keys}

    async def poll(self) -> dict[str, list[tuple[int, int]]]:
        await asyncio.sleep(0.01)
        if self.cluster.damaged:
            raise Damaged("what is this")
        if self.cluster.troubled():
            raise Indefinite("who knows")
        reads = {}
        for key, position in self.positions.items():
            ahead = list(enumerate(self.cluster.logs[key]))[position : position + POLL_RECORDS]
            seen = [each for each in ahead if (key, each[0]) not in self.cluster.hidden]
            if ahead:
                self.positions[key] += len(ahead)
            if seen:
                reads[key] = seen
        self.uncommitted = {key: self.positions[key] for key in reads} if self.group else {}
        return reads

    async def commit(self) -> None:
        if self.uncommitted and self.cluster.troubled():
            raise Definite("not your generation")
        for key, offset in self.uncommitted.items():
            self.cluster.committed[self.group, key] = offset

    async def rewind(self, offsets: Mapping[str, int]) -> None:
        self.positions.update(offsets)

    def take_rebalanced(self) -> list[str]:
        return []

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.cluster.open -= 1

    async def abandon(self) -> None:
        await self.close()
