"""Questions to the controller: very many parts go in several requests, each small enough for one turn."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from raftlog.base.errors import KafkaError, NotController, PolicyViolation, RequestTimedOut
from raftlog.broker.controller_requests import (
    MAX_PARTS,
    MIN_TIMEOUT_S,
    PARTS_PER_REQUEST,
    ask_in_parts,
    wait_for_image,
    wake_image_waiters,
)
from raftlog.metadata.controller_api import DeleteTopics, TopicRef, TopicResult, TopicResults
from tests.broker.handlers.one_broker import HandlerSetup

Outcome = tuple[list[str | None], TopicResults | KafkaError]


async def asked(cluster: HandlerSetup, sizes: list[int], *, timeout_ms: int = 30_000) -> list[Outcome]:
    """Ask about topics that count for so many parts each; their names are their numbers."""
    topics = [TopicRef(str(number)) for number in range(len(sizes))]
    found = ask_in_parts(
        cluster.broker,
        topics,
        DeleteTopics,
        TopicResults,
        timeout_ms=timeout_ms,
        size_of=lambda topic: sizes[int(topic.name or "")],
    )
    return [([each.name for each in some], reply) async for some, reply in found]


def answer(request: DeleteTopics) -> TopicResults:
    return TopicResults(tuple(TopicResult(each.name, None, 0) for each in request.topics))


@pytest.fixture
def setup() -> HandlerSetup:
    made = HandlerSetup()
    made.answers[DeleteTopics] = answer
    return made


async def test_each_request_has_a_turns_worth_of_parts(setup: HandlerSetup) -> None:
    """A part that is larger goes alone; all are asked about, in their order."""
    sizes = [1] * (2 * PARTS_PER_REQUEST) + [3 * PARTS_PER_REQUEST] + [1]
    outcomes = await asked(setup, sizes)
    assert [len(some) for some, _ in outcomes] == [PARTS_PER_REQUEST, PARTS_PER_REQUEST, 1, 1]
    assert [name for some, _ in outcomes for name in some] == [str(each) for each in range(len(sizes))]
    assert [len(request.topics) for request in setup.asked] == [len(some) for some, _ in outcomes]  # type: ignore[union-attr]


async def test_a_failure_is_of_the_parts_that_were_asked_about(setup: HandlerSetup) -> None:
    """The others are asked about all the same."""

    def fail_first(request: DeleteTopics) -> TopicResults:
        if request.topics[0].name == "0":
            raise NotController
        return answer(request)

    setup.answers[DeleteTopics] = fail_first
    first, second = await asked(setup, [1] * (PARTS_PER_REQUEST + 5))
    assert isinstance(first[1], NotController)
    assert isinstance(second[1], TopicResults)
    assert len(second[1].results) == 5


async def test_parts_beyond_the_limit_of_a_request_are_refused(setup: HandlerSetup) -> None:
    """POLICY_VIOLATION with the limit; one single part may be larger, since the controller bounds it."""
    outcomes = await asked(setup, [1] * (MAX_PARTS + 1))
    assert isinstance(outcomes[-1][1], PolicyViolation)
    assert str(MAX_PARTS) in outcomes[-1][1].message
    assert len(setup.asked) == len(outcomes) - 1
    (alone,) = await asked(setup, [2 * MAX_PARTS])
    assert isinstance(alone[1], TopicResults)


async def test_parts_that_come_up_too_late_get_an_error(setup: HandlerSetup) -> None:
    """REQUEST_TIMED_OUT: the client does not wait for them any longer."""
    loop = asyncio.get_running_loop()
    now = 0.0

    def slow(request: DeleteTopics) -> TopicResults:
        nonlocal now
        now += MIN_TIMEOUT_S
        return answer(request)

    setup.answers[DeleteTopics] = slow
    begun_at, clock = loop.time(), loop.time
    loop.time = lambda: begun_at + now  # type: ignore[method-assign]
    try:
        first, second = await asked(setup, [PARTS_PER_REQUEST] * 2, timeout_ms=1)
    finally:
        loop.time = clock  # type: ignore[method-assign]
    assert isinstance(first[1], TopicResults)
    assert isinstance(second[1], RequestTimedOut)


async def test_a_request_waits_for_the_image_that_shows_its_outcome(setup: HandlerSetup) -> None:
    """It goes on when that image is published, and an earlier image does not end the wait."""
    broker, offset = setup.broker, setup.image.offset
    waiting = asyncio.create_task(
        wait_for_image(broker, lambda image: image.offset >= offset + 2, timeout_s=60)
    )
    for newer in (1, 2):
        await asyncio.sleep(0)
        assert not waiting.done()
        setup.image = msgspec.structs.replace(setup.image, offset=offset + newer)
        wake_image_waiters(broker)
    assert await waiting
    assert not broker.image_waiters


async def test_an_image_that_does_not_come_is_waited_for_in_vain(setup: HandlerSetup) -> None:
    """The caller gets an error after the timeout, and the wait is cleaned up."""
    assert not await wait_for_image(setup.broker, lambda image: False, timeout_s=0.01)
    assert not setup.broker.image_waiters
