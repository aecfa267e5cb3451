"""Groups what a card found: differences of one kind, and reasons, with how many histories have each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from raftlog_chaos.conformance.card.result import Outcome, Result

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|\Z)")
_VERSION: Final = re.compile(r" v\d+\b.*")
ERROR: Final = "error_code"
LONG: Final = 60
"""Characters of a value that is shown in a list."""


class Sort(NamedTuple):
    """The first difference of histories: two values at one place of the answers to one API."""

    api: str
    path: str
    kafka: str
    broker: str

    @property
    def field(self) -> str:
        """The last part of the path that is no number; "" for a whole answer."""
        return next((each for each in reversed(self.path.split(".")[1:]) if each != "*"), "")


def sorts_of(results: Iterable[Result]) -> list[tuple[Sort, Sequence[Result]]]:
    """Return the first difference of each differing history, the most frequent first.

    Later differences of a history often follow from its first difference.
    """
    found: dict[Sort, list[Result]] = {}
    for result in results:
        if result.outcome == "differs":
            found.setdefault(_sort(result), []).append(result)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def _sort(result: Result) -> Sort:
    """Return the first difference of a history; within a step an error goes before what follows from it."""
    for step in result.steps:
        for each in sorted(step.differing, key=lambda value: not value.path.endswith(ERROR)):
            api = _VERSION.sub("", step.asked).partition(" topic")[0]
            return Sort(api, _NUMBER.sub("*", each.path), _cut(each.kafka), _cut(each.broker))
    return Sort("", "", "", _cut("; ".join(result.why)))


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def reasons_of(results: Iterable[Result], outcome: Outcome) -> list[tuple[str, Sequence[Result]]]:
    """Return the reasons of an outcome, the most frequent first."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome == outcome:
            for why in result.why:
                found.setdefault(why, []).append(result)
    return sorted(found.items(), key=lambda item: -len(item[1]))
