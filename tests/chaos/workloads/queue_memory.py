"""A share group in memory behind QueuePorts, in the time of `raftlog_chaos.simulator`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlog_chaos.history import Outcome
from raftlog_chaos.workloads.port import Indefinite
from raftlog_chaos.workloads.queue_workload import Acquired, QueuePorts, Said


@dataclass
class Row:
    """A record. `holder` is the member that has its lock until `until`."""

    value: int
    count: int = 0
    holder: int = 0
    until: float = 0.0
    is_final: bool = False


@dataclass
class QueueMemory:
    """One partition, `log0-0`. `unsettled`: accepts that are answered and forgotten."""

    lock_s: float
    rows: list[Row] = field(default_factory=list)
    fails_every: int = 0
    """Each so-manieth acknowledgement is carried out, and its answer gets lost."""
    forgets: frozenset[int] = frozenset()
    acknowledged: int = 0
    killed: int = 0
    paused: int = 0

    def ports(self) -> QueuePorts:
        return QueuePorts(
            lambda process, group, topics: MemoryMember(self, process), lambda: MemoryAdmin(self)
        )

    def take(self, process: int, now: float) -> list[Acquired]:
        found = []
        for offset, row in enumerate(self.rows):
            if not row.is_final and (not row.holder or now >= row.until) and len(found) < 3:
                row.holder, row.until, row.count = process, now + self.lock_s, row.count + 1
                found.append(Acquired("log0-0", offset, row.value, row.count))
        return found

    def settle(self, process: int, said: Sequence[Said], now: float) -> Outcome:
        rows = [self.rows[each.offset] for each in said]
        if any(row.holder != process or now >= row.until for row in rows):
            return "fail"
        for each, row in zip(said, rows, strict=True):
            row.holder = 0
            row.is_final = each.kind != "release" and each.offset not in self.forgets
        return "ok"


class MemoryMember:
    """See QueuePort."""

    def __init__(self, memory: QueueMemory, process: int) -> None:
        self._memory = memory
        self._process = process

    async def acquire(self) -> list[Acquired]:
        await asyncio.sleep(0.05)
        return self._memory.take(self._process, asyncio.get_running_loop().time())

    async def acknowledge(self, said: Sequence[Said]) -> dict[str, Outcome]:
        memory = self._memory
        await asyncio.sleep(0.01)
        outcome = memory.settle(self._process, said, asyncio.get_running_loop().time())
        memory.acknowledged += 1
        if memory.fails_every and memory.acknowledged % memory.fails_every == 0:
            raise Indefinite("the answer got lost")
        return {each.key: outcome for each in said}

    def pause(self) -> None:
        self._memory.paused += 1

    def resume(self) -> None:
        pass

    async def kill(self) -> None:
        self._memory.killed += 1

    async def close(self) -> None:
        for row in self._memory.rows:
            if row.holder == self._process:
                row.holder = 0


class MemoryAdmin:
    """See QueueAdminPort."""

    def __init__(self, memory: QueueMemory) -> None:
        self._memory = memory

    async def begin_at_earliest(self, group: str) -> None:
        pass

    async def start_offsets(self, group: str) -> dict[str, int]:
        rows = self._memory.rows
        return {"log0-0": next((at for at, row in enumerate(rows) if not row.is_final), len(rows))}

    def close(self) -> None:
        pass
