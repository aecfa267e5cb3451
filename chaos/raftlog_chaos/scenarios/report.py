"""A scenario's report on one seed, in figures that add up over many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Report:
    """The course of one seed. `faults`: how often each fault struck; faults that could have struck have 0.

    `recovery_s`: virtual seconds from the last fault's healing until all was well.
    """

    acked: int = 0
    records: int = 0
    elections: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    recovery_s: float = 0.0


def report_of(told: object) -> Report:
    """Return the result of a scenario as a Report; missing figures are 0."""
    if isinstance(told, Report):
        return told
    return Report(
        **{each.name: getattr(told, each.name) for each in fields(Report) if hasattr(told, each.name)}
    )
