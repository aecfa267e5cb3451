"""The cut of a node of `raftlog dev`: the thread that ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from raftlog.base.faults import LONGEST_S, CutOff
from raftlog.faults.link_faults import LinkFaults


@pytest.fixture
def faults() -> Iterator[LinkFaults]:
    made = LinkFaults()
    yield made
    made.heal()


def timers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if isinstance(each, threading.Timer)}


def added(before: set[threading.Thread]) -> threading.Thread:
    """Return the only timer that was started since."""
    (timer,) = timers() - before
    return timer


def test_a_cut_ends_the_timer_of_the_cut_that_it_replaces(faults: LinkFaults) -> None:
    """Otherwise each injection leaves a thread for up to an hour."""
    before = timers()
    faults.inject(CutOff(seconds=LONGEST_S))
    first = added(before)
    faults.inject(CutOff(seconds=LONGEST_S))
    first.join(10)
    assert not first.is_alive() and added(before) is not first
    faults.inject(CutOff())
    assert faults.active() == [CutOff()]


def test_a_cut_that_is_healed_leaves_no_timer(faults: LinkFaults) -> None:
    """And a cut that ends by itself leaves none either."""
    before = timers()
    faults.inject(CutOff(seconds=LONGEST_S))
    timer = added(before)
    faults.heal("cut-off")
    timer.join(10)
    assert not timer.is_alive() and faults.active() == []
    faults.inject(CutOff(seconds=0.01))
    added(before).join(10)
    assert not timers() - before and faults.active() == []
