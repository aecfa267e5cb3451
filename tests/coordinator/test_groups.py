"""The groups of a partition: the cost of a commit for requests that wait for another commit."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.machine import Runner
from tests.coordinator.group_coordinator_setup import Answers, GroupCoordinatorSetup


def test_a_commit_visits_only_its_own_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many may wait, and the high watermark moves very often."""
    made = GroupCoordinatorSetup(autocommit=False)
    for number in range(300):
        made.commit_offset(7, group_id=f"g{number:03}")
    looked: list[int] = []
    plain = Runner.committed

    def noting(runner: Runner[Any], end_offset: int) -> None:
        looked.append(end_offset)
        plain(runner, end_offset)

    monkeypatch.setattr(Runner, "committed", noting)
    made.coordinator.committed(3)
    assert len(looked) < 20
    for end_offset in range(4, made.end_offset + 1):
        made.coordinator.committed(end_offset)
    assert len(looked) < 10 * made.end_offset
    assert not made.coordinator._groups._waiting


def test_several_decisions_of_a_group_are_answered_each_with_its_commit() -> None:
    """In their order, also decisions that came while the first waited already."""
    made = GroupCoordinatorSetup(autocommit=False)
    waiting: list[Answers] = []
    for group_id in ("a", "b", "a", "b"):
        made.commit_offset(7, group_id=group_id)
        waiting.append(Answers())
        made.coordinator.read(group_id, waiting[-1])
    for committed in range(1, 5):
        made.coordinator.committed(committed)
        assert [len(each) for each in waiting] == [1] * committed + [0] * (4 - committed)
