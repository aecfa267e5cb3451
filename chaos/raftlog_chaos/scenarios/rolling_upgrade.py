"""Nodes of an older and a newer release run together, under load, while controllers fail over.

They are upgraded one by one, and some are downgraded again. Meanwhile clients keep requesting levels and their
features. No newer format is written before the level allows it, and no older node gets what it does not know. A level
is granted once every node supports it, and stays unless it is lowered. An older node that joins later takes no part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from raftlog.base.errors import InvalidUpdateVersion, UnsupportedVersion
from raftlog.metadata.features import (
    NEWEST_METADATA_LEVEL,
    RAFTLOG_METADATA_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    finalized_level,
)
from raftlog.metadata.image import SupportedFeature
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.checkers.levels import LevelBook
from raftlog_chaos.faults.fault_swarm import FaultSwarm
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.rights import FAULTS
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.level_admin import NONE, QUOTA, LevelAdmin
from raftlog_chaos.workloads.raw_client import Client

T = TypeVar("T")

NEWER: Final = SUPPORTED_FEATURES
OLDER: Final = tuple(
    SupportedFeature(each.name, each.lowest, 1) if each.name == TRANSACTION_VERSION else each
    for each in NEWER
    if each.name != RAFTLOG_METADATA_VERSION
)
"""A release without levels of the metadata, and with one level of a feature less, which may be lowered again."""
AGAIN_S: Final = 0.1
KEPT_OUT_S: Final = 2.0
"""How long an older node that joins too late is watched, virtual seconds."""


class RollingUpgrade(Choreography):
    """The stage, and the operator, which takes one step at a time."""

    def __init__(self, loop: SimLoop, seconds: float) -> None:
        super().__init__(loop)
        self.storm_s = seconds / 8
        chance = self.chance
        self.cluster.compaction = SnapshotPolicy(entries=chance.choice((10, 20, 100)))
        self.weather = FaultSwarm(loop, self.cluster, chance.sample(FAULTS, chance.randint(2, len(FAULTS))))
        for each in self.cluster.nodes.values():
            each.features = OLDER
        self.book = LevelBook(
            self.history.blame, lambda: [each.features for each in self.cluster.nodes.values()]
        )
        self.cluster.watchers.append(self.book.began)
        self.admin = LevelAdmin(Client("levels", self.cluster.bootstrap))
        self._users = 0

    # -- the operator

    async def upgrade_all(self) -> None:
        """Upgrade one node after the other; now and then a node is downgraded while another has the older release."""
        order = list(self.cluster.nodes)
        self.chance.shuffle(order)
        for number, node_id in enumerate(order):
            await self.weather.storm(self.a_while(self.storm_s))
            await self.try_too_early()
            await self.install(node_id, newer=True)
            if number < len(order) - 1 and self.chance.random() < 0.2:
                await self.try_too_early()
                await self.install(node_id, newer=False)
                await self.install(node_id, newer=True)

    async def install(self, node_id: int, *, newer: bool) -> None:
        """Stop a node, gently or not, once all nodes are there, and start it as another release."""
        await self.calm()
        sim_node = self.cluster.nodes[node_id]
        if self.chance.random() < 0.5:
            self.cluster.leave(node_id)
            await self.cluster.until(lambda: not sim_node.leaving, SERVED_S, f"node {node_id} left")
        self.cluster.crash(node_id, power_loss=self.power())
        if newer and self.chance.random() < 0.5:
            forgotten = self.chance.random() < 0.3
            if forgotten:
                await self._on_wire(self.admin.unregister(node_id))
                await self._certain()
            await self.try_too_early(forgotten=forgotten)
            self.cluster.crash(node_id)
        sim_node.features = NEWER if newer else OLDER
        await asyncio.sleep(self.a_while(0.0, 0.1, 0.5))
        self.cluster.start(node_id)
        if not newer or self.chance.random() < 0.5:  # a level may come until the older release has registered
            await self.calm()

    async def calm(self) -> None:
        """End all faults, and wait until all take part, so that no majority of replicas is lost by the next stop."""
        await self.weather.clear_up(SERVED_S)

    async def try_too_early(self, *, forgotten: bool = False) -> None:
        """Request levels, and a feature of a level, while there are older nodes: all is refused.

        `forgotten`: one of the older nodes is no registered broker. The level of the metadata must wait for it all the
        same, since it is a voter.
        """
        assert any(each.features is OLDER for each in self.cluster.nodes.values())
        for _ in range(self.chance.randint(0, 3)):
            code = await self.set_level(RAFTLOG_METADATA_VERSION, 1)
            self._expect(code, InvalidUpdateVersion.code, "a level that older nodes lack")
            if not forgotten:
                code = await self.set_level(TRANSACTION_VERSION, 2)
                self._expect(code, InvalidUpdateVersion.code, "a level of transactions that older nodes lack")
            self._expect(await self.set_quota(), UnsupportedVersion.code, "a quota at level 0")

    async def there_and_back(self) -> None:
        """Raise a level that can be lowered again; once it is lowered, a node may go back to the older release."""
        await self.surely_set(TRANSACTION_VERSION, 2)
        await self.weather.storm(self.a_while(self.storm_s))
        self._expect(await self.set_quota(), UnsupportedVersion.code, "a quota at level 0")
        await self.surely_set(TRANSACTION_VERSION, 1, lower=True)
        await self.calm()
        node_id = self.chance.choice(sorted(self.cluster.nodes))
        await self.install(node_id, newer=False)
        await self.try_too_early()
        await self.install(node_id, newer=True)

    async def finalize(self) -> None:
        """Raise the levels amid faults, in turn or at once, use the features of each, and try to lower it."""
        await self.surely_set(RAFTLOG_METADATA_VERSION, self.chance.choice((1, NEWEST_METADATA_LEVEL)))
        if self.chance.random() < 0.5:
            await self.surely_set(TRANSACTION_VERSION, 2)
        wanted = len(self.admin.quotas) + self.chance.randint(1, 5)
        end = self.loop.time() + SERVED_S
        while len(self.admin.quotas) < wanted:
            code = await self.set_quota()
            if code != UnsupportedVersion.code:  # of a broker that has not heard of the level yet
                self._expect(code, NONE, "a quota at level 1")
            assert self.loop.time() < end, f"no quota is taken: error {code}"
            await self.weather.storm(self.a_while(self.storm_s))
            await self.weather.calm()
            self.cluster.start()
        await self.surely_set(RAFTLOG_METADATA_VERSION, NEWEST_METADATA_LEVEL)
        await self.calm()
        await self.cluster.until(
            self._voters_recorded, SERVED_S, "the directories of all voters are recorded"
        )
        code = await self.set_level(RAFTLOG_METADATA_VERSION, 0, lower=True)
        self._expect(code, InvalidUpdateVersion.code, "a lower level of the metadata")

    def _voters_recorded(self) -> bool:
        return self.cluster.last_image().voters.keys() == self.cluster.nodes.keys()

    async def try_too_late(self) -> None:
        """Start a node as the older release after the level was raised: it takes no part, and loses no data by that."""
        await self.calm()
        sim_node = self.cluster.nodes[self.chance.choice(sorted(self.cluster.nodes))]
        self.cluster.crash(sim_node.node_id)
        sim_node.features, sim_node.too_old = OLDER, True
        self.cluster.start(sim_node.node_id)
        end = self.loop.time() + KEPT_OUT_S
        while self.loop.time() < end:
            await asyncio.sleep(AGAIN_S)
            if sim_node.ready:
                self.history.blame(f"node {sim_node.node_id} takes part, whose release lacks the level")
        self.cluster.crash(sim_node.node_id)
        sim_node.features, sim_node.too_old = NEWER, False
        self.cluster.start(sim_node.node_id)

    # -- requests

    async def set_level(self, name: str, level: int, *, lower: bool = False) -> int | None:
        return await self._on_wire(self.admin.set_level(name, level, lower=lower))

    async def surely_set(self, name: str, level: int, *, lower: bool = False) -> None:
        """Retry until it is acknowledged, while faults strike. All nodes support the level."""
        end = self.loop.time() + SERVED_S
        while (code := await self.set_level(name, level, lower=lower)) != NONE:
            assert self.loop.time() < end, f"{name} does not become {level}: error {code}"
            self._expect(code, InvalidUpdateVersion.code, f"level {level} of {name}")
            await self.weather.storm(self.a_while(self.storm_s))
            await self.weather.calm()
            self.cluster.start()
        await self._certain()

    async def set_quota(self) -> int | None:
        self._users += 1
        return await self._on_wire(self.admin.set_quota(f"user{self._users}", float(1_000_000 + self._users)))

    async def _on_wire(self, request: Coroutine[Any, Any, T]) -> T:
        return await self.loop.host("levels").start(request)

    async def _certain(self) -> None:
        """Wait until the outcome of every earlier request is certain."""
        await asyncio.sleep(max(0.0, self.admin.certain_at - self.loop.time()))

    def _expect(self, code: int | None, expected: int, what: str) -> None:
        if code not in (None, expected):
            self.history.blame(f"{what} was answered with error {code} instead of {expected}")

    # -- the end

    def judge(self) -> list[str]:
        """Return everything that is wrong: acknowledged levels are in force."""
        image = self.cluster.last_image()
        faults = [
            f"{name} was acknowledged as {level}, and is {found}"
            for name, level in self.admin.levels.items()
            if (found := finalized_level(image, name)) != level
        ]
        faults += [
            f"the quota of {user} was acknowledged as {rate}, and is {rates}"
            for user, rate in self.admin.quotas.items()
            if (rates := image.quotas.get((("user", user),), {})) != {QUOTA: rate}
        ]
        return [*faults, *super().judge()]


async def rolling_upgrade(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Upgrade a cluster under load, with storms of some virtual seconds in all. Raises AssertionError."""
    scene = RollingUpgrade(loop, seconds)
    await scene.begin()
    await scene.surely_set(TRANSACTION_VERSION, 1, lower=True)
    await scene.upgrade_all()
    if scene.chance.random() < 0.5:
        await scene.there_and_back()
    await scene.finalize()
    if scene.chance.random() < 0.5:
        await scene.try_too_late()
    report = await scene.end()
    met = {
        "levels refused": scene.admin.refused_levels,
        "quotas": len(scene.admin.quotas),
        "levels raised": scene.book.raises,
        "controllers": len(scene.book.controllers),
    }
    assert all(met.values()), f"the scenario proved little: {met}"
    return replace(report, faults={**report.faults, "level refused": scene.admin.refused_levels})
