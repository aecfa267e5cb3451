"""Committed batches, streamed to observers: nodes that follow the metadata without voting.

An observer gets only entries that are committed and applied here, so it never truncates. The stream is pulled from the
log by index, so a slow observer costs no memory. An observer that fell behind the log gets a snapshot first.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from raftlog.base.env import Env
from raftlog.base.log import get_logger
from raftlog.quorum.channel import InboundChannel
from raftlog.quorum.messages import CHUNK_BYTES, Number
from raftlog.quorum.snapshot_sender import SnapshotCursor

if TYPE_CHECKING:
    from raftlog.quorum.driver import Driver

log = get_logger("quorum")

STATUS_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 5.0
"""An observer answers every status; it is dropped after this time without an answer."""

MAX_BATCHES_PER_FRAME: Final = 1_000


class SubscribeFrom(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The observer's first message: the index it wants next."""

    next_index: Number


class AppliedUpTo(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The observer applied everything up to `index`."""

    index: Number


class CommittedBatches(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Commands of consecutive entries, the first at `first_index`."""

    first_index: Number
    commands: list[bytes]


class ObserverSnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Bytes of the snapshot at `index` from `start` on; `total` in all."""

    index: Number
    total: Number
    start: Number
    data: bytes


class LeaderStatus(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The leader as the voter sees it (-1: none); also the sign of life."""

    leader_id: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
    term: Number


_encode = msgspec.msgpack.Encoder().encode
decode_to_observer = msgspec.msgpack.Decoder(CommittedBatches | ObserverSnapshotChunk | LeaderStatus).decode
_decode_from_observer = msgspec.msgpack.Decoder(SubscribeFrom | AppliedUpTo).decode


class _Follower:
    """One observer's place in the stream."""

    def __init__(self, channel: InboundChannel) -> None:
        self.channel = channel
        self.next_index: int | None = None
        self.reached = 0
        self.reached_ms = -1
        self.last_sent: tuple[int | None, int] | None = None
        self.pieces: SnapshotCursor | None = None
        """The snapshot that is being sent."""


class ObserverFeed:
    """The observers of one voter."""

    def __init__(self, driver: Driver, env: Env) -> None:
        self._driver = driver
        self._env = env
        self._followers: list[_Follower] = []
        self._timer: asyncio.TimerHandle | None = None

    def add_observer(self, channel: InboundChannel) -> None:
        """Serve an authenticated observer."""
        follower = _Follower(channel)
        self._followers.append(follower)
        channel.attach(
            lambda payload: self._heard(follower, payload), lambda _reason: self._followers.remove(follower)
        )
        channel.on_writable = lambda: self._push(follower)
        if self._timer is None:
            self._tick()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def positions(self) -> list[tuple[int, int, int]]:
        """Return (observer's node id, next index, wall ms of its last message), ascending."""
        followers = (each for each in self._followers if each.next_index is not None)
        return sorted((each.channel.peer_id, each.reached, each.reached_ms) for each in followers)

    def on_commit(self) -> None:
        """Push new entries, or a changed leader, to the observers."""
        for follower in self._followers:
            self._push_guarded(follower)

    def _push_guarded(self, follower: _Follower) -> None:
        follower.channel.run_guarded(self._push, follower)

    def _tick(self) -> None:
        self._timer = None
        if self._followers:
            self._timer = asyncio.get_running_loop().call_later(STATUS_SECONDS, self._tick)
        now = asyncio.get_running_loop().time()
        for follower in list(self._followers):
            silent_s = now - follower.channel.last_received_at
            if silent_s > SILENCE_SECONDS + self._env.lateness.patience_s:
                follower.channel.close(f"no message for {silent_s:.1f} s")
                continue
            follower.last_sent = None
            self._push_guarded(follower)

    def _heard(self, follower: _Follower, payload: bytes) -> None:
        try:
            message = _decode_from_observer(payload)
        except msgspec.MsgspecError:
            follower.channel.close("not a message")
            return
        if isinstance(message, SubscribeFrom):
            follower.next_index, follower.pieces = max(1, message.next_index), None
            self._push(follower)
        else:
            follower.reached, follower.reached_ms = message.index, self._env.wall_clock_ms()

    def _push(self, follower: _Follower) -> None:
        """Send new entries, as long as the observer reads."""
        channel = follower.channel
        current = (self._driver.leader_id, self._driver.term)
        if follower.last_sent != current and channel.writable:
            follower.last_sent = current
            channel.send(_encode(LeaderStatus(-1 if current[0] is None else current[0], current[1])))
        if follower.next_index is None:
            return
        applied = self._driver.core.applied_index
        while follower.next_index <= applied and channel.writable and channel.close_reason is None:
            if follower.pieces is None and follower.next_index >= self._driver.journal.first_index:
                self._send_batches(follower, applied)
            elif not self._send_piece(follower):
                return

    def _send_batches(self, follower: _Follower, applied: int) -> None:
        start = follower.next_index
        assert start is not None
        commands: list[bytes] = []
        size = 0
        for command, _, _ in self._driver.journal.entries(
            start, min(applied + 1, start + MAX_BATCHES_PER_FRAME)
        ):
            commands.append(command)
            size += len(command)
            if size >= CHUNK_BYTES:
                break
        follower.next_index = start + len(commands)
        follower.channel.send(_encode(CommittedBatches(start, commands)))

    def _send_piece(self, follower: _Follower) -> bool:
        """Send the next piece of a snapshot; False while there is no snapshot: the next tick tries again.

        A snapshot that this voter receives itself cuts its log before it is on the disk.
        """
        driver = self._driver
        if follower.pieces is None:
            again = partial(self._push_guarded, follower)
            follower.pieces = driver.outgoing.cursor_of_newest(driver.journal.first_index, again)
        if follower.pieces is None:
            return False
        snapshot = follower.pieces.snapshot
        start, data = follower.pieces.next_chunk(CHUNK_BYTES)
        follower.channel.send(_encode(ObserverSnapshotChunk(snapshot.index, len(snapshot.data), start, data)))
        if follower.pieces.at_end:
            follower.next_index, follower.pieces = snapshot.index + 1, None
            log.info(
                "observer_snapshot_sent",
                observer_id=follower.channel.peer_id,
                index=snapshot.index,
                bytes=len(snapshot.data),
            )
        return True
