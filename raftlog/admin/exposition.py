"""The Prometheus text format (0.0.4), made in slices so that the loop can run other tasks in between.

Ordering law: a family's samples stand together, after its HELP and TYPE. Knows no metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from raftlog.base.histogram import Histogram

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE_STEPS: Final = 400
"""Samples of one slice, skipped samples included: about a millisecond of work."""

SKIPPED: Final = ""
"""A family yields this for an item without a sample."""

Kind = Literal["counter", "gauge", "histogram"]
Value = int | float


class Family(NamedTuple):
    """One metric. `samples` are whole lines or SKIPPED, made when they are asked for."""

    name: str
    kind: Kind
    text: str
    """The family's meaning, in a sentence."""
    samples: Iterable[str]


def single(name: str, kind: Kind, text: str, value: Value | None) -> Family:
    """Return a family with a single sample without labels; empty without a value."""
    return Family(name, kind, text, () if value is None else (f"{name} {number(value)}\n",))


def labelled(name: str, kind: Kind, text: str, samples: Iterable[tuple[str, Value | None]]) -> Family:
    """Return a family of (labels as `labels` writes them, value); None is passed over."""
    lines = (
        SKIPPED if value is None else f"{name}{{{labels}}} {number(value)}\n" for labels, value in samples
    )
    return Family(name, kind, text, lines)


def histogram(name: str, text: str, observed: Iterable[tuple[str, Histogram]]) -> Family:
    """Return a family of histograms, each with its labels ("" for none)."""
    return Family(name, "histogram", text, _buckets(name, observed))


def _buckets(name: str, observed: Iterable[tuple[str, Histogram]]) -> Iterator[str]:
    for own, each in observed:
        comma = "," if own else ""
        braced = f"{{{own}}}" if own else ""
        count = 0
        for bound, count in each.cumulative():
            limit = "+Inf" if bound == float("inf") else repr(bound)
            yield f'{name}_bucket{{{own}{comma}le="{limit}"}} {count}\n'
        yield f"{name}_sum{braced} {number(each.total)}\n{name}_count{braced} {count}\n"


def labels(**named: object) -> str:
    """Return labels as they stand between braces."""
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in named.items())


def by_name(name: str, values: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (labels, value) for a mapping from values of one label."""
    for key, value in values.items():
        yield labels(**{name: key}), value


def number(value: Value) -> str:
    """Return a value as Prometheus reads it."""
    return repr(value) if isinstance(value, float) else str(int(value))


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text


def slices(families: Iterable[Family]) -> Iterator[str]:
    """Yield the text in pieces, each made of SLICE_STEPS samples at most; some may be empty."""
    piece: list[str] = []
    steps = 0
    for family in families:
        piece.append(f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n")
        for line in family.samples:
            piece.append(line)
            steps += 1
            if steps >= SLICE_STEPS:
                yield "".join(piece)
                piece, steps = [], 0
        steps += 1
    yield "".join(piece)
