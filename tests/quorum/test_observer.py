"""Nodes that follow the metadata log without voting."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from raftlog.quorum import observer_feed
from raftlog.quorum.observer import Observer
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum_cluster import SECRET, QuorumCluster, WatchedNode
from raftlog_chaos.simulator import SimEnv
from tests.quorum.test_quorum import run_scenario


class ObserverNode:
    """An observer on a host of its own, held to the same oracle as the voters."""

    def __init__(
        self, world: QuorumCluster, node_id: int = 9, secret: bytes = SECRET, cluster_id: str | None = None
    ) -> None:
        self.world = world
        self.node_id = node_id
        self.secret = secret
        self.cluster_id = cluster_id
        self.host = world.loop.host(f"n{node_id}")
        self.boot()

    def boot(self) -> None:
        self.machine = WatchedNode(self.world.oracle, self.node_id)
        self.heard: list[tuple[int | None, int, bool]] = []
        self.host.start(self._run())

    async def _run(self) -> None:
        changed = self.machine.leadership_changed
        self.machine.leadership_changed = lambda *what: (self.heard.append(what), changed(*what))[1]  # type: ignore[method-assign,func-returns-value]
        self.observer = Observer(
            SimEnv(self.host),
            node_id=self.node_id,
            voters=self.world.voters,
            secret=self.secret,
            cluster_id=lambda: self.cluster_id,
            machine=self.machine,
        )
        self.observer.on_failure = self.world.oracle.failures.append
        await self.observer.start()

    def has(self, mark: bytes) -> bool:
        return any(data.startswith(mark + b"@") for data in self.machine.data)


def test_an_observer_applies_what_is_committed_and_knows_the_leader() -> None:
    """Same callbacks as a voter's, in the same order; it never leads and is in no election."""

    async def script(world: QuorumCluster) -> None:
        leader = await world.leader()
        await world.commit(b"early")
        watcher = ObserverNode(world)
        await world.commit(b"late")
        await world.until(lambda: watcher.has(b"late"), 3)
        assert watcher.machine.data == world.oracle.committed
        assert watcher.heard[-1] == (leader, world.nodes[leader].term, False)
        assert watcher.observer.leader_id == leader and not watcher.observer.leading

    run_scenario(script)


def test_a_batch_reaches_an_observer_at_once() -> None:
    """It is pushed at commit, not polled."""

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        await world.commit(b"first")
        await world.until(lambda: watcher.has(b"first"), 3)
        world.append(b"second")
        await world.until(partial(world.applied, b"second"))
        await world.until(lambda: watcher.has(b"second"), 0.02)

    run_scenario(script)


def test_an_observer_goes_on_with_another_voter() -> None:
    """Whichever voters die, as long as one lives; nothing is applied twice or left out."""

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        for number in range(6):
            await world.settle(b"before %d" % number)
            victim = number % 3 + 1
            world.crash(victim)
            mark = b"during %d" % number
            await world.commit(mark, *world.nodes)
            await world.until(partial(watcher.has, mark), 5)
            world.boot(victim)
        assert watcher.machine.data == world.oracle.committed

    run_scenario(script)


def test_an_observer_leaves_a_voter_that_is_cut_off() -> None:
    """A voter without a leader has no news."""

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        await world.settle(b"first")
        await world.until(lambda: watcher.has(b"first"), 3)
        for lonely in world.hosts:
            for other in world.hosts:
                if other != lonely:
                    world.loop.cut(world.hosts[lonely], world.hosts[other])
            rest = [node for node in world.hosts if node != lonely]
            await world.commit(b"without %d" % lonely, *rest, seconds=5)
            await world.until(partial(watcher.has, b"without %d" % lonely), 6)
            world.loop.heal()

    run_scenario(script)


