"""The feed of one voter to its observers: what it may send when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from raftlog.base.env import Env
from raftlog.base.guard import Guard
from raftlog.quorum.messages import CHUNK_BYTES
from raftlog.quorum.observer_feed import (
    CommittedBatches,
    LeaderStatus,
    ObserverFeed,
    ObserverSnapshotChunk,
    SubscribeFrom,
    decode_to_observer,
)
from raftlog.quorum.snapshot_sender import LoadedSnapshot, SnapshotCursor


class FakeObserverChannel(Guard):
    """An observer's end that takes so many frames at a time."""

    def __init__(self, takes: int = 1 << 30) -> None:
        self.peer_id = 9
        self.takes = takes
        self.close_reason: str | None = None
        self.last_received_at = float("inf")
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
        self.close_reason = reason

    def crash(self, what: str) -> None:
        self.close(f"{what} failed")


class FeedingVoter:
    """A voter with a log that begins behind its newest snapshot."""

    def __init__(self, first_index: int, applied_index: int) -> None:
        self.held: LoadedSnapshot | None = None
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
            outgoing=SimpleNamespace(cursor_of_newest=self.cursor_of_newest),
        )
        self.feed = ObserverFeed(self.driver, Env(wall_clock_ms=lambda: 0))  # type: ignore[arg-type]

    def cursor_of_newest(self, first_index: int, _when_read: Any) -> SnapshotCursor | None:
        self.asked_from.append(first_index)
        return None if self.held is None else SnapshotCursor(self.held)

    def follow(self, channel: FakeObserverChannel) -> None:
        self.feed.add_observer(channel)  # type: ignore[arg-type]
        channel.hear(msgspec.msgpack.encode(SubscribeFrom(1)))


async def test_an_observer_waits_for_the_snapshot_that_its_voter_is_being_sent() -> None:
    """Installing a snapshot cuts the log before its file is durable, and an older snapshot would leave a gap.

    The feed once asserted that this is impossible, which ended the node (simulated: quorum, seeds 1405, 1421, 1792).
    """
    voter, channel = FeedingVoter(first_index=20, applied_index=22), FakeObserverChannel()
    voter.follow(channel)
    voter.feed.on_commit()
    assert {type(each) for each in channel.sent} == {LeaderStatus} and set(voter.asked_from) == {20}
    voter.held = LoadedSnapshot(21, b"state")
    voter.feed.on_commit()
    voter.feed.close()
    assert channel.sent[1:] == [ObserverSnapshotChunk(21, 5, 0, b"state"), CommittedBatches(22, [b"x"])]


async def test_an_observer_is_sent_a_snapshot_as_fast_as_it_takes_it() -> None:
    """All at once filled the memory of the voter, for each observer that started with it."""
    voter, channel = FeedingVoter(first_index=20, applied_index=22), FakeObserverChannel(takes=2)
    state = bytes(2 * CHUNK_BYTES + 1)
    voter.held = LoadedSnapshot(21, state)
    voter.follow(channel)
    assert [type(each) for each in channel.sent] == [LeaderStatus, ObserverSnapshotChunk]
    for _ in range(3):
        channel.takes = 1
        channel.on_writable()
        voter.feed.on_commit()
    assert [type(each) for each in channel.sent] == [
        LeaderStatus,
        *3 * [ObserverSnapshotChunk],
        CommittedBatches,
    ]
    parts = [each for each in channel.sent if isinstance(each, ObserverSnapshotChunk)]
    assert b"".join(each.data for each in parts) == state
    voter.feed.close()


async def test_one_observer_that_cannot_be_served_is_closed_and_no_other() -> None:
    """The feed advances in the voter's own round: what fails there would end the voter."""
    voter, broken, sound = (
        FeedingVoter(first_index=20, applied_index=22),
        FakeObserverChannel(),
        FakeObserverChannel(),
    )
    voter.held = LoadedSnapshot(21, b"state")
    broken.send = lambda payload: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    for each in (broken, sound):
        each.peer_id = 8 + (each is sound)
        voter.feed.add_observer(each)  # type: ignore[arg-type]
    sound.hear(msgspec.msgpack.encode(SubscribeFrom(22)))
    voter.driver.core.applied_index = 23
    voter.feed.on_commit()
    assert broken.close_reason is not None and "failed" in broken.close_reason
    assert sound.close_reason is None and sound.sent[-1] == CommittedBatches(23, [b"x"])
    voter.feed.close()
