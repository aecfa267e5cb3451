"""The equipment of a chaos run: a testbed that keeps its nodes' logs, and functions that open clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from raftlog.testing.progress import Signs, no_signs
from raftlog_chaos.runs.commit_meter import CommitMeter
from raftlog_chaos.runs.meter import Meter
from raftlog_chaos.testbeds.testbed import Testbed
from raftlog_chaos.workloads.log_workload import OpenPort
from raftlog_chaos.workloads.queue_workload import QueuePorts
from raftlog_chaos.workloads.schema_workload import RegistryPort


class OpenTestbed(Testbed, Protocol):
    """A testbed that was opened for one run."""

    bootstrap: str
    """host:port of its nodes, joined by commas."""
    client_settings: Mapping[str, str]
    """librdkafka's settings of authenticated clients."""

    @property
    def registries(self) -> Mapping[int, str]:
        """The URL of each node's schema registry; empty if there are none."""

    @property
    def admin_urls(self) -> Mapping[int, str]:
        """The URL of each node's HTTP API, where there are registries."""

    def logs(self) -> Mapping[int, Path]:
        """Return the path of each node's log."""

    def fallen(self) -> Mapping[int, str]:
        """Return the nodes that ended without a stop request, each with the way it ended, even if it runs again."""

    def violations(self) -> Sequence[str]:
        """Return violations that no injected fault explains: nodes that did not stop, corruption that was not detected.

        Call it after the testbed is closed, when the nodes' logs are complete.
        """

    async def close(self) -> None:
        """Shut everything down. It may be called twice."""


class Unavailable(RuntimeError):
    """This machine cannot provide a testbed. The message is a line with the reason."""


class Rig(NamedTuple):
    """The testbed and clients of one run."""

    testbed: OpenTestbed
    open_port: OpenPort
    """Opens a client, from its process and kind."""
    open_meter: Callable[[str, int], Meter]
    """Opens a meter of a topic, from its name and number of partitions."""
    wall_s: Callable[[], float]
    """The clock of the nodes' logs, seconds since the epoch."""
    left_behind: Sequence[str] = ()
    """Clients that hang in a call. The list grows during the run."""
    open_commit_meter: Callable[[str], CommitMeter] | None = None
    """Opens a meter of coordinators, from a topic; None if the clients have no transactions."""
    queue_ports: QueuePorts | None = None
    """Open the clients of a share group; None if there are none."""
    registries: RegistryPort | None = None
    """The nodes' schema registries; None if there are none."""
    signs: Callable[[], Signs] = no_signs
    """Returns signs of progress of the nodes' processes, if there are processes."""
