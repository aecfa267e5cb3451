"""When a power cut is due."""

from __future__ import annotations

import random
from collections import Counter

from raftlog_chaos.power_cut.moments import (
    FLOWING,
    LOAD,
    MAX_LOAD_S,
    RECOVERY,
    SHARES,
    Moment,
    Sight,
    draw,
)


def sight(moment: Moment) -> Sight:
    """A boot with loads that have begun to flow at second 10, after an earlier boot with 5 acknowledgements."""
    made = Sight(moment, start_s=8.0)
    made.acknowledged(5, 0.0)
    made.reached("loading", 9.0)
    made.acknowledged(5 + FLOWING, 10.0)
    return made


def test_a_seed_draws_the_same_moments_and_all_kinds_come() -> None:
    """The first cut of a disk is never in a recovery: its logs are empty."""
    one, other = random.Random(7), random.Random(7)
    assert [draw(one, first=False) for _ in range(50)] == [draw(other, first=False) for _ in range(50)]
    kinds = Counter(draw(one, first=False).kind for _ in range(500))
    assert kinds.keys() == SHARES.keys()
    assert all(draw(one, first=True).kind != RECOVERY for _ in range(100))


def test_a_cut_under_load_counts_from_the_first_acknowledgements() -> None:
    """Before them no record can be lost, however long the clients take to begin."""
    waiting = Sight(Moment(LOAD, delay_s=2.0), start_s=8.0)
    waiting.reached("loading", 1.0)
    waiting.acknowledged(FLOWING - 1, 100.0)
    assert waiting.wait_s(100.0) is None
    waiting.acknowledged(FLOWING, 101.0)
    assert waiting.wait_s(101.5) == 1.5


def test_a_mark_counts_as_often_as_was_drawn_and_only_under_load() -> None:
    """A roll during the start is not the intended roll."""
    waiting = Sight(Moment("roll", "segment-rolled", 2, 0.5), start_s=8.0)
    waiting.marked("segment-rolled", 1.0)
    waiting.reached("loading", 9.0)
    waiting.acknowledged(FLOWING, 10.0)
    for mark in ("segment-rolled", "checkpoint-written"):
        waiting.marked(mark, 11.0)
    assert waiting.wait_s(11.0) is None
    waiting.marked("segment-rolled", 12.0)
    assert waiting.wait_s(12.0) == 0.5 and not waiting.missed


def test_a_mark_that_does_not_come_is_missed() -> None:
    """The power is cut all the same, and the report says so."""
    waiting = sight(Moment("compaction", "compaction-begun", 1))
    assert waiting.wait_s(10.0 + MAX_LOAD_S) is None
    late = waiting.wait_s(10.1 + MAX_LOAD_S)
    assert late == 0.0 and waiting.missed


def test_a_cut_in_a_recovery_comes_before_the_cluster_is_ready() -> None:
    """Measured by how long starts take; a start that is faster is cut when it is done."""
    waiting = Sight(Moment(RECOVERY, share=0.5), start_s=8.0)
    assert waiting.wait_s(0.0) is None
    waiting.reached("started", 2.0)
    assert waiting.wait_s(3.0) == 3.0
    waiting.reached("ready", 4.0)
    assert waiting.wait_s(4.0) == 0.0
