"""The figures of a comparison: samples by system and round, their medians and spreads, and ratios to a peer.

Machines drift, so a ratio is taken within a round, and then the median over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

Better = Literal["more", "less"]

SUBJECT: Final = "raftlog"
"""The system that the others are compared with."""


class Sample(msgspec.Struct, frozen=True):
    """One measurement of one system. Without `better` it is shown without a ratio."""

    name: str
    value: float
    unit: str
    better: Better | None = None


class Figure(msgspec.Struct):
    """One row: the samples of each system by round."""

    part: str
    name: str
    unit: str
    better: Better | None = None
    samples: dict[str, dict[int, float]] = {}
    told_only: dict[str, list[int]] = {}
    """The rounds, by system, of samples of which no ratio is made."""

    def median(self, system: str) -> float | None:
        """Return the median over the rounds, or None without a sample."""
        found = self.samples.get(system)
        return statistics.median(found.values()) if found else None

    def spread(self, system: str) -> tuple[float, float] | None:
        """Return the least and the largest sample, or None without a sample."""
        found = self.samples.get(system)
        return (min(found.values()), max(found.values())) if found else None

    def ratios(self, system: str) -> list[float]:
        """Return, for each round that has both, how many times better the subject is than this system."""
        own, others = self._rated(SUBJECT), self._rated(system)
        pairs = [(own[each], others[each]) for each in sorted(own.keys() & others.keys())]
        if self.better is None or any(min(pair) <= 0 for pair in pairs):
            return []
        return [mine / other if self.better == "more" else other / mine for mine, other in pairs]

    def _rated(self, system: str) -> dict[int, float]:
        told_only = self.told_only.get(system, ())
        return {each: value for each, value in self.samples.get(system, {}).items() if each not in told_only}

    def ratio(self, system: str) -> float | None:
        """Return the median ratio: above 1 the subject is better. None if no round has both."""
        found = self.ratios(system)
        return statistics.median(found) if found else None


class Note(msgspec.Struct, frozen=True):
    """Something that was not measured, and why. `part` is empty for the whole system."""

    system: str
    part: str
    why: str


class Described(msgspec.Struct, frozen=True):
    """A system of the run; `version` is empty for a missing system."""

    key: str
    title: str
    version: str


class Comparison(msgspec.Struct):
    """The findings of a run. Times are UTC."""

    began: str
    machine: dict[str, str]
    systems: list[Described]
    options: dict[str, str] = {}
    rounds: int = 0
    """Rounds that were begun."""
    seconds: float = 0.0
    figures: list[Figure] = []
    notes: list[Note] = []

    def add(self, part: str, system: str, round_number: int, sample: Sample) -> None:
        """Take a sample; the first sample of a name creates its row."""
        figure = self.find(part, sample.name)
        if figure is None:
            figure = Figure(part, sample.name, sample.unit)
            self.figures.insert(self._place(part, system, round_number), figure)
        figure.samples.setdefault(system, {})[round_number] = sample.value
        figure.better = sample.better or figure.better
        if sample.better is None:
            figure.told_only.setdefault(system, []).append(round_number)

    def _place(self, part: str, system: str, round_number: int) -> int:
        """Return the position of a new row: behind this system's last row, else at the end."""
        filled = [
            at
            for at, each in enumerate(self.figures)
            if each.part == part and round_number in each.samples.get(system, {})
        ]
        return filled[-1] + 1 if filled else len(self.figures)

    def find(self, part: str, name: str) -> Figure | None:
        """Return the row of that name, or None."""
        return next((each for each in self.figures if (each.part, each.name) == (part, name)), None)

    def note(self, system: str, part: str, why: str) -> None:
        """Remember what was not measured, once."""
        note = Note(system, part, why)
        if note not in self.notes:
            self.notes.append(note)

    def by_part(self) -> Iterator[tuple[str, Sequence[Figure]]]:
        """Yield the parts with their rows, each in the order of its first sample."""
        for part in dict.fromkeys(each.part for each in self.figures):
            yield part, [each for each in self.figures if each.part == part]
