"""Claims about the memory for decoded requests: requests that do not fit together run in sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.memory import Account
from raftlog.broker.long_work.object_memory import (
    BYTES_PER_SECOND,
    HELD_S,
    SMALL_BYTES,
    ObjectMemory,
    expected_bytes,
)
from raftlog.protocol.reader import MAX_OBJECT_BYTES
from raftlog_chaos.simulator.loop import simulate

MIB = 1 << 20
LIMIT = 100 * MIB


class MemoryUsers:
    """Requests, by number, that use memory until released. `began`: the order in which they got room."""

    def __init__(self, memory: ObjectMemory, sizes: Iterable[int]) -> None:
        self.memory = memory
        self.sizes = list(sizes)
        self.began: list[int] = []
        self.ends = [asyncio.Event() for _ in self.sizes]
        self.tasks = [asyncio.ensure_future(self._use(number)) for number in range(len(self.sizes))]

    async def _use(self, number: int) -> None:
        async with self.memory.room(self.sizes[number] * MIB):
            self.began.append(number)
            await self.ends[number].wait()

    @property
    def used(self) -> int:
        return self.memory._account.used

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await asyncio.wait([self.tasks[number]])
        await asyncio.sleep(0)


async def started(memory: ObjectMemory, *sizes: int) -> MemoryUsers:
    users = MemoryUsers(memory, sizes)
    await asyncio.sleep(0)
    return users


async def test_requests_that_exceed_the_budget_together_run_one_after_the_other() -> None:
    """Three requests of five megabytes took a node 280 MiB."""
    users = await started(ObjectMemory(Account("objects", LIMIT)), 60, 60, 60)
    assert users.began == [0]
    await users.end(0)
    assert users.began == [0, 1]
    await users.end(1)
    await users.end(2)
    assert users.used == 0


async def test_a_small_one_goes_beside_a_large_one() -> None:
    """An honest request of a few kilobytes does not wait behind requests of the maximum size."""
    users = await started(ObjectMemory(Account("objects", LIMIT)), 60, 60, 30, 10)
    assert users.began == [0, 2, 3]


async def test_a_few_kilobytes_wait_for_no_backlog_of_large_ones() -> None:
    """Twenty-five earlier requests of many megabytes delayed a request of 6 KB by a minute."""
    memory = ObjectMemory(Account("objects", LIMIT))
    users = await started(memory, *[60] * 25, 1)
    assert users.began == [0, 25]
    await users.end(25)
    assert memory._small_bytes == 0


async def test_a_request_larger_than_the_whole_budget_runs_alone() -> None:
    """A small budget makes it wait, but not for ever."""
    users = await started(ObjectMemory(Account("objects", LIMIT)), 50, 500, 50)
    assert users.began == [0, 2]
    await users.end(0)
    assert users.began == [0, 2]
    await users.end(2)
    assert users.began == [0, 2, 1]


@pytest.mark.parametrize("number", [0, 1], ids=["the one with room", "the one that waits"])
async def test_a_connection_that_ends_makes_way(number: int) -> None:
    """A request that is cancelled keeps neither room nor a place."""
    users = await started(ObjectMemory(Account("objects", LIMIT)), 80, 70, 60)
    users.tasks[number].cancel()
    await asyncio.wait([users.tasks[number]])
    if number == 1:
        await users.end(0)
    await asyncio.sleep(0)
    assert users.began == [0, 2]
    await users.end(2)
    if number == 0:
        await users.end(1)
    assert users.used == 0


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_only_a_lone_request_exceeds_the_budget_and_every_request_completes(
    asked: list[tuple[int, int, int]],
) -> None:
    """Whenever each comes, however long each takes."""

    async def scenario(_: object) -> None:
        account, using = Account("objects", LIMIT), dict[int, int]()
        memory = ObjectMemory(account)

        async def use(number: int, size: int, after_s: int, for_s: int) -> None:
            await asyncio.sleep(after_s)
            async with memory.room(size * MIB):
                using[number] = size * MIB
                large = [
                    each for each in using.values() if each > SMALL_BYTES
                ]  # small requests have room beside
                assert sum(large) <= LIMIT or len(large) == 1
                await asyncio.sleep(for_s)
                del using[number]

        await asyncio.gather(*(use(number, *each) for number, each in enumerate(asked)))
        assert account.used == 0

    simulate(scenario)


def test_what_is_expected_follows_the_bytes_and_the_parts_that_are_allowed() -> None:
    """A JoinGroup of a megabyte is one object of a megabyte, and may wait for a minute."""
    assert expected_bytes(2_500_000, 100_000) == 80_000_000
    assert expected_bytes(1 << 30, 1 << 30) == 2 * MAX_OBJECT_BYTES
    assert expected_bytes(1_000_000, 1_000) == 1_024_000
    assert expected_bytes(2_500, 100_000) == 80_000


def test_a_large_one_is_overtaken_by_small_ones_for_a_time_only() -> None:
    """Small requests of three clients, repeated for ever, shut a request of a hundred thousand names out."""

    async def scenario(_: object) -> float:
        account = Account("objects", 2 * BYTES_PER_SECOND)
        memory, loop = ObjectMemory(account), asyncio.get_running_loop()

        async def ask_again_and_again() -> None:
            while True:
                async with memory.room(BYTES_PER_SECOND):
                    await asyncio.sleep(0.1)

        others = [asyncio.ensure_future(ask_again_and_again()) for _ in range(3)]
        await asyncio.sleep(0.05)
        asked_at = loop.time()
        async with memory.room(3 * BYTES_PER_SECOND):
            waited_s = loop.time() - asked_at
        for each in others:
            each.cancel()
        return waited_s

    assert 2 <= simulate(scenario).result < 3


def test_a_request_that_waits_for_an_event_does_not_block_the_others() -> None:
    """A request with a client timeout of ten minutes delays others by seconds."""

    async def scenario(_: object) -> tuple[float, int]:
        account = Account("objects", LIMIT)
        memory, loop = ObjectMemory(account), asyncio.get_running_loop()

        async def wait_long() -> None:
            async with memory.room(LIMIT):
                await asyncio.sleep(600)

        asked_at = loop.time()
        waits = asyncio.ensure_future(wait_long())
        await asyncio.sleep(0)
        async with memory.room(LIMIT):
            waited_s = loop.time() - asked_at
        await waits
        return waited_s, account.used

    assert simulate(scenario).result == (pytest.approx(HELD_S, abs=0.1), 0)
