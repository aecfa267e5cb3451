"""Calls that block, away from the loop."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from contextvars import ContextVar

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.env import SHARED_S, Env, ThreadOffload, shared_time, timer_time
from raftlog.base.turns import SERVES_A_BROKER, TurnQueue
from tests.kit.examples import examples
from tests.kit.waits import PATIENCE_S


async def test_a_call_runs_elsewhere_and_its_result_or_error_comes_back() -> None:
    """Calls that block have a place, which a loop cannot give."""
    offload = ThreadOffload(2)
    assert await offload(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await offload(lambda: 1 / 0)
    assert await offload(lambda: 7) == 7


async def test_threads_have_the_context_in_which_the_offload_was_made() -> None:
    """Their events go to the log of the node that made the offload."""
    variable = ContextVar("variable", default="none")
    variable.set("made")
    offload = ThreadOffload(2)
    variable.set("asked")
    assert await asyncio.gather(offload(variable.get), offload(variable.get)) == ["made", "made"]


async def test_threads_are_started_when_needed_and_no_more_than_allowed() -> None:
    """An idle node has none; what is more waits for its turn."""
    offload, release = ThreadOffload(2), threading.Event()
    ran_in: set[int] = set()

    def job() -> None:
        ran_in.add(threading.get_ident())
        assert release.wait(PATIENCE_S)

    assert await offload(threading.get_ident) == await offload(threading.get_ident)
    jobs = [offload(job) for _ in range(4)]
    release.set()
    await asyncio.gather(*jobs)
    assert len(ran_in) <= 2


async def test_a_cancelled_call_still_runs_without_a_result() -> None:
    """A write that was begun must not be half done."""
    offload, release, ended = ThreadOffload(1), threading.Event(), threading.Event()

    def job() -> None:
        assert release.wait(PATIENCE_S)
        ended.set()

    future = offload(job)
    future.cancel()
    release.set()
    await offload(lambda: None)
    assert ended.is_set() and future.cancelled()


async def test_a_drain_waits_for_every_call_and_its_callbacks() -> None:
    """A file that is closed once its sync has ended is closed before the loop is."""
    offload, release, heard = ThreadOffload(2), threading.Event(), list[int]()
    for number in range(4):
        offload(lambda number=number: release.wait(PATIENCE_S) and number).add_done_callback(
            lambda future: heard.append(future.result())
        )
    draining = asyncio.ensure_future(offload.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    release.set()
    await draining
    assert sorted(heard) == [0, 1, 2, 3]


async def test_threads_end_once_they_are_closed() -> None:
    """Calls that were given before are done first."""
    offload, release = ThreadOffload(2), threading.Event()
    jobs = [offload(lambda: (threading.current_thread(), release.wait(PATIENCE_S))) for _ in range(3)]
    offload.close()
    release.set()
    threads = {thread for thread, _ in await asyncio.gather(*jobs)}
    for each in threads:
        await asyncio.to_thread(each.join, PATIENCE_S)
        assert not each.is_alive()


async def test_answers_to_brokers_have_every_other_slice() -> None:
    """A follower's fetch of ten thousand partitions waited for that of each client in turn, and fell out of the ISR."""
    turns, order = TurnQueue(), list[str]()

    async def work(name: str, *, serves_a_broker: bool) -> None:
        SERVES_A_BROKER.set(serves_a_broker)
        for _ in range(2):
            await turns.next()
            order.append(name)

    works = [work(name, serves_a_broker=name.isupper()) for name in "abcdB"]
    await asyncio.gather(*map(asyncio.ensure_future, works))
    assert order == [*"BaBb", *"cdabcd"]


async def test_all_long_work_of_a_node_adds_one_slice_to_a_turn_of_the_loop() -> None:
    """Works run in the order of their requests, however many they are; cancelled works are skipped."""
    turns, order = TurnQueue(), list[str]()

    async def work(name: str) -> None:
        for _ in range(3):
            await turns.next()
            order.append(name)

    async def count_turns() -> None:
        while True:
            order.append("turn")
            await asyncio.sleep(0)

    works = [asyncio.ensure_future(work(name)) for name in "abcd"]
    await asyncio.sleep(0)
    works[1].cancel()
    counting = asyncio.ensure_future(count_turns())
    await asyncio.gather(*works, return_exceptions=True)
    counting.cancel()
    slices = [name for name in order if name != "turn"]
    assert slices == ["a", "c", "d"] * 3
    begun = order[order.index("a") :]
    assert not any(one != "turn" and other != "turn" for one, other in itertools.pairwise(begun))


def test_what_must_not_be_guessed_comes_from_the_operating_system() -> None:
    """624 numbers of `random.Random` are enough to predict all that follow: ids of other members and sessions."""
    assert isinstance(Env().unguessable, random.SystemRandom)
    assert not isinstance(Env().random, random.SystemRandom)


def test_a_timer_of_a_fraction_of_a_millisecond_does_not_come_early() -> None:
    """uvloop rounds to the nearest: a callback that looks at the clock would set its timer again, hundreds of times."""

    async def wake_ups(at_fraction: float) -> int:
        loop = asyncio.get_running_loop()
        due, count = loop.create_future(), 0
        at = loop.time() + at_fraction

        def wake() -> None:
            nonlocal count
            count += 1
            if loop.time() < at:
                loop.call_at(timer_time(at), wake)
            else:
                due.set_result(None)

        loop.call_at(timer_time(at), wake)
        await due
        return count

    loop = uvloop.new_event_loop()
    assert [loop.run_until_complete(wake_ups(at)) for at in (0.0, 0.0052, 0.0057, 0.006)] == [1, 1, 1, 1]
    loop.close()


@settings(max_examples=examples(200))
@given(st.floats(0, 1e9))
def test_a_timer_is_never_set_for_more_than_a_millisecond_later(at: float) -> None:
    """It comes at the time asked for or in the next millisecond."""
    assert -1e-6 <= timer_time(at) - at < 0.001 + 1e-6


@settings(max_examples=examples(200))
@given(st.floats(0, 1e9), st.floats(SHARED_S, 100))
def test_recurring_work_is_due_within_its_interval_at_a_time_that_others_choose_too(
    now: float, seconds: float
) -> None:
    """Later than now, or a loop would spin. Other loops that wake up within an eighth of a second share that moment."""
    at = shared_time(now, seconds)
    assert now < at <= now + seconds + 0.001
    assert at > now + seconds - SHARED_S
    assert at % SHARED_S == 0


@pytest.mark.parametrize("late_s", [-0.0004, 0.0, 0.05])
def test_an_interval_of_whole_eighths_is_kept_however_early_or_late_its_timer_comes(late_s: float) -> None:
    """A turn of the loop takes a while, and that does not add up."""
    assert [shared_time(at + late_s, 0.5) for at in (10.0, 10.5, 11.0)] == [10.5, 11.0, 11.5]


def test_an_interval_below_an_eighth_of_a_second_stays_as_it_is() -> None:
    """It would grow or shrink by too much."""
    assert shared_time(10.1, 0.1) == 10.1 + 0.1
