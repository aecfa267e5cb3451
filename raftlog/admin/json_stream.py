"""JSON objects that follow each other in a body, read as they come: each byte is scanned once, each wait is bounded.

A slow client must not cause more work than it sends, nor stay for ever. Each object must be complete `chunk_s` after
the previous, and the whole stream within `stream_s`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

from raftlog.admin.errors import ApiError, no_room_for_bodies
from raftlog.admin.json_text import read_json
from raftlog.admin.limits import Limits
from raftlog.base.memory import Account
from raftlog.base.turns import HasTurns, run_steps

AT_ONCE: Final = 256
"""Objects that are handed over in one round, if so many have arrived."""
CUT_AT_ONCE: Final = 8 << 10
"""Bytes that are scanned in one step of the loop: each bracket and quote is a step of Python's."""
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_MARK: Final = re.compile(rb'[{}\[\]"]')
_MARK_IN_STRING: Final = re.compile(rb'["\\]')


class Chunks(Protocol):
    """A body on its way."""

    async def readany(self) -> bytes:
        """Return what has arrived, waiting for something; b"" at the end."""


class Objects:
    """Cuts whole objects out of bytes, which count in `bodies` until then. `fault`: why the stream cannot continue.

    Call `close` at the end.
    """

    def __init__(self, most_bytes: int, bodies: Account) -> None:
        self.fault: ApiError | None = None
        self._most_bytes = most_bytes
        self._bodies = bodies
        self._buffer = bytearray()
        self._seen = 0
        """How far the buffer was scanned; past its end where an escaped character is still to come."""
        self._depth = 0
        self._in_string = False

    @property
    def cut_off(self) -> bool:
        """Whether an object has begun that has not ended."""
        return self._depth > 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the objects that are complete now. Whether each is JSON is not judged here."""
        self._buffer += chunk
        self._bodies.acquire(len(chunk))
        found = []
        begin = 0
        while end := self._next_end():
            if end - begin > self._most_bytes:
                break
            found.append(bytes(self._buffer[begin:end]).strip())
            begin = end
        del self._buffer[:begin]
        self._bodies.release(begin)
        self._seen -= begin
        if len(self._buffer) > self._most_bytes:
            self.fault = ApiError(413, f"a record may have {self._most_bytes} bytes of JSON at most")
        elif self.fault is None and self._buffer and self._bodies.is_full:
            self.fault = no_room_for_bodies(self._bodies.limit)
        return found

    def close(self) -> None:
        """Forget what has arrived."""
        self._bodies.release(len(self._buffer))
        self._buffer.clear()

    def _next_end(self) -> int:
        """Return where the next object ends, 0 if that has not arrived."""
        while self._depth or self._begins():
            pattern = _MARK_IN_STRING if self._in_string else _MARK
            mark = pattern.search(self._buffer, self._seen)
            if mark is None:
                self._seen = max(self._seen, len(self._buffer))
                return 0
            self._seen = mark.end()
            self._note_mark(mark[0])
            if not self._depth:
                return self._seen
        return 0

    def _begins(self) -> bool:
        space = _SPACE.match(self._buffer, self._seen)
        self._seen = self._seen if space is None else space.end()
        first = bytes(self._buffer[self._seen : self._seen + 1])
        if first not in (b"{", b""):
            shown = first.decode(errors="replace")
            self.fault = ApiError(400, f"a record must be a JSON object, but begins with {shown!r}")
        return first == b"{"

    def _note_mark(self, mark: bytes) -> None:
        if mark == b'"':
            self._in_string = not self._in_string
        elif mark == b"\\":
            self._seen += 1
        elif mark in b"{[":
            self._depth += 1
        else:
            self._depth -= 1


async def rounds(
    content: Chunks, kind: Any, limits: Limits, bodies: Account, *, of: HasTurns
) -> AsyncGenerator[Sequence[Any], None]:
    """Yield the arrived objects: a `kind` for each, an ApiError in place of each invalid object.

    The stream ends with an ApiError if the text is not JSON, arrives too slowly, lasts too long, or if `bodies` is
    full.
    """
    objects = Objects(limits.record_bytes, bodies)
    try:
        async with aclosing(_rounds(content, kind, limits, objects, of=of)) as arriving:
            async for each in arriving:
                yield each
    finally:
        objects.close()


async def _rounds(
    content: Chunks, kind: Any, limits: Limits, objects: Objects, *, of: HasTurns
) -> AsyncGenerator[Sequence[Any], None]:
    clock = asyncio.get_running_loop().time
    over_at = clock() + limits.stream_s
    due_at = clock() + limits.chunk_s
    while True:
        try:
            chunk = await _chunk(content, min(due_at, over_at), clock)
        except TimeoutError:
            yield [_too_slow(limits, over=clock() >= over_at)]
            return
        except ApiError as error:  # a newer stream needed this stream's place
            yield [error]
            return
        texts = await run_steps(of, _cut(objects, chunk))
        for start in range(0, len(texts), AT_ONCE):
            found = [await _read(each, kind, of) for each in texts[start : start + AT_ONCE]]
            bad = next((number for number, each in enumerate(found) if _ends_all(each)), None)
            yield found if bad is None else found[: bad + 1]
            if bad is not None:
                return
            due_at = clock() + limits.chunk_s
        if not chunk and objects.cut_off:
            yield [ApiError(400, "a record is not JSON: the body ends in the middle of it")]
        elif objects.fault is not None:
            yield [objects.fault]
        if not chunk or objects.fault is not None:
            return


async def _chunk(content: Chunks, until: float, clock: Callable[[], float]) -> bytes:
    if clock() >= until:  # arrived data does not wait, so no timeout would end it
        raise TimeoutError
    async with asyncio.timeout_at(until):
        return await content.readany()


def _cut(objects: Objects, chunk: bytes) -> Generator[None, None, list[bytes]]:
    """Return the objects that are complete with a chunk; yield between slices of work."""
    texts = objects.feed(chunk[:CUT_AT_ONCE])
    for start in range(CUT_AT_ONCE, len(chunk), CUT_AT_ONCE):
        if objects.fault is not None:
            break
        yield
        texts += objects.feed(chunk[start : start + CUT_AT_ONCE])
    return texts


async def _read(text: bytes, kind: Any, of: HasTurns) -> Any:
    try:
        return await read_json(text, kind, what="record", of=of)
    except ApiError as error:
        return error


def _ends_all(found: Any) -> bool:
    """An invalid object may have been cut in the wrong place, so the rest is meaningless."""
    return isinstance(found, ApiError) and found.status != 422


def _too_slow(limits: Limits, *, over: bool) -> ApiError:
    if over:
        return ApiError(408, f"a stream of records may last {limits.stream_s:g} s: send the rest in another")
    return ApiError(408, f"no record arrived for {limits.chunk_s:g} s")
