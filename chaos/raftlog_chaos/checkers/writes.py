"""The fate of writes: lost-write and unseen."""

from __future__ import annotations

from array import array

from raftlog_chaos.checkers.evidence import NOBODY, NOWHERE, OK, Evidence, KeyLog
from raftlog_chaos.checkers.findings import Findings


def check_writes(evidence: Evidence, findings: Findings) -> None:
    """Judge every key's log."""
    for log in evidence.keys.values():
        if NOBODY in log.reader:
            _judge_lost(log, evidence, findings)
            _judge_unseen(log, evidence, findings)


def _judge_lost(log: KeyLog, evidence: Evidence, findings: Findings) -> None:
    """A committed value that no `ok` operation read, although a value above it was read.

    Doubled values and offsets do not mislead it: the bound counts a value's first place, a lost value's last.
    """
    first, last = _positions(log, evidence)
    read = [at for at in range(len(first)) if log.reader[at] >= 0 and first[at] >= 0]
    if not read:
        return
    bound = max(read, key=lambda at: first[at])
    values: list[int | str] = []
    for at, position in enumerate(last):
        writer = log.writer[at]
        if not (0 <= position <= first[bound] and log.reader[at] < 0 and writer >= 0):
            continue
        if evidence.committed[writer]:
            values = values or log.values()
            findings.add(
                "lost-write",
                log.name,
                f"{values[at]!r} is at place {position} of the log and was never read, while "
                f"{values[bound]!r} at place {first[bound]} was",
                positions=(evidence.line_of(writer), evidence.line_of(log.reader[bound])),
                about=(values[at], values[bound]),
            )


def _positions(log: KeyLog, evidence: Evidence) -> tuple[array[int], array[int]]:
    """Return each value's first and last place in the log; places number the offsets that hold anything."""
    first = array("i", [NOWHERE]) * len(log.writer)
    last = array("i", [NOWHERE]) * len(log.writer)
    position, at_offset = NOWHERE, NOWHERE
    for offset, at in evidence.placed(log):
        if offset != at_offset:
            position, at_offset = position + 1, offset
        if first[at] < 0:
            first[at] = position
        last[at] = position
    return first, last


def _judge_unseen(log: KeyLog, evidence: Evidence, findings: Findings) -> None:
    """Acknowledged and never read. Only a final phase that reads everything separates lost from late."""
    unseen = [
        at
        for at, writer in enumerate(log.writer)
        if writer >= 0 and evidence.outcome[writer] == OK and log.reader[at] < 0
    ]
    if not unseen:
        return
    values = log.values()
    shown = ", ".join(repr(values[at]) for at in unseen[:5]) + (", …" if len(unseen) > 5 else "")
    findings.add(
        "unseen",
        log.name,
        f"{len(unseen)} acknowledged value{'s' if len(unseen) > 1 else ''} never read: {shown}",
        positions=(evidence.line_of(log.writer[unseen[0]]),),
        about=(values[unseen[0]],),
    )
    findings.count_more("unseen", len(unseen) - 1)
