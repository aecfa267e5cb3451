"""The parts of `raftlog bench` about groups: very many groups, very large groups, and the cost of a dead
coordinator.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Final, TypeVar

from raftlog.cli.bench.figure import Figure
from raftlog.cli.bench.loops import look_at, own_stall
from raftlog.testing.cluster import AdminCluster, Cluster
from raftlog_chaos.bench.group_load import Load, LoadOptions, Member

TOPIC: Final = "bench"
PARTITIONS: Final = 6
MANY_GROUPS: Final = 10_000
MANY_MEMBERS: Final = 1_000
SOME_MEMBERS: Final = 100
COMMITTING_GROUPS: Final = 30
MEMBERS_EACH: Final = 2
STEADY_S: Final = 10.0
CLIENTS: Final = 30
REBALANCE_AIM_S: Final = 3.0
RESUMED_AIM_S: Final = 2.0

T = TypeVar("T")
Make = Callable[..., Figure]


def many(make: Make, create: Callable[[Cluster, str, int], None]) -> Iterator[Figure]:
    """Yield the cost of ten thousand groups, and of a group with a thousand members, measured by the nodes' loops."""
    with closing(AdminCluster()) as cluster:
        cluster.start()
        create(cluster, TOPIC, PARTITIONS)
        yield from asyncio.run(_many_groups(cluster, make))
        yield from asyncio.run(_many_members(cluster, make))


async def _many_groups(cluster: AdminCluster, make: Make) -> list[Figure]:
    # the most that one client process can do on a busy machine: if it is late for seconds it loses its sessions
    habits = LoadOptions(TOPIC, PARTITIONS, heartbeat_s=10.0, commit_s=20.0, session_ms=60_000)
    load = Load(_bootstrap(cluster), habits, clients=CLIENTS)
    try:
        before = look_at(cluster)
        began = time.monotonic()
        for number in range(MANY_GROUPS):
            load.add(f"group-{number}")
        await load.until(lambda: all(each.synced >= 0 for each in load.members), "all joined")
        formed_s = time.monotonic() - began
        name = f"{MANY_GROUPS:,} groups"
        figures = [make("groups", f"{name} formed", formed_s, "s", note="by one client process")]
        figures.append(own_stall("groups", f"{name} forming", before, look_at(cluster)))
        before, asked = look_at(cluster), load.book.heartbeats + load.book.commits
        await asyncio.sleep(STEADY_S)
        rate = (load.book.heartbeats + load.book.commits - asked) / STEADY_S
        figures.append(own_stall("groups", f"{name} at rest", before, look_at(cluster)))
        figures.append(make("groups", "heartbeats and commits", rate, "/s"))
        figures += await _without_coordinator(cluster, load, make, name)
        figures.append(make("groups", "errors", len(load.book.errors), "", 0))
        return figures
    finally:
        await load.close()


async def _many_members(cluster: AdminCluster, make: Make) -> list[Figure]:
    load = Load(_bootstrap(cluster), LoadOptions(TOPIC, PARTITIONS, heartbeat_s=3.0))
    try:
        before = look_at(cluster)
        name = f"{MANY_MEMBERS:,} members"
        joined_s = await _gather(load, "large", MANY_MEMBERS)
        figures = [make("groups", f"{name} joined", joined_s, "s", note="of one group, all at once")]
        figures.append(own_stall("groups", f"{name} joining", before, look_at(cluster)))
        before = look_at(cluster)
        took_s = await _gather(load, "large", 1)
        figures.append(make("groups", f"{name} rebalanced", took_s, "s", note="one more came; heartbeat 3 s"))
        figures.append(own_stall("groups", f"{name} rebalancing", before, look_at(cluster)))
        before = look_at(cluster)
        await asyncio.sleep(STEADY_S)
        figures.append(own_stall("groups", f"{name} at rest", before, look_at(cluster)))
        figures += await _without_coordinator(cluster, load, make, name)
        figures.append(make("groups", "errors", len(load.book.errors), "", 0))
        return figures
    finally:
        await load.close()


async def _without_coordinator(cluster: AdminCluster, load: Load, make: Make, name: str) -> list[Figure]:
    """Kill the busiest coordinator; measure the other members until all heartbeats are answered."""
    victim, struck = _busiest(cluster, load)
    before = look_at(cluster)
    cluster.kill(victim)
    since = asyncio.get_running_loop().time()
    beats = lambda: all(each.beaten_at > since and each.synced >= 0 for each in struck)  # noqa: E731
    took_s = await load.until(beats, "all beat again")
    note = f"kill -9 of who coordinated {len(struck):,}; each beats every {load.habits.heartbeat_s:g} s"
    figures = [make("groups", f"{name} beat again", took_s, "s", note=note)]
    figures.append(own_stall("groups", f"{name} taken over", before, look_at(cluster)))
    await _in_thread(lambda: cluster.restart(victim))
    return figures


