"""The verdict: what was checked and found, on about one page for a person or as JSON. It makes no decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from raftlog_chaos.checkers.anomalies import ANOMALIES
from raftlog_chaos.checkers.findings import Finding
from raftlog_chaos.checkers.schemas import SCHEMAS
from raftlog_chaos.history import Header, Op, Value

SHOWN_FINDINGS = 8
"""The number of anomalies that are shown with an example."""
SHOWN_OPS = 6
SHOWN_RECORDS = 6
SHOWN_MICRO = 4
WIDTH = 150
ACKNOWLEDGEMENTS = ("accept", "release", "reject")


@dataclass(slots=True)
class Verdict:
    """`anomalies` holds the smallest examples by name, also of allowed anomalies; `cases` is the number of cases."""

    header: Header
    anomalies: dict[str, list[Finding]]
    cases: dict[str, int]
    counts: dict[str, dict[str, int]]
    """Lines by function and type."""
    metrics: dict[str, Any]

    @property
    def valid(self) -> bool:
        """Whether all findings are allowed."""
        return not self._condemning()

    def _condemning(self) -> list[Finding]:
        return [finding for found in self.anomalies.values() for finding in found if not finding.allowed]

    def faults(self) -> list[str]:
        """Return a short line for each anomaly that is not allowed, with its smallest example."""
        return [
            f"{name}{f' on {found[0].key}' if found[0].key else ''}: {found[0].explanation}"
            + (f" ({self.cases[name]:,} cases)" if self.cases[name] > 1 else "")
            for name, found in self.anomalies.items()
            if not found[0].allowed
        ]

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        metrics = self.metrics
        about = (
            *([f"workload {self.header.workload}"] if self.header.workload else []),
            *([f"place {self.header.place}"] if self.header.place else []),
            *([f"seed {self.header.seed}"] if self.header.seed is not None else []),
        )
        where = f" ({', '.join(about)})" if about else ""
        yield (
            f"checked   {metrics['ops']:,} operations of {metrics['processes']:,} processes on "
            f"{metrics['keys']:,} keys in {metrics['duration_s']:,.1f} s{where}"
        )
        for f, outcomes in self.counts.items():
            shown = ", ".join(
                f"{outcomes[each]:,} {each}" for each in ("ok", "fail", "info") if each in outcomes
            )
            yield f"          {f:<9} {shown or 'pending'}"
        yield (
            f"values    {metrics['sends_ok']:,} acknowledged, {metrics['sends_info']:,} of unknown outcome, "
            f"{metrics['sends_fail']:,} refused; {metrics['values_read']:,} read"
        )
        yield (
            f"lag       {metrics['worst_realtime_lag_following_s']:.3f} s at worst of consumers that had caught up, "
            f"{metrics['worst_realtime_lag_s']:.3f} s of all"
        )
        if metrics["consume_counts"]:
            shown = ", ".join(
                f"{values:,} values {times}x" for times, values in metrics["consume_counts"].items()
            )
            yield f"consumed  by subscribers: {shown}"
        yield from self._found()
        yield ""
        yield self._last_word()

    def _found(self) -> Iterator[str]:
        """Yield the anomalies that make the run invalid. The last line names the allowed anomalies."""
        ranked = sorted(
            (name for name, found in self.anomalies.items() if not found[0].allowed),
            key=list(ANOMALIES).index,
        )
        for name in ranked[:SHOWN_FINDINGS]:
            finding = self.anomalies[name][0]
            cases = f"{self.cases[name]:,} case{'s' if self.cases[name] > 1 else ''}"
            yield ""
            yield f"{name}: {ANOMALIES[name].meaning} ({cases})"
            yield f"  {finding.key}{': ' if finding.key else ''}{finding.explanation}"
            for op in finding.ops[:SHOWN_OPS]:
                yield _clipped(f"    {describe(op, finding)}")
            if len(finding.ops) > SHOWN_OPS:
                yield f"    and {len(finding.ops) - SHOWN_OPS} more"
        if len(ranked) > SHOWN_FINDINGS:
            yield f"and {len(ranked) - SHOWN_FINDINGS} more: {', '.join(ranked[SHOWN_FINDINGS:])}"

    def _last_word(self) -> str:
        if not self.valid:
            names = sorted({finding.name for finding in self._condemning()}, key=list(ANOMALIES).index)
            return f"INVALID: {', '.join(names)}"
        allowed = ", ".join(self.anomalies)
        return f"VALID: nothing but what is allowed ({allowed})" if allowed else "VALID: no anomaly"

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values for JSON."""
        consumed = {str(times): values for times, values in self.metrics["consume_counts"].items()}
        return {
            "valid": self.valid,
            "header": msgspec.to_builtins(self.header),
            "counts": self.counts,
            "metrics": {**self.metrics, "consume_counts": consumed},
            "anomalies": {
                name: {
                    "cases": self.cases[name],
                    "allowed": found[0].allowed,
                    "meaning": ANOMALIES[name].meaning,
                    "examples": [
                        {
                            "key": finding.key,
                            "explanation": finding.explanation,
                            "ops": [msgspec.to_builtins(op) for op in finding.ops],
                        }
                        for finding in found
                    ],
                }
                for name, found in self.anomalies.items()
            },
        }


