"""Taking turns: work of many parts does not keep the loop from others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Generator, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.base.env import Env
from raftlog.base.errors import GroupIdNotFound
from raftlog.base.memory import Account
from raftlog.base.turns import PARTS_AT_ONCE, in_slices
from raftlog.broker.context import RequestContext
from raftlog.broker.long_work.turns import (
    BYTES_AT_ONCE,
    CALLS_AT_ONCE,
    PARTS_TOGETHER,
    CallQueue,
    Weighed,
    completed,
    each_part,
    encoded,
    run_steps,
    together,
)
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import encode_response
from raftlog.protocol.message_builders import response_builders
from tests.broker.loop_turns import count_loop_turns


async def test_queued_calls_come_in_their_order_some_in_each_turn() -> None:
    """Also calls that a call puts behind itself; the queue is used again after it ran empty."""
    queue = CallQueue()
    for begin in (0, 10_000):
        made: list[int] = []
        count = 2 * CALLS_AT_ONCE + 1
        for number in range(begin, begin + count):
            queue.put(partial(made.append, number))
        queue.put(lambda made=made: queue.put(lambda: made.append(-1)))  # type: ignore[misc]
        seen = []
        while -1 not in made:
            await asyncio.sleep(0)
            seen.append(len(made))
        assert made == [*range(begin, begin + count), -1]
        assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= CALLS_AT_ONCE


async def test_parts_are_begun_together_and_no_more_than_may_wait() -> None:
    """Their outcomes come in their order, errors as values."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[int]] = []
    most = 0

    def begin(part: int) -> asyncio.Future[int]:
        nonlocal most
        future: asyncio.Future[int] = loop.create_future()
        waiting.append(future)
        most = max(most, sum(not each.done() for each in waiting))
        if part % 2:
            loop.call_later(0, future.set_result, part)
        else:
            loop.call_later(0, future.set_exception, GroupIdNotFound())
        return future

    count = PARTS_TOGETHER + 3
    outcomes = await together(Env(), range(count), begin)
    assert [part for part, _ in outcomes] == list(range(count))
    assert [outcome for part, outcome in outcomes if part % 2] == list(range(1, count, 2))
    assert all(isinstance(outcome, GroupIdNotFound) for part, outcome in outcomes if not part % 2)
    assert 1 < most <= PARTS_TOGETHER


@pytest.mark.parametrize("count", [1, 2])
async def test_only_coroutines_of_several_parts_run_as_tasks(count: int) -> None:
    """A part alone is awaited as it is, and what is known at once needs no turn of the loop."""
    tasks: list[asyncio.Task[Any] | None] = []

    async def work(part: int) -> int:
        tasks.append(asyncio.current_task())
        return part

    assert await together(Env(), range(count), work) == [(each, each) for each in range(count)]
    mine = [each for each in tasks if each is asyncio.current_task()]
    assert len(mine) == (1 if count == 1 else 0)
    known = [GroupIdNotFound(), 7]
    assert await together(Env(), range(2), lambda part: known[part]) == list(enumerate(known))


async def test_an_error_of_a_part_holds_neither_the_part_nor_its_request() -> None:
    """Else a request with many errors stays in memory until the collector of cycles comes by."""

    class Named: ...

    async def refuse(part: Named) -> None:
        raise GroupIdNotFound()

    def begin(part: Named) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_task(refuse(part))

    part = Named()
    alive = weakref.ref(part)
    gc.disable()
    try:
        ended = await together(Env(), [part], begin)
        errors = [outcome for _, outcome in ended]
        del part, ended
        await asyncio.sleep(0)
        assert [type(each) for each in errors] == [GroupIdNotFound]
        assert alive() is None
    finally:
        gc.enable()


async def test_slices_have_turns_between_them_and_none_after_the_last() -> None:
    """In order; as many parts in each slice as the caller says."""

    class Turns:
        taken = 0

        async def next(self) -> None:
            self.taken += 1

    turns = Turns()
    found = [(part, turns.taken) async for part in in_slices(SimpleNamespace(turns=turns), range(6), 2)]
    assert found == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] and turns.taken == 2