async def _gather(load: Load, group_id: str, more: int) -> float:
    """Let so many more members join a group; returns the seconds until all of it have their assignments."""
    before = max((each.synced for each in load.members), default=-1)
    for _ in range(more):
        load.add(group_id)
    return await load.until(
        lambda: load.in_step(load.members) and load.members[0].synced > before,
        "all have their assignments",
    )


def rebalance(make: Make, create: Callable[[Cluster, str, int], None], rounds: int) -> Iterator[Figure]:
    """Yield how long a hundred members take from a newcomer's first request to everybody's assignment."""

    async def measured(cluster: Cluster) -> list[float]:
        load = Load(_bootstrap(cluster), LoadOptions(TOPIC, PARTITIONS))
        try:
            await _gather(load, "hundred", SOME_MEMBERS - 1)
            return [await _gather(load, "hundred", 1) for _ in range(max(1, rounds))]
        finally:
            await load.close()

    with closing(Cluster()) as cluster:
        cluster.start()
        create(cluster, TOPIC, PARTITIONS)
        seconds = asyncio.run(measured(cluster))
    note = "initial delay 0, heartbeat 500 ms"
    name = f"{SOME_MEMBERS} members"
    yield make("rebalance", f"{name}, median", statistics.median(seconds), "s", REBALANCE_AIM_S, note=note)
    yield make("rebalance", f"{name}, worst", max(seconds), "s", REBALANCE_AIM_S, note=f"of {len(seconds)}")


def commits(make: Make, create: Callable[[Cluster, str, int], None], rounds: int) -> Iterator[Figure]:
    """Yield how long no commit was acknowledged around the kill of a coordinator, and whether any was taken back."""
    with closing(Cluster()) as cluster:
        cluster.start()
        create(cluster, TOPIC, PARTITIONS)
        gaps, load = asyncio.run(_kills(cluster, rounds))
    note = f"{len(gaps)} members of groups whose coordinator died by kill -9"
    yield make("commits", "resumed, median", statistics.median(gaps), "s", RESUMED_AIM_S, note=note)
    yield make("commits", "resumed, worst", max(gaps), "s", note="with rebalances, if the group had one")
    note = f"of {load.book.commits:,} commits; {(load.book.regressed or [''])[0]}"
    yield make("commits", "offsets taken back", len(load.book.regressed), "", 0, note=note)
    yield make("commits", "errors", len(load.book.errors), "", 0, note=(load.book.errors or [""])[0])


async def _kills(cluster: Cluster, rounds: int) -> tuple[list[float], Load]:
    load = Load(_bootstrap(cluster), LoadOptions(TOPIC, PARTITIONS, commit_s=0.02))
    gaps: list[float] = []
    try:
        for number in range(COMMITTING_GROUPS * MEMBERS_EACH):
            load.add(f"group-{number % COMMITTING_GROUPS}")
        for _ in range(max(1, rounds)):
            gaps += await _kill(cluster, load)
            for each in load.members:
                await each.check()
        return gaps, load
    finally:
        await load.close()


async def _kill(cluster: Cluster, load: Load) -> list[float]:
    """Kill the coordinator of the most groups; return how long each of their members waited for its next commit."""
    loop = asyncio.get_running_loop()
    await _all_commit(load, load.members, loop.time())
    await asyncio.sleep(1.0)
    victim, struck = _busiest(cluster, load)
    cluster.kill(victim)
    killed_at = loop.time()
    resumed = await _first_acks(load, struck, killed_at)
    await _in_thread(lambda: cluster.restart(victim))
    await _all_commit(load, load.members, loop.time())
    return resumed


def _busiest(cluster: Cluster, load: Load) -> tuple[int, list[Member]]:
    """Return the node that coordinates the most members' groups, and those members."""
    ports = Counter(each.coordinator[1] for each in load.members if each.coordinator)
    port = ports.most_common(1)[0][0]
    struck = [each for each in load.members if each.coordinator and each.coordinator[1] == port]
    return next(node_id for node_id, node in cluster.nodes.items() if node.port == port), struck


async def _first_acks(load: Load, members: list[Member], since: float) -> list[float]:
    """Wait for the next commit of each; returns how long after `since` they came."""
    gaps: dict[str, float] = {}

    def all_did() -> bool:
        for number, each in enumerate(members):
            if each.acked_at > since:
                gaps.setdefault(str(number), each.acked_at - since)
        return len(gaps) == len(members)

    await load.until(all_did, "commits resume")
    return list(gaps.values())


async def _all_commit(load: Load, members: list[Member], since: float) -> None:
    await load.until(lambda: all(each.acked_at > since for each in members), "everybody commits")


def _in_thread(call: Callable[[], T]) -> Awaitable[T]:
    return asyncio.to_thread(call)


def _bootstrap(cluster: Cluster) -> list[tuple[str, int]]:
    return [(node.host, node.port) for node in cluster.nodes.values()]
