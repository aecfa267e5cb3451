"""The results of a card: the outcome of each history, and sums by subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, Literal

import msgspec

from raftlog_chaos.conformance.compare import ComparedStep, lines_of

Outcome = Literal["kept", "differs, on purpose", "differs", "not supported", "not run"]
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "kept",
    "differs, on purpose",
    "differs",
    "not supported",
    "not run",
)


class Value(msgspec.Struct, kw_only=True):
    """One value that differs, and where within the step."""

    path: str
    kafka: str
    broker: str


class Step(msgspec.Struct, kw_only=True):
    """A question and its answer as text. `answer` is that of both sides; where they differ it is empty."""

    asked: str
    fields: str
    answer: str
    differing: list[Value]


class Result(msgspec.Struct, kw_only=True):
    """The result of one history. `older` names the requests in an older version than that in which Kafka was asked."""

    history: str
    claim: str
    outcome: Outcome
    seconds: float = 0.0
    why: list[str] = []
    older: list[str] = []
    steps: list[Step] = []

    @property
    def subject(self) -> str:
        """The subject of the history."""
        return self.history.partition("/")[0]

    @property
    def program(self) -> str:
        """The name that all rows of one table share."""
        return self.history.split("/")[1]

    @property
    def row(self) -> str:
        """The row of the table, "" for a history without a row."""
        return "/".join(self.history.split("/")[2:])


class Card(msgspec.Struct, kw_only=True):
    """The findings of a run. `own` counts the histories that need nodes of their own, which no card has."""

    tool: str
    broker: str
    bootstrap: str
    is_raftlog: bool
    kafka: str
    recorded: str
    began: str
    seconds: float
    own: int
    notes: list[str]
    left: list[str]
    subjects: dict[str, dict[Outcome, int]] = {}
    histories: list[Result]

    def counts(self) -> Counter[Outcome]:
        """Return how many histories have each outcome."""
        return Counter(each.outcome for each in self.histories)

    def by_subject(self) -> Iterator[tuple[str, Sequence[Result]]]:
        """Yield each subject with its results, in the order of the names."""
        for subject, found in groupby(
            sorted(self.histories, key=lambda each: each.subject), lambda each: each.subject
        ):
            yield subject, list(found)

    @property
    def gone(self) -> bool:
        """Whether the broker ended before the card did."""
        return any(GONE in why for each in self.histories for why in each.why)


GONE: Final = "the broker does not answer any more"
NO_RIGHT: Final = "the user lacks a right: "


def summed(results: Sequence[Result]) -> dict[Outcome, int]:
    """Return how many results have each outcome, zeros as well."""
    counted = Counter(each.outcome for each in results)
    return {outcome: counted[outcome] for outcome in OUTCOMES}


def count_text(results: Sequence[Result]) -> str:
    """Return counts in words."""
    return ", ".join(f"{count:,} {outcome}" for outcome, count in summed(results).items() if count) or "none"


def closing(card: Card) -> str:
    """Return the card in one line."""
    count = len(card.histories)
    return f"{count:,} {'history' if count == 1 else 'histories'}: {count_text(card.histories)}"


def story_of(result: Result, broker: str) -> Iterator[str]:
    """Yield the lines of a history's story."""
    yield f"{result.history}: {result.claim}"
    yield from (f"  {each}" for each in result.why)
    steps = [
        ComparedStep(
            each.asked,
            each.fields,
            each.answer,
            [(value.path, value.kafka, value.broker) for value in each.differing],
        )
        for each in result.steps
    ]
    yield from lines_of(steps, ("Kafka 4.3", broker))
