"""The scenario of machines that are only slow: each node runs for a tenth of the time, in a rhythm of its own.

No data is lost and no node is dead, so none may count as dead. In a quiet cluster the controller stays, no broker is
fenced, and no leader epoch moves. Before that, leadership may move away from nodes that are slower than others. Nodes
that stalled once are not slow: afterwards a stopped node is fenced as fast as before. A node that hangs is fenced
sooner than at its session's end, but if it comes back and hangs again and again, only once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from raftlog.base.lateness import OFTEN
from raftlog.metadata.image import MetadataImage
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import PORT, SimCluster
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.simple import SimpleClient

TOPICS: Final = 3
RHYTHMS_S: Final = ((0.02, 0.18), (0.05, 0.45), (0.1, 0.9))
"""How long a node runs, and how long it stands still: a container with a tenth of a core, a process sent SIGSTOP."""

UNEVEN: Final = 0.2
"""Each of these times is up to so much longer or shorter, as a share."""

FIND_OUT_S: Final = OFTEN * (1 + UNEVEN) * max(map(sum, RHYTHMS_S))
"""How long nodes may take to find out that they are slow; until then a stopped leader soon has a successor."""

SETTLES_S: Final = 15.0
"""The time for nodes to adapt, and for leaderships to leave the slowest nodes, virtual seconds."""

STOPPED_S: Final = 2.5
"""How long a minority stands still once: less than a session."""

RUNS_ON_S: Final = 1.0
"""How long it runs before the next stop."""

HUNG_FENCED_S: Final = 2.0
"""A broker that was on time and hangs is fenced within this."""

NOW_AND_THEN_S: Final = (4.4, 1.6)
"""How long a node runs, and how long it stands still: too seldom to be called slow, long enough to seem to hang."""

FENCED_S: Final = 4.0
"""A silent broker is fenced within this: broker.session.timeout.ms, and some more."""

SUCCEEDED_S: Final = 1.5
"""A silent controller has a successor within this: the longest election timeout, and a few rounds."""

READY_S: Final = 60.0


class SlowNodes:
    """A quiet cluster, and the rhythms of its nodes."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(loop.stream("slow-nodes").random())
        loop.network.latency_s = self.chance.choice(((0.0001, 0.0006), (0.001, 0.01)))
        loop.network.turn_s = self.chance.choice((0.0, 0.001))
        self.cluster = SimCluster(loop, self.chance.choice((3, 3, 5)))
        self.pauses = 0
        self._rhythms: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.until_ready()
        client = SimpleClient(
            Client("client", [(each.host.name, PORT) for each in self.cluster.nodes.values()])
        )
        for number in range(TOPICS):
            await client.create_topic(f"quiet{number}", partitions=2)
        await self.cluster.until(self.cluster.all_in_sync, READY_S, "all in sync")

    def slow_down(self, rhythms_s: Mapping[int, tuple[float, float]]) -> None:
        """Let nodes run for a tenth of the time from now on: each runs for so long, then stalls for so long."""
        for node_id, (runs_s, stands_s) in rhythms_s.items():
            self._rhythms.append(asyncio.create_task(self._rhythm(node_id, runs_s, stands_s)))

    async def _rhythm(self, node_id: int, runs_s: float, stands_s: float) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, runs_s + stands_s))
        try:
            while True:
                self.cluster.pause(node_id)
                self.pauses += 1
                await asyncio.sleep(stands_s * self.chance.uniform(1 - UNEVEN, 1 + UNEVEN))
                self.cluster.resume(node_id)
                await asyncio.sleep(runs_s * self.chance.uniform(1 - UNEVEN, 1 + UNEVEN))
        finally:
            self.cluster.resume(node_id)

    async def speed_up(self) -> None:
        """Let all nodes run as usual again."""
        for each in self._rhythms:
            each.cancel()
        await asyncio.gather(*self._rhythms, return_exceptions=True)

    async def stop_once(self, *, again: bool) -> None:
        """Stop a minority for a while, then one of its nodes `again`, or the controller.

        Raises AssertionError unless that node is fenced as fast as usual.
        """
        controller = self.image().controller_id
        others = [each for each in self.cluster.nodes if each != controller]
        minority = others[: len(others) // 2]
        for each in minority:
            self.cluster.pause(each)
        ends_at = self.loop.time() + STOPPED_S
        await self._until_fenced(minority, HUNG_FENCED_S)
        await asyncio.sleep(ends_at - self.loop.time())
        for each in minority:
            self.cluster.resume(each)
        await asyncio.sleep(RUNS_ON_S)
        await self.cluster.until(
            lambda: not any(self.image().brokers[each].fenced for each in minority), FENCED_S, "all unfenced"
        )
        victim, seconds = (minority[0], FENCED_S) if again else (controller, SUCCEEDED_S + FENCED_S)
        self.cluster.pause(victim)
        self.pauses += len(minority) + 1
        await self._until_fenced([victim], seconds)
        self.cluster.resume(victim)

    async def _until_fenced(self, node_ids: Sequence[int], seconds: float) -> None:
        await self.cluster.until(
            lambda: all(self.image().brokers[each].fenced for each in node_ids),
            seconds,
            f"{node_ids} fenced",
        )

    async def stall_now_and_then(self, seconds: float) -> None:
        """Stop a broker again and again. Raise AssertionError if it is fenced more than once."""
        controller = self.image().controller_id
        victim = next(each for each in self.cluster.nodes if each != controller)
        end, fenced, was_fenced = self.loop.time() + seconds, 0, False
        runs_s, stands_s = NOW_AND_THEN_S
        while self.loop.time() < end:
            self.cluster.pause(victim)
            self.pauses += 1
            resumes_at = self.loop.time() + stands_s
            while self.loop.time() < resumes_at:
                is_fenced = self.image().brokers[victim].fenced
                fenced, was_fenced = fenced + (is_fenced and not was_fenced), is_fenced
                await asyncio.sleep(0.01)
            self.cluster.resume(victim)
            await asyncio.sleep(runs_s)
            was_fenced = self.image().brokers[victim].fenced
        assert fenced <= 1, f"{victim} was fenced {fenced} times, and came back each time"

    async def stays(self, seconds: float) -> None:
        """Check that no metadata changes that would cost a client a retry. Raises AssertionError."""
        before = self._standing()
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.cluster.check()
            now = self._standing()
            assert now == before, "; ".join(_differences(before, now))
            await asyncio.sleep(0.01)

    def _standing(self) -> dict[str, object]:
        return _standing_of(self.image())

    def image(self) -> MetadataImage:
        """Return the newest metadata of the nodes that run."""
        image = self.cluster.newest_image()
        assert image is not None
        return image


def _standing_of(image: MetadataImage) -> dict[str, object]:
    """Return the controller, the fenced brokers, and each leader with its epoch."""
    found: dict[str, object] = {"the controller and its epoch": (image.controller_id, image.controller_epoch)}
    for broker in image.brokers.values():
        found[f"whether broker {broker.broker_id} is fenced"] = broker.fenced
    for name, topic in image.topics.items():
        for index, state in enumerate(topic.partitions):
            found[f"leader and epoch of {name}-{index}"] = (state.leader, state.leader_epoch)
    return found


def _differences(before: dict[str, object], now: dict[str, object]) -> list[str]:
    return [
        f"{what} went from {before.get(what)} to {now[what]}" for what in now if before.get(what) != now[what]
    ]


async def slow_nodes(loop: SimLoop, seconds: float = 20.0) -> Report:
    """Slow nodes of a quiet cluster for a while: no leader changes once they have settled; or stop some once."""
    scenario = SlowNodes(loop)
    await scenario.begin()
    slow = 0
    stops = loop.stream("stops")
    lot = stops.random()
    if lot < 0.2:
        await scenario.stop_once(again=stops.random() < 0.5)
    elif lot < 0.3:
        await scenario.stall_now_and_then(seconds)
    else:
        slow = await _slow_for_a_while(scenario, seconds)
    await scenario.cluster.until_ready(seconds=READY_S)
    scenario.cluster.check()
    return Report(
        elections=scenario.image().controller_epoch, faults={"pauses": scenario.pauses, "slow nodes": slow}
    )


async def _slow_for_a_while(scenario: SlowNodes, seconds: float) -> int:
    """Return how many nodes were slow."""
    nodes = sorted(scenario.cluster.nodes)
    if scenario.chance.random() < 0.6:
        rhythms_s = dict.fromkeys(nodes, scenario.chance.choice(RHYTHMS_S))
        scenario.slow_down(rhythms_s)
        await asyncio.sleep(FIND_OUT_S)
    else:
        slow = scenario.chance.sample(nodes, scenario.chance.randint(1, len(nodes)))
        rhythms_s = {each: scenario.chance.choice(RHYTHMS_S) for each in slow}
        scenario.slow_down(rhythms_s)
        await asyncio.sleep(SETTLES_S)
    await scenario.stays(seconds)
    await scenario.speed_up()
    await scenario.stays(seconds / 4)
    return len(rhythms_s)
