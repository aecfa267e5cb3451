"""The traces of one run in memory: its phases, the faults, and the meter's observations. It makes no judgement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from raftlog_chaos.runs.case import Case
from raftlog_chaos.runs.meter import Beats
from raftlog_chaos.runs.tally import Tally


class Phase(NamedTuple):
    """A part of a run, in seconds of the run."""

    name: str
    began_s: float
    ended_s: float


class Injection(NamedTuple):
    """A fault at work from `at_s` to `until_s`, seconds of the run."""

    fault: str
    target: str
    at_s: float
    until_s: float


@dataclass
class Record:
    """One run of one case. `began_at` is on the loop's clock, `began_wall_s` the same moment on that of the logs."""

    case: Case
    testbed: str
    seed: int
    began_at: float = 0.0
    began_wall_s: float = 0.0
    phases: list[Phase] = field(default_factory=list)
    injections: list[Injection] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    """Faults that this place cannot inject, and the missing abilities."""
    whole_after_s: float | None = None
    """How long after the healing all was well; None: it never was."""
    read_all: bool = False
    """Whether the final reading reached everything."""
    fallen: list[str] = field(default_factory=list)
    """Nodes that ended by themselves."""
    troubles: list[str] = field(default_factory=list)
    """The run's own troubles."""
    left_behind: list[str] = field(default_factory=list)
    """Clients that did not return from a call, and the call."""
    tally: Tally = field(default_factory=Tally)
    beats: Sequence[Beats] = ()
    """On the run's clock."""
    commits: Mapping[str, Sequence[Beats]] = field(default_factory=dict)
    """The beats of the meter of commits, by what is committed."""
    meter_errors: list[str] = field(default_factory=list)

    @property
    def ended_s(self) -> float:
        return self.phases[-1].ended_s if self.phases else 0.0

    def phase(self, name: str) -> Phase | None:
        """Return a phase that was reached."""
        return next((each for each in self.phases if each.name == name), None)


def injections(moments: Iterable[Any], began_at: float, ended_s: float) -> Iterator[Injection]:
    """Pair a nemesis' records (`at_s` on the loop's clock): each injection with its healing, in order of injection.

    A fault that was never healed lasts until `ended_s`; a fault that hit no node is left out.
    """
    rows = [each for each in moments if each.event in ("inject", "heal")]
    healed: set[int] = set()
    for index, moment in enumerate(rows):
        if moment.event != "inject" or not moment.target:
            continue
        until_s = ended_s
        for later in range(index + 1, len(rows)):
            row = rows[later]
            if later not in healed and row.event == "heal" and row.fault == moment.fault:
                healed.add(later)
                until_s = row.at_s - began_at
                break
        yield Injection(moment.fault, moment.target, moment.at_s - began_at, until_s)


def covered(injected: Sequence[Injection], times: Sequence[float]) -> int:
    """Count the moments (ascending) at which some fault was at work."""
    count, spans, position = 0, sorted((each.at_s, each.until_s) for each in injected), 0
    reach = float("-inf")
    for at_s in times:
        while position < len(spans) and spans[position][0] <= at_s:
            reach = max(reach, spans[position][1])
            position += 1
        count += at_s <= reach
    return count
