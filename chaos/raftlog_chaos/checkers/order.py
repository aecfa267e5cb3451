"""Computes how far apart two values lie in the version order, and which keys a consumer holds on to."""

from __future__ import annotations

from collections.abc import Iterable

from raftlog_chaos.checkers.evidence import KeyLog
from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.checkers.steps import Step
from raftlog_chaos.history import Op


def distance(log: KeyLog, first: int, second: int) -> int:
    """Return by how many places the second value lies behind the first; 1, as if all were well, if either is
    unknown.
    """
    before, after = log.index[first], log.index[second]
    return 1 if before < 0 or after < 0 else after - before


def jumps(log: KeyLog, values: list[int]) -> Iterable[tuple[int, int, int]]:
    """Yield neighbours that do not follow each other, with their distance."""
    index = log.index
    last = values[0]
    before = index[last]
    for at in values[1:]:
        here = index[at]
        if here - before != 1 and before >= 0 and here >= 0:
            yield last, at, here - before
        last, before = at, here


def between(log: KeyLog, first: int, second: int) -> str:
    """Name the values between two values, for a human reader."""
    start, end = log.index[first] + 1, log.index[second]
    names = log.values()
    shown = ", ".join(repr(names[at]) for at in log.order[start : min(end, start + 3)])
    return f"{end - start} between them: {shown}{', …' if end - start > 3 else ''}"


class Memory:
    """The last value that each process saw (or sent) of each key, and its line."""

    def __init__(self) -> None:
        self._of: dict[int, dict[KeyLog, tuple[int, int]]] = {}

    def of(self, process: int) -> dict[KeyLog, tuple[int, int]]:
        """Return value and position of the last, by key; to be changed."""
        found = self._of.get(process)
        if found is None:
            found = self._of[process] = {}
        return found

    def reassign(self, op: Op) -> None:
        """Keep only keys that are still held after an assign or subscribe, and none if it rewound them."""
        memory = self._of.get(op.process)
        if not memory:
            return
        held = frozenset() if op.seek_to_beginning else frozenset(op.value or ())
        for log in [each for each in memory if not _holds(held, each.name, op.f)]:
            del memory[log]

    def forget(self, process: int) -> None:
        """Forget a process that is gone."""
        self._of.pop(process, None)


def _holds(held: frozenset[str], key: str, f: str) -> bool:
    """Whether a key is in the list; a process may subscribe to topics, too."""
    return key in held or (f == "subscribe" and key.rpartition("-")[0] in held)


class OrderOfProcesses:
    """Judges completions one by one, in real-time order: a process's operation against its earlier operations."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._memory = Memory()

    def take(self, step: Step) -> None:
        op = step.op
        if op.f in ("assign", "subscribe"):
            if op.type == "ok":
                self._memory.reassign(op)
        elif op.f == "crash":
            self._memory.forget(op.process)
        else:
            self._judge(step)

    def _judge(self, step: Step) -> None:
        raise NotImplementedError
