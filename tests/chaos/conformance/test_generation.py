"""Claims about histories that are drawn by chance: how they are made, and how a difference is shrunk."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import chain

import pytest

from raftlog_chaos.conformance.generation.hunt import as_history, shrink
from raftlog_chaos.conformance.generation.plan import LONGEST, SHORTEST
from raftlog_chaos.conformance.generation.play import Play
from raftlog_chaos.conformance.generation.words import THEMES, WORDS, draw_plan
from raftlog_chaos.conformance.wire import Connection

PLANS = [draw_plan(7, number) for number in range(300)]


def test_a_seed_and_a_number_make_one_history() -> None:
    """A finding of one machine is looked at on another."""
    assert draw_plan(7, 133) == PLANS[133]
    assert draw_plan(8, 133) != PLANS[133]
    assert draw_plan(7, 134) != PLANS[133]
    assert as_history(PLANS[133], 7, 133).label == "generated/seed-7/133"


def test_no_history_is_longer_than_twenty_steps() -> None:
    """Longer histories take longer to compare and to read, and find little more."""
    assert {SHORTEST <= len(each.steps) <= LONGEST for each in PLANS} == {True}


def test_every_word_is_drawn_and_can_be_played() -> None:
    """A word without a method would stop a run in its middle."""
    drawn = {step.word for step in chain.from_iterable(each.steps for each in PLANS)}
    assert drawn == set(WORDS)
    assert not [word for word in drawn if not callable(getattr(Play, word, None))]


def test_a_plan_has_words_of_one_theme_at_most() -> None:
    """Members of two groups have no business with each other, and twenty steps are few."""
    said = [{step.word for step in each.steps} for each in PLANS]
    found = [[number for number, theme in enumerate(THEMES) if each & theme.words.keys()] for each in said]
    assert {len(each) for each in found} == {0, 1}
    assert set(chain.from_iterable(found)) == set(range(len(THEMES)))


def test_an_answer_that_has_come_is_seen_without_being_taken() -> None:
    """A word must know which requests wait, and cannot wait for them all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(*server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert not connection.has_answer()
            accepted.sendall(b"\0\0\0\1x")
            assert connection.has_answer(within_s=10)
            assert connection.receive_bytes() == b"x"
            assert not connection.has_answer()
        assert connection.has_answer(within_s=10), "a closed connection will not answer"
        connection.close()


def test_a_plan_can_be_played_in_part() -> None:
    """Steps name slots, so each can be played without the others."""
    plan = next(each for each in PLANS if len(each.steps) > 5)
    assert plan.only([0, 3]).steps == (plan.steps[0], plan.steps[3])
    assert plan.only([0, 3]).partitions == plan.partitions


@pytest.mark.parametrize("needed", [{3}, {0, 19}, {5, 6, 7}, set(range(20))])
def test_a_difference_is_shrunk_to_the_steps_that_it_needs(needed: set[int]) -> None:
    """Steps that do not matter are left out, and no others."""
    asked: list[Sequence[int]] = []

    def fails(steps: Sequence[int]) -> bool:
        asked.append(steps)
        return needed <= set(steps)

    assert shrink(range(20), fails) == sorted(needed)
    assert len(asked) < 100
