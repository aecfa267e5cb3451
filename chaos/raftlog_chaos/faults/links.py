"""Faults of the network between nodes: links that are cut, slow or lossy. Clients still reach every node."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import ClassVar

from raftlog_chaos.faults.fault import AtController, AtCoordinator, AtLeader, any_of
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

Link = tuple[int, int]
"""From, to."""


class LinkFault:
    """A fault of some links, which `pick_links` picks. Healing opens every link again."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})
    destructive: ClassVar[bool] = False

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        """Return in words what was picked, and its links; "" and none if there is no such node."""
        raise NotImplementedError

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        target, links = self.pick_links(await testbed.view(), testbed, chance)
        struck = list(links)
        for source, sink in struck:
            await self.strike(testbed, source, sink, chance)
        return target if struck else ""  # a single node, or a ring of two, has no link to lose

    async def strike(self, testbed: Testbed, source: int, target: int, chance: random.Random) -> None:
        await testbed.cut(source, target)

    async def heal(self, testbed: Testbed) -> None:
        """Open all links of the testbed, also of other faults: it has one network."""
        await testbed.heal_links()


class CutPair(LinkFault):
    """Two nodes do not reach each other; all others reach both."""

    name = "cut-pair"

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        one, other = chance.sample(testbed.nodes, 2)
        return f"nodes {one} and {other}", _both_ways([(one, other)])


class CutOneWay(LinkFault):
    """One direction is dead: a node is not heard by another node, or by any node, or hears no node."""

    name = "cut-one-way"
    needs = frozenset({Ability.CUT_ONE_WAY})

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        one, other = chance.sample(testbed.nodes, 2)
        how = chance.choice(("to one", "mute", "deaf"))
        if how == "to one":
            return f"from {one} to {other}", [(one, other)]
        if how == "mute":
            return f"from {one} to all", [(one, each) for each in testbed.nodes if each != one]
        return f"from all to {one}", [(each, one) for each in testbed.nodes if each != one]


class MajoritiesRing(LinkFault):
    """Every node sees a majority, and each a different majority: a ring in which no node sees all others."""

    name = "majorities-ring"

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        ring = chance.sample(testbed.nodes, len(testbed.nodes))
        reach = (len(ring) // 2 + 1) // 2  # to both sides: with itself a majority
        near = {
            (ring[at], ring[(at + step) % len(ring)])
            for at in range(len(ring))
            for step in range(-reach, reach + 1)
        }
        if len(ring) == 3:  # all are neighbours: break the ring once
            near -= {(ring[0], ring[2]), (ring[2], ring[0])}
        return f"the ring {ring}", [each for each in _all_links(testbed) if each not in near]


class IsolateOne(LinkFault):
    """A node reaches no other and is reached by none."""

    name = "isolate-one"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return chance.choice(testbed.nodes)

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        node_id = self.pick(view, testbed, chance)
        return ("", []) if node_id is None else (f"node {node_id}", _around(node_id, testbed))


class IsolateLeader(AtLeader, IsolateOne):
    """A node that leads a partition is cut off from all others; clients still write to it."""

    name = "isolate-leader"


class IsolateController(AtController, IsolateOne):
    """The active controller is cut off from all others."""

    name = "isolate-controller"


class IsolateCoordinator(AtCoordinator, IsolateOne):
    """A node that coordinates transactions, groups or share partitions is cut off from all others; clients still send
    it requests.
    """

    name = "isolate-coordinator"


class CutFromCoordinator(LinkFault):
    """A coordinator and a leader of partitions do not reach each other; all other nodes and clients reach both.

    If the coordinator leads all partitions, it is another node instead of a leader.
    """

    name = "cut-from-coordinator"

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        coordinator = AtCoordinator().pick(view, testbed, chance)
        if coordinator is None:
            return "", []
        others = view._replace(running=view.running - {coordinator})
        leader = AtLeader().pick(others, testbed, chance)
        node_id = any_of(others.running - view.paused, chance) if leader is None else leader
        if node_id is None:
            return "", []
        return f"coordinator {coordinator} and node {node_id}", _both_ways([(coordinator, node_id)])


class SlowLink(LinkFault):
    """Packets around one node, or between all, are late."""

    name = "slow-link"
    needs = frozenset({Ability.SLOW_LINK})
    delays_s: ClassVar[tuple[float, ...]] = (0.005, 0.05, 0.3)
    """One way, seconds."""

    def pick_links(
        self, view: ClusterState, testbed: Testbed, chance: random.Random
    ) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(testbed.nodes)
        if chance.random() < 0.5:
            return f"around node {node_id}", _around(node_id, testbed)
        return "everywhere", _all_links(testbed)

    async def strike(self, testbed: Testbed, source: int, target: int, chance: random.Random) -> None:
        await testbed.slow_link(source, target, delay_s=chance.choice(self.delays_s), loss=0.0)


class LossyLink(SlowLink):
    """Packets around one node, or between all, are lost and sent again: bytes come late, in bursts."""

    name = "lossy-link"
    needs = frozenset({Ability.LOSSY_LINK})
    losses: ClassVar[tuple[float, ...]] = (0.02, 0.1, 0.3)
    """Share of lost packets."""

    async def strike(self, testbed: Testbed, source: int, target: int, chance: random.Random) -> None:
        await testbed.slow_link(source, target, delay_s=0.0, loss=chance.choice(self.losses))


def _both_ways(pairs: Iterable[Link]) -> Iterator[Link]:
    for one, other in pairs:
        yield one, other
        yield other, one


def _around(node_id: int, testbed: Testbed) -> list[Link]:
    """Return every link of a node, in both directions."""
    return list(_both_ways((node_id, other) for other in testbed.nodes if other != node_id))


def _all_links(testbed: Testbed) -> list[Link]:
    return [(one, other) for one in testbed.nodes for other in testbed.nodes if one != other]
