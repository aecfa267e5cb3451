"""A fault can be injected into a testbed and healed again, with the same name everywhere."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar, Protocol

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, PartitionView, Testbed


class Fault(Protocol):
    """One injection and its healing. Make a new object for each."""

    name: ClassVar[str]
    """As in Python, the command line, HTTP and suites: words joined by hyphens."""
    needs: ClassVar[frozenset[Ability]]
    destructive: ClassVar[bool]
    """Destroys data that a node was trusted to keep: one node at a time, only while all others have everything."""

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        """Strike a random node or link. Return its name in words, or "" if there is none to strike."""

    async def heal(self, testbed: Testbed) -> None:
        """Undo it. Its earlier effects on others remain; a second call has no effect."""


class OneNodeFault:
    """A fault of one node: `pick` names the node, `strike` injects the fault, `cure` heals it."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Ability]]
    destructive: ClassVar[bool] = False

    def __init__(self) -> None:
        self.node_id: int | None = None

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        """Return a node to strike: a running node, unless a fault knows better; None if there is none."""
        return any_of(view.running - view.paused, chance)

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        raise NotImplementedError

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        """Start the node; a running node is left alone."""
        await testbed.start(node_id)

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        node_id = self.pick(await testbed.view(), testbed, chance)
        if node_id is None:
            return ""
        self.node_id = node_id
        await self.strike(testbed, node_id, chance)
        return f"node {node_id}"

    async def heal(self, testbed: Testbed) -> None:
        node_id, self.node_id = self.node_id, None
        if node_id is not None:
            await self.cure(testbed, node_id)


def any_of(nodes: frozenset[int], chance: random.Random) -> int | None:
    """Return one of the nodes, or None without nodes."""
    return chance.choice(sorted(nodes)) if nodes else None


class AtLeader:
    """Strike the leader of some partition, weighted by the number of partitions that it leads."""

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return _one_of_the_leaders(view.partitions, view, chance)


class AtCoordinator:
    """Strike the leader of some partition of `__transaction_state`, `__consumer_offsets` or `__share_group_state`, of
    each as often.

    Before the first transaction or group there is no coordinator to strike.
    """

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        by_topic: dict[str, dict[str, PartitionView]] = {}
        for key, each in sorted(view.internal.items()):
            by_topic.setdefault(key.rpartition("-")[0], {})[key] = each
        if not by_topic:
            return None
        return _one_of_the_leaders(by_topic[chance.choice(sorted(by_topic))], view, chance)


class AtSchemaLeader:
    """Strike the leader of `_schemas`, the only writer of the schema registry."""

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        found = {key: each for key, each in view.partitions.items() if key == f"{SCHEMAS_TOPIC}-0"}
        return _one_of_the_leaders(found, view, chance)


class AtController:
    """Strike the active controller, if it runs."""

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return view.controller if view.controller in view.running - view.paused else None


class AtFollower:
    """Strike a running member of some ISR that does not lead there."""

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        found = {
            node_id for each in view.partitions.values() for node_id in each.isr if node_id != each.leader
        } & (view.running - view.paused)
        return any_of(frozenset(found), chance)


def _one_of_the_leaders(
    partitions: Mapping[str, PartitionView], view: ClusterState, chance: random.Random
) -> int | None:
    leaders = [each.leader for _, each in sorted(partitions.items())]
    running = [each for each in leaders if each is not None and each in view.running - view.paused]
    return chance.choice(running) if running else None
