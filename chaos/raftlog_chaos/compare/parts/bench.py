"""The arguments of a part: a system that runs, and how much of everything is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Load, LoadFailed, Measured
from raftlog_chaos.compare.systems.system import Refused, System


class Scale(NamedTuple):
    """The amount of work. `short` leaves out what takes long."""

    seconds: float = 2.0
    short: bool = False
    crash_bytes: int = 1_000_000_000


class Open(Protocol):
    """Starts another cluster of the same kind, which ends with the `with`. Each sync takes `slower_s` longer."""

    def __call__(
        self, nodes: int, *, slower_s: float = 0.0
    ) -> AbstractContextManager[tuple[System, float]]: ...


class Bench(NamedTuple):
    """One system in one round."""

    system: System
    scale: Scale
    ready_s: float
    """The seconds that the system took to start."""
    again: bool
    """Whether this is not the first round: what has a figure that few people ask for is left out."""
    note: Callable[[str], None]
    """Called with the reason for a missing figure."""
    open: Open

    def run(self, load: Load, name: str) -> Measured | None:
        """Run a load on the system; return None, and note why, if it refused or failed."""
        try:
            return self.system.run(load)
        except Refused as error:
            self.note(str(error))
        except LoadFailed as error:
            self.note(f"{name}: {error}")
        return None


Measure = Callable[[Bench], Iterator[Sample]]


class Part(NamedTuple):
    """A part: its name on the command line, its title, and its function.

    `once`: after the rounds, and not for a system that is another system with a different setting. `alone`: it starts
    clusters of its own, and no other cluster runs beside them.
    """

    name: str
    title: str
    measure: Measure
    once: bool = False
    alone: bool = False
    short: bool = False
    """Whether it is part of the short run."""
    cold: bool = False
    """Whether it measures a freshly started system; all other parts measure a warm system."""
