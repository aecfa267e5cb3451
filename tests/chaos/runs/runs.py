"""A small run made by hand: two faults, one long silence, a few writes."""

from __future__ import annotations

import json
from array import array
from datetime import UTC, datetime
from pathlib import Path

from raftlog_chaos.history import Op
from raftlog_chaos.runs import folder as run_folder
from raftlog_chaos.runs.case import Case, Expectations, Faults
from raftlog_chaos.runs.landmarks import Event, read_events
from raftlog_chaos.runs.meter import Beats
from raftlog_chaos.runs.outcome import Judgement, Outcome, conclude
from raftlog_chaos.runs.record import Injection, Phase, Record

WALL_S = 1_700_000_000.0
CLEAN = Judgement({}, {}, "VALID: no anomaly")


def beats(*silences: tuple[float, float], until_s: float = 12.0) -> Beats:
    """An acknowledgement every 50 ms, each after 2 ms, but in the silences; waiting sends get it at the end of a
    silence.
    """
    found = Beats(array("d"), array("d"))
    at_s = 0.0
    while at_s < until_s:
        silence = next((each for each in silences if each[0] <= at_s < each[1]), None)
        sent_s, at_s = at_s, silence[1] if silence else at_s
        found.acked_at.append(at_s)
        found.took_s.append(at_s - sent_s + 0.002)
        at_s = round(at_s + 0.05, 6)
    return found


def case(**expected: object) -> Case:
    return Case(
        name="by-hand",
        title="By hand & <quickly>",
        suites=("none",),
        faults=Faults(mix=("kill-leader", "pause")),
        expect=Expectations(**expected),  # type: ignore[arg-type]
    )


def record(**expected: object) -> Record:
    """A leader is killed at 3 s for 2 s, which silences partition 1 for 0.7 s; a pause at 7 s is not felt.

    Of the four ids of schemas, two are new while a fault is at work.
    """
    made = Record(case(**expected), "processes", 7, began_at=100.0, began_wall_s=WALL_S)
    made.phases = [
        Phase("quiet", 0.0, 3.0),
        Phase("faults", 3.0, 10.0),
        Phase("heal", 10.0, 12.0),
        Phase("read", 12.0, 13.0),
    ]
    made.injections = [Injection("kill-leader", "node 2", 3.0, 5.0), Injection("pause", "node 1", 7.0, 8.0)]
    made.beats = [beats(), beats((3.0, 3.7))]
    made.meter_errors = ["partition 1: NOT_ENOUGH_REPLICAS Broker: Not enough in-sync replicas"]
    made.whole_after_s, made.read_all = 0.4, True
    for number in range(120):
        at_ns = number * 100_000_000
        send, done = ["send", "t-0", number], ["send", "t-0", [number, number]]
        made.tally.keep(op(2 * number, at_ns, "invoke", "send", [send]))
        made.tally.keep(op(2 * number + 1, at_ns + 3_000_000, "ok", "send", [done]))
    for number, (at_s, schema_id) in enumerate([(1.0, 1), (4.0, 1), (4.5, 2), (7.5, 3), (11.0, 4)], 240):
        value = ["register", "s", schema_id, [schema_id, schema_id]]
        made.tally.keep(op(number, int(at_s * 1e9), "ok", "register", [value]))
    return made


def op(index: int, time_ns: int, type: str, f: str, value: list[object]) -> Op:
    return Op(index=index, time_ns=time_ns, process=1, type=type, f=f, value=value)  # type: ignore[arg-type]


def line(event: str, after_s: float, **fields: object) -> str:
    """A node's log line, so many seconds after the run began."""
    stamp = datetime.fromtimestamp(WALL_S + after_s, UTC).isoformat()
    return json.dumps({"event": event, "timestamp": stamp, "level": "info", **fields})


def events() -> list[Event]:
    lines = [
        line("controller_fenced_broker", 3.2, broker_id=2),
        line("roles_changed", 3.25, leading=1),
        line("controller_fenced_broker", 9.5, broker_id=3),
    ]
    return list(read_events(1, lines))


def leave(folder: Path, judgement: Judgement = CLEAN, **expected: object) -> Outcome:
    """Write the folder of that run, and its page."""
    made = record(**expected)
    outcome = conclude(made, judgement, events=events())
    run_folder.write_config(folder, made.case, testbed="processes", seed=7, version="0")
    run_folder.write_outcome(folder, outcome, judgement.text)
    run_folder.write_timeline(folder, made, events())
    run_folder.write_figures(folder, made)
    run_folder.write_report(folder)
    return outcome
