"""A reader on another thread finds damage while the loop cuts the log, or fetches anew: at any moment in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftlog.base.errors import CorruptMessage
from raftlog.storage import log_reads
from raftlog.storage.damage import Damage
from raftlog.storage.fetched_batches import GapPolicy
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS, append
from tests.storage.test_recovery import FIRST, sim_log

BATCHES = 6


class Interrupted(Log):
    """A log that lets the loop run between two lines of its reader, once."""

    turn: Callable[[Log], None] | None = None
    at = ""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == self.at:
            take_turn(self)


def take_turn(log: Interrupted) -> None:
    turn, log.__dict__["turn"] = log.turn, None
    if turn is not None:
        turn(log)


def rotten() -> tuple[Interrupted, bytes]:
    """Return a log with a flipped bit in its middle, and its whole records as they were."""
    disk = SimDisk(0)
    log = sim_log(disk)
    for number in range(BATCHES):
        append(log, b"value %d" % number)
    log.flush()
    whole = bytes(log.read(0, 1 << 20, end_offset=BATCHES, cached=False) or b"")
    disk.flip_bit(FIRST + ".log", len(whole) // 2)
    log.__class__ = Interrupted
    assert isinstance(log, Interrupted)
    return log, whole


def cut(log: Log) -> None:
    """The loop of a follower, before it appends what it fetched."""
    log.truncate_damage()


def fetch(log: Log) -> None:
    """The loop of a follower whose leader sent nothing new."""
    log.append_as_follower(memoryview(b""), now_ms=NOW_MS, gaps=GapPolicy.NONE)


def read_all(log: Log) -> None:
    with pytest.raises(CorruptMessage):
        log.read(0, 1 << 20, end_offset=BATCHES, cached=False, checked=True)


@pytest.mark.parametrize("turn", [cut, fetch])
@pytest.mark.parametrize("at", ["damage", "_uncut_from"])
def test_damage_is_repaired_whenever_the_loop_runs(at: str, turn: Callable[[Log], None]) -> None:
    """It is cut off once, noted until all is fetched again, and then forgotten."""
    log, whole = rotten()
    log.__dict__.update(at=at, turn=turn)
    read_all(log)
    log.truncate_damage()
    bad = log.log_end_offset
    assert 0 < bad < BATCHES and log.truncation_count == 1
    assert log.damage == Damage(bad, BATCHES)
    fetch(log)
    assert log.damage == Damage(bad, BATCHES), "it is not repaired yet"
    rest = whole[len(bytes(log.read(0, 1 << 20, end_offset=bad, cached=False) or b"")) :]
    assert log.append_as_follower(memoryview(rest), now_ms=NOW_MS, gaps=GapPolicy.NONE) == BATCHES
    assert log.damage is None
    assert log.read(0, 1 << 20, end_offset=BATCHES, cached=False) == whole


def test_damage_that_was_cut_off_during_the_search_is_not_noted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop found it at the same time; sound records that were fetched since would be cut off."""
    log, _ = rotten()
    search = log_reads.damages.first_bad_offset
    log.__dict__["turn"] = lambda found: (read_all(found), cut(found))

    def interrupted(*args: Any) -> int:
        bad = search(*args)
        take_turn(log)
        return bad

    monkeypatch.setattr(log_reads.damages, "first_bad_offset", interrupted)
    read_all(log)
    log.truncate_damage()
    assert log.truncation_count == 1


@pytest.mark.parametrize("begin", [0, BATCHES])
def test_damage_in_what_the_loop_took_away_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    """The leader has the follower truncate meanwhile, or begin anew: a cut at the damage would leave a hole."""
    log, whole = rotten()
    log.__dict__["turn"] = lambda log: log.truncate_fully_and_start_at(begin) if begin else log.truncate_to(1)

    def interrupted(*args: Any) -> Damage:
        take_turn(log)
        return Damage(*args)

    monkeypatch.setattr(log_reads.damages, "Damage", interrupted)
    read_all(log)
    log.truncate_damage()
    assert (log.log_start_offset, log.log_end_offset) == (begin, begin or 1)
    if not begin:
        rest = whole[len(bytes(log.read(0, 1 << 20, end_offset=1, cached=False) or b"")) :]
        assert log.append_as_follower(memoryview(rest), now_ms=NOW_MS, gaps=GapPolicy.NONE) == BATCHES
        assert log.read(0, 1 << 20, end_offset=BATCHES, cached=False) == whole
    fetch(log)
    assert log.damage is None
