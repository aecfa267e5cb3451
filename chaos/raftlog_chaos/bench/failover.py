"""Faults in a running cluster, and how long each of them keeps partitions from acknowledging acks=all records.

A round begins when every partition is healthy and led by its preferred replica. Then one node fails. The round waits
until that node has left every ISR and every partition acknowledges again. At last the node comes back and the cluster
recovers. A gap belongs to a partition, and a round's gap is its longest. `moments` splits the gap by the nodes' own
logs. A wait ends once progress stops.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from raftlog.testing.cluster import Cluster
from raftlog.testing.ports import LOOPBACK
from raftlog.testing.probe import elect_preferred_leaders
from raftlog_chaos.bench import measure
from raftlog_chaos.runs.landmarks import moments
from raftlog_chaos.runs.meter import PACE_S, PATIENCE, UnavailabilityMeter

SETTLE_S: Final = 0.5
"""Acknowledgements flow so long before a strike and after what it did, so that a late second gap is seen as well."""
ELECT_AGAIN_S: Final = 0.25
NEXT_DEATH_S: Final = 5.0
"""Seconds from the start of a node that was killed to the death of the next node."""
LOOK_S: Final = 0.02
MAX_MEASURED: Final = 100
"""Partitions that the meter writes to. Thousands of closed loops would show how long a busy machine takes."""
MAX_RATE: Final = 3_000.0
"""Records per second of all loops together."""

Strike = Literal["kill", "terminate", "pause"]


class FailoverFault(NamedTuple):
    """A fault and the node that it hits. `controller`: to the node that is the active controller, or to another."""

    name: str
    strike: Strike
    controller: bool


FAILOVER_FAULTS: Final = (
    FailoverFault("kill -9", "kill", controller=False),
    FailoverFault("kill -9, controller's node", "kill", controller=True),
    FailoverFault("SIGTERM", "terminate", controller=False),
    FailoverFault("SIGTERM, controller's node", "terminate", controller=True),
    FailoverFault("pause", "pause", controller=False),
    FailoverFault("pause, controller's node", "pause", controller=True),
)

AIMS: Final[dict[str, tuple[float | None, float | None, int | None]]] = {
    "kill -9": (0.5, 2.5, None),
    "kill -9, controller's node": (1.2, 3.0, None),
    "SIGTERM": (0.3, 0.3, 0),
    "SIGTERM, controller's node": (0.3, 0.3, 0),
    "pause": (3.5, None, None),
    "pause, controller's node": (1.5, None, None),
}
"""The aims of each scenario: median gap and worst gap in seconds, and errors that clients see."""


@dataclass(frozen=True, slots=True)
class Round:
    """One strike. `gaps_s` are by partition; `back_gaps_s` those around the victim's return; `moments` seconds on."""

    node_id: int
    gaps_s: Sequence[float]
    back_gaps_s: Sequence[float]
    errors: Sequence[str]
    moments: dict[str, float]

    @property
    def gap_s(self) -> float:
        return max(self.gaps_s)


class DeathsInTurn(NamedTuple):
    """A node was killed and started, then another one was killed; in seconds."""

    ready_s: float
    """From the first node's start until all running nodes see each other."""
    in_sync_s: float
    """From its start until it is in every ISR."""
    gap_s: float
    """The longest gap of a partition around the second death."""
    cpu_s: float
    """The first node's CPU time from its start until it is in every ISR."""
    read_mb: float
    """What it read from files and sockets meanwhile, in megabytes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All rounds of one scenario."""

    scenario: FailoverFault
    rounds: list[Round] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        """Over all partitions of all rounds."""
        return statistics.median(gap for each in self.rounds for gap in each.gaps_s)

    @property
    def worst_s(self) -> float:
        return max(each.gap_s for each in self.rounds)

    @property
    def worst_back_s(self) -> float:
        return max(gap for each in self.rounds for gap in each.back_gaps_s)

    @property
    def errors(self) -> int:
        return sum(len(each.errors) for each in self.rounds)

    def moment_s(self, landmark: str) -> float | None:
        """Return the median over the rounds in which it was seen."""
        seen = [each.moments[landmark] for each in self.rounds if landmark in each.moments]
        return statistics.median(seen) if seen else None


