"""The order of writing: within one operation (int-…), from a process's operation to its next, and in real time
(ours)."""

from __future__ import annotations

from raftlog_chaos.checkers.evidence import Evidence, KeyLog
from raftlog_chaos.checkers.findings import Findings, sent
from raftlog_chaos.checkers.order import OrderOfProcesses, between, distance, jumps
from raftlog_chaos.checkers.steps import Step
from raftlog_chaos.history import Op


class Sends(OrderOfProcesses):
    """The order in which processes write."""

    def _judge(self, step: Step) -> None:
        known = step.op.type in ("ok", "info")
        memory = self._memory.of(step.op.process)
        for log, values in step.sends.items():
            for first, second, delta in jumps(log, values) if len(values) > 1 else ():
                name = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
                self._blame(name, log, first, second, (step.position,))
            if not known:
                continue
            before = memory.get(log)
            if before is not None and distance(log, before[0], values[0]) < 1:
                self._blame("nonmonotonic-send", log, before[0], values[0], (before[1], step.position))
            memory[log] = (values[-1], step.position)

    def _blame(self, name: str, log: KeyLog, first: int, second: int, lines: tuple[int, ...]) -> None:
        values = log.values()
        text = f"{values[first]!r} was sent, then {values[second]!r}"
        if name.endswith("skip"):
            text += f"; {between(log, first, second)}"
        else:
            text += f", which lies {log.index[first] - log.index[second]} places before it"
        self._findings.add(name, log.name, text, positions=lines, about=(values[first], values[second]))


class RealTime:
    """Ours: an acknowledged offset is above every offset that was acknowledged before its send began."""

    def __init__(self, evidence: Evidence, findings: Findings) -> None:
        self._evidence = evidence
        self._findings = findings
        self._highest: dict[str, tuple[int, int]] = {}
        """The highest acknowledged offset of each key, and the line with it."""
        self._begun: dict[int, dict[str, tuple[int, int]]] = {}
        """The highest offsets of its keys when a process's operation began."""

    def take(self, step: Step) -> None:
        op = step.op
        if op.f not in ("send", "txn"):
            return
        if op.type == "invoke":
            keys = {micro[1] for micro in op.value or () if micro[0] == "send"}
            self._begun[op.process] = {key: self._highest[key] for key in keys if key in self._highest}
        else:
            begun = self._begun.pop(op.process, {})
            if op.type == "ok":
                self._judge(op, step, begun)

    def _judge(self, op: Op, step: Step, begun: dict[str, tuple[int, int]]) -> None:
        for key, offset, value in sent(op):
            floor, told = begun.get(key, (-1, -1))
            if offset <= floor:
                text = f"{value!r} lies at {offset}; {floor} had been acknowledged before its send began"
                lines = (told, *self._evidence.lines_of(step.number))
                self._findings.add("realtime-send", key, text, positions=lines, about=(value,))
            if offset > self._highest.get(key, (-1, -1))[0]:
                self._highest[key] = (offset, step.position)
