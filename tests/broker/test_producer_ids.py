"""raftlog.broker.producer_ids: each id once, the controller asked rarely and early."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.base.errors import CoordinatorLoadInProgress, NotController
from raftlog.broker.producer_ids import ProducerIds
from raftlog.metadata.broker_requests import ProducerIdBlock


class Controller:
    def __init__(self, count: int = 1000) -> None:
        self.count = count
        self.asked = 0
        self.answering = asyncio.Event()
        self.answering.set()
        self.error: Exception | None = None

    async def allocate(self) -> ProducerIdBlock:
        self.asked += 1
        number = self.asked
        await self.answering.wait()
        if self.error is not None:
            raise self.error
        return ProducerIdBlock(number * 10_000, self.count)


async def test_ids_are_unique_over_blocks() -> None:
    """KIP-98: two producers with one id would fence each other."""
    controller = Controller()
    subject = ProducerIds(controller.allocate)
    given = [await subject.next() for _ in range(2500)]
    assert len(set(given)) == 2500
    assert controller.asked <= 4


async def test_a_prepared_broker_starts_producers_without_a_controller() -> None:
    """Without a majority producers go on starting while ids are left; no controller at first is no harm."""
    controller = Controller()
    subject = ProducerIds(controller.allocate)
    controller.error = NotController()
    await subject.prepare()
    controller.error = None
    await subject.prepare()
    await subject.prepare()
    assert controller.asked == 2
    controller.error = NotController()
    given = [await subject.next() for _ in range(1000)]
    assert len(set(given)) == 1000
    with pytest.raises(CoordinatorLoadInProgress):
        await subject.next()


async def test_concurrent_requests_share_one_block_of_producer_ids() -> None:
    """One question to the controller, however many producers start."""
    controller = Controller()
    controller.answering.clear()
    subject = ProducerIds(controller.allocate)
    waiting = [asyncio.ensure_future(subject.next()) for _ in range(50)]
    await asyncio.sleep(0)
    controller.answering.set()
    assert len(set(await asyncio.gather(*waiting))) == 50
    assert controller.asked == 1


async def test_the_next_block_is_asked_for_when_half_of_one_is_used() -> None:
    """So that producers do not wait while there is no controller for a moment."""
    controller = Controller()
    subject = ProducerIds(controller.allocate)
    for _ in range(499):
        await subject.next()
    await asyncio.sleep(0)
    assert controller.asked == 1
    await subject.next()
    await asyncio.sleep(0)
    assert controller.asked == 2


async def test_producers_start_while_no_controller_is_there_for_long() -> None:
    """Half a block is in reserve whenever the controller goes, and requests for the next block are repeated until it
    comes.
    """
    controller = Controller()
    subject = ProducerIds(controller.allocate)
    await subject.prepare()
    given = set()
    for number in range(1500):
        controller.error = NotController() if 500 <= number < 1400 else None
        given.add(await subject.next())
        await asyncio.sleep(0)
    assert len(given) == 1500


async def test_without_a_controller_the_error_is_retriable_and_passes() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS is what producers retry; the next call asks again."""
    controller = Controller()
    controller.error = NotController()
    subject = ProducerIds(controller.allocate)
    for _ in range(2):
        with pytest.raises(CoordinatorLoadInProgress):
            await subject.next()
    controller.error = None
    assert await subject.next() >= 10_000


async def test_a_cancelled_request_does_not_cancel_the_block_of_the_others() -> None:
    """A lost connection must not fail other producers."""
    controller = Controller()
    controller.answering.clear()
    subject = ProducerIds(controller.allocate)
    one, two = asyncio.ensure_future(subject.next()), asyncio.ensure_future(subject.next())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    controller.answering.set()
    assert await two >= 10_000
