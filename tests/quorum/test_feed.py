"""The feed of one voter to its observers: what it may send when."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec

from raftlog.quorum.feed import Committed, Feed, Follow, SnapshotPart, Status, decode_to_observer


@dataclass
class Channel:
    """An observer's end that takes everything."""

    peer_id: int = 9
    writable: bool = True
    closed_because: str | None = None
    heard_at: float = float("inf")
    sent: list[Any] = field(default_factory=list)
    on_writable: Any = None
    hear: Any = None

    def attach(self, hear: Any, _closed: Any) -> None:
        self.hear = hear

    def send(self, payload: bytes) -> None:
        self.sent.append(decode_to_observer(payload))

    def close(self, reason: str) -> None:
        self.closed_because = reason


class Files:
    """The snapshots of the voter: the newest one."""

    newest: tuple[int, bytes] | None = None

    def read_newest(self) -> tuple[int, bytes] | None:
        return self.newest


async def test_an_observer_waits_for_the_snapshot_that_its_voter_is_being_sent() -> None:
    """An install cuts the log before the file is durable; the feed took that for impossible and ended the node
    (simulated: quorum, seeds 1405, 1421, 1792). An older snapshot would leave a gap."""
    files = Files()
    journal = SimpleNamespace(
        first_index=20,
        files=files,
        entries=lambda start, end: [(b"x", each, 1) for each in range(start, end)],
    )
    driver = SimpleNamespace(leader_id=3, term=5, core=SimpleNamespace(applied_index=22), journal=journal)
    feed = Feed(driver, SimpleNamespace(wall_clock_ms=lambda: 0))  # type: ignore[arg-type]
    channel = Channel()
    feed.take(channel)  # type: ignore[arg-type]
    channel.hear(msgspec.msgpack.encode(Follow(1)))
    files.newest = (7, b"older")
    feed.advance()
    assert {type(each) for each in channel.sent} == {Status}
    files.newest = (21, b"state")
    feed.advance()
    feed.close()
    assert channel.sent[1:] == [SnapshotPart(21, 5, 0, b"state"), Committed(22, [b"x"])]
