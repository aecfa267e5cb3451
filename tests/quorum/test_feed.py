"""The feed of one voter to its observers: what it may send when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from raftlog.base.env import Env
from raftlog.base.guard import Guard
from raftlog.quorum.feed import Committed, Feed, Follow, SnapshotPart, Status, decode_to_observer
from raftlog.quorum.outgoing import Held, Pieces
from raftlog.quorum.seams import CHUNK_BYTES


class Channel(Guard):
    """An observer's end that takes so many frames at a time."""

    def __init__(self, takes: int = 1 << 30) -> None:
        self.peer_id = 9
        self.takes = takes
        self.closed_because: str | None = None
        self.heard_at = float("inf")
        self.sent: list[Any] = []
        self.on_writable: Any = None
        self.hear: Any = None

    @property
    def writable(self) -> bool:
        return self.takes > 0

    def attach(self, hear: Any, _closed: Any) -> None:
        self.hear = hear

    def send(self, payload: bytes) -> None:
        self.takes -= 1
        self.sent.append(decode_to_observer(payload))

    def close(self, reason: str) -> None:
        self.closed_because = reason

    def crash(self, what: str) -> None:
        self.close(f"{what} failed")


class World:
    """A voter whose log begins behind its newest snapshot."""

    def __init__(self, first_index: int, applied_index: int) -> None:
        self.held: Held | None = None
        self.asked_from: list[int] = []
        journal = SimpleNamespace(
            first_index=first_index,
            entries=lambda start, end: [(b"x", each, 1) for each in range(start, end)],
        )
        self.driver = SimpleNamespace(
            leader_id=3,
            term=5,
            core=SimpleNamespace(applied_index=applied_index),
            journal=journal,
            outgoing=SimpleNamespace(newest=self.newest),
        )
        self.feed = Feed(self.driver, Env(wall_clock_ms=lambda: 0))  # type: ignore[arg-type]

    def newest(self, first_index: int, _when_read: Any) -> Pieces | None:
        self.asked_from.append(first_index)
        return None if self.held is None else Pieces(self.held)

    def follow(self, channel: Channel) -> None:
        self.feed.take(channel)  # type: ignore[arg-type]
        channel.hear(msgspec.msgpack.encode(Follow(1)))


async def test_an_observer_waits_for_the_snapshot_that_its_voter_is_being_sent() -> None:
    """An install cuts the log before the file is durable; the feed took that for impossible and ended the node
    (simulated: quorum, seeds 1405, 1421, 1792). An older snapshot would leave a gap."""
    world, channel = World(first_index=20, applied_index=22), Channel()
    world.follow(channel)
    world.feed.advance()
    assert {type(each) for each in channel.sent} == {Status} and set(world.asked_from) == {20}
    world.held = Held(21, b"state")
    world.feed.advance()
    world.feed.close()
    assert channel.sent[1:] == [SnapshotPart(21, 5, 0, b"state"), Committed(22, [b"x"])]


async def test_an_observer_is_sent_a_snapshot_as_fast_as_it_takes_it() -> None:
    """All at once filled the memory of the voter, for each observer that started with it."""
    world, channel = World(first_index=20, applied_index=22), Channel(takes=2)
    state = bytes(2 * CHUNK_BYTES + 1)
    world.held = Held(21, state)
    world.follow(channel)
    assert [type(each) for each in channel.sent] == [Status, SnapshotPart]
    for _ in range(3):
        channel.takes = 1
        channel.on_writable()
        world.feed.advance()
    assert [type(each) for each in channel.sent] == [Status, *3 * [SnapshotPart], Committed]
    parts = [each for each in channel.sent if isinstance(each, SnapshotPart)]
    assert b"".join(each.data for each in parts) == state
    world.feed.close()


async def test_one_observer_that_cannot_be_served_is_closed_and_no_other() -> None:
    """The feed advances in the voter's own round: what fails there would end the voter."""
    world, broken, sound = World(first_index=20, applied_index=22), Channel(), Channel()
    world.held = Held(21, b"state")
    broken.send = lambda payload: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    for each in (broken, sound):
        each.peer_id = 8 + (each is sound)
        world.feed.take(each)  # type: ignore[arg-type]
    sound.hear(msgspec.msgpack.encode(Follow(22)))
    world.driver.core.applied_index = 23
    world.feed.advance()
    assert broken.closed_because is not None and "failed" in broken.closed_because
    assert sound.closed_because is None and sound.sent[-1] == Committed(23, [b"x"])
    world.feed.close()
