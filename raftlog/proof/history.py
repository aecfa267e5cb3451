"""What clients did and saw, operation by operation: the one record that every checker judges, from either world.

The model is that of Jepsen's Kafka workload. An operation is written twice: when it is invoked and when it completes.
`ok` means that it happened, `fail` that it did not and never will, `info` that nobody knows. A file of it is JSON
lines, one operation each, in real-time order, after a header line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

FORMAT = 1

Value = int | str
"""A record's value, unique within its key; never sent again above the client."""

Function = Literal["assign", "subscribe", "send", "poll", "txn", "crash", "debug"]
Outcome = Literal["invoke", "ok", "fail", "info"]


class Header(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The first line of a file. `allowed`: anomalies that the run's settings permit (acks=1 may lose writes)."""

    raftlog_history: int = FORMAT
    place: str = ""
    workload: str = ""
    seed: int | None = None
    allowed: list[str] = []


class Op(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line. `value` holds keys (assign, subscribe) or micro-operations (send, poll, txn).

    A key names one partition: "topic-partition". Micro-operations are lists:
    `["send", key, value]`, completed `["send", key, [offset or None, value]]`, and
    `["poll"]`, completed `["poll", {key: [[offset, value], …]}]`. What is known of an `info` operation is kept in it.
    `process` does one operation at a time; after `info` on `crash` it never comes back.
    """

    index: int
    time_ns: int
    process: int
    type: Outcome
    f: Function
    value: list[Any] | None = None
    error: str | None = None
    rebalanced: list[str] = []
    """Keys whose assignment changed during this operation."""
    seek_to_beginning: bool = False


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
    """A history file that can't be understood. The message names the line and what is wrong with it."""


def read_history(lines: Iterable[bytes | str]) -> tuple[Header, Iterator[Op]]:
    """Read a file's header and, one by one, its operations. Without a header all defaults hold. Raises HistoryError."""
    numbered = enumerate(lines, 1)
    decoder = msgspec.json.Decoder(Op)
    number, first = next(numbered, (1, b""))
    header, pending = Header(), b"" if isinstance(first, bytes) else ""
    if b'"raftlog_history"' in (first if isinstance(first, bytes) else first.encode()):
        header = _decode(msgspec.json.Decoder(Header), first, number)
        if header.raftlog_history > FORMAT:
            raise HistoryError(
                f"line {number}: raftlog_history is {header.raftlog_history}, known up to {FORMAT}"
            )
    else:
        pending = first

    def operations() -> Iterator[Op]:
        if pending.strip():
            yield _decode(decoder, pending, number)
        for at, line in numbered:
            if line.strip():
                yield _decode(decoder, line, at)

    return header, operations()


def _decode(decoder: msgspec.json.Decoder[Any], line: bytes | str, number: int) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise HistoryError(f"line {number}: {error}") from None
