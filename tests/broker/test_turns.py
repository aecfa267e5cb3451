"""Taking turns: nothing of many parts keeps the loop from the others."""

from __future__ import annotations

import asyncio
from functools import partial

from raftlog.base.env import Env
from raftlog.base.errors import GroupIdNotFound
from raftlog.base.memory import Account
from raftlog.broker.context import RequestContext
from raftlog.broker.turns import (
    BYTES_AT_ONCE,
    CALLS_AT_ONCE,
    PARTS_TOGETHER,
    CallQueue,
    encoded,
    together,
)
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import encode_response
from raftlog.protocol.message_builders import response_builders
from tests.broker.loop_turns import count_loop_turns


async def test_queued_calls_come_in_their_order_some_in_each_turn() -> None:
    """Also those that a call puts behind itself; the queue is used again after it ran empty."""
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
