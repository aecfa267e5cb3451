"""The faults of the scenario `voters-change`: they follow a change as soon as a node has the new set in its log.

Nodes crash with and without the loss of power, or lose touch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from raftlog.quorum.quorum import Quorum
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from raftlog_chaos.simulator.loop import SimLoop

DELAYS_S: Final = (0.0, 0.0, 0.0005, 0.002, 0.005, 0.02, 0.1, 0.5)
"""From a set in a log to a fault."""

LASTS_S: Final = (0.05, 0.3, 1.0, 2.5)


class FailingVoters:
    """The nodes of a quorum, and what happens to them."""

    def __init__(self, loop: SimLoop, cluster: QuorumCluster, chance: random.Random) -> None:
        self.loop = loop
        self.cluster = cluster
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self._up = set(cluster.hosts)
        self._stays_down = 0
        self._faults_left = 0
        self._ended = False

    def disturb(self) -> None:
        """Have faults follow the next sets in any log."""
        self._faults_left = self.chance.choice((0, 1, 1, 2, 3))
        for node, quorum in self.cluster.nodes.items():
            if quorum.started:
                self.watch(node, quorum)

    def watch(self, node: int, quorum: Quorum) -> None:
        """Inject a fault soon after a node has another set of voters in its log."""
        driver = quorum.driver
        if getattr(driver, "is_watched", False):
            return
        driver.is_watched = True  # type: ignore[attr-defined]
        changed = driver.journal.on_voters

        def on_voters() -> None:
            changed()
            self.loop.main.call(self._strike_soon, node)

        driver.journal.on_voters = on_voters

    def _strike_soon(self, node: int) -> None:
        if self._faults_left > 0:
            self._faults_left -= 1
            leader = self.cluster.leading()
            anyone = self.chance.choice(sorted(self.cluster.hosts))
            target = self.chance.choice([node, node, leader or node, anyone])
            self.loop.call_later(self.chance.choice(DELAYS_S), self._strike, target)

    def _strike(self, node: int) -> None:
        if node not in self.cluster.nodes or self._ended:
            return
        way = self.chance.choice([self._crash, self._crash, self._crash_all, self._cut, self._hush])
        self.counts[way.__name__.strip("_")] += 1
        way(node)

    def _crash(self, node: int) -> None:
        if node in self._up:
            self.kill(node)
            self.loop.call_later(self.chance.choice(LASTS_S), self._boot, node)

    def kill(self, node: int) -> None:
        self._up.discard(node)
        self.cluster.crash(node, power_loss=self.chance.random() < 0.7)

    def _crash_all(self, _node: int) -> None:
        for each in sorted(self.cluster.hosts):
            self._crash(each)

    def _cut(self, node: int) -> None:
        self._cut_from(node, self.cluster.hosts)

    def _cut_from(self, node: int, others: Iterable[int]) -> None:
        self._part([node], others)
        self.loop.call_later(self.chance.choice(LASTS_S), self.loop.heal)

    def _hush(self, node: int) -> None:
        for each in self.cluster.hosts:
            if each != node:
                self.loop.clog(self.cluster.hosts[node], self.cluster.hosts[each])
        self.loop.call_later(self.chance.choice(LASTS_S), self.loop.heal)

    def _boot(self, node: int) -> None:
        if node not in self._up and node != self._stays_down and not self._ended:
            self._up.add(node)
            self.cluster.boot(node)

    def end_faults(self) -> None:
        """Have no further faults, and all nodes run."""
        self._faults_left = 0
        self.back()

    def kill_all(self) -> None:
        """End all nodes, the observer too."""
        self._faults_left = 0
        for node in sorted(self._up):
            self.kill(node)
        self.cluster.crash_observer()

    def back(self) -> None:
        """Start all nodes, and open all links."""
        self.loop.heal()
        for node in self.cluster.hosts:
            self._boot(node)

    def _part(self, some: Iterable[int], others: Iterable[int]) -> None:
        for one in some:
            for other in others:
                if one != other:
                    self.loop.cut(self.cluster.hosts[one], self.cluster.hosts[other])
