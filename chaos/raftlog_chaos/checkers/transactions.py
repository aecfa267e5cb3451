"""Our own anomalies of transactions: a transaction is atomic (torn-transaction), and a group consumes exactly once in
it.

A transaction with a group commits the group's offsets behind what it polled. Each value is consumed in one committed
transaction of the group (processed-twice), and none is left out (left-out). A transaction without an answer was
committed if its writes were read. So like the anomaly unseen this is for histories that end
with a reading of everything.

The client of a committed transaction may be gone before it reports what it consumed. The transaction then accounts for
values after all that the group had consumed when it began.
"""

from __future__ import annotations

from collections.abc import Iterator

from raftlog_chaos.checkers.evidence import FAIL, NOBODY, PENDING, Evidence, KeyLog
from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.checkers.steps import Step


class Transactions:
    """Takes completions one by one, in real-time order; `finish` after the last."""

    def __init__(self, evidence: Evidence, findings: Findings) -> None:
        self._evidence = evidence
        self._findings = findings
        self._consumed: dict[tuple[str, KeyLog], dict[int, int]] = {}
        """Keyed by group and key: each consumed value, and the line that shows it."""
        self._silent: dict[str, list[int]] = {}
        """Keyed by group: the lines that began a committed transaction without a report of what it consumed."""

    def begin(self, step: Step) -> None:
        """Take in an invocation."""
        op, evidence = step.op, self._evidence
        if op.f == "txn" and evidence.committed[step.number] and evidence.outcome[step.number] == PENDING:
            self._silent.setdefault(op.group, []).append(step.position)

    def take(self, step: Step) -> None:
        if step.op.f != "txn" or not self._evidence.committed[step.number]:
            return
        self._judge_whole(step)
        if step.op.group:
            for log, values in step.reads.items():
                self._consume(step, log, values)

    def _judge_whole(self, step: Step) -> None:
        read: list[tuple[KeyLog, int]] = []
        unread: list[tuple[KeyLog, int]] = []
        for log, values in step.sends.items():
            for at in values:
                (unread if log.reader[at] == NOBODY else read).append((log, at))
        if read and unread:
            (log, at), (other, other_at) = read[0], unread[0]
            value, missing = log.values()[at], other.values()[other_at]
            text = f"{value!r} was read, but {missing!r} of {other.name} never was"
            lines = (step.position, self._evidence.line_of(log.reader[at]))
            self._findings.add("torn-transaction", log.name, text, positions=lines, about=(value, missing))

    def _consume(self, step: Step, log: KeyLog, values: list[int]) -> None:
        consumed = self._consumed.setdefault((step.op.group, log), {})
        mine: set[int] = set()
        for at in values:
            before = consumed.setdefault(at, step.position)
            again = before != step.position or at in mine
            mine.add(at)
            if again:
                value = log.values()[at]
                text = f"{step.op.group} consumed {value!r} more than once"
                lines = (before, step.position)
                self._findings.add("processed-twice", log.name, text, positions=lines, about=(value,))

    def finish(self) -> None:
        """Look for what groups left out."""
        for (group, log), consumed in self._consumed.items():
            last = max(consumed, key=log.index.__getitem__)
            values = log.values()
            for at in self._left_out(group, log, consumed, last):
                text = f"{group} consumed {values[last]!r} behind it, and never {values[at]!r}"
                lines = (consumed[last], self._evidence.line_of(log.reader[at]))
                self._findings.add(
                    "left-out", log.name, text, positions=lines, about=(values[at], values[last])
                )

    def _left_out(self, group: str, log: KeyLog, consumed: dict[int, int], last: int) -> Iterator[int]:
        """Yield the values before `last` that no transaction of the group can have consumed.

        A silent one accounts for neighbours only, behind all that was consumed before it began.
        """
        silent = self._silent.get(group, [])
        behind = [
            max((log.index[at] for at in consumed if consumed[at] < line), default=-1) for line in silent
        ]
        used, excused = 0, None
        for at in log.order[: max(log.index[last], 0)]:
            writer = log.writer[at]
            if at in consumed:
                excused = None
            elif writer == NOBODY or self._evidence.outcome[writer] != FAIL:
                if excused is None:
                    excused = used < sum(place < log.index[at] for place in behind)
                    used += excused
                if not excused:
                    yield at
