"""The base of a run: a testbed whose nodes keep logs, and the clients that reach it. Each world has its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from raftlog.testing.progress import Signs, no_signs
from raftlog_chaos.runs.commit_meter import CommitMeter
from raftlog_chaos.runs.meter import Meter
from raftlog_chaos.testbeds.testbed import Testbed
from raftlog_chaos.workloads.log_workload import OpenPort


class OpenTestbed(Testbed, Protocol):
    """A place that was opened for one run."""

    bootstrap: str
    """host:port of its nodes, joined by commas."""
    client_settings: Mapping[str, str]
    """librdkafka's settings of authenticated clients."""

    def logs(self) -> Mapping[int, Path]:
        """Return the path of each node's log."""

    def fallen(self) -> Mapping[int, str]:
        """Return the nodes that ended without a stop request, and how; also nodes that run again."""

    def violations(self) -> Sequence[str]:
        """Return the violations that no fault excuses: nodes that would not end, rot that was not noticed.

        Call it after the place is closed, when the nodes' logs are complete.
        """

    async def close(self) -> None:
        """Shut everything down; may be called again."""


class Unavailable(RuntimeError):
    """This machine cannot provide a place; the message says why, in one line."""


class Rig(NamedTuple):
    """One run's place and clients."""

    testbed: OpenTestbed
    open_port: OpenPort
    """(process, kind) -> a client."""
    open_meter: Callable[[str, int], Meter]
    """(topic, partitions) -> closed loops on it."""
    wall_s: Callable[[], float]
    """The clock of the nodes' logs, seconds since the epoch."""
    left_behind: Sequence[str] = ()
    """Clients that did not return from a call, as they are found."""
    open_commit_meter: Callable[[str], CommitMeter] | None = None
    """(topic) -> closed loops on coordinators, where clients can do transactions."""
    signs: Callable[[], Signs] = no_signs
    """Signs of life of the nodes, where there are processes."""
