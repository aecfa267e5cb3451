"""Frames from another broker: cut in place however the bytes arrive, bounded, and memory given back."""

from __future__ import annotations

import asyncio
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from raftlog.broker.links.peer_channel import PeerChannel
from raftlog.protocol.frames import SHRINK_AFTER_FRAMES, USUAL_BYTES

LIMIT = 1 << 20


class RecordingTransport:
    """A transport that keeps what is sent and notices the end."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def abort(self) -> None:
        self.aborted = True


class ClosedTransport(RecordingTransport):
    """A transport that uvloop closed without notice: a write to it raises an exception."""

    def write(self, data: bytes) -> None:
        raise RuntimeError("the handler is closed")


def connected() -> tuple[PeerChannel, Any, list[bytes]]:
    channel = PeerChannel(max_frame_bytes=LIMIT)
    wire: Any = RecordingTransport()
    channel.connection_made(wire)
    channel.adopt(lambda error: None)
    frames: list[bytes] = []
    channel.on_frame = lambda view: frames.append(bytes(view))
    return channel, wire, frames


def receive(channel: PeerChannel, data: bytes) -> None:
    while data:
        buffer = channel.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        channel.buffer_updated(count)
        data = data[count:]


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=300) | st.just(bytes(2 * USUAL_BYTES)), max_size=6),
    cuts=st.lists(st.integers(1, 5000), max_size=20),
)
def test_frames_come_out_whole_however_the_bytes_arrive(bodies: list[bytes], cuts: list[int]) -> None:
    """Any segmentation of the stream gives the same frames."""
    channel, _, frames = connected()
    stream = b"".join(map(framed, bodies))
    for cut in cuts:
        receive(channel, stream[:cut])
        stream = stream[cut:]
    receive(channel, stream)
    assert frames == bodies


@pytest.mark.parametrize("length", [0, -1, LIMIT + 1])
def test_an_impossible_length_ends_the_connection(length: int) -> None:
    """No memory is allocated for it."""
    channel, wire, frames = connected()
    receive(channel, pack(">i", length))
    assert wire.aborted
    assert frames == []


def test_a_stranger_is_believed_no_long_frame() -> None:
    """A stranger at a broker's address could announce a hundred megabytes before the handshake is over."""
    channel = PeerChannel(max_frame_bytes=LIMIT)
    wire: Any = RecordingTransport()
    channel.connection_made(wire)
    receive(channel, pack(">i", USUAL_BYTES + 1))
    assert wire.aborted


def test_an_announced_length_alone_takes_no_memory() -> None:
    """The buffer follows what has arrived, twice as much at most."""
    channel, _, _ = connected()
    receive(channel, pack(">i", LIMIT) + bytes(100))
    assert len(channel._buffer) == USUAL_BYTES
    receive(channel, bytes(2 * USUAL_BYTES))
    assert len(channel._buffer) <= 2 * (2 * USUAL_BYTES + 104)


def test_a_failure_over_a_frame_ends_this_connection_only() -> None:
    """It neither reaches the loop nor goes on in silence."""
    channel, wire, _ = connected()
    channel.on_frame = lambda _view: 1 // 0  # type: ignore[assignment,return-value]
    with capture_logs() as logs:
        receive(channel, framed(b"answer"))
    assert wire.aborted
    assert [line["event"] for line in logs] == ["peer_channel_crashed"]


def test_a_transport_that_closed_without_telling_is_found_when_something_is_sent() -> None:
    """uvloop raises RuntimeError then, which ended the node; the channel's owner hears of the loss, once."""
    channel = PeerChannel(max_frame_bytes=LIMIT)
    wire: Any = ClosedTransport()
    lost: list[Exception | None] = []
    channel.connection_made(wire)
    channel.adopt(lost.append)
    channel.send(framed(b"question"))
    channel.send(framed(b"question"))
    channel.connection_lost(None)
    assert lost == [None]


def test_the_end_of_a_failed_handshake_is_not_reported_as_a_loss() -> None:
    """The dialling side gets an exception; reported as a loss, it would end the next connection."""
    lost: list[Exception | None] = []
    channel = PeerChannel(max_frame_bytes=LIMIT)
    wire: Any = RecordingTransport()
    channel.connection_made(wire)
    channel.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        channel.adopt(lost.append)
    assert lost == []


def test_the_memory_of_a_large_frame_is_given_back() -> None:
    """Idle RSS: a burst does not pin a large buffer."""
    channel, _, _ = connected()
    receive(channel, framed(bytes(10 * USUAL_BYTES)))
    assert len(channel._buffer) > USUAL_BYTES
    for _ in range(SHRINK_AFTER_FRAMES):
        receive(channel, framed(b"small"))
    assert len(channel._buffer) == USUAL_BYTES


async def test_a_question_is_answered_or_fails_with_the_connection() -> None:
    """The handshake does not hang on a peer that goes away."""
    channel, wire, _ = connected()
    asking = asyncio.ensure_future(channel.ask(framed(b"hello")))
    await asyncio.sleep(0)
    assert wire.sent == [framed(b"hello")]
    receive(channel, framed(b"welcome"))
    assert await asking == b"welcome"
    asking = asyncio.ensure_future(channel.ask(framed(b"hello")))
    await asyncio.sleep(0)
    channel.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await asking


async def test_a_connection_that_ends_right_after_an_answer_is_noticed() -> None:
    """Between the response and its reader: `on_lost` would have no receiver, and the follower would wait for 30
    seconds.
    """
    channel, _, _ = connected()
    asked = asyncio.create_task(channel.ask(framed(b"hello")))
    await asyncio.sleep(0)
    receive(channel, framed(b"welcome"))
    channel.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await asked
