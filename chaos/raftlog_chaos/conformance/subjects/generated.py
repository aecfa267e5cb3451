"""Randomly drawn histories: the first of a seed. `generated` compares any number of others live."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.generation.play import Play
from raftlog_chaos.conformance.generation.words import draw_plan
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session

SEED: Final = 1
COUNT: Final = 40


@history({str(number): number for number in range(COUNT)})
def seed_1(s: Session, number: int) -> None:
    """A broker answers as its state demands, whatever was asked before."""
    plan = draw_plan(SEED, number)
    Play(s, plan).run(plan.steps)
