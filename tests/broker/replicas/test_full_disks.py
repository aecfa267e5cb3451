"""A log directory without room: it is reported once, and counts as full until it has had room for a while."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest

from raftlog.broker.replicas.log_directories import (
    ROOM_AGAIN_AFTER_MOST_S,
    ROOM_AGAIN_AFTER_S,
    ROOM_BYTES,
    LogVolume,
)
from tests.broker.broker_cluster import BrokerCluster, run_scenario

ROOMY = (ROOM_BYTES * 100, ROOM_BYTES)
SMALL = (1000, 50)


def volume() -> LogVolume:
    return LogVolume(cast(Any, None), cast(Any, None))


@pytest.mark.parametrize("free", [ROOMY, SMALL])
def test_a_directory_has_room_with_a_share_of_its_disk_free(free: tuple[int, int]) -> None:
    """A twentieth, or a GiB of a large disk; a few bytes would be used up at once."""
    full = volume()
    full.note_full(0.0)
    total, usable = free
    assert not full.has_room((total, usable - 1), ROOM_AGAIN_AFTER_S)
    assert full.has_room(free, ROOM_AGAIN_AFTER_S)
    assert not full.full


def test_a_directory_counts_as_full_for_a_while() -> None:
    """From its last refused write on; that it is full is news once."""
    full = volume()
    assert full.note_full(0.0)
    assert not full.note_full(5.0)
    assert not full.has_room(ROOMY, 5.0 + ROOM_AGAIN_AFTER_S - 0.1)
    assert full.has_room(ROOMY, 5.0 + ROOM_AGAIN_AFTER_S)
    assert not full.has_room(ROOMY, 100.0), "it was not full"


def test_a_directory_that_fills_up_again_counts_as_full_for_longer() -> None:
    """A quota shows only in refused writes: leaderships must not come back to them all the time."""
    full, now, waits = volume(), 0.0, []
    for _ in range(12):
        full.note_full(now)
        began_at = now
        while not full.has_room(ROOMY, now):
            now += 1.0
        waits.append(now - began_at)
    assert waits[:3] == [ROOM_AGAIN_AFTER_S, 2 * ROOM_AGAIN_AFTER_S, 4 * ROOM_AGAIN_AFTER_S]
    assert waits[-1] == ROOM_AGAIN_AFTER_MOST_S
    now += ROOM_AGAIN_AFTER_MOST_S + 1
    full.note_full(now)
    assert full.has_room(ROOMY, now + ROOM_AGAIN_AFTER_S), "after an hour of room it begins anew"


def test_a_broker_says_that_its_disk_is_full_until_it_has_room() -> None:
    """It wants to be heard at once, and looks for room by itself."""

    async def scenario(cluster: BrokerCluster) -> None:
        logs = cluster[1].replicas.logs
        heard: list[bool] = []
        logs.on_full = lambda: heard.append(logs.lacks_room)
        cluster.create()
        await cluster.pass_time(0.1)
        assert not logs.lacks_room
        cluster[1].host.disk.fill()
        for _ in range(2):
            assert await cluster[1].host.start(cluster[1].produce("a" * 1000)) == "KafkaStorageError"
        assert heard == [True]
        await cluster.pass_time(3 * ROOM_AGAIN_AFTER_S)
        assert logs.lacks_room, "there is no room yet"
        cluster[1].host.disk.make_room()
        await cluster.pass_time(3 * ROOM_AGAIN_AFTER_S)
        assert not logs.lacks_room

    run_scenario(scenario, size=1)


def test_a_disk_that_says_nothing_of_its_room_fails() -> None:
    """As with any other call that ends with EIO."""

    async def scenario(cluster: BrokerCluster) -> None:
        logs = cluster[1].replicas.logs
        cluster[1].host.disk.fill()
        logs.report(logs.volumes[0], OSError(errno.ENOSPC, "full"))
        assert logs.online

        def fails(path: str) -> tuple[int, int]:
            raise OSError(errno.EIO, "broken")

        cluster[1].host.disk.free_bytes = fails  # type: ignore[method-assign]
        await cluster[1].host.start(logs.check_free_space())
        assert not logs.online

    run_scenario(scenario, size=1)
