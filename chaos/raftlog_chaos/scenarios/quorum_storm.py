"""Random faults on a bare quorum, at the pace of its messages; each seed draws its own mix (swarm testing).

It injects faults and heals them; it does not judge.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop

PAUSES_S: Final = (0.0, 0.002, 0.005, 0.02, 0.05, 0.1, 0.3, 1.0)
"""Between two faults, virtual seconds."""
LASTS_S: Final = (0.01, 0.05, 0.2, 0.5, 1.5, 3.0)
"""How long temporary faults last."""
QUIET_SHARE: Final = 0.03
QUIET_S: Final = 1.0
YOUNG_S: Final = (0.0, 0.002, 0.01, 0.03, 0.06)
"""The lifetimes of leaders that die young."""
WAVERS_S: Final = (0.0, 0.0, 0.002, 0.005, 0.01, 0.03)
"""How long a voter survives its vote before it dies, and how long it is gone."""


class QuorumFaultSwarm:
    """Injects faults into a world until `end` is called. `counts` is the number of injections by fault."""

    def __init__(self, loop: SimLoop, cluster: QuorumCluster) -> None:
        self.loop = loop
        self.cluster = cluster
        self.chance = random.Random(loop.stream("storm").random())
        self.counts: Counter[str] = Counter()
        self.down: set[int] = set()
        self._calm = False
        self._hunting = 0
        self._wavering = 0
        cluster.on_new_leader = self._new_leader
        cluster.on_vote = self._voted
        faults: list[Callable[[], None]] = [
            self.crash,
            self.blink,
            self.pause,
            self.cut,
            self.clog,
            self.late,
            self.isolate,
            self.blackout,
            self.hand_over,
            self.hunt,
            self.strand_leader,
            self.tear,
            self.waver,
        ]
        self._faults = self.chance.sample(faults, self.chance.randint(3, len(faults)))
        self._cures: list[Callable[[], None]] = [self.restart, self.resume, self.heal, self.calm]
        self._cure_rate = self.chance.uniform(0.3, 0.6)
        self._pauses_s = PAUSES_S[: self.chance.randint(5, len(PAUSES_S))]

    def strike(self) -> None:
        """Inject one fault."""
        kind = self.chance.choice(self._cures if self.chance.random() < self._cure_rate else self._faults)
        self.counts[kind.__name__] += 1
        kind()

    async def wait(self) -> None:
        """Let some time pass; now and then a calm time that is long enough for an election."""
        if self.chance.random() < QUIET_SHARE:
            self.calm()
            await asyncio.sleep(QUIET_S)
        await asyncio.sleep(self.chance.choice(self._pauses_s))

    def end(self) -> None:
        """Undo everything, and inject no more faults."""
        self._calm = True
        self.calm()

    def _later(self, seconds: float, deed: Callable[..., None], *whom: int) -> None:
        self.loop.call_later(seconds, lambda: None if self._calm else deed(*whom))

    def _one(self) -> int:
        leader = self.cluster.leading()
        if leader is not None and self.chance.random() < 0.4:
            return leader
        return self.chance.choice(sorted(self.cluster.hosts))

    def _others(self, one: int) -> list[int]:
        return [each for each in sorted(self.cluster.hosts) if each != one]

    # -- faults -------------------------------------------------------------------------------------

    def crash(self) -> None:
        self._crash(self._one())

    def _crash(self, node: int) -> None:
        """Kill -9, mostly with the loss of power."""
        if node not in self.down:
            self.down.add(node)
            self.cluster.crash(node, power_loss=self.chance.random() < 0.8)

    def _boot(self, node: int) -> None:
        if node in self.down:
            self.down.discard(node)
            self.cluster.boot(node)

    def blink(self) -> None:
        """Restart a voter, perhaps before any other has noticed."""
        one = self._one()
        self._crash(one)
        self._later(self.chance.choice(LASTS_S), self._boot, one)

    def blackout(self) -> None:
        """Crash all voters at once."""
        for node in self.cluster.hosts:
            self._crash(node)
            self._later(self.chance.choice(LASTS_S), self._boot, node)

    def pause(self) -> None:
        one = self._one()
        self.cluster.hosts[one].pause()
        self._later(self.chance.choice(LASTS_S), self.cluster.hosts[one].resume)

    def cut(self) -> None:
        one = self._one()
        self.loop.cut(self.cluster.hosts[one], self.cluster.hosts[self.chance.choice(self._others(one))])

    def clog(self) -> None:
        """Hold back the bytes of one direction."""
        self.loop.clog(*self._pair())

    def late(self) -> None:
        """Delay the bytes of one direction, all of them."""
        source, target = self._pair()
        self.loop.clog(source, target)
        self.loop.call_later(self.chance.choice(LASTS_S), self.loop.heal, source, target)

    def _pair(self) -> tuple[Host, Host]:
        one = self._one()
        pair = [self.cluster.hosts[one], self.cluster.hosts[self.chance.choice(self._others(one))]]
        self.chance.shuffle(pair)
        return pair[0], pair[1]

    def isolate(self) -> None:
        """Isolate a voter: it can no longer reach the others, or not hear them, or both."""
        self._isolate(self._one(), self.chance.choice(("cut", "deaf", "mute")))

    def _isolate(self, one: int, how: str) -> None:
        host = self.cluster.hosts[one]
        for each in self._others(one):
            other = self.cluster.hosts[each]
            if how == "cut":
                self.loop.cut(host, other)
            elif how == "deaf":
                self.loop.clog(other, host)
            else:
                self.loop.clog(host, other)

    def hand_over(self) -> None:
        """Let the leader transfer its leadership to another voter."""
        leader = self.cluster.leading()
        if leader is not None and leader in self.cluster.nodes:
            self.cluster.hosts[leader].call(self.cluster.nodes[leader].driver.transfer_leadership)

    def strand_leader(self) -> None:
        """Isolate the leader, which keeps accepting batches; the links heal after a while."""
        leader = self.cluster.leading()
        if leader is None:
            return
        self._isolate(leader, "cut")
        for number in range(self.chance.randrange(1, 8)):
            self.cluster.append(b"stranded%d" % number, leader)
        self.loop.call_later(self.chance.choice(LASTS_S), self.loop.heal, self.cluster.hosts[leader])

    def hunt(self) -> None:
        """Crash the next leaders soon after their election, or isolate them."""
        self._hunting = self.chance.randint(1, 4)
        leader = self.cluster.leading()
        if leader is not None:
            self._lose(leader)

    def _new_leader(self, node: int) -> None:
        if self._hunting and not self._calm:
            self._hunting -= 1
            self._later(self.chance.choice(YOUNG_S), self._lose, node)

    def waver(self) -> None:
        """Crash the next voters right after their vote, and restart them while other candidates still ask for votes."""
        self._wavering = self.chance.randint(1, 4)

    def _voted(self, node: int) -> None:
        if self._wavering and not self._calm:
            self._wavering -= 1
            dies_after_s, gone_s = self.chance.choice(WAVERS_S), self.chance.choice(WAVERS_S)
            self._later(dies_after_s, self._crash, node)
            self._later(dies_after_s + gone_s, self._boot, node)

    def tear(self) -> None:
        """Fail the power during one of a voter's next syncs."""
        one = self._one()
        left = self.chance.randrange(4)
        disk = self.cluster.hosts[one].disk

        def sync() -> None:
            nonlocal left
            left -= 1
            if left >= 0 or self._calm:
                return
            disk.on_sync = None
            self.down.add(one)
            self.cluster.crash(one)
            self._later(self.chance.choice(LASTS_S), self._boot, one)
            raise OSError(errno.EIO, "the power failed")  # the dead process must not go on

        if one not in self.down:
            disk.on_sync = sync

    def _lose(self, node: int) -> None:
        if self.chance.random() < 0.5:
            self._crash(node)
            self._later(self.chance.choice(LASTS_S), self._boot, node)
        else:
            self._isolate(node, self.chance.choice(("cut", "mute")))
            self.loop.call_later(self.chance.choice(LASTS_S), self.loop.heal, self.cluster.hosts[node])

    # -- cures --------------------------------------------------------------------------------------

    def restart(self) -> None:
        for node in sorted(self.down):
            self._boot(node)

    def resume(self) -> None:
        for host in self.cluster.hosts.values():
            host.resume()

    def heal(self) -> None:
        self.loop.heal()

    def calm(self) -> None:
        """Start everything, and open all links."""
        self.heal()
        self.resume()
        self.restart()
