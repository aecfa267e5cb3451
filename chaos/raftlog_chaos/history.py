"""Operations of clients and what they saw: the one record that every checker judges, from either world.

The model is that of Jepsen's Kafka workload. An operation is written twice: when it is invoked and when it completes.
`ok` means that it happened, `fail` that it did not and never will, `info` that its outcome is unknown. A file of it is
JSON lines, one operation each, in real-time order, after a header line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec

FORMAT = 1
LINE_BYTES = 64 << 20
"""A longer line is none of ours."""

Value = int | str
"""A record's value, unique within its key; never sent again above the client."""

Function = Literal[
    "assign",
    "subscribe",
    "send",
    "poll",
    "txn",
    "crash",
    "debug",
    "join",
    "acquire",
    "acknowledge",
    "start-offsets",
    "register",
    "look-up",
    "read-schemas",
]
Outcome = Literal["invoke", "ok", "fail", "info"]


class QueueTerms(msgspec.Struct, kw_only=True):
    """The share group's configs, and how long a replaced leader may go on, as the checker of queues needs them."""

    lock_s: float
    """`share.record.lock.duration.ms`."""
    limit: int
    """`share.delivery.count.limit`."""
    stale_s: float
    """A broker that was paused or cut off does not know of its successor, at most for so long."""


class Header(msgspec.Struct, kw_only=True):
    """The first line of a file. `allowed`: anomalies that the run's settings permit (acks=1 may lose writes)."""

    raftlog_history: int = FORMAT
    place: str = ""
    workload: str = ""
    seed: int | None = None
    allowed: list[str] = []
    queue: QueueTerms | None = None
    """Where members of a share group consume."""


