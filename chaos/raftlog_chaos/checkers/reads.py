"""Reads that must not happen: values of failed sends (G1a), of the own transaction (precommitted-read), of no sender
(unwritten-read).
"""

from __future__ import annotations

from raftlog_chaos.checkers.evidence import FAIL, NOBODY, OK, Evidence, KeyLog
from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.checkers.steps import Step


class Reads:
    """Judges completions one by one."""

    def __init__(self, evidence: Evidence, findings: Findings) -> None:
        self._evidence = evidence
        self._findings = findings
        self._aborted = {log: failed for log in evidence.keys.values() if (failed := self._failed(log))}

    def _failed(self, log: KeyLog) -> frozenset[int]:
        outcome = self._evidence.outcome
        return frozenset(
            at for at, writer in enumerate(log.writer) if writer >= 0 and outcome[writer] == FAIL
        )

    def take(self, step: Step) -> None:
        if self._evidence.outcome[step.number] == OK and self._aborted:
            for log, values in step.reads.items():
                for at in self._aborted.get(log, frozenset()).intersection(values):
                    self._blame("G1a", log, at, step, "failed, and yet it was read")
        for log, values in step.sends.items():
            for at in set(values).intersection(step.reads.get(log, ())):
                self._blame("precommitted-read", log, at, step, "was read by the operation that sent it")

    def _blame(self, name: str, log: KeyLog, at: int, step: Step, what: str) -> None:
        value = log.values()[at]
        lines = (self._evidence.line_of(log.writer[at]), step.position)
        self._findings.add(name, log.name, f"{value!r} {what}", positions=lines, about=(value,))


def check_early_reads(evidence: Evidence, findings: Findings) -> None:
    """Find values that were read before any send of them began. Sends without an invocation may have begun
    at any time.
    """
    seen = set()
    for log, at, reader in evidence.early_reads:
        writer = log.writer[at]
        unknown_begin = writer != NOBODY and evidence.invoked[writer] == evidence.completed[writer]
        if unknown_begin or (log, at) in seen:
            continue
        seen.add((log, at))
        value = log.values()[at]
        lines = [evidence.line_of(reader)] + ([] if writer == NOBODY else [evidence.invoked[writer]])
        what = "was never sent" if writer == NOBODY else "was read before its send began"
        findings.add("unwritten-read", log.name, f"{value!r} {what}", positions=lines, about=(value,))
