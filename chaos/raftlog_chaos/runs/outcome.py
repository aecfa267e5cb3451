"""The outcome of a run: its record compared with the expectations, and figures for the reader."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from raftlog.testing.progress import patient
from raftlog_chaos.runs.case import Case
from raftlog_chaos.runs.landmarks import Event, first_moments
from raftlog_chaos.runs.meter import Beats, Spread, longest_gap, spread
from raftlog_chaos.runs.record import Injection, Record, covered

Status = Literal["passed", "failed", "not run"]
EDGE_S: Final = 0.05
WORTH_TELLING: Final = 5
"""How many lines of one kind of trouble are shown; the rest is counted."""
HASTE_S: Final = 0.05
"""A kill is recorded when the process is gone: others may have fenced the node a moment before that."""
MAX_LEFT_BEHIND: Final = 1
"""Clients that never returned from a call, in a case that passes: more than librdkafka's own share is a finding."""


class Stall(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The effect of one injection on the meter's worst partition. Seconds; landmarks are after the injection."""

    fault: str
    target: str
    at_s: float
    until_s: float
    gap_s: float
    """The longest time between two acknowledgements that overlaps the fault."""
    after_heal_s: float
    """From the healing until every partition had acknowledged again."""
    back_s: float
    """The longest gap from the healing up to the next fault."""
    moments: dict[str, float] = {}
    """lost, fenced, elected, led: the nodes' logs; acknowledged: the end of the gap."""


class Unavailability(msgspec.Struct, kw_only=True):
    """Over all injections of one fault, seconds."""

    fault: str
    count: int
    median_s: float
    p99_s: float
    max_s: float
    after_heal_median_s: float
    after_heal_max_s: float


class Outcome(msgspec.Struct, kw_only=True):
    """One case's result; `reasons` say why it is not passed."""

    case: str
    title: str
    place: str
    seed: int
    status: Status
    reasons: list[str] = []
    notes: list[str] = []
    not_run: dict[str, str] = {}
    """Faults of the case that the place cannot inject, and the missing abilities."""
    seconds: float = 0.0
    phases: list[tuple[str, float, float]] = []
    injected: dict[str, int] = {}
    operations: int = 0
    counts: dict[str, int] = {}
    acked: int = 0
    acked_during_faults: int = 0
    registered: int = 0
    """Ids of schemas that were acknowledged."""
    registered_during_faults: int = 0
    read: int = 0
    meter_acks: int = 0
    meter_errors: int = 0
    anomalies: dict[str, int] = {}
    allowed: dict[str, int] = {}
    whole_after_s: float | None = None
    unavailability: list[Unavailability] = []
    commits: dict[str, list[Unavailability]] = {}
    """The same of coordinators, by what they commit: "transactions", "offsets"."""
    stalls: list[Stall] = []
    folder: str = ""


class Judgement(NamedTuple):
    """The checker's findings: anomalies by name, the allowed anomalies, and its page."""

    anomalies: Mapping[str, int]
    allowed: Mapping[str, int]
    text: str


def unrun(case: Case, reasons: Mapping[str, str], *, seed: int) -> Outcome:
    """Return the outcome of a case that no place could run; `reasons` by place."""
    return Outcome(
        case=case.name,
        title=case.title,
        place="",
        seed=seed,
        status="not run",
        reasons=[f"{testbed}: {why}" for testbed, why in reasons.items()],
    )


def broken(case: Case, reason: str, trace: str, *, seed: int) -> Outcome:
    """Return the outcome of a case that the harness itself, or the cluster's start, broke off."""
    return Outcome(
        case=case.name,
        title=case.title,
        place="",
        seed=seed,
        status="failed",
        reasons=[reason, *trace.strip().splitlines()[-2 * WORTH_TELLING :]],
    )


def conclude(
    record: Record, judgement: Judgement, *, events: Sequence[Event] = (), scandals: Sequence[str] = ()
) -> Outcome:
    """Compare a run with its case's expectations. `events` and `scandals` come from the nodes' logs."""
    stalls = [_stall(record, each, events, record.beats) for each in record.injections]
    commits = {
        name: summed([_stall(record, each, (), beats) for each in record.injections])
        for name, beats in record.commits.items()
    }
    tally = record.tally
    outcome = Outcome(
        case=record.case.name,
        title=record.case.title,
        place=record.testbed,
        seed=record.seed,
        status="passed",
        not_run=record.not_run,
        seconds=round(record.ended_s, 3),
        phases=[(each.name, round(each.began_s, 3), round(each.ended_s, 3)) for each in record.phases],
        injected=dict(Counter(each.fault for each in record.injections)),
        operations=sum(tally.counts.values()),
        counts=dict(sorted(tally.counts.items())),
        acked=tally.acked,
        acked_during_faults=covered(record.injections, tally.acked_at),
        registered=len(tally.registered_at),
        registered_during_faults=covered(record.injections, tally.registered_at),
        read=tally.read,
        meter_acks=sum(len(each.acked_at) for each in record.beats),
        meter_errors=len(record.meter_errors),
        anomalies=dict(judgement.anomalies),
        allowed=dict(judgement.allowed),
        whole_after_s=record.whole_after_s,
        unavailability=summed(stalls),
        commits=commits,
        stalls=stalls,
    )
    outcome.reasons = [*_broken(record, outcome), *_some(scandals, "more lines like these in the logs")]
    outcome.notes = [f"{name} not run: {why}" for name, why in record.not_run.items()]
    outcome.notes += [
        f"{name} never struck"
        for name in record.case.faults.names
        if name not in record.not_run and name not in outcome.injected
    ]
    outcome.notes += record.left_behind[:MAX_LEFT_BEHIND]
    if outcome.reasons:
        outcome.status = "failed"
    elif not record.injections and record.not_run:
        outcome.status = "not run"
    return outcome


def _broken(record: Record, outcome: Outcome) -> list[str]:
    """Return every expectation that was not met."""
    expect = record.case.expect
    found = [f"{count} {name}" for name, count in outcome.anomalies.items()]
    found += _some(record.troubles, "more troubles")
    if len(record.left_behind) > MAX_LEFT_BEHIND:
        found += _some(record.left_behind, "more clients left behind")
    if not expect.nodes_may_stop:
        found += record.fallen
    if not record.read_all:
        found.append("the final reading did not reach everything that was acknowledged")
    for name in expect.unseen:
        count = sum(name in re.findall(r"\w+", error) for error in record.meter_errors)
        if count:
            found.append(f"{count} records of the meter failed with {name}, expected none")
    for name, least, seen in (
        ("writes acknowledged", expect.acked, outcome.acked),
        ("writes acknowledged during faults", expect.acked_during_faults, outcome.acked_during_faults),
        (
            "new ids of schemas during faults",
            expect.registered_during_faults,
            outcome.registered_during_faults,
        ),
        ("faults injected", _injections_due(record), len(record.injections)),
    ):
        if seen < least:
            found.append(f"{seen} {name}, expected at least {least}")
    for each in outcome.unavailability:
        limit_s = patient(expect.unavailable_s.get(each.fault, math.inf))
        if each.max_s > limit_s:
            found.append(f"{each.fault}: {each.max_s:.2f} s without an acknowledgement, limit {limit_s:g} s")
    return found


def _injections_due(record: Record) -> int:
    """A testbed that lacks an ability excuses its share of the injections, never the faults that it can inject."""
    names, least = record.case.faults.names, record.case.expect.injections
    able = sum(name not in record.not_run for name in names)
    return least if able == len(names) else min(able, 1, least)


def _some(lines: Sequence[str], rest: str) -> list[str]:
    shown = list(lines[:WORTH_TELLING])
    if len(lines) > WORTH_TELLING:
        shown.append(f"{len(lines) - WORTH_TELLING} {rest}")
    return shown


def _stall(record: Record, injection: Injection, events: Iterable[Event], beats: Sequence[Beats]) -> Stall:
    """Measure what an injection did to the worst of the meter's partitions, and say where the time went."""
    later = [each.at_s for each in record.injections if each.at_s >= injection.until_s]
    metered = record.phase("heal")
    last_s = metered.ended_s if metered else record.ended_s
    until_s = max(injection.until_s, min([*later, last_s]))
    # a silence that begins as this fault is healed belongs to the next fault
    before_s = max(injection.at_s, injection.until_s - EDGE_S)
    gaps = [longest_gap(each.acked_at, injection.at_s, before_s) for each in beats]
    gap = max(gaps, default=None)
    back = max((_gap_within(each.acked_at, injection.until_s, until_s) for each in beats), default=0.0)
    again_s = max((_first_after(each.acked_at, injection.until_s, until_s) for each in beats), default=0.0)
    found = {} if gap is None else {"acknowledged": gap.ended_at - injection.at_s}
    wall_s = record.began_wall_s
    marks = first_moments(events, wall_s + injection.at_s - HASTE_S, wall_s + max(injection.until_s, again_s))
    found |= {name: max(0.0, at_s - HASTE_S) for name, at_s in marks.items()}
    return Stall(
        fault=injection.fault,
        target=injection.target,
        at_s=round(injection.at_s, 3),
        until_s=round(injection.until_s, 3),
        gap_s=round(gap.seconds, 4) if gap else 0.0,
        after_heal_s=round(max(0.0, again_s - injection.until_s), 4),
        back_s=round(back, 4),
        moments={name: round(at_s, 4) for name, at_s in sorted(found.items(), key=lambda each: each[1])},
    )


def _gap_within(times: Sequence[float], from_s: float, until_s: float) -> float:
    """Return the longest gap after `from_s`; what the next fault stops counts up to `until_s` only."""
    own = times[bisect_left(times, from_s) : bisect_left(times, until_s)]
    return longest_gap(own, from_s, until_s).seconds if until_s > from_s else 0.0


def _first_after(times: Sequence[float], at_s: float, otherwise_s: float) -> float:
    position = bisect_left(times, at_s)
    return min(times[position], otherwise_s) if position < len(times) else otherwise_s


def summed(stalls: Iterable[Stall]) -> list[Unavailability]:
    """Return, fault by fault, how long acknowledgements stood still."""
    gathered: dict[str, list[Stall]] = {}
    for each in stalls:
        gathered.setdefault(each.fault, []).append(each)
    found = []
    for fault, own in gathered.items():
        during: Spread = spread([each.gap_s for each in own])
        after = spread([each.after_heal_s for each in own])
        found.append(
            Unavailability(
                fault=fault,
                count=during.times,
                median_s=during.median_s,
                p99_s=during.p99_s,
                max_s=during.max_s,
                after_heal_median_s=after.median_s,
                after_heal_max_s=after.max_s,
            )
        )
    return found
