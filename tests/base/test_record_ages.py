"""The time by which data is deleted for its age: a clock that jumps makes nothing old."""

from __future__ import annotations

import pytest

from raftlog.base.record_ages import ACCEPTED_AFTER_S, MOST_JUMP_MS, Ages

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clocks:
    """A wall clock that jumps, beside one that cannot."""

    def __init__(self) -> None:
        self.monotonic_s = 1_000.0
        self.ahead_ms = 1_700_000_000_000
        self.ages = Ages(lambda: int(self.monotonic_s * 1000) + self.ahead_ms, lambda: self.monotonic_s)
        self.begin_ms = self.ages.now_ms()

    def passed_ms(self) -> int:
        """How far age has come since the beginning."""
        return self.ages.now_ms() - self.begin_ms


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_time_goes_on_as_long_as_the_clocks_agree(clocks: Clocks) -> None:
    """Small steps of a clock that is kept right are followed, however far they lead in the end."""
    for _ in range(1_000):
        clocks.monotonic_s += 1.0
        clocks.ahead_ms += MOST_JUMP_MS // 2
        assert clocks.ages.jump_ms() == 0
    assert clocks.passed_ms() == 1_000 * (1_000 + MOST_JUMP_MS // 2)
    assert clocks.ages.latest_ms() == clocks.ages.now_ms()


def test_a_jump_ahead_makes_nothing_old(clocks: Clocks) -> None:
    """Data that was due without the jump is still deleted; new data is stamped as the wall clock says."""
    clocks.ahead_ms += 30 * DAY_MS
    assert clocks.passed_ms() == 0
    assert clocks.ages.jump_ms() == 30 * DAY_MS
    clocks.monotonic_s += 600.0
    assert clocks.passed_ms() == 600_000
    assert clocks.ages.latest_ms() == clocks.begin_ms + 600_000 + 30 * DAY_MS


def test_a_jump_back_makes_nothing_old_when_it_is_undone(clocks: Clocks) -> None:
    """Age waits, and what is written meanwhile is stamped as if the clock had not gone back."""
    clocks.ahead_ms -= 30 * DAY_MS
    clocks.monotonic_s += 600.0
    assert clocks.passed_ms() == 600_000 - 30 * DAY_MS
    assert clocks.ages.latest_ms() == clocks.begin_ms + 600_000
    clocks.ahead_ms += 30 * DAY_MS
    assert clocks.passed_ms() == 600_000
    assert clocks.ages.jump_ms() == 0


def test_a_jump_is_accepted_once_the_clocks_have_agreed_for_an_hour(clocks: Clocks) -> None:
    """A machine that slept comes back with one, and nobody should have to say so. A further jump begins it anew."""
    clocks.ahead_ms += DAY_MS
    assert clocks.ages.jump_ms() == DAY_MS
    clocks.monotonic_s += ACCEPTED_AFTER_S - 1
    clocks.ahead_ms += DAY_MS
    assert clocks.ages.jump_ms() == 2 * DAY_MS
    clocks.monotonic_s += ACCEPTED_AFTER_S - 1
    assert clocks.ages.jump_ms() == 2 * DAY_MS
    clocks.monotonic_s += 1
    assert clocks.ages.jump_ms() == 0
    assert clocks.passed_ms() == 2 * DAY_MS + int((2 * ACCEPTED_AFTER_S - 1) * 1000)


def test_an_operator_accepts_a_jump_at_once(clocks: Clocks) -> None:
    """Once; there is nothing to accept while the clocks agree."""
    assert not clocks.ages.accept()
    clocks.ahead_ms += DAY_MS
    assert clocks.ages.accept()
    assert (clocks.passed_ms(), clocks.ages.jump_ms()) == (DAY_MS, 0)
    assert not clocks.ages.accept()
