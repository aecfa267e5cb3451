"""Bugs of the group coordinator: what it answers for, and what it takes over."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.machine import Answer, Runner
from raftlog.broker.tenure import Tenure
from raftlog.coordinator.coordinator import GroupCoordinator
from raftlog.coordinator.group import Group
from raftlog.coordinator.replay import Replay
from raftlog.proof.stories.commits import commits
from raftlog.replication.partition import Partition
from tests.planted.plant import Plant


def answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The coordinator answers what it has appended."""
    runner = GroupCoordinator._runner

    def hasty_runner(coordinator: GroupCoordinator, group: Group) -> Runner[Group]:
        made = runner(coordinator, group)
        handle = made.handle

        def handle_at_once(decide: Any, answer: Answer) -> None:
            handle(decide, answer)
            made.committed(made.end_offset)

        made.handle = handle_at_once  # type: ignore[method-assign]
        return made

    patch.setattr(GroupCoordinator, "_runner", hasty_runner)


def read_back_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator begins before what its predecessor wrote is known to be committed."""
    read_back = Tenure._read_back

    class Committed:
        """A partition whose log ends with what is known to be committed."""

        def __init__(self, partition: Partition) -> None:
            self._partition = partition
            self.log_end_offset = partition.high_watermark

        def __getattr__(self, name: str) -> Any:
            return getattr(self._partition, name)

    async def read_less(tenure: Tenure, partition: Partition) -> Replay:
        return await read_back(tenure, Committed(partition))  # type: ignore[arg-type]

    patch.setattr(Tenure, "_read_back", read_less)


PLANTS = [
    Plant("offset-commit-answered-early", "H13 lost commits", commits, answer_before_the_commit),
    Plant("groups-read-back-in-part", "H13 regressed commits", commits, read_back_to_the_high_watermark),
]
