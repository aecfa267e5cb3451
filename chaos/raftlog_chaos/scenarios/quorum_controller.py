"""The scenario of the controller: whatever happens to the nodes, each acknowledged change of the metadata is there,
once.

Whole nodes, admin clients only, so that a seed costs little and most of what happens is the controller's.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.metadata.image import MetadataImage
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum import Report
from raftlog_chaos.scenarios.quorum_admin import Admin, Promises
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop

ADMINS: Final = 3
RECOVERY_S: Final = 60.0
"""Within this after the storm all is as it was, virtual seconds."""

ANSWERS_WITHIN_S: Final = 10.0
"""The longest time until every broker of a healthy cluster can have a topic created, virtual seconds."""

PAUSES_S: Final = (0.0, 0.02, 0.1, 0.3, 1.0)
LASTS_S: Final = (0.02, 0.1, 0.5, 2.0)
SLOW_SYNCS_S: Final = (0.1, 0.5)
"""The time of a sync of a departing node's disk, so that its end takes long, virtual seconds."""

STALLS_S: Final = (0.5, 1.5, 4.0)
WATCHED_S: Final = 1.5
"""After a stall of all nodes, no broker may be fenced for so long, virtual seconds."""


class Controllers:
    """A cluster, its admin clients, and the faults against it."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("controller").random())
        loop.network.latency_s = self.chance.choice(((0.0001, 0.0006), (0.001, 0.02)))
        self.cluster = SimCluster(
            loop,
            settings={"broker.session.timeout.ms": self.chance.choice(("1000", "3000"))},
            compaction=SnapshotPolicy(entries=self.chance.choice((20, 100, 5000))),
        )
        self.promises = Promises()
        self.counts: Counter[str] = Counter()
        self.admins: list[Admin] = []
        deeds: list[Callable[[], Awaitable[None] | None]] = [
            self.kill,
            self.blink,
            self.pause,
            self.isolate,
            self.cut,
            self.blackout,
            self.hand_over,
            self.depart,
            self.stall,
        ]
        self._deeds = self.chance.sample(deeds, self.chance.randint(2, len(deeds)))
        self._cure_rate = self.chance.uniform(0.3, 0.6)
        self._calms = 0

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.until_ready()
        for number in range(ADMINS):
            name = f"admin{number}"
            admin = Admin(name, self.cluster, self.promises, self.loop.stream(f"client/{name}"))
            self.admins.append(admin)
            self.loop.host(name).start(admin.run())

    async def storm(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(self.chance.choice(PAUSES_S))
            deed = self.calm if self.chance.random() < self._cure_rate else self.chance.choice(self._deeds)
            self.counts[deed.__name__] += 1
            doing = deed()
            if doing is not None:
                await doing
            self.cluster.check()

    # -- faults -------------------------------------------------------------------------------------

    def _one(self) -> int:
        leader = self.cluster.leader_id()
        if leader is not None and self.chance.random() < 0.6:
            return leader
        return self.chance.choice(sorted(self.cluster.nodes))

    def _later(self, deed: Callable[..., object], *arguments: object) -> None:
        """Undo something in a while, unless all is calmed before: a node may then stand still for another reason."""
        seconds, calms = self.chance.choice(LASTS_S), self._calms
        self.loop.call_later(seconds, lambda: deed(*arguments) if self._calms == calms else None)

    def kill(self) -> None:
        self.cluster.crash(self._one(), power_loss=self.chance.random() < 0.7)

    def blink(self) -> None:
        """Restart a node, perhaps before any other has noticed."""
        one = self._one()
        self.cluster.crash(one)
        self._later(self.cluster.start, one)

    def pause(self) -> None:
        one = self._one()
        self.cluster.pause(one)
        self._later(self.cluster.resume, one)

    def isolate(self) -> None:
        """Isolate a node from all others; its clients still reach it."""
        one = self._one()
        host = self.cluster.nodes[one].host
        how = self.chance.choice(("cut", "deaf", "mute"))
        for other, sim_node in self.cluster.nodes.items():
            if other == one:
                continue
            if how == "cut":
                self.loop.cut(host, sim_node.host)
            elif how == "deaf":
                self.loop.clog(sim_node.host, host)
            else:
                self.loop.clog(host, sim_node.host)
        if self.chance.random() < 0.7:
            self._later(self.loop.heal, host)

    def cut(self) -> None:
        one, other = self.chance.sample(sorted(self.cluster.nodes), 2)
        self.loop.cut(self.cluster.nodes[one].host, self.cluster.nodes[other].host)

    def blackout(self) -> None:
        """Cut the power of all nodes at once."""
        self.cluster.crash(*self.cluster.nodes)
        for node_id in self.cluster.nodes:
            self._later(self.cluster.start, node_id)

    def hand_over(self) -> None:
        """Let the controller transfer its leadership to another voter."""
        leader = self.cluster.leader_id()
        sim_node = None if leader is None else self.cluster.nodes[leader]
        if sim_node is not None and sim_node.node is not None and sim_node.node.control.quorum is not None:
            sim_node.host.start(sim_node.node.control.quorum.transfer_leadership())

    async def depart(self) -> None:
        """Stop a node slowly: it still votes, but leads no more, and is not elected even if all others are lost."""
        self.calm()
        await self.cluster.until_ready(seconds=RECOVERY_S)
        one, leader = self._one(), None
        sim_node = self.cluster.nodes[one]
        node = sim_node.node
        assert node is not None
        self.cluster.trouble_disk(one, DiskTrouble(slow_s=self.chance.choice(SLOW_SYNCS_S)))
        self.cluster.leave(one)
        seen_at: float | None = None
        ending_for_s = 0.0
        while sim_node.node is node and ending_for_s < WATCHED_S:
            await asyncio.sleep(self.chance.choice(PAUSES_S[1:]))
            if node.ending:
                seen_at = seen_at or self.loop.time()
                ending_for_s = self.loop.time() - seen_at
            leader = self.cluster.leader_id()
            if node.ending and leader not in (None, one):
                self.cluster.crash(leader, power_loss=False)
                await asyncio.sleep(self.chance.choice(LASTS_S))
                self.cluster.start(leader)
            self.cluster.check()
        self.cluster.trouble_disk(one, DiskTrouble())
        if sim_node.node is node:
            assert leader != one, f"node {one} has been ending for {ending_for_s:.1f} s, and leads"
            self.cluster.crash(one)

    async def stall(self) -> None:
        """Stall all nodes of a healthy cluster together: no broker is fenced for a common pause."""
        self.calm()
        await self.cluster.until_ready(seconds=RECOVERY_S)
        await asyncio.sleep(1.0)
        if len(self._unfenced()) < len(self.cluster.nodes):
            return
        for node_id in self.cluster.nodes:
            self.cluster.pause(node_id)
        await asyncio.sleep(self.chance.choice(STALLS_S))
        for node_id in self.cluster.nodes:
            self.cluster.resume(node_id)
        end = self.loop.time() + WATCHED_S
        while self.loop.time() < end:
            fenced = set(self.cluster.nodes) - self._unfenced()
            assert not fenced, f"brokers {sorted(fenced)} were fenced though all stood still together"
            await asyncio.sleep(0.005)

    def _unfenced(self) -> set[int]:
        image = self.cluster.newest_image()
        return {each.broker_id for each in image.brokers.values() if not each.fenced} if image else set()

    def calm(self) -> None:
        """Start everything, and open all links."""
        self._calms += 1
        for node_id in self.cluster.nodes:
            self.cluster.resume(node_id)
        self.loop.heal()
        self.cluster.start()

    # -- the end ------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Heal everything, and check that every broker serves and every promise holds. Raises AssertionError."""
        self.calm()
        until = self.cluster.until
        for admin in self.admins:
            admin.stopping = True
        await until(
            lambda: all(admin.done for admin in self.admins), RECOVERY_S, "admins got an answer or none"
        )
        await self.cluster.until_ready(seconds=RECOVERY_S)
        for node_id in self.cluster.nodes:
            await self._serves(node_id)
        await until(self._images_agree, RECOVERY_S, "equal metadata")
        self.cluster.check()
        image = self.cluster.newest_image()
        assert image is not None
        faults = self.promises.judge(image)
        faults += self._stale_quotas(image)
        assert not faults, "; ".join(faults[:10])

    def _stale_quotas(self, image: MetadataImage) -> list[str]:
        """Return the brokers with quotas that differ from the metadata."""
        running = [each.node for each in self.cluster.running() if each.node is not None]
        return [
            f"broker {each.config.node_id} goes by quotas of the past"
            for each in running
            if each.broker is not None and each.broker.server.quotas.in_force != image.quotas
        ]

    async def _serves(self, node_id: int) -> None:
        """Check that a topic can be created through a broker, by a client that retries as clients do."""
        name = f"last{node_id}"
        admin = Admin(name, self.cluster, self.promises, self.loop.stream(f"client/{name}"))
        created = self.loop.host(name).start(self._create(admin, node_id))
        await self.cluster.until(created.done, ANSWERS_WITHIN_S, f"a topic created through broker {node_id}")

    async def _create(self, admin: Admin, node_id: int) -> None:
        created = False
        while not created:
            created = await admin.create(node_id)

    def _images_agree(self) -> bool:
        return len({each.node.metadata.image.offset for each in self.cluster.running() if each.node}) == 1


async def controller(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Change the metadata through a storm; then heal, and compare with what was promised. Raises AssertionError."""
    scenario = Controllers(loop)
    await scenario.begin()
    await scenario.storm(seconds)
    await scenario.finish()
    image = scenario.cluster.newest_image()
    assert image is not None
    return Report(
        voters=len(scenario.cluster.nodes),
        committed=image.offset,
        acked=scenario.promises.answers,
        elections=image.controller_epoch,
        faults=dict(scenario.counts),
    )
