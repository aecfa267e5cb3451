"""Runs a history through all checkers, in two passes; in a third it fetches the evidence of the findings.

Memory grows with the number of operations and values (about 0.2 KB for each), never with the size of the lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog_chaos.checkers.anomalies import is_allowed
from raftlog_chaos.checkers.cycles import Dependencies, check_cycles
from raftlog_chaos.checkers.evidence import FAIL, OK, Evidence
from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.checkers.metrics import Consumption, Lag, Tally
from raftlog_chaos.checkers.offsets import check_offsets
from raftlog_chaos.checkers.polls import Polls
from raftlog_chaos.checkers.queues import QUEUE, check_queues
from raftlog_chaos.checkers.reads import Reads, check_early_reads
from raftlog_chaos.checkers.schemas import SCHEMAS, check_schemas
from raftlog_chaos.checkers.sends import RealTime, Sends
from raftlog_chaos.checkers.steps import steps
from raftlog_chaos.checkers.transactions import Transactions
from raftlog_chaos.checkers.verdict import Verdict
from raftlog_chaos.checkers.writes import check_writes
from raftlog_chaos.history import Header, Op

EXEMPT = frozenset({"crash", "debug"})
"""These never need to succeed."""


def judge(header: Header, ops: Iterable[Op]) -> Verdict:
    """Judge a whole history, in real-time order. An iterator is kept as a list, anything else is iterated again.

    Raises HistoryError if it is no history: two operations of a process at once, a value sent twice.
    """
    history = list(ops) if iter(ops) is ops else ops
    evidence, tally, findings = Evidence(), Tally(), Findings()
    for op in history:
        evidence.take(op)
        tally.take(op)
    evidence.settle()
    _check_success(tally, findings)
    check_offsets(evidence, findings)
    check_writes(evidence, findings)
    check_early_reads(evidence, findings)
    lag, consumption = _check_steps(history, evidence, findings)
    if QUEUE & tally.counts.keys():
        check_queues(history, header.queue, findings)
    if SCHEMAS & tally.counts.keys():
        check_schemas(history, findings)
    findings.fetch(history)
    for name, examples in findings.examples.items():
        for finding in examples:
            finding.allowed = is_allowed(name, header, subscribed=tally.subscribed)
    return Verdict(
        header,
        anomalies=findings.examples,
        cases=findings.cases,
        counts=tally.counts,
        metrics=_metrics(tally, evidence, lag, consumption),
    )


def _check_success(tally: Tally, findings: Findings) -> None:
    """An operation that never succeeded has not been tested."""
    for f, outcomes in tally.counts.items():
        tried = sum(count for outcome, count in outcomes.items() if outcome != "invoke")
        if tried and "ok" not in outcomes and f not in EXEMPT:
            findings.add("never-ok", "", f"{f}: tried {tried:,} times, never ok")
    if not any("ok" in outcomes for outcomes in tally.counts.values()):
        findings.add("never-ok", "", "there is no ok operation in this history, so that it shows nothing")


def _check_steps(history: Iterable[Op], evidence: Evidence, findings: Findings) -> tuple[Lag, Consumption]:
    """Make the second pass, which depends on version orders."""
    reads, polls, sends = Reads(evidence, findings), Polls(findings), Sends(findings)
    realtime, dependencies = RealTime(evidence, findings), Dependencies(evidence)
    lag, consumption, transactions = Lag(), Consumption(evidence), Transactions(evidence, findings)
    for step in steps(history, evidence):
        if step.op.f in QUEUE | SCHEMAS:
            continue
        lag.take(step.op)
        realtime.take(step)
        if step.op.type == "invoke":
            transactions.begin(step)
            continue
        reads.take(step)
        polls.take(step)
        sends.take(step)
        dependencies.take(step)
        transactions.take(step)
        consumption.take(step)
    transactions.finish()
    check_cycles(history, evidence, dependencies, findings)
    return lag, consumption


def _metrics(tally: Tally, evidence: Evidence, lag: Lag, consumption: Consumption) -> dict[str, object]:
    acked = failed = unknown = read = 0
    outcome = evidence.outcome
    for log in evidence.keys.values():
        for writer, reader in zip(log.writer, log.reader, strict=True):
            if writer >= 0:
                acked += outcome[writer] == OK
                failed += outcome[writer] == FAIL
                unknown += outcome[writer] not in (OK, FAIL)
            read += reader >= 0
    return {
        "ops": tally.completed(),
        "keys": len(evidence.keys),
        "processes": len(set(evidence.process)),
        "duration_s": tally.duration_s,
        "sends_ok": acked,
        "sends_fail": failed,
        "sends_info": unknown,
        "values_read": read,
        "worst_realtime_lag_s": lag.worst_ns / 1e9,
        "worst_realtime_lag_following_s": lag.worst_following_ns / 1e9,
        "consume_counts": consumption.counts(),
    }
