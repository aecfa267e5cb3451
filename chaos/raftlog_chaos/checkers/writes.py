"""Checks for committed writes that were lost (lost-write), and for acknowledged writes that were not read (unseen)."""

from __future__ import annotations

from array import array

from raftlog_chaos.checkers.evidence import NOBODY, NOWHERE, OK, Evidence, KeyLog
from raftlog_chaos.checkers.findings import Findings


def check_writes(evidence: Evidence, findings: Findings) -> None:
    """Check the log of every key that was read."""
    for log in evidence.keys.values():
        if NOBODY in log.reader:
            _judge_lost(log, evidence, findings)
            _judge_unseen(log, evidence, findings)


def _judge_lost(log: KeyLog, evidence: Evidence, findings: Findings) -> None:
    """Find committed values that no `ok` operation read, although a value at a higher offset was read.

    A value may be in the log twice. So a value counts as read up to its first place, and as lost only by its last.
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
    """Return the first and last place of each value in the log. Places count only offsets with values."""
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
    """Find acknowledged values that were never read. They are lost only if a final phase reads everything."""
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
