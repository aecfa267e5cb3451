"""The order of reading: within one operation (int-…) and from one operation of a process to its next."""

from __future__ import annotations

from raftlog_chaos.checkers.evidence import KeyLog
from raftlog_chaos.checkers.order import OrderOfProcesses, between, distance, jumps
from raftlog_chaos.checkers.steps import Step


class Polls(OrderOfProcesses):
    """The order in which processes read."""

    def _judge(self, step: Step) -> None:
        memory = self._memory.of(step.op.process)
        for log, values in step.reads.items():
            if len(values) > 1 and log.name not in step.op.rebalanced:
                self._judge_inside(step, log, values)
            before = memory.get(log)
            if before is not None and not step.op.group:  # the group's order is judged, not its members'
                self._judge_outside(step, log, values[0], before)
            if step.op.type == "ok":  # after any other outcome a client goes back to its former position
                memory[log] = (values[-1], step.position)

    def _judge_inside(self, step: Step, log: KeyLog, values: list[int]) -> None:
        for first, second, delta in jumps(log, values):
            if delta > 1:
                self._blame("int-poll-skip", log, first, second, (step.position,))
            else:
                self._blame("int-nonmonotonic-poll", log, first, second, (step.position,))

    def _judge_outside(self, step: Step, log: KeyLog, second: int, before: tuple[int, int]) -> None:
        first, position = before
        delta = distance(log, first, second)
        if delta > 1:
            self._blame("poll-skip", log, first, second, (position, step.position))
        elif delta < 1:
            self._blame("nonmonotonic-poll", log, first, second, (position, step.position))

    def _blame(self, name: str, log: KeyLog, first: int, second: int, lines: tuple[int, ...]) -> None:
        values = log.values()
        text = f"{values[first]!r} was read, then {values[second]!r}"
        if name.endswith("skip"):
            text += f"; {between(log, first, second)}"
        else:
            text += f", {log.index[first] - log.index[second]} places before it"
        self._findings.add(name, log.name, text, positions=lines, about=(values[first], values[second]))
