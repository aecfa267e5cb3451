"""Bugs by which a wrong clock deletes data: trust at the start, the requests to others, and each path that deletes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from raftlog import clock_watch
from raftlog.base.disk import Disk
from raftlog.base.record_ages import Ages, ClockState, OtherClocks, encode_time
from raftlog.broker.replicas import compaction
from raftlog.controller import tokens
from raftlog.coordinator.group_expiration import GroupExpiration
from raftlog.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from raftlog.storage.cleaner import Cleaning
from raftlog.storage.log import Log
from raftlog_chaos.scenarios.believed_time import believed_time
from raftlog_chaos.scenarios.clock_jumps import clock_jumps
from raftlog_chaos.simulator.hosts import current_process
from tests.planted.plant import Plant


def wall_ms() -> int:
    """Return what the clock of the node shows that is at work."""
    return current_process.get().host.wall_clock_ms()


def believe_the_first_look(patch: pytest.MonkeyPatch) -> None:
    """The time on the disk is written, but not read."""
    patch.setattr(clock_watch, "read_believed_time", lambda disk, folder: None)


def do_not_sync_the_file(patch: pytest.MonkeyPatch) -> None:
    """The power goes, and the time on the disk with it."""

    def write(disk: Disk, folder: str, believed_ms: int) -> None:
        disk.write_file(f"{folder}/clock-checkpoint", encode_time(believed_ms), sync=False)

    patch.setattr(clock_watch, "write_believed_time", write)


def write_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """The disk has the wrong time after a while, for which the file is blamed."""
    patch.setattr(Ages, "time_to_keep", lambda ages: ages.reading()[0])


def do_not_ask_the_others(patch: pytest.MonkeyPatch) -> None:
    """A node believes its clock at once if its disk does not contradict it, whatever the others say."""
    resume, note_others = Ages.resume, Ages.note_others

    def resume_alone(ages: Ages, last_ms: int | None, *, most_ms: int) -> None:
        resume(ages, last_ms, most_ms=most_ms)
        note_others(ages, OtherClocks())

    def hear_nothing(ages: Ages, others: OtherClocks | None) -> None:
        note_others(ages, OtherClocks())

    patch.setattr(Ages, "resume", resume_alone)
    patch.setattr(Ages, "note_others", hear_nothing)


def follow_any_majority(patch: pytest.MonkeyPatch) -> None:
    """Clocks that were all set wrong together confirm each other."""
    patch.setattr(OtherClocks, "confirm", property(lambda others: 2 * others.agreeing > others.alive))


def let_a_new_node_believe_a_doubtful_majority(patch: pytest.MonkeyPatch) -> None:
    """It lost its disk, believes what all others show, and confirms them."""
    follow = Ages._follow

    def follow_as_one_that_knows(ages: Ages, others: OtherClocks) -> None:
        if ages._state is ClockState.NEW:
            ages._state = ClockState.UNCONFIRMED
        follow(ages, others)

    patch.setattr(Ages, "_follow", follow_as_one_that_knows)


def pass_over_a_contradiction(patch: pytest.MonkeyPatch) -> None:
    """A node without a time on its disk goes by its own clock, though all others show another time."""
    patch.setattr(OtherClocks, "contradict", property(lambda others: False))


def take_an_answer_for_the_clock_of_now(patch: pytest.MonkeyPatch) -> None:
    """A clock that jumps during a heartbeat is confirmed by the response, which is about the time before."""
    note_others = Ages.note_others

    def note_as_of_now(ages: Ages, others: OtherClocks | None) -> None:
        ages.reading()
        note_others(ages, others)

    patch.setattr(Ages, "note_others", note_as_of_now)


def stamp_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """A commit is stamped by a clock that is behind, and is old as soon as that is right again."""
    patch.setattr(Ages, "latest_ms", lambda ages: ages.reading()[0])


def append_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """LogAppendTime comes from a clock that is behind, and the record is old as soon as that is right again."""
    patch.setattr(Ages, "floor_ms", property(lambda ages: 0, lambda ages, floor_ms: None))


def _by_the_wall(patch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    """Have a method or function take the wall clock for its argument `number`: a time, or a Moment."""
    original = getattr(owner, name)

    def planted(*arguments: Any, **named: Any) -> Any:
        changed = list(arguments)
        at = changed[number]
        changed[number] = at._replace(now_ms=wall_ms()) if hasattr(at, "now_ms") else wall_ms()
        return original(*changed, **named)

    patch.setattr(owner, name, planted)


def _named_by_the_wall(patch: pytest.MonkeyPatch, owner: Any, name: str, key: str) -> None:
    """The same for a keyword."""
    original = getattr(owner, name)

    def planted(*arguments: Any, **named: Any) -> Any:
        at = named[key]
        now = at._replace(now_ms=wall_ms()) if hasattr(at, "now_ms") else wall_ms()
        return original(*arguments, **{**named, key: now})

    patch.setattr(owner, name, planted)


def _plant(
    name: str, hazard: str, plant: Callable[[pytest.MonkeyPatch], None], seconds: float = 3.0
) -> Plant:
    return Plant(name, f"clocks: {hazard}", believed_time, plant, seconds)


PLANTS = [
    _plant("first-look-believed", "a start with a wrong one", believe_the_first_look),
    _plant("believed-time-not-synced", "the time on the disk", do_not_sync_the_file),
    _plant("wall-clock-on-the-disk", "the time on the disk", write_the_wall_clock),
    _plant("other-clocks-not-asked", "one of several is wrong", do_not_ask_the_others),
    _plant("contradiction-passed-over", "one of several is wrong", pass_over_a_contradiction),
    _plant("wrong-clocks-confirm-each-other", "all are wrong together", follow_any_majority),
    _plant(
        "new-node-confirms-wrong-clocks", "all are wrong together", let_a_new_node_believe_a_doubtful_majority
    ),
    Plant(
        "answer-about-an-earlier-clock",
        "clocks: a jump while it is asked about",
        clock_jumps,
        take_an_answer_for_the_clock_of_now,
        6.0,
    ),
    _plant("commits-stamped-by-the-wall-clock", "behind", stamp_by_the_wall_clock),
    _plant("appends-stamped-by-the-wall-clock", "behind", append_by_the_wall_clock),
    _plant(
        "retention-by-the-wall-clock",
        "a path that deletes: segments",
        partial(_by_the_wall, owner=Log, name="delete_old_segments", number=1),
    ),
    _plant(
        "compaction-lag-by-the-wall-clock",
        "a path that deletes: old values",
        partial(_named_by_the_wall, owner=compaction, name="find_log_to_clean", key="now_ms"),
    ),
    _plant(
        "tombstones-by-the-wall-clock",
        "a path that deletes: tombstones",
        partial(_named_by_the_wall, owner=Cleaning, name="__init__", key="now_ms"),
    ),
    _plant(
        "offsets-by-the-wall-clock",
        "a path that deletes: committed offsets and groups",
        partial(_by_the_wall, owner=GroupExpiration, name="sweep", number=1),
    ),
    _plant(
        "transactional-ids-by-the-wall-clock",
        "a path that deletes: transactional ids",
        partial(_by_the_wall, owner=TransactionCoordinator, name="sweep", number=1),
    ),
    _plant(
        "transaction-timeouts-by-the-wall-clock",
        "a path that aborts: open transactions of a new coordinator",
        partial(_named_by_the_wall, owner=TransactionCoordinator, name="load", key="at"),
    ),
    _plant(
        "tokens-by-the-wall-clock",
        "a path that deletes: delegation tokens",
        partial(_by_the_wall, owner=tokens, name="decide_remove_expired_tokens", number=1),
    ),
    _plant(
        "producers-by-the-wall-clock",
        "a path that deletes: idempotent producers",
        partial(_by_the_wall, owner=Log, name="expire_producers", number=1),
    ),
]
