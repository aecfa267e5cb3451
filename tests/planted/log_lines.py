"""Bugs of what depends on the log: a line that raises where a node has yet to act."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from raftlog.base import log
from raftlog.broker.network.connection import Connection
from raftlog.broker.replicas.log_directories import LogDirectories, LogVolume
from raftlog.controller.controller import Controller
from raftlog.controller.decisions import UPDATE_ALL_PARTITIONS
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.log_trouble import log_trouble
from tests.planted.plant import Plant


def raise_again(patch: pytest.MonkeyPatch, *events: str) -> None:
    """Let the lines about these events raise what keeps them from being written."""
    count = log._count_lost_line

    def raise_or_count(kept: Any, event: str | None, error: Exception) -> None:
        if event in events:
            raise error
        count(kept, event, error)

    patch.setattr(log, "_count_lost_line", raise_or_count)


def raise_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Each line that cannot be written raises."""

    def raise_it(kept: Any, event: str | None, error: Exception) -> None:
        raise error

    patch.setattr(log, "_count_lost_line", raise_it)


def log_before_judging(patch: pytest.MonkeyPatch) -> None:
    """The controller logs that it lost a broker, which raises, before it takes the broker for suspect."""
    raise_again(patch, "broker_connection_lost")
    lost = Controller.peer_lost

    def log_first(controller: Controller, broker_id: int, now: float) -> None:
        if controller.active:
            controller._log.info("broker_connection_lost", broker_id=broker_id)
        lost(controller, broker_id, now)

    patch.setattr(Controller, "peer_lost", log_first)


def log_effects_before_answers(patch: pytest.MonkeyPatch) -> None:
    """The controller's events are logged, and raise, as a decision's effects: before its answer leaves."""

    def perform(controller: Controller, effect: Any) -> None:
        if effect is UPDATE_ALL_PARTITIONS:
            controller._sweep()
        else:
            log.BEFORE_LINE.get()()  # type: ignore[misc]  # simulated hosts have one

    patch.setattr(Controller, "_perform", perform)


def log_before_the_last_net(patch: pytest.MonkeyPatch) -> None:
    """A directory that failed is logged, which raises, before its partitions go offline."""
    raise_again(patch, "log_directory_failed")
    fail = LogDirectories.fail

    def log_first(logs: LogDirectories, volume: LogVolume, error: OSError) -> None:
        if volume.error is None:
            try:
                log.get_logger("test").error("log_directory_failed", directory=volume.path)
            except OSError:
                volume.error = error
                return
        fail(logs, volume, error)

    patch.setattr(LogDirectories, "fail", log_first)


def log_before_closing(patch: pytest.MonkeyPatch) -> None:
    """A connection logs why it is closed, which raises, before it is closed."""
    log_end = Connection._log_end

    def raise_or_log(connection: Connection, event: str, facts: dict[str, object]) -> None:
        log.BEFORE_LINE.get()()  # type: ignore[misc]  # simulated hosts have one
        log_end(connection, event, facts)

    def log_first(connection: Connection, event: str, **facts: object) -> None:
        if connection.is_open:
            connection._log_end(event, facts)
            connection._close_transport()

    patch.setattr(Connection, "_log_end", raise_or_log)
    patch.setattr(Connection, "close", log_first)
    patch.setattr(Connection, "close_now", log_first)


def log_events_in_place(patch: pytest.MonkeyPatch) -> None:
    """A partition's news are logged where they happen, and a line that cannot be written raises there."""
    raise_again(patch, "log_truncated", "partition_became_leader", "partition_became_follower")
    change = Partition._change_role

    def log_first(partition: Partition, state: Any) -> None:
        log.get_logger("test").info("partition_became_leader", topic=partition.topic)
        change(partition, state)

    patch.setattr(Partition, "_change_role", log_first)


scenario = partial(Plant, scenario=log_trouble, seconds=4.0)

PLANTS = [
    scenario("log-raises", "a closed pipe", plant=raise_everywhere),
    scenario("effects-raise", "an answer that never leaves", plant=log_effects_before_answers),
    scenario(
        "lost-broker-logged-first",
        "liveness",
        plant=log_before_judging,
        note="no failover while the controller's log cannot be written",
    ),
    scenario("failed-disk-logged-first", "failed fsync", plant=log_before_the_last_net),
    scenario("close-logged-first", "a connection that stays", plant=log_before_closing),
    scenario("role-logged-first", "a partition without a leader", plant=log_events_in_place),
]
