"""Histories written by hand, an operation a line, and the findings of the checkers."""

from __future__ import annotations

from typing import Any

from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import Header, Op

KEY = "t-0"
MS = 1_000_000


class ToldHistory:
    """Writes operations of any process; each takes a millisecond. The key is t-0 where none is named."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def line(self, process: int, type: Any, f: Any, value: list[Any] | None = None, **rest: Any) -> None:
        """One line, as it stands."""
        number = len(self.ops)
        self.ops.append(
            Op(index=number, time_ns=number * MS, process=process, type=type, f=f, value=value, **rest)
        )

    def both(self, process: int, type: str, f: str, value: list[Any] | None, **rest: Any) -> ToldHistory:
        """A beginning and an end; the facts of the end are not known at the beginning."""
        self.line(process, "invoke", f, _before(value))
        self.line(process, type, f, value, **rest)
        return self

    def send(
        self, process: int, value: Any, offset: int | None, type: str = "ok", key: str = KEY
    ) -> ToldHistory:
        return self.both(process, type, "send", [["send", key, [offset, value]]])

    def poll(self, process: int, *records: tuple[int, Any], type: str = "ok", **rest: Any) -> ToldHistory:
        """Records are (offset, value)."""
        return self.both(process, type, "poll", [reading(*records)], **rest)

    def txn(self, process: int, *micros: list[Any], type: str = "ok", **rest: Any) -> ToldHistory:
        return self.both(process, type, "txn", list(micros), **rest)

    def sends(self, process: int, *records: tuple[int | None, Any], type: str = "ok") -> ToldHistory:
        """Several sends in one operation."""
        return self.both(process, type, "send", [sending(*record) for record in records])

    def assign(
        self, process: int, *keys: str, f: str = "assign", type: str = "ok", **rest: Any
    ) -> ToldHistory:
        return self.both(process, type, f, list(keys), **rest)

    def log(self, *values: Any, writer: int = 90, reader: int = 99) -> ToldHistory:
        """Values sent in a row from offset 0 on and read, so that their order is known."""
        for offset, value in enumerate(values):
            self.send(writer, value, offset)
        return self.poll(reader, *enumerate(values))

    def verdict(self, **header: Any) -> Verdict:
        return judge(Header(**header), self.ops)

    def found(self) -> set[str]:
        """Return the names of all anomalies, allowed or not; short tales need not have an ok operation of each kind."""
        return set(self.verdict().anomalies) - {"never-ok"}


def sending(offset: int | None, value: Any, key: str = KEY) -> list[Any]:
    return ["send", key, [offset, value]]


def reading(*records: tuple[int, Any], key: str = KEY) -> list[Any]:
    return ["poll", {key: [list(record) for record in records]}]


def _before(value: list[Any] | None) -> list[Any] | None:
    if value is None:
        return None
    return [
        each if isinstance(each, str) else ["poll"] if each[0] == "poll" else ["send", each[1], each[2][1]]
        for each in value
    ]
