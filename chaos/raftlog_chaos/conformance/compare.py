"""Runs a history on a broker, and compares what was observed on two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from raftlog_chaos.conformance.history import History
from raftlog_chaos.conformance.observation import Step, as_json
from raftlog_chaos.conformance.session import Session, World

Observation = list[dict[str, Any]]
"""The steps of a history as plain data: `asked`, `fields` and `answer`."""

DEFAULT: Final = "(default)"
"""Stands for a field that is left out because it has the schema's default."""
NO_ELEMENT: Final = "(none)"
STOPPED: Final = "the history stopped"


class Difference(NamedTuple):
    """One value that differs. `step` counts from 1; `path` leads to the value within the step."""

    history: str
    step: int
    asked: str
    path: str
    kafka: Any
    other: Any


def observe(history: History, servers: Sequence[str], *, world: World | None = None) -> Observation:
    """Run a history on a broker and return its observation.

    A history that stops because an answer lacks what it needs ends with a step that says so. Raises NotReady.
    """
    return observe_in(Session(servers, world=world if history.needs.restarts else None), history)


def observe_in(session: Session, history: History) -> Observation:
    """Run a history in a session of its own, and close it. See `observe`."""
    try:
        history.run(session)
    except (LookupError, OSError) as error:
        session.steps.append(Step(STOPPED, None, f"{type(error).__name__}: {error}"))
    finally:
        session.close()
    return [dict(as_json(each)) for each in session.steps]


def differences(history: str, kafka: Observation, other: Observation) -> list[Difference]:
    """Return what differs, step by step."""
    return [
        Difference(history, number, str((one or two).get("asked")), path, mine, others)
        for number, (one, two) in enumerate(_pairs(kafka, other), 1)
        for path, mine, others in differing(one, two)
    ]


def differing(one: Any, two: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two values differ, with both; paths are such as `answer.topics.0.error_code`."""
    if isinstance(one, dict) and isinstance(two, dict):
        pairs = [(name, one.get(name, DEFAULT), two.get(name, DEFAULT)) for name in one | two]
    elif isinstance(one, list) and isinstance(two, list):
        both = zip_longest(one, two, fillvalue=NO_ELEMENT)
        pairs = [(str(number), *each) for number, each in enumerate(both)]
    else:
        if one != two:
            yield path, one, two
        return
    for name, mine, other in pairs:
        yield from differing(mine, other, f"{path}.{name}" if path else name)


def _pairs(kafka: Observation, other: Observation) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    no_step: dict[str, Any] = {}
    return zip_longest(kafka, other, fillvalue=no_step)


def is_broken(observation: Observation) -> bool:
    """Return whether a history could not go on to its end."""
    return bool(observation) and observation[-1]["asked"] == STOPPED


class ComparedStep(NamedTuple):
    """One step of a history for a reader. `answer` is empty where the two answers differ, and then `differing` is not.

    `fields` and `answer` are texts.
    """

    asked: str
    fields: str
    answer: str
    differing: list[tuple[str, str, str]]
    """Paths, with Kafka's value and the other broker's."""


def compared_steps(kafka: Observation, other: Observation) -> list[ComparedStep]:
    """Return the steps of a history, with what differs."""
    found: list[ComparedStep] = []
    for one, two in _pairs(kafka, other):
        step = one or two
        differing_here = [(path, _inner(mine), _inner(others)) for path, mine, others in differing(one, two)]
        answer = "" if differing_here else short(step.get("answer"))
        found.append(ComparedStep(str(step.get("asked")), short(step.get("fields")), answer, differing_here))
    return found


def story(history: History, kafka: Observation, other: Observation, *, names: tuple[str, str]) -> list[str]:
    """Return a history as lines: each step once, and under it what differs, the two sides below each other."""
    return [f"{history.label}: {history.claim}", *lines_of(compared_steps(kafka, other), names)]


def lines_of(steps: Sequence[ComparedStep], names: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of a story."""
    width = max(map(len, names))
    for number, step in enumerate(steps, 1):
        yield f"  {number:2} {step.asked} {step.fields}".rstrip()
        if not step.differing:
            yield f"     both: {step.answer}"
        for path, kafka, other in step.differing:
            yield f"     {path}"
            yield f"       {names[0]:{width}}  {kafka}"
            yield f"       {names[1]:{width}}  {other}"


def short(value: Any) -> str:
    """Return plain data in one line, without the quotes and braces of JSON."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_inner(each)}" for name, each in value.items())
    return _inner(value)


def _inner(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({short(value)})"
    if isinstance(value, list):
        return f"[{' '.join(map(_inner, value))}]"
    return str(value)
