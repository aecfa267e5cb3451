"""Judges one history on a broker by Kafka's recorded answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raftlog_chaos.conformance import known
from raftlog_chaos.conformance.card.result import NO_RIGHT, Outcome, Step, Value
from raftlog_chaos.conformance.compare import Difference, Observation, compared_steps, differences
from raftlog_chaos.conformance.differences import Kind, Known, judge

UNSUPPORTED: Final = "UNSUPPORTED_VERSION"
REFUSED: Final = ("AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED")
PREFIXES: Final[dict[Kind, str]] = {
    "by design": "",
    "kafka's own fault": "Kafka's own fault: ",
    "not built": "not built: ",
    "open": "a known fault: ",
}


def judged(
    label: str, kafka: Observation, other: Observation, *, is_raftlog: bool
) -> tuple[Outcome, list[str]]:
    """Return a history's outcome with its reasons. The list of known differences is raftlog's, and for it alone."""
    found = differences(label, kafka, other)
    if not found:
        return "kept", []
    sorted_out = judge(found, known.load() if is_raftlog else ())
    why = list(dict.fromkeys(map(_reason, sorted_out.used)))
    if not sorted_out.unknown and all(each.kind != "open" for each in sorted_out.used):
        return "differs, on purpose", why
    if refused := _answered(found, REFUSED):
        return "not run", [f"{NO_RIGHT}{refused}"]
    if _answered(found, (UNSUPPORTED,)):
        return "not supported", [f"{_asked(found, UNSUPPORTED)} is answered with {UNSUPPORTED}"]
    return "differs", why


def _reason(entry: Known) -> str:
    return PREFIXES[entry.kind] + entry.why.replace("**", "")


def _answered(found: Sequence[Difference], errors: Sequence[str]) -> str:
    """Return the first error of these that the broker answered with, and Kafka did not."""
    for each in found:
        if any(error in str(each.other) and error not in str(each.kafka) for error in errors):
            return str(each.other)
    return ""


def _asked(found: Sequence[Difference], error: str) -> str:
    return next(each.asked for each in found if error in str(each.other))


def steps_of(kafka: Observation, other: Observation) -> list[Step]:
    """Return the story of a history."""
    return [
        Step(
            asked=each.asked,
            fields=each.fields,
            answer=each.answer,
            differing=[Value(path=path, kafka=mine, broker=others) for path, mine, others in each.differing],
        )
        for each in compared_steps(kafka, other)
    ]
