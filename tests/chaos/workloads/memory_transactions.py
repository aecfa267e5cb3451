"""A log in memory with transactions, which keeps all their promises apart from a promise to break on request.

Like `memory`, in the time of `raftlog_chaos.simulator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from raftlog_chaos.workloads.port import Definite, Ends, Indefinite, Kind
from tests.chaos.workloads.memory import POLL_RECORDS, MemoryCluster, MemoryPort

Plant = Literal["", "shown", "torn", "twice", "ahead", "zombie", "hanging"]
"""Faults of this fake, each of which the checker must find.

- shown: consumers see an aborted record.
- torn: a part of a commit is aborted.
- twice, ahead: offsets are not committed, or are too high.
- zombie: a fenced producer commits nevertheless.
- hanging: the transaction of a dead producer stays open.
"""


REFUSED = 0.02
"""Share of all trouble that befalls a record: transactions are long, and a single refusal ends them."""


@dataclass(eq=False)
class MemoryTransaction:
    state: Literal["open", "committed", "aborted"] = "open"
    first: dict[str, int] = field(default_factory=dict)
    """By key, where it begins there."""


@dataclass
class TransactionalCluster(MemoryCluster):
    """`fates` has the transaction of each place in a log; a marker is in a log as -1."""

    plant: Plant = ""
    transactional: bool = True
    fates: dict[tuple[str, int], MemoryTransaction] = field(default_factory=dict)
    ongoing: list[MemoryTransaction] = field(default_factory=list)
    holders: dict[str, TransactionalMemoryPort] = field(default_factory=dict)

    def __call__(self, process: int, kind: Kind) -> TransactionalMemoryPort:
        self.open += 1
        return TransactionalMemoryPort(self, kind)

    def stable_end(self, key: str) -> int:
        return min(
            (each.first[key] for each in self.ongoing if key in each.first), default=len(self.logs[key])
        )

    def finish(self, transaction: MemoryTransaction, *, commit: bool) -> None:
        transaction.state = "committed" if commit else "aborted"
        self.ongoing.remove(transaction)
        for key in transaction.first:
            self.logs[key].append(-1)
        if commit and self.plant == "torn":
            torn = min(transaction.first, default="")
            for tp, fate in list(self.fates.items()):
                if fate is transaction and tp[0] == torn:
                    self.fates[tp] = MemoryTransaction("aborted")


class TransactionalMemoryPort(MemoryPort):
    """See TransactionalPort. A member has all partitions of its group."""

    cluster: TransactionalCluster

    def __init__(self, cluster: TransactionalCluster, kind: Kind) -> None:
        super().__init__(cluster, kind)
        self.reached: dict[str, int] = {}
        self.identity = ""
        self.transaction: MemoryTransaction | None = None

    # -- writing

    def send(self, key: str, value: int) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not self._holds():
            done.set_exception(Definite("fenced"))
        elif self.cluster.chance.random() < self.cluster.trouble * REFUSED:
            done.set_exception(Definite("refused"))
        else:
            log = self.cluster.logs[key]
            if self.transaction is not None:
                self.transaction.first.setdefault(key, len(log))
                self.cluster.fates[key, len(log)] = self.transaction
            log.append(value)
            done.set_result(len(log) - 1)
        return done

    def _holds(self) -> bool:
        mine = self.cluster.holders.get(self.identity, self) is self
        return mine or self.cluster.plant == "zombie"

    async def take_id(self, transactional_id: str) -> None:
        if self.identity:
            return
        if self.cluster.troubled():
            raise Definite("no coordinator")
        self.identity = transactional_id
        before = self.cluster.holders.get(transactional_id)
        self.cluster.holders[transactional_id] = self
        if before is not None and self.cluster.plant not in ("hanging", "zombie"):
            before.abort()

    async def begin(self) -> None:
        if not self._holds():
            raise Definite("fenced")
        self.transaction = MemoryTransaction()
        self.cluster.ongoing.append(self.transaction)

    def abort(self) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            self.cluster.finish(transaction, commit=False)

    async def commit_transaction(self) -> None:
        await asyncio.sleep(0.01)
        transaction, self.transaction = self.transaction, None
        if not self._holds() or transaction is None:
            raise Indefinite("fenced")
        troubled, taken = self.cluster.troubled(), self.cluster.chance.random() < 0.5
        if not troubled or taken:
            self.cluster.finish(transaction, commit=True)
            self._commit_offsets()
        elif self.cluster.plant != "hanging":
            self.cluster.finish(transaction, commit=False)
        if troubled:
            raise Indefinite("the answer was lost")

    def _commit_offsets(self) -> None:
        offsets, self.uncommitted = self.uncommitted, {}
        if self.cluster.plant == "twice" and self.cluster.chance.random() < 0.2:
            offsets = {}
        for key, offset in offsets.items():
            ahead = self.cluster.plant == "ahead" and self.cluster.chance.random() < 0.2
            self.cluster.committed[self.group, key] = offset + ahead

    async def abort_transaction(self) -> None:
        self.abort()

    # -- reading

    async def poll(self) -> dict[str, list[tuple[int, int]]]:
        await asyncio.sleep(0.01)
        reads = {}
        for key, position in self.positions.items():
            end = min(self.cluster.stable_end(key), position + POLL_RECORDS)
            seen = [
                (each, self.cluster.logs[key][each])
                for each in range(position, end)
                if self._shows(key, each)
            ]
            self.positions[key] = max(position, end)
            if seen:
                reads[key] = seen
            if self.positions[key] == self.cluster.stable_end(key):
                self.reached[key] = self.positions[key]
        if self.group:
            self.uncommitted |= {key: self.positions[key] for key in reads}
        return reads

    def _shows(self, key: str, offset: int) -> bool:
        fate = self.cluster.fates.get((key, offset))
        aborted = fate is not None and fate.state == "aborted"
        return self.cluster.logs[key][offset] >= 0 and (not aborted or self.cluster.plant == "shown")

    async def subscribe(self, topics: Sequence[str], group: str) -> None:
        self.uncommitted = {}
        await super().subscribe(topics, group)

    async def poll_again(self) -> None:
        self.uncommitted = {}
        self.positions = {key: self.cluster.committed.get((self.group, key), 0) for key in self.positions}

    async def ends(self, keys: Sequence[str]) -> dict[str, Ends]:
        return {key: Ends(self.cluster.stable_end(key), len(self.cluster.logs[key])) for key in keys}

    async def committed(self, keys: Sequence[str], group: str) -> dict[str, int]:
        return {key: self.cluster.committed.get((group, key), 0) for key in keys}

    async def rewind(self, offsets: Mapping[str, int]) -> None:
        self.positions.update(offsets)

    async def abandon(self) -> None:
        """The transaction's time is over before the run is."""
        if self.transaction is not None and self.cluster.plant != "hanging":
            asyncio.get_running_loop().call_later(1.0, self.abort)
        await self.close()
