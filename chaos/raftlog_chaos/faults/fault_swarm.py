"""Random faults on a simulated cluster: each seed draws its own mix (swarm testing), and `calm` undoes them all."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import raftlog_chaos.faults as named
from raftlog_chaos.faults.nemesis import Nemesis, Steps
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT, PORT, SimCluster
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.simulator.testbed import SimTestbed

PAUSES_S = (0.0, 0.005, 0.02, 0.1, 0.4, 1.0, 3.0)
"""Between two faults, virtual seconds, at the slowest pace."""
PACES = (0.1, 0.3, 1.0)
BACK_AFTER_S = (0.0, 0.01, 0.1, 0.5, 2.0)
"""How long a node is away before it restarts by itself, virtual seconds."""

CHANGES: Final = (0, 1, 2, 3, 5, 10, 30)
"""How many changes a disk still makes before the power goes."""

SHARP: Final = (
    "power_loss_then_back",
    "power_loss_at_work",
    "power_loss_in_recovery",
    "vanish",
    "cut",
    "clog",
    "clog_plane",
    "swizzle",
    "relay",
    "blackout_and_back",
)
"""The methods of `FaultSwarm` that are faults: they need finer control than other worlds have."""

LEFT_OUT: Final = (
    "flip-bit",
    "kill-coordinator",
    "pause-coordinator",
    "isolate-coordinator",
    "cut-from-coordinator",
    "kill-schema-leader",
    "pause-schema-leader",
    "safe-restarts",
)
"""Rot has a scenario of its own, which also reads everything, since unread rot is not repaired. Most scenarios have no
coordinator and no schema registry; in the others, their partitions are among the struck leaders' partitions. Restarts
that wait until the cluster is whole would wait for the storm's end.
"""

FAULTS: Final = (*SHARP, *(name for name in named.FAULTS if name not in LEFT_OUT))
"""The faults that may strike: these, and the faults of every world by their names."""


EFFECTS: Final = (
    "write failed",
    "read failed",
    "sync failed",
    "name failed",
    "open failed",
    "no room",
    "line failed",
    "sync slow",
    "power lost at work",
    "bytes late",
    "packet lost",
    "connection given up",
    "sent after all",
)
"""The disk and link troubles that nodes feel, as `SimCluster.effects` names them: trouble that no node feels is no
fault.
"""


class FaultSwarm:
    """Injects faults during a `storm`. `counts` is the number of injections by fault."""

    def __init__(self, loop: SimLoop, cluster: SimCluster, faults: Sequence[str] | None = None) -> None:
        """`faults`: the FAULTS that may strike, none for fair weather; by default the seed draws a mix."""
        self.loop = loop
        self.cluster = cluster
        self.chance = random.Random(loop.stream("weather").random())
        self.counts: Counter[str] = Counter()
        names = self.chance.sample(FAULTS, self.chance.randint(2, len(FAULTS))) if faults is None else faults
        self.nemesis = Nemesis(SimTestbed(cluster, self.chance), self.chance, Steps(()))
        self._faults = list(names)
        self._cures: list[Callable[[], Awaitable[None]]] = [
            self.restart,
            self.resume,
            self.open_links,
            self.heal_one,
            self.calm,
        ]
        self._pace = self.chance.choice(PACES)
        self._cure_rate = self.chance.uniform(0.4, 0.7)

    def fault_counts(self) -> dict[str, int]:
        """Return how often each fault struck and each effect was felt, including zeros. Cures are left out."""
        struck = {name: self.counts[name] + self.nemesis.counts[name] for name in FAULTS}
        return {**struck, **{name: self.cluster.effects[name] for name in EFFECTS}}

    async def storm(self, seconds: float) -> None:
        """Strike now and then for some virtual seconds; faults still active at the end remain."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(self._pace * self.chance.choice(PAUSES_S))
            if self._faults:
                await self.strike()
            self.cluster.check()

    async def strike(self) -> None:
        """Inject or heal one fault."""
        if self.chance.random() < self._cure_rate:
            await self.chance.choice(self._cures)()
            return
        name = self.chance.choice(self._faults)
        if name in SHARP:
            self.counts[name] += 1
            getattr(self, name)()
            return
        await self.nemesis.inject(name)
        if self.chance.random() < 0.3:  # back before anyone has noticed
            await asyncio.sleep(self.chance.choice(BACK_AFTER_S))
            await self.heal_one()

    async def clear_up(self, seconds: float) -> None:
        """End all faults and wait until every node runs and is unfenced. AssertionError: not within `seconds`."""
        await self.calm()
        await self.cluster.until(self._nobody_goes, seconds, "gentle stops")
        self.cluster.start()
        await self.cluster.until_ready(seconds=seconds)
        await self.cluster.until(self.cluster.all_in_sync, seconds, "all replicas in sync")

    def _nobody_goes(self) -> bool:
        """A node that stops during the calm, or ends itself because of a disk that failed it, is started again."""
        self.cluster.start()
        return not any(testbed.leaving for testbed in self.cluster.nodes.values())

    # -- faults -------------------------------------------------------------------------------------------------

    def _one(self) -> int:
        """A node: often the controller's, since it is the busiest."""
        leader = self.cluster.leader_id()
        if leader is not None and self.chance.random() < 0.3:
            return leader
        return self.chance.choice(sorted(self.cluster.nodes))

    def power_loss_then_back(self) -> None:
        """Cut the power of a node and restart it, perhaps before any other has noticed."""
        one = self._one()
        self.cluster.crash(one)
        self._bring_back(one)

    def _bring_back(self, node_id: int, after_s: float = 0.0) -> None:
        self.loop.call_later(after_s + self.chance.choice(BACK_AFTER_S), self.cluster.start, node_id)

    def power_loss_at_work(self) -> None:
        """Cut a node's power during its disk operations, between two steps of one callback."""
        one = self._one()
        self.cluster.crash_at_work(one, self.chance.choice(CHANGES), lambda: self._bring_back(one))

    def power_loss_in_recovery(self) -> None:
        """Cut a node's power again during the recovery from the first power loss."""
        one = self._one()
        self.cluster.crash(one)
        self.cluster.start(one)
        self.cluster.crash_at_work(one, self.chance.choice(CHANGES), lambda: self._bring_back(one))

    def vanish(self) -> None:
        """Cut a node's power without a reset to the peers."""
        self.cluster.crash(self._one(), silent=True)

    def _pair(self) -> tuple[int, int]:
        one, other = self.chance.sample(sorted(self.cluster.nodes), 2)
        return one, other

    def cut(self) -> None:
        one, other = self._pair()
        self.loop.cut(self.cluster.nodes[one].host, self.cluster.nodes[other].host)

    def clog(self) -> None:
        """Hold back the bytes of one direction."""
        one, other = self._pair()
        self.loop.clog(self.cluster.nodes[one].host, self.cluster.nodes[other].host)

    def clog_plane(self) -> None:
        """Hold back only records, or only metadata and heartbeats, in one direction or both."""
        one, other = (self.cluster.nodes[each].host for each in self._pair())
        port = self.chance.choice((PORT, CONTROLLER_PORT))
        self.loop.clog(one, other, (port,))
        if self.chance.random() < 0.5:
            self.loop.clog(other, one, (port,))

    def swizzle(self) -> None:
        """Make hosts unreachable, host by host, and reachable again in another order."""
        hosts = [each.host for each in self.cluster.nodes.values()]
        chosen = self.chance.sample(hosts, self.chance.randint(1, len(hosts)))
        at_s = 0.0
        for act in (self._silence, self.loop.heal):
            self.chance.shuffle(chosen)
            for host in chosen:
                self.loop.call_later(at_s, act, host)
                at_s += self.chance.choice(BACK_AFTER_S)

    def _silence(self, host: Host) -> None:
        for other in self.cluster.nodes.values():
            if other.host is not host:
                self.loop.clog(host, other.host)
                self.loop.clog(other.host, host)

    def blackout_and_back(self) -> None:
        """Cut the power of all nodes at once, and restart them in turn."""
        self.cluster.crash(*self.cluster.nodes)
        if self.chance.random() < 0.8:
            for node_id in self.cluster.nodes:
                self._bring_back(node_id)

    def relay(self) -> None:
        """Cut the power of each node in turn, whether or not the previous node is back."""
        at_s = 0.0
        for node_id in self.chance.sample(sorted(self.cluster.nodes), len(self.cluster.nodes)):
            self.loop.call_later(at_s, self.cluster.crash, node_id)
            self._bring_back(node_id, at_s)
            at_s += self.chance.choice(BACK_AFTER_S)

    # -- cures --------------------------------------------------------------------------------------------------

    async def restart(self) -> None:
        self.cluster.start()

    async def resume(self) -> None:
        for node_id in self.cluster.nodes:
            self.cluster.resume(node_id)

    async def open_links(self) -> None:
        self.loop.heal()

    async def heal_one(self) -> None:
        """Heal the fault that has lasted longest."""
        if self.nemesis.active:
            await self.nemesis.heal(self.nemesis.active[0][0])

    async def calm(self) -> None:
        """Start everything, open all links, and repair every disk."""
        for testbed in self.cluster.nodes.values():
            testbed.host.disk.disarm()
        await self.nemesis.calm()
        self.loop.heal()
