"""Bugs that a hostile client or a bad day brings out: forgotten producers, one bad log, a clock that jumps."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.record_ages import Ages
from raftlog.broker.replicas.compaction import LogCleaner
from raftlog.records.header import BatchHeader
from raftlog.storage import cleaner
from raftlog.storage.producers import ProducerState
from raftlog_chaos.scenarios.clock_jumps import clock_jumps
from raftlog_chaos.scenarios.compaction import compaction
from raftlog_chaos.scenarios.made_up_producers import made_up_producers
from tests.planted.plant import Plant


def judge_age_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """The clock's time is believed, and data older than its retention goes."""
    patch.setattr(Ages, "now_ms", lambda ages: ages._wall_clock_ms())


def let_one_bad_log_end_the_round(patch: pytest.MonkeyPatch) -> None:
    """A batch that cannot be made anew stops the compaction of all logs that come behind it."""

    async def raise_it(_cleanings: LogCleaner, *where: Any) -> None:
        raise where[-1]

    patch.setattr(cleaner, "REBASABLE_TIMESTAMPS", range(-(2**70), 2**70))
    patch.setattr(LogCleaner, "_fail", raise_it)


def follow_without_noting_who_writes(patch: pytest.MonkeyPatch) -> None:
    """Only a leader counts recent writers: a follower pushes out another's, and then leads."""
    record = ProducerState.record

    def record_in_place(state: ProducerState, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        order = list(state._idle)
        record(state, header, base_offset, timestamp)
        if header.leader_epoch >= 0 and header.producer_id in order:  # as a leader stamped it
            state._idle = {each: state._idle[each] for each in (*order, *state._idle) if each in state._idle}

    patch.setattr(ProducerState, "record", record_in_place)


PLANTS = [
    Plant("age-by-the-wall-clock", "clocks: a jump ahead", clock_jumps, judge_age_by_the_wall_clock),
    Plant(
        "one-bad-log-ends-the-round",
        "compaction: one bad log",
        compaction,
        let_one_bad_log_end_the_round,
        6.0,
    ),
    Plant(
        "followers-forget-others",
        "idempotence: replicas disagree",
        made_up_producers,
        follow_without_noting_who_writes,
    ),
]