async def test_an_answer_is_encoded_in_turns_by_its_bytes() -> None:
    """A hundred thousand offsets took a tenth of a second in one turn. Small work takes none."""
    make, key, version = response_builders(9, 8), ApiKey.OFFSET_FETCH, 8
    for count in (1, 20_000):
        rows = tuple(
            make.OffsetFetchResponsePartitions(partition_index=each, committed_offset=each)
            for each in range(count)
        )
        topic = make.OffsetFetchResponseTopics(name="t", partitions=rows)
        answer = make.OffsetFetchResponse(
            groups=(make.OffsetFetchResponseGroup(group_id="g", topics=(topic,)),)
        )
        request = RequestContext(key, version, 7, None, "PLAINTEXT", "")
        account = Account("answers", 1 << 20)
        frame, turns = await count_loop_turns(encoded(Env(), request, answer, account=account))
        assert frame == encode_response(key, version, 7, answer)
        assert turns >= len(frame) // BYTES_AT_ONCE
        assert turns or count == 1


MAKE = response_builders(ApiKey.OFFSET_FETCH, 8)


def _group(group_id: str, topics: Any) -> Any:
    return MAKE.OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _topic(name: str, partitions: Any = ()) -> Any:
    return MAKE.OffsetFetchResponseTopics(name=name, partitions=partitions)


def _partition(index: int) -> Any:
    return MAKE.OffsetFetchResponsePartitions(partition_index=index)


async def test_parts_of_a_response_are_drawn_at_every_depth() -> None:
    """Parts may be coroutines, and parts that are None are left out; arrays that are whole stay as they are."""

    async def group(number: int) -> Any:
        await asyncio.sleep(0)
        topics = (_topic(f"t{each}", (_partition(index) for index in range(each))) for each in range(number))
        return _group(f"g{number}", topics)

    whole = (_topic("t", (_partition(3),)),)
    parts = (group(2), None, Weighed(None, 5), _group("whole", whole))
    response = await completed(Env(), MAKE.OffsetFetchResponse(groups=(each for each in parts)))
    assert response == MAKE.OffsetFetchResponse(
        groups=(_group("g2", (_topic("t0"), _topic("t1", (_partition(0),)))), _group("whole", whole))
    )


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("size", [1, 10])
async def test_drawing_a_response_gives_the_loop_its_turns(nested: bool, size: int) -> None:
    """A turn after every hundred parts, whether they are in one array or in many; some count as many parts."""
    count = 10 * PARTS_AT_ONCE
    if nested:
        topics: Any = (
            _topic("t", (Weighed(_partition(0), size) for _ in range(10))) for _ in range(count // 10)
        )
    else:
        topics = (Weighed(_topic("t"), size) for _ in range(count))
    response = MAKE.OffsetFetchResponse(groups=(_group("g", topics) for _ in range(1)))
    _, turns = await count_loop_turns(completed(Env(), response))
    assert turns >= count * size // PARTS_AT_ONCE - 1


async def test_a_part_that_fails_fails_the_response() -> None:
    """The error response is made of it, as if the handler had raised it before."""

    def topics() -> Iterator[Any]:
        yield _topic("t")
        raise GroupIdNotFound

    with pytest.raises(GroupIdNotFound):
        await completed(Env(), MAKE.OffsetFetchResponse(groups=(_group("g", topics()) for _ in range(1))))


async def test_parts_of_a_request_are_answered_in_their_order_and_in_turns() -> None:
    """By a function or by a coroutine; a slice is as large as the caller says, by the sizes of the parts."""

    async def double(part: int) -> int:
        return 2 * part

    assert await each_part(Env(), range(3), double) == [0, 2, 4]
    for at_once, size in ((PARTS_AT_ONCE, 1), (10, 1), (10, 5)):
        found, turns = await count_loop_turns(
            each_part(Env(), range(1_000), str, size_of=lambda _, size=size: size, at_once=at_once)
        )
        assert found == list(map(str, range(1_000)))
        assert turns >= 1_000 * size // at_once - 1


async def test_steps_are_run_to_their_end_or_until_no_caller_waits() -> None:
    """With a turn of the loop after every so many of them."""
    done: list[int] = []

    def steps() -> Generator[None, None, str]:
        for number in range(100):
            done.append(number)
            yield
        return "the end"

    assert await run_steps(Env(), steps(), at_once=10) == "the end"
    assert len(done) == 100
    done.clear()
    assert await run_steps(Env(), steps(), at_once=10, goes_on=lambda: len(done) < 30) is None
    assert len(done) == 30
