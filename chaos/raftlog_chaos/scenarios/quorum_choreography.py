"""Scenarios of a bare quorum in which everything comes at the worst moment, as chance alone would seldom have it.

Each is a few rounds of one plan with times drawn by seed. A plan need not succeed, but all committed entries must be
there after every round. Plans after Jepsen's `pause-kill` and `part-kill` and after figure 8 of the Raft paper.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from raftlog_chaos.scenarios.quorum import QuorumShape, Report
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from raftlog_chaos.simulator.loop import SimLoop

Plan = Callable[["QuorumChoreography"], Coroutine[Any, Any, None]]


class QuorumChoreography:
    """A quorum, and the moves that plans are made of."""

    def __init__(self, loop: SimLoop, voters: int | None = None) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("plan").random())
        self.shape = QuorumShape(loop)
        self.shape.voters = voters or self.shape.voters
        self.cluster: QuorumCluster = self.shape.cluster(loop)
        self._number = 0

    async def play(self, plan: Plan, seconds: float) -> Report:
        """Play rounds of a plan for some virtual seconds, and check after each that no committed entry is missing."""
        rounds = 0
        self.cluster.boot()
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await self.cluster.settle(b"round%d" % rounds)
            await plan(self)
            self.cluster.on_new_leader = lambda _node: None
            self.back()
            rounds += 1
            self.cluster.check()
        await self.cluster.settle(b"end")
        cluster = self.cluster
        committed, acked = len(cluster.oracle.committed), cluster.oracle.acked
        return Report(self.shape.voters, committed, acked, len(cluster.law.leaders), {"rounds": rounds})

    # -- moves -------------------------------------------------------------------------------------

    def others(self, *but: int) -> list[int]:
        """Return all voters but these, in any order."""
        rest = [node for node in self.cluster.hosts if node not in but]
        return self.chance.sample(rest, len(rest))

    def append(self, node: int | None, count: int) -> None:
        """Propose batches on a voter (None: the leader)."""
        for _ in range(count):
            self._number += 1
            padding = b"." * self.chance.randint(0, self.shape.padding)
            self.cluster.append(b"%d%s" % (self._number, padding), node)

    async def watch(self, seconds: float) -> None:
        """Let time pass, and look at the logs all the while."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.cluster.check()
            await asyncio.sleep(min(0.003, seconds))

    async def watch_until(self, condition: Callable[[], bool], seconds: float, step_s: float = 0.005) -> None:
        """Check the logs until the condition holds, or the time is over."""
        end = self.loop.time() + seconds
        while not condition() and self.loop.time() < end:
            await self.watch(step_s)

    async def leader_among(self, nodes: Iterable[int], seconds: float = 3.0) -> int | None:
        """Wait until one of these nodes leads; None if that does not happen in time."""
        wanted, end = set(nodes), self.loop.time() + seconds
        while self.loop.time() < end:
            if (leader := self.cluster.leading()) in wanted:
                return leader
            await self.watch(0.005)
        return None

    def part(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Cut every link between two groups."""
        others = list(others)
        for one in some:
            for other in others:
                self.loop.cut(self.cluster.hosts[one], self.cluster.hosts[other])

    def hush(self, source: int, *targets: int) -> None:
        """Hold back what goes from one voter to others."""
        for target in targets:
            self.loop.clog(self.cluster.hosts[source], self.cluster.hosts[target])

    def deafen(self, target: int) -> None:
        """Hold back all messages to one node."""
        for source in self.others(target):
            self.hush(source, target)

    def reunite(self, one: int, *others: int) -> None:
        """Undo cuts and hushes between one voter and others."""
        for other in others:
            self.loop.heal(self.cluster.hosts[one], self.cluster.hosts[other])

    def back(self) -> None:
        """Start everything, and open all links."""
        self.loop.heal()
        for host in self.cluster.hosts.values():
            host.resume()
        for node in self.cluster.hosts:
            if node not in self.cluster.nodes:
                self.cluster.boot(node)


async def _hide_a_minority(stage: QuorumChoreography) -> None:
    """Isolate a minority, power-fail a node that is up to date, and let the isolated nodes and that one node go on
    alone.
    """
    cluster, chance = stage.cluster, stage.chance
    leader = await cluster.leader()
    minority = (len(cluster.hosts) - 1) // 2
    hidden = stage.others(leader)[:minority]
    current = stage.others(*hidden)
    paused = chance.random() < 0.5
    if paused:
        for node in hidden:
            cluster.hosts[node].pause()
    else:
        stage.part(hidden, current)
    for _ in range(chance.randint(1, 4)):
        stage.append(leader, chance.randint(1, 4))
        await stage.watch(chance.choice((0.002, 0.01, 0.05)))
    acked = cluster.oracle.acked
    stage.append(leader, chance.randint(1, 4))
    end = stage.loop.time() + 0.5
    while cluster.oracle.acked == acked and stage.loop.time() < end:
        await stage.watch(0.001)
    failed = chance.choice(current)
    gone = [node for node in current if node != failed]
    cluster.crash(failed)
    if chance.random() < 0.5:
        cluster.crash(*gone)
    stage.loop.heal()
    stage.part(gone, [*hidden, failed])
    for node in hidden:
        cluster.hosts[node].resume()
    cluster.boot(failed)
    alone = await stage.leader_among([*hidden, failed])
    if alone is not None:
        stage.append(alone, 3)
        await stage.watch(0.3)


async def _let_rivals_take_turns(stage: QuorumChoreography) -> None:
    """Two leaders with different tails take turns, and neither lives long: figure 8 of the Raft paper."""
    cluster, chance = stage.cluster, stage.chance
    first = await cluster.leader()
    rest = stage.others(first)
    stage.part([first], rest)
    stage.append(first, chance.randint(2, 12))
    young: list[int] = []

    def cut_off(node: int) -> None:
        if node in rest and not young:
            young.append(node)
            stage.part([node], stage.others(node))

    cluster.on_new_leader = cut_off
    await stage.watch_until(lambda: bool(young), 3.0)
    if not young:
        return
    second = young[0]
    returned: list[int] = []
    cluster.on_new_leader = returned.append
    stage.reunite(first, *stage.others(first, second))
    await stage.watch_until(lambda: bool(returned), 3.0)
    if chance.random() < 0.7:
        await _silence_amid_its_tail(stage, first, stage.others(first, second))
    else:
        await stage.watch(chance.uniform(0.0, 0.15))
    stage.part([first], stage.others(first))
    stage.reunite(second, *stage.others(first, second))
    await stage.watch(chance.choice((0.5, 1.0)))


async def _silence_amid_its_tail(stage: QuorumChoreography, leader: int, others: list[int]) -> None:
    """Hold back what a leader says once a part of its old tail has arrived; the answers reach it."""

    def ends() -> list[int]:
        return [stage.cluster.nodes[node].driver.journal.last_index for node in others]

    before = ends()
    await stage.watch_until(lambda: ends() != before, 0.15, 0.0002)
    stage.hush(leader, *others)
    await stage.watch(stage.chance.choice((0.02, 0.1, 0.2)))


async def _answer_late(stage: QuorumChoreography) -> None:
    """The answers of a voter that was cut off come when its leader has lost the lead and won it again."""
    cluster, chance = stage.cluster, stage.chance
    first = await cluster.leader()
    late, *rest = stage.others(first)
    stage.hush(first, *rest)
    stage.hush(late, first)
    stage.append(first, chance.randint(4, 12))
    await stage.watch(0.15)
    stage.part([late], rest)
    stage.hush(first, late)
    second = await stage.leader_among(rest, 1.5)
    if second is None:
        return
    stage.append(second, chance.randint(0, 2))
    await stage.watch(0.1)
    stage.reunite(first, *rest)
    await stage.watch(0.15)
    cluster.crash(second)
    third = await stage.leader_among(stage.others(second, late), 1.5)
    if third is None:
        return
    cut = stage.others(first, second, late, third)[:1]
    stage.part(cut, stage.others(*cut))
    stage.append(third, chance.randint(1, 6))
    stage.loop.network.heal(cluster.hosts[late], cluster.hosts[first])
    stage.hush(first, late)
    await stage.watch(0.2)


async def quorum_hidden_minority(loop: SimLoop, seconds: float = 8.0) -> Report:
    """An acknowledged entry survives the power failure of one voter that is up to date. Raises AssertionError."""
    return await QuorumChoreography(loop).play(_hide_a_minority, seconds)


async def quorum_rivals(loop: SimLoop, seconds: float = 12.0) -> Report:
    """No entry counts as committed while a rival may still replace it. Raises AssertionError."""
    return await QuorumChoreography(loop).play(_let_rivals_take_turns, seconds)


async def quorum_late_answers(loop: SimLoop, seconds: float = 12.0) -> Report:
    """An acknowledgement of an earlier term commits no entry in this term. Raises AssertionError."""
    return await QuorumChoreography(loop, voters=5).play(_answer_late, seconds)