# --- an operation for a person


def describe(op: Op, finding: Finding) -> str:
    """Return one line: process, operation and time. A long poll is reduced to the values of the finding."""
    value = "  ".join(_micro(each, finding) for each in (op.value or ())[:SHOWN_MICRO])
    more = len(op.value or ()) - SHOWN_MICRO
    return (
        f"#{op.index:<6} {op.time_ns / 1e9:>9.3f} s  process {op.process:<4} {op.type:<6} {op.f:<9} {value}"
        f"{f'  and {more} more' if more > 0 else ''}{f'  ({op.error})' if op.error else ''}"
    )


def _micro(micro: Any, finding: Finding) -> str:
    if isinstance(micro, str):
        return micro
    if micro[0] == "send":
        what = micro[2]
        offset, value = what if isinstance(what, list | tuple) else (None, what)
        return f"{micro[1]} ← {value!r}{'' if offset is None else f' at {offset}'}"
    if micro[0] in ACKNOWLEDGEMENTS:
        return f"{micro[0]} {micro[1]} {_shown_offsets(micro[2])}{f' {micro[3]}' if len(micro) > 3 else ''}"
    if micro[0] in SCHEMAS:
        return _schemas(micro, finding)
    found = (micro[1] or {}) if len(micro) > 1 else {}
    if micro[0] == "start-offsets":
        return "  ".join(f"{key} begins at {offset}" for key, offset in found.items())
    keys = [finding.key] if finding.key in found else list(found)[:2]
    return "  ".join(f"{key} → {_records(found[key], finding.about)}" for key in keys) or "poll"


def _schemas(micro: Any, finding: Finding) -> str:
    """Show a registration, or the rows of a node's answer with the schemas of the finding, else its first rows."""
    if micro[0] == "register":
        found = f" as id {micro[3][0]}, version {micro[3][1]}" if len(micro) > 3 and micro[3] else ""
        return f"{micro[1]} ← {micro[2]}{found}"
    rows = (micro[2] or ()) if len(micro) > 2 else ()
    shown = [row for row in rows if row[3] in finding.about] or rows
    listed = " ".join(
        f"{subject} {version}:{schema}(id {schema_id})"
        for subject, version, schema_id, schema in shown[:SHOWN_RECORDS]
    )
    return f"node {micro[1]} → {listed}{f' ({len(rows):,} schemas)' if len(rows) > SHOWN_RECORDS else ''}"


def _records(pairs: list[list[Any]], about: tuple[Value, ...]) -> str:
    """Show the relevant records and their neighbours."""
    if len(pairs) <= SHOWN_RECORDS:
        return _shown(pairs)
    hits = [at for at, (_, value, *_count) in enumerate(pairs) if value in about]
    middle = hits[0] if hits else 0
    begin = max(0, min(middle - SHOWN_RECORDS // 2, len(pairs) - SHOWN_RECORDS))
    window = pairs[begin : begin + SHOWN_RECORDS]
    far = [pairs[at] for at in hits if at >= begin + SHOWN_RECORDS][:2]
    return f"{'… ' if begin else ''}{_shown(window)}{f' … {_shown(far)}' if far else ''} ({len(pairs):,} records)"


def _shown(pairs: list[list[Any]]) -> str:
    """A record of a share group has its delivery count too."""
    return " ".join(
        f"{offset}:{value!r}{''.join(f'({each}x)' for each in count)}" for offset, value, *count in pairs
    )


def _shown_offsets(offsets: list[int]) -> str:
    more = f" … ({len(offsets):,} offsets)" if len(offsets) > SHOWN_RECORDS else ""
    return " ".join(map(str, offsets[:SHOWN_RECORDS])) + more


def _clipped(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