class Op(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line. `value` holds keys (assign, subscribe) or micro-operations (send, poll, txn).

    A key names one partition: "topic-partition". Micro-operations are lists: `["send", key, value]`, completed
    `["send", key, [offset or None, value]]`, and `["poll"]`, completed `["poll", {key: [[offset, value], …]}]`. The
    known facts of an `info` operation are kept in it. `process` does one operation at a time; after `info` on `crash`
    it never comes back.

    Members of a share group `join` with keys. They complete `["acquire", {key: [[offset, value, delivery count], …]}]`.
    They acknowledge `[kind, key, [offset, …]]`, completed `[kind, key, [offset, …], outcome]`; a kind is accept,
    release or reject. `["start-offsets", {key: offset}]` is what the group's coordinator reported.

    Clients of a schema registry `["register", subject, schema]`, completed `["register", subject, schema, [id,
    version]]`; a schema is a number. They `look-up` at a node, and `read-schemas` is all that a node has at the end:
    `[f, node]`, completed `[f, node, [[subject, version, id, schema], …]]`. A look-up by id knows no subject ("", 0).
    """

    index: int
    time_ns: int
    process: int
    type: Outcome
    f: Function
    value: list[Any] | None = None
    error: str | None = None
    rebalanced: list[str] = []
    """Keys with a changed assignment during this operation."""
    seek_to_beginning: bool = False
    group: str = ""
    """The group of the offsets that a transaction commits, after the records that it polled. Its subscribes name it
    too, and so do all operations on a share group."""


class Recorder:
    """Numbers and times operations and hands each to `keep`. Threads may share it.

    `now_ns` is any clock that never goes back, in ns.
    """

    def __init__(self, now_ns: Callable[[], int], keep: Callable[[Op], object]) -> None:
        self._now_ns = now_ns
        self._keep = keep
        self._lock = threading.Lock()
        self._index = 0
        self._process = 0

    def new_process(self) -> int:
        """Return a process id that was never used."""
        with self._lock:
            self._process += 1
            return self._process

    def note(self, process: int, type: Outcome, f: Function, value: list[Any] | None, **rest: Any) -> Op:
        """Record one line, now."""
        with self._lock:
            op = Op(
                index=self._index,
                time_ns=self._now_ns(),
                process=process,
                type=type,
                f=f,
                value=value,
                **rest,
            )
            self._index += 1
            self._keep(op)
        return op


class HistoryFile:
    """Writes a history as it happens; `flush` before anybody reads it."""

    def __init__(self, path: Path, header: Header) -> None:
        self._file: IO[bytes] = path.open("wb")
        self._encoder = msgspec.json.Encoder()
        self._write(header)

    def _write(self, line: Header | Op) -> None:
        self._file.write(self._encoder.encode(line) + b"\n")

    def keep(self, op: Op) -> None:
        self._write(op)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class HistoryError(ValueError):
    """A history file that can't be understood. `line`: where, counted from 1; 0 if an operation is at fault."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.line = line


class StoredHistory:
    """A history file: its header, and its operations, read anew each time it is iterated; never all in memory.

    Raises OSError, and HistoryError for what can't be understood. The last line of a killed run may be incomplete. It
    is left out, and `cut_short` reports that once the file was read to its end.
    """

    def __init__(self, path: Path, *, on_read: Callable[[int], object] = lambda length: None) -> None:
        """`on_read` is called with the length of each line, in bytes."""
        self.path = path
        self.cut_short = False
        self._on_read = on_read
        self._found = 0
        self._lines = 0
        """How many lines are good, once that is known."""
        with path.open("rb") as file:
            first = file.readline(LINE_BYTES)
        if not first:
            raise HistoryError("the file is empty", 1)
        self.header = _header_of(first) or Header()

    def __iter__(self) -> Iterator[Op]:
        """The first whole pass validates and finds the end; later passes trust it, though the file may have grown."""
        with self.path.open("rb") as file:
            lines = enumerate(iter(partial(file.readline, LINE_BYTES), b""), 1)
            if self._lines:
                return (yield from self._again(lines))
            for number, line in lines:
                self._on_read(len(line))
                if self._is_cut_short(line, number):
                    break
                if not (line.isspace() or (number == 1 and _header_of(line))):
                    yield decode_op(line, number)
                self._found = number
            self._lines = self._found

    def _again(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Op]:
        for number, line in lines:
            self._on_read(len(line))
            if not (line.isspace() or (number == 1 and _header_of(line))):
                yield _decode_op(line)
            if number == self._lines:
                return

    def _is_cut_short(self, line: bytes, number: int) -> bool:
        """Whether this is a line without an end that makes no sense. Raises HistoryError if it is far too long."""
        if line.endswith(b"\n"):
            return False
        if len(line) >= LINE_BYTES:
            raise HistoryError(f"longer than {LINE_BYTES >> 20} MiB", number)
        try:
            decode_op(line, number)
        except HistoryError:
            self.cut_short = number > 1
        return self.cut_short


def read_history(lines: Iterable[bytes | str]) -> tuple[Header, Iterator[Op]]:
    """Read a header and, one by one, operations. Without a header all defaults hold. Raises HistoryError."""
    numbered = enumerate(lines, 1)
    number, first = next(numbered, (1, b""))
    header = _header_of(first)

    def operations() -> Iterator[Op]:
        if header is None and first.strip():
            yield decode_op(first, number)
        for at, line in numbered:
            if line.strip():
                yield decode_op(line, at)

    return header or Header(), operations()


# --- one line

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _MicroOperation(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The shape of a micro-operation, only for validation."""

    f: Literal["send", "poll"]
    what: str | dict[str, list[tuple[Number, Value]]] | None = None
    value: Value | tuple[Number | None, Value] | None = None


class _Acquired(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    f: Literal["acquire"]
    found: dict[str, list[tuple[Number, Value, Number]]] = {}


class _Acknowledged(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    kind: Literal["accept", "release", "reject"]
    key: str
    offsets: list[Number]
    outcome: Literal["ok", "fail", "info"] | None = None


class _StartOffsets(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    f: Literal["start-offsets"]
    found: dict[str, Number] = {}


class _Registered(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    f: Literal["register"]
    subject: str
    schema: Number
    found: tuple[Number, Number] | None = None


class _Schemas(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    f: Literal["look-up", "read-schemas"]
    node: Number
    found: list[tuple[str, Number, Number, Number]] | None = None


_SHAPES: dict[Function, Any] = {
    "assign": list[str],
    "subscribe": list[str],
    "join": list[str],
    "acknowledge": list[_Acknowledged],
    "acquire": list[_Acquired],
    "start-offsets": list[_StartOffsets],
    "register": list[_Registered],
    "look-up": list[_Schemas],
    "read-schemas": list[_Schemas],
}
"""What the value of a function is."""
_decode_header = msgspec.json.Decoder(Header).decode
_decode_op = msgspec.json.Decoder(Op).decode


def _header_of(line: bytes | str) -> Header | None:
    """Return the header if this first line is a header."""
    if b'"raftlog_history"' not in (line if isinstance(line, bytes) else line.encode()):
        return None
    try:
        header = _decode_header(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(str(error), 1) from None
    if header.raftlog_history > FORMAT:
        raise HistoryError(f"raftlog_history is {header.raftlog_history}, known up to {FORMAT}", 1)
    return header


def decode_op(line: bytes | str, number: int) -> Op:
    """Read one line, its micro-operations included. Raises HistoryError with that line number."""
    try:
        op = _decode_op(line)
        _validate(op)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(str(error), number) from None
    return op


def _validate(op: Op) -> None:
    """Raise ValidationError unless numbers are of 64 bits and the value is what its function says."""
    for name, number in (("index", op.index), ("time_ns", op.time_ns), ("process", op.process)):
        if not -(2**63) <= number < 2**63:
            raise msgspec.ValidationError(f"{name} {number} is no 64-bit number")
    if not op.value:
        return
    if op.f in _SHAPES:
        msgspec.convert(op.value, _SHAPES[op.f])
    elif op.f in ("send", "poll", "txn"):
        for each in msgspec.convert(op.value, list[_MicroOperation]):
            if op.f not in (each.f, "txn"):
                raise msgspec.ValidationError(f"a {each.f} in a {op.f}")
            if each.f == "send" and not (isinstance(each.what, str) and each.value is not None):
                raise msgspec.ValidationError('a send is ["send", key, value or [offset, value]]')
            if each.f == "poll" and (isinstance(each.what, str) or each.value is not None):
                raise msgspec.ValidationError('a poll is ["poll"] or ["poll", {key: [[offset, value], …]}]')
