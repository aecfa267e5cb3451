"""A history in compact form: per key, the sent and read values, their operations, and their offsets.

The first pass over a history fills it, one line at a time. `settle` then derives the committed operations and the order
of each key's log. A value is a small number within its key, an operation a number in the order of invocation. So a
million operations fit into a few hundred megabytes. It does not judge.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from raftlog_chaos.history import HistoryError, Op, Value

NOBODY: Final = -1
NOWHERE: Final = -1

PENDING: Final = 0
OK: Final = 1
FAIL: Final = 2
INFO: Final = 3
OUTCOMES: Final = {"ok": OK, "fail": FAIL, "info": INFO}

DATA: Final = frozenset({"send", "poll", "txn"})


class KeyLog:
    """One key. The arrays are indexed by a value's number; `order` by its place in the version order."""

    __slots__ = ("index", "name", "numbers", "order", "polled", "reader", "sent", "strays", "writer")

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers: dict[Value, int] = {}
        self.writer = array("i")
        """The operation that tried to send it."""
        self.reader = array("i")
        """The first `ok` operation that read it."""
        self.sent = array("q")
        """Its offset from the sender's acknowledgement."""
        self.polled = array("q")
        """Its offset as the first reader saw it."""
        self.strays: dict[int, set[int]] = {}
        """Further offsets at which a value was read."""
        self.index = array("i")
        """A value's place in the version order (its last, if it has several)."""
        self.order = array("i")
        """The version order: one value for each offset that holds any; gaps of offsets are closed."""

    def number(self, value: Value) -> int:
        """Return a value's number, a new number if need be."""
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.writer)
            self.writer.append(NOBODY)
            self.reader.append(NOBODY)
            self.sent.append(NOWHERE)
            self.polled.append(NOWHERE)
        return number

    def values(self) -> list[Value]:
        """Return the values by their numbers."""
        return list(self.numbers)


class Evidence:
    """A whole history. Arrays named after operations are indexed by their numbers."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyLog] = {}
        self.invoked = array("i")
        """The position of the line that began it: its own if it has none."""
        self.completed = array("i")
        """The position of the line that ended it; -1 while it is pending."""
        self.process = array("i")
        """A small number for each process, in the order of appearance."""
        self.index = array("q")
        """The history's name of the line that `line_of` returns."""
        self.outcome = bytearray()
        self.op_of_line = array("i")
        self.early_reads: list[tuple[KeyLog, int, int]] = []
        """Key, value and reader, where no send of that value had begun."""
        self._running: dict[int, int] = {}
        self._processes: dict[int, int] = {}

    # --- the first pass

    def take(self, op: Op) -> int:
        """Take in the next line and return its operation's number. Raises HistoryError."""
        position = len(self.op_of_line)
        if op.type == "invoke":
            if op.process in self._running:
                raise HistoryError(
                    f"operation {op.index}: process {op.process} had not completed its last one"
                )
            number = self._running[op.process] = self._begin(op, position)
        else:
            running = self._running.pop(op.process, None)
            number = self._begin(op, position) if running is None else running
            self.index[number] = op.index
            self.completed[number] = position
            self.outcome[number] = OUTCOMES[op.type]
        self.op_of_line.append(number)
        if op.f in DATA:
            self._take_data(op, number)
        return number

    def _begin(self, op: Op, position: int) -> int:
        self.invoked.append(position)
        self.completed.append(NOWHERE)
        self.process.append(self._processes.setdefault(op.process, len(self._processes)))
        self.index.append(op.index)
        self.outcome.append(PENDING)
        return len(self.invoked) - 1

    def _take_data(self, op: Op, number: int) -> None:
        for micro in op.value or ():
            if micro[0] == "send":
                self._take_send(op, number, micro)
            elif len(micro) > 1 and micro[1] and op.type != "invoke":
                for name, pairs in micro[1].items():
                    self._take_reads(self.key(name), pairs, number)

    def key(self, name: str) -> KeyLog:
        """Return a key's log, created if need be."""
        log = self.keys.get(name)
        if log is None:
            log = self.keys[name] = KeyLog(name)
        return log

    def _take_send(self, op: Op, number: int, micro: list[object]) -> None:
        log = self.key(micro[1])  # type: ignore[arg-type]
        what = micro[2]
        offset, value = what if isinstance(what, list | tuple) else (None, what)
        at = log.number(value)
        if log.writer[at] not in (NOBODY, number):
            raise HistoryError(
                f"operation {op.index}: {value!r} was sent to {log.name} before; values must be unique within a key"
            )
        log.writer[at] = number
        if offset is not None:
            log.sent[at] = offset

    def _take_reads(self, log: KeyLog, pairs: list[list[object]], number: int) -> None:
        ok = self.outcome[number] == OK
        numbers, polled, reader = log.numbers, log.polled, log.reader
        for offset, value in pairs:
            at = numbers.get(value)  # type: ignore[call-overload]
            if at is None:
                at = log.number(value)  # type: ignore[arg-type]
            if polled[at] != offset:
                self._see(log, at, offset)  # type: ignore[arg-type]
            if ok and reader[at] < 0:
                reader[at] = number
            if log.writer[at] < 0:
                self.early_reads.append((log, at, number))

    @staticmethod
    def _see(log: KeyLog, at: int, offset: int) -> None:
        if log.polled[at] == NOWHERE:
            log.polled[at] = offset
        else:
            log.strays.setdefault(at, set()).add(offset)

    # --- between the passes

    def settle(self) -> None:
        """Derive what must have committed, then each key's version order."""
        self.committed = self._must_have_committed()
        for log in self.keys.values():
            self._order(log)

    def _must_have_committed(self) -> bytearray:
        """Return `ok` operations, and operations of unknown outcome with a write that an `ok` operation read."""
        outcome = self.outcome
        committed = bytearray(each == OK for each in outcome)
        for log in self.keys.values():
            for writer, reader in zip(log.writer, log.reader, strict=True):
                if reader >= 0 and writer >= 0 and outcome[writer] != FAIL:
                    committed[writer] = 1
        return committed

    def _order(self, log: KeyLog) -> None:
        log.index = array("i", [NOWHERE]) * len(log.writer)
        last = NOWHERE
        for offset, at in self.placed(log):
            if offset == last:
                continue  # one value for each offset
            last = offset
            log.index[at] = len(log.order)
            log.order.append(at)

    def placed(self, log: KeyLog) -> list[tuple[int, int]]:
        """Return offset and value, ascending, each pair once: from acknowledgements of committed sends and from all
        polls.
        """
        committed, writer = self.committed, log.writer
        found = [(offset, at) for at, offset in enumerate(log.polled) if offset >= 0]
        found += [
            (offset, at)
            for at, offset in enumerate(log.sent)
            if offset >= 0 and offset != log.polled[at] and committed[writer[at]]
        ]
        if log.strays:
            known = set(found)
            found += [
                pair for at, offsets in log.strays.items() for o in offsets if (pair := (o, at)) not in known
            ]
        found.sort()
        return found

    # --- what the checkers ask

    def line_of(self, number: int) -> int:
        """Return the position of the most detailed line of an operation: its completion, else its invocation."""
        if number < 0:
            return NOWHERE
        return self.completed[number] if self.completed[number] >= 0 else self.invoked[number]

    def lines_of(self, number: int) -> Iterator[int]:
        """Yield the positions of both its lines."""
        yield self.invoked[number]
        yield self.completed[number]
