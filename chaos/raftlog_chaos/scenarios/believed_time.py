"""Single nodes and whole clusters start with wrong clocks, then with correct clocks: no data expires.

The retention is an hour and a run takes seconds, so all data must be there at the end. Once all clocks are correct,
every node believes its clock again by itself: deletion must not stop for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from raftlog.base.record_ages import CLOCK_CHECKPOINT, MOST_APART_MS
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.hosts import WALL_EPOCH_MS
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.aged_data import SETTINGS, TOPICS, AgedData

DAY_MS: Final = 86_400_000
DAYS: Final = (1, 30, 400, -1, -30)
"""How wrong clocks are, days."""
TIMES: Final = {"broker.session.timeout.ms": "1000", "replica.lag.time.max.ms": "1000"}
PATIENCE_S: Final = 60.0
CHECKPOINT: Final = f"/data/{CLOCK_CHECKPOINT}"


async def believed_time(loop: SimLoop, seconds: float = 3.0) -> Report:
    """For some virtual seconds, set clocks wrong and right again. Raises AssertionError."""
    scene = WrongClocks(loop)
    await scene.begin()
    end = loop.time() + seconds
    while True:
        await scene.go_wrong()
        await scene.go_right()
        if loop.time() >= end:
            return await scene.end()


class WrongClocks:
    """One cluster, its data, and its clocks."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("wrong clocks").random())
        self.cluster = SimCluster(loop, settings={**SETTINGS, **TIMES})
        self.data = AgedData(loop, self.cluster)
        self.rounds = 0
        self.deeds: Counter[str] = Counter()

    async def begin(self) -> None:
        """Start with correct clocks, write all data, and wait until each node has a time on its disk."""
        self.cluster.start()
        await self.cluster.until_ready()
        await self.data.begin()
        await self.cluster.until(self._all_believe, PATIENCE_S, "all clocks believed")
        await self.cluster.until(self._all_have_files, PATIENCE_S, "the believed time on each disk")

    async def go_wrong(self) -> None:
        """Set one clock or all clocks wrong, before a start or after it; write meanwhile."""
        self.rounds += 1
        chance, nodes = self.chance, tuple(self.cluster.nodes)
        struck = nodes if chance.random() < 0.5 else (chance.choice(nodes),)
        off_ms = chance.choice(DAYS) * DAY_MS
        loses_file = chance.random() < 0.3
        if chance.random() < 0.4:
            self.data.look_at_producers()
            self._set_clocks(struck, off_ms)
            self.deeds["clocks jumped"] += 1
            await asyncio.sleep(chance.uniform(0.3, 1.0))
            if chance.random() < 0.5:
                await self._restart(struck, off_ms)
        else:
            await self._restart(struck, off_ms, loser=struck[0] if loses_file else None)
        await self.cluster.until_ready(seconds=PATIENCE_S)
        await self.data.write_more(f"wrong{self.rounds}")
        self.data.look_at_producers()
        await asyncio.sleep(chance.uniform(0.3, 1.5))

    async def go_right(self) -> None:
        """Set all clocks right, with or without a restart, and wait until all nodes believe them."""
        chance, nodes = self.chance, tuple(self.cluster.nodes)
        if chance.random() < 0.5:
            self._set_clocks(nodes, 0)
        else:
            await self._restart(nodes if chance.random() < 0.7 else nodes[:1], 0)
            self._set_clocks(nodes, 0)
        await self.cluster.until_ready(seconds=PATIENCE_S)
        await self.cluster.until(self._all_believe, PATIENCE_S, "all right clocks believed")
        await self.data.write_more(f"right{self.rounds}")
        await asyncio.sleep(chance.uniform(0.3, 0.6))

    async def end(self) -> Report:
        """Judge. Raises AssertionError."""
        await self.cluster.until_ready(seconds=PATIENCE_S)
        await self.cluster.until(self.cluster.all_in_sync, PATIENCE_S, "all in sync")
        missing = await self.data.missing()
        assert not missing, "; ".join(missing)
        self.cluster.check()
        states = [self.cluster.state(topic, 0) for topic in TOPICS]
        elections = sum(each.leader_epoch for each in states if each is not None)
        return Report(acked=self.data.acked, elections=elections, faults=dict(self.deeds))

    def _set_clocks(self, node_ids: Iterable[int], off_ms: int) -> None:
        for each in node_ids:
            self.cluster.nodes[each].host.set_clock(off_ms)

    async def _restart(self, node_ids: tuple[int, ...], off_ms: int, *, loser: int | None = None) -> None:
        """Stop nodes, some gently, and start them with wrong clocks; `loser` loses its time, not its data."""
        self.deeds["started with a wrong clock" if off_ms else "started with a right clock"] += len(node_ids)
        gently = self.chance.random() < 0.4
        for each in node_ids:
            if gently:
                self.cluster.leave(each)
            else:
                self.cluster.crash(each)
        await self.cluster.until(
            lambda: not any(self.cluster.nodes[each].running for each in node_ids), PATIENCE_S, "stopped"
        )
        if loser is not None:
            self.deeds["time lost"] += 1
            disk = self.cluster.nodes[loser].host.disk
            disk.remove(CHECKPOINT)
            disk.sync_dir("/data")
        self._set_clocks(node_ids, off_ms)
        self.cluster.start(*node_ids)

    def _all_have_files(self) -> bool:
        return all(each.host.disk.exists(CHECKPOINT) for each in self.cluster.nodes.values())

    def _all_believe(self) -> bool:
        """Whether each node deletes by age, with the correct time."""
        true_ms = WALL_EPOCH_MS + int(self.loop.time() * 1000)
        times = [each.node.env.ages.now_ms() for each in self.cluster.running() if each.node is not None]
        return len(times) == len(self.cluster.nodes) and all(
            abs(each - true_ms) <= MOST_APART_MS for each in times
        )
