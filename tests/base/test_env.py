"""Calls that block, away from the loop."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from raftlog.base.env import Env, ThreadOffload
from tests.kit.waits import PATIENCE_S


async def test_a_call_runs_elsewhere_and_its_result_or_error_comes_back() -> None:
    """ARCHITECTURE §5: what a loop cannot give, a place for calls that block."""
    offload = ThreadOffload(2)
    assert await offload(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await offload(lambda: 1 / 0)
    assert await offload(lambda: 7) == 7


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


async def test_a_cancelled_call_still_runs_but_nobody_hears_of_it() -> None:
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


def test_what_must_not_be_guessed_comes_from_the_operating_system() -> None:
    """624 numbers of `random.Random` are enough to predict all that follow: ids of other members and sessions."""
    assert isinstance(Env().unguessable, random.SystemRandom)
    assert not isinstance(Env().random, random.SystemRandom)