@pytest.mark.parametrize("snapshot_first", [True, False])
def test_an_observer_far_behind_gets_a_snapshot(snapshot_first: bool) -> None:
    """The log begins after what it has: a snapshot, then the log from there."""

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        await world.commit(b"first")
        await world.until(lambda: watcher.has(b"first"), 3)
        if snapshot_first:
            watcher.host.crash()
        else:
            watcher.host.pause()
        for number in range(80):
            await world.commit(b"batch %d" % number)
        if snapshot_first:
            watcher.boot()
        else:
            watcher.host.resume()
        await world.commit(b"last")
        await world.until(lambda: watcher.has(b"last"), 5)
        assert watcher.machine.data == world.oracle.committed

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_an_observer_that_does_not_read_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is pulled from the log: a stopped observer has one buffer full, not a queue of its own."""
    monkeypatch.setattr(observer_feed, "STATUS_SECONDS", 3_600.0)

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        await world.commit(b"first")
        await world.until(lambda: watcher.has(b"first"), 3)
        watcher.host.pause()
        for number in range(40):
            await world.commit(b"%d" % number + b"x" * 100_000)
        waiting = [
            follower.channel.unsent_bytes()
            for quorum in world.nodes.values()
            for follower in (quorum._feed._followers if quorum._feed else [])
        ]
        assert max(waiting) < 1_500_000
        watcher.host.resume()
        await world.until(lambda: watcher.machine.data == world.oracle.committed, 10)

    run_scenario(script)


@pytest.mark.parametrize("wrong", ["secret", "cluster"])
def test_a_stranger_observes_nothing(wrong: str) -> None:
    """Metadata goes to nodes of this cluster only."""

    async def script(world: QuorumCluster) -> None:
        await world.commit(b"private")
        for quorum in world.nodes.values():
            object.__setattr__(quorum.identity, "cluster_id", lambda: "ours")
        options: dict[str, Any] = {"secret": b"wrong"} if wrong == "secret" else {"cluster_id": "theirs"}
        world.may_fail = wrong == "cluster"
        watcher = ObserverNode(world, **options)
        await asyncio.sleep(5)
        assert watcher.machine.data == [] and watcher.heard == []

    run_scenario(script)


@pytest.mark.parametrize(("foreign", "gives_up"), [(1, False), (3, True)])
def test_an_observer_gives_up_where_most_voters_are_of_another_cluster(foreign: int, gives_up: bool) -> None:
    """It is told to start nowhere else by more than one impostor; the error names both clusters."""

    async def script(world: QuorumCluster) -> None:
        await world.commit(b"theirs")
        for node in range(1, foreign + 1):
            object.__setattr__(world.nodes[node].identity, "cluster_id", lambda: "theirs")
        world.may_fail = gives_up
        watcher = ObserverNode(world, cluster_id="ours")
        await asyncio.sleep(5)
        assert bool(world.oracle.failures) == gives_up
        assert all(
            "cluster theirs" in str(error) and "cluster ours" in str(error) for error in world.oracle.failures
        )
        assert watcher.has(b"theirs") == (not gives_up)

    run_scenario(script)


def test_the_leader_can_describe_its_observers() -> None:
    """DescribeQuorum lists who follows the voter that is asked, and how far it has come."""

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        await world.commit(b"first")
        await world.until(lambda: watcher.has(b"first"), 3)
        await asyncio.sleep(0.1)
        described: list[Any] = []
        for node, quorum in world.nodes.items():
            world.hosts[node].call(lambda quorum=quorum: described.extend(quorum.describe().observers))  # type: ignore[misc]
        await world.until(lambda: described, 1)
        assert [(each.replica_id, each.log_end_offset) for each in described] == [
            (9, watcher.observer.applied_index)
        ]

    run_scenario(script)


@pytest.mark.parametrize(
    "nonsense",
    [
        observer_feed.CommittedBatches(1_000, [b"\x00beyond a gap"]),
        observer_feed.ObserverSnapshotChunk(1_000, 5, 0, b"rotten"[:5]),
        observer_feed.LeaderStatus(-7, 1),
        (9, "no message"),
    ],
    ids=["gap", "snapshot", "leader", "kind"],
)
def test_a_voter_that_sends_nonsense_is_left_for_another(nonsense: Any) -> None:
    """A gap in the stream, or a snapshot that rotted on its way, ended the observer's node."""

    async def script(world: QuorumCluster) -> None:
        watcher = ObserverNode(world)
        await world.commit(b"first")
        await world.until(lambda: watcher.has(b"first"), 3)
        voter = next(
            (quorum, follower.channel)
            for quorum in world.nodes.values()
            for follower in (quorum._feed._followers if quorum._feed else [])
        )
        quorum, channel = voter
        world.hosts[quorum.node_id].call(channel.send, msgspec.msgpack.encode(nonsense))
        await world.until(lambda: channel.close_reason is not None, 3)
        await world.commit(b"second")
        await world.until(lambda: watcher.has(b"second"), 3)

    run_scenario(script)
