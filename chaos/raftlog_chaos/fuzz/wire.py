"""The client's end of a fuzzed connection: it knows which answers are due, and checks each against that."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from raftlog.base.errors import InvalidRequest, UnsupportedVersion
from raftlog.protocol.apis import APIS
from raftlog.protocol.codec import decode_header, decode_response
from raftlog.protocol.frames import PREFIX_BYTES
from raftlog.protocol.produce import decode_produce
from raftlog_chaos.fuzz.draw import KnownValues
from raftlog_chaos.fuzz.findings import Finding, Slowest
from raftlog_chaos.fuzz.frames import HANDSHAKE, Frame

WAITING: Final = frozenset({0, 1, 11, 14, 19, 20, 21, 37, 43, 45, 57, 68})
"""APIs with a wait time in the request, or with a wait for other members."""
LENGTH = struct.Struct(">i")


@dataclass(slots=True)
class Tally:
    """The results of many frames."""

    frames: int = 0
    answered: int = 0
    closed: int = 0
    given_up: int = 0
    handshakes: int = 0
    """At controllers' ports."""
    findings: list[Finding] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    """Answers by their top-level error code, if any."""
    slowest: Slowest = field(default_factory=Slowest)


class FuzzWire(asyncio.Protocol):
    """The client's end of a connection: it notes each question, and checks each answer against its question."""

    def __init__(self, tally: Tally, known: KnownValues) -> None:
        self.closed = False
        self.sent: list[bytes] = []
        self.pending: deque[tuple[int, int, int]] = deque()
        """API, version and correlation id of the due answers, in order."""
        self.wrong = ""
        self.given_up = False
        self._tally = tally
        self._known = known
        self._buffer = bytearray()
        self._unasked = bytearray()
        """Sent, and not a whole frame yet. Lengths may lie: frames are cut here as a broker cuts them."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= PREFIX_BYTES and not self.wrong:
            end = PREFIX_BYTES + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[PREFIX_BYTES:end])
            del self._buffer[:end]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if not self.pending:
            self.wrong = "an answer that nobody asked for"
            return
        api_key, version, number = self.pending.popleft()
        self._tally.answered += 1
        if LENGTH.unpack_from(frame)[0] != number:
            self.wrong = f"{name_of(api_key)}: an answer to {LENGTH.unpack_from(frame)[0]}, not to {number}"
        elif api_key in APIS and APIS[api_key].handles(version):
            try:
                answer = decode_response(api_key, version, memoryview(frame))[1]
            except (InvalidRequest, UnsupportedVersion) as error:
                self.wrong = f"{name_of(api_key)} v{version}: the answer does not decode: {error.message}"
                return
            self._known.learn(answer)
            self._tally.errors[int(getattr(answer, "error_code", 0))] += 1

    def send(self, frame: Frame) -> None:
        """Send a frame, and note the answers that are due."""
        self._tally.frames += 1
        self.sent.append(frame.data)
        self._unasked += frame.data
        while (end := frame_end(self._unasked)) is not None:
            asked = answer_due(memoryview(self._unasked)[PREFIX_BYTES:end].toreadonly())
            del self._unasked[:end]
            if asked is not None:
                self.pending.append(asked)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame.data)

    @property
    def is_stuck(self) -> bool:
        """True while an announced frame is incomplete: the broker takes further bytes for its rest."""
        return bool(self._unasked)

    def give_up(self) -> None:
        """Wait no longer."""
        self._tally.given_up += 1
        self.given_up = True
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def frame_end(data: bytearray) -> int | None:
    """Return where the first frame of some bytes ends; None if it is incomplete or invalid."""
    if len(data) < PREFIX_BYTES:
        return None
    size = LENGTH.unpack_from(data)[0]
    return PREFIX_BYTES + size if 0 < size <= len(data) - PREFIX_BYTES else None


def answer_due(frame: memoryview) -> tuple[int, int, int] | None:
    """Return API, version and correlation id of a frame that asks for an answer; None where it does not."""
    try:
        header, position = decode_header(frame)
        is_produce = header.api_key == 0 and 0 <= header.api_version <= APIS[0].max_version
        if is_produce and decode_produce(frame, position, header.api_version).acks == 0:
            return None
    except InvalidRequest:
        return None
    return header.api_key, header.api_version, header.correlation_id


def name_of(api_key: int) -> str:
    """Return what an API is called."""
    if api_key == HANDSHAKE:
        return "the brokers' handshake"
    return APIS[api_key].name if api_key in APIS else f"API {api_key}"