class FailoverRun:
    """Injects faults into a cluster while a meter runs on one of its topics."""

    def __init__(self, cluster: Cluster, topic: str, *, partitions: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions

    def run(
        self, scenario: FailoverFault, rounds: int, *, on_round: Callable[[Round], None] = lambda _: None
    ) -> Outcome:
        """Run some rounds of one scenario. Raises ClusterError when the cluster does not recover from a round."""
        outcome = Outcome(scenario)
        with self._meter(PATIENCE if scenario.strike == "pause" else {}) as meter:
            for _ in range(rounds):
                outcome.rounds.append(self._round(scenario, meter))
                on_round(outcome.rounds[-1])
        return outcome

    def run_deaths_in_turn(self) -> DeathsInTurn:
        """Kill a node, start it, and kill another one NEXT_DEATH_S later. Both are back at the end."""
        with self._meter({}) as meter:
            self._make_well(meter)
            controller = self._cluster.controller_id()
            first, second = sorted(self._cluster.running_ids() - {controller})[:2]
            self._cluster.kill(first)
            self._wait(lambda: self._is_out(first), f"node {first} leaves every ISR")
            self._flow(meter)
            began = time.monotonic()
            self._cluster.restart(first)
            ready_s = in_sync_s = time.monotonic() - began
            while not self._is_in(first) and time.monotonic() - began < NEXT_DEATH_S:
                time.sleep(LOOK_S)
                in_sync_s = time.monotonic() - began
            pid = self._cluster.nodes[first].pid
            cpu_s, read_mb = measure.cpu_seconds([pid]), measure.read_bytes(pid) / 1e6
            time.sleep(max(0.0, began + NEXT_DEATH_S - time.monotonic()))
            struck = time.monotonic()
            self._cluster.kill(second)
            if not self._is_in(first):
                self._wait(lambda: self._is_in(first), f"node {first} is back in every ISR")
                in_sync_s = time.monotonic() - began
            self._wait(lambda: self._is_out(second), f"node {second} leaves every ISR")
            self._flow(meter)
            gaps = meter.longest_gaps(struck, time.monotonic())
            self._cluster.restart(second)
            self._wait(self._all_in_sync, f"node {second} is back in every ISR")
        return DeathsInTurn(ready_s, in_sync_s, max(gap.seconds for gap in gaps), cpu_s, read_mb)

    def _meter(self, settings: Mapping[str, int]) -> UnavailabilityMeter:
        measured = min(self._partitions, MAX_MEASURED)
        return UnavailabilityMeter(
            self._cluster.bootstrap_servers,
            self._topic,
            measured,
            pace_s=max(PACE_S, measured / MAX_RATE),
            log_level=0,
            **settings,
        )

    def _round(self, scenario: FailoverFault, meter: UnavailabilityMeter) -> Round:
        self._make_well(meter)
        victim = self._victim(scenario)
        errors_before = len(meter.errors)
        began, wall_began = time.monotonic(), time.time()
        self._strike(scenario.strike, victim)
        self._wait(lambda: self._is_out(victim), f"node {victim} leaves every ISR")
        self._flow(meter)
        ended = time.monotonic()
        gaps = meter.longest_gaps(began, ended)
        longest = max(gaps)
        self._bring_back(scenario.strike, victim)
        self._wait(self._all_in_sync, f"node {victim} is back in every ISR")
        self._flow(meter)
        return Round(
            node_id=victim,
            gaps_s=[gap.seconds for gap in gaps],
            back_gaps_s=[gap.seconds for gap in meter.longest_gaps(ended, time.monotonic())],
            errors=meter.errors[errors_before:],
            moments={
                **self._moments(wall_began, victim),
                "stalled": longest.ended_at - longest.seconds - began,
                "acknowledged": longest.ended_at - began,
            },
        )

    def _make_well(self, meter: UnavailabilityMeter) -> None:
        self._wait(self._all_in_sync, "every replica is in sync")
        asked_at = 0.0

        def balanced() -> bool:
            nonlocal asked_at
            partitions = self._cluster.partitions(self._topic).values()
            if partitions and all(each.leader == each.replicas[0] for each in partitions):
                return True
            if time.monotonic() > asked_at + ELECT_AGAIN_S:
                asked_at = time.monotonic()
                self._elect_preferred()
            return False

        self._wait(balanced, "every partition is led by its first replica")
        self._flow(meter)

    def _elect_preferred(self) -> None:
        for node_id in self._cluster.running_ids():
            try:
                elect_preferred_leaders(LOOPBACK, self._cluster.nodes[node_id].port)
            except OSError:
                continue
            return

    def _victim(self, scenario: FailoverFault) -> int:
        self._wait(lambda: self._cluster.controller_id() is not None, "there is a controller")
        controller = self._cluster.controller_id()
        assert controller is not None
        if scenario.controller:
            return controller
        others = sorted(self._cluster.running_ids() - {controller})
        return others[int(time.monotonic() * 1000) % len(others)]

    def _strike(self, strike: Strike, victim: int) -> None:
        if strike == "kill":
            self._cluster.kill(victim)
        elif strike == "terminate":
            self._cluster.stop(victim)
        else:
            self._cluster.pause(victim)

    def _bring_back(self, strike: Strike, victim: int) -> None:
        if strike == "pause":
            self._cluster.resume(victim)
        else:
            self._cluster.restart(victim, wait=False)

    # -- conditions

    def _is_out(self, victim: int) -> bool:
        partitions = self._cluster.partitions(self._topic).values()
        return bool(partitions) and all(
            victim not in each.isr and each.leader != victim for each in partitions
        )

    def _is_in(self, node_id: int) -> bool:
        partitions = self._cluster.partitions(self._topic).values()
        return len(partitions) == self._partitions and all(node_id in each.isr for each in partitions)

    def _all_in_sync(self) -> bool:
        partitions = self._cluster.partitions(self._topic).values()
        return len(partitions) == self._partitions and all(
            set(each.isr) == set(each.replicas) for each in partitions
        )

    def _flow(self, meter: UnavailabilityMeter) -> None:
        """Wait until every partition acknowledges, and go on doing so for SETTLE_S."""
        for _ in range(2):
            since = time.monotonic()
            self._wait(lambda since=since: meter.acknowledged(since), "every partition acknowledges")  # type: ignore[misc]
            time.sleep(SETTLE_S / 2)

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        self._cluster.wait_until(holds, what, seen=lambda: self._cluster.partitions(self._topic))

    def _moments(self, since: float, victim: int) -> dict[str, float]:
        lines: list[str] = []
        for node_id, node in self._cluster.nodes.items():
            if node_id != victim:
                lines.extend(node.log_path.read_text(errors="replace").splitlines())
        return moments(lines, since)
