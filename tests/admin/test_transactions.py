"""Transactional ids over HTTP, where there are very many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace as Answer
from typing import Any

from raftlog.admin.native.transactions import list_transactions
from raftlog.base.transaction_listing import TransactionalId
from raftlog.base.turns import PARTS_AT_ONCE, TurnQueue
from raftlog.security.acls import Operation, ResourceType


class Listed:
    """A transaction port that knows so many, of which the first is open."""

    def __init__(self, count: int) -> None:
        self.ids = [TransactionalId(f"x{number}", 1, number, "Ongoing", -1, -1) for number in range(count)]

    async def all(self) -> list[TransactionalId]:
        return self.ids

    async def open(self, listed: Iterable[TransactionalId]) -> dict[str, tuple[int, int]]:
        return {"x0": (5, 9)}


async def among(_operation: Operation, _kind: ResourceType, names: Iterable[str]) -> set[str]:
    return set(names)


async def test_very_many_ids_are_listed_in_turns() -> None:
    """With when they began, and their timeouts, where a transaction is open."""
    count, turns = 5 * PARTS_AT_ONCE, 0
    call: Any = Answer(node=Answer(transactions=lambda: Listed(count)), among=among, turns=TurnQueue())
    asked = asyncio.ensure_future(list_transactions(call))
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    data = asked.result().data
    assert [each.transactional_id for each in data] == [f"x{number}" for number in range(count)]
    assert [(each.start_ms, each.timeout_ms) for each in data[:2]] == [(5, 9), (-1, -1)]
    assert turns > count // PARTS_AT_ONCE
