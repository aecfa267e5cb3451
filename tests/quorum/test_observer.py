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
        self, cluster: QuorumCluster, node_id: int = 9, secret: bytes = SECRET, cluster_id: str | None = None
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.secret = secret
        self.cluster_id = cluster_id
        self.host = cluster.loop.host(f"n{node_id}")
        self.boot()

    def boot(self) -> None:
        self.machine = WatchedNode(self.cluster.oracle, self.node_id)
        self.heard: list[tuple[int | None, int, bool]] = []
        self.host.start(self._run())

    async def _run(self) -> None:
        changed = self.machine.leadership_changed
        self.machine.leadership_changed = lambda *what: (self.heard.append(what), changed(*what))[1]  # type: ignore[method-assign,func-returns-value]
        self.observer = Observer(
            SimEnv(self.host),
            node_id=self.node_id,
            voters=self.cluster.voters,
            secret=self.secret,
            cluster_id=lambda: self.cluster_id,
            machine=self.machine,
        )
        self.observer.on_failure = self.cluster.oracle.failures.append
        await self.observer.start()

    def has(self, mark: bytes) -> bool:
        return any(data.startswith(mark + b"@") for data in self.machine.data)


def test_an_observer_applies_what_is_committed_and_knows_the_leader() -> None:
    """Same callbacks as a voter's, in the same order; it never leads and is in no election."""

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        await cluster.commit(b"early")
        watcher = ObserverNode(cluster)
        await cluster.commit(b"late")
        await cluster.until(lambda: watcher.has(b"late"), 3)
        assert watcher.machine.data == cluster.oracle.committed
        assert watcher.heard[-1] == (leader, cluster.nodes[leader].term, False)
        assert watcher.observer.leader_id == leader and not watcher.observer.leading

    run_scenario(script)


def test_a_batch_reaches_an_observer_at_once() -> None:
    """It is pushed at commit, not polled."""

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        await cluster.commit(b"first")
        await cluster.until(lambda: watcher.has(b"first"), 3)
        cluster.append(b"second")
        await cluster.until(partial(cluster.applied, b"second"))
        await cluster.until(lambda: watcher.has(b"second"), 0.02)

    run_scenario(script)


def test_an_observer_goes_on_with_another_voter() -> None:
    """Whichever voters die, as long as a voter lives; no entry is applied twice or left out."""

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        for number in range(6):
            await cluster.settle(b"before %d" % number)
            victim = number % 3 + 1
            cluster.crash(victim)
            mark = b"during %d" % number
            await cluster.commit(mark, *cluster.nodes)
            await cluster.until(partial(watcher.has, mark), 5)
            cluster.boot(victim)
        assert watcher.machine.data == cluster.oracle.committed

    run_scenario(script)


def test_an_observer_leaves_a_voter_that_hangs_before_its_leaderships_move() -> None:
    """A broker without a vote would not know the new controller, nor the new leaders of its partitions."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.commit(b"before")
        watcher = ObserverNode(cluster)
        await cluster.until(lambda: watcher.has(b"before"))
        followed = watcher.observer._channel
        assert followed is not None
        cluster.hosts[followed.peer_id].pause()
        others = [each for each in cluster.nodes if each != followed.peer_id]
        await cluster.until(
            lambda: watcher.observer.leader_id in others and watcher.observer._channel is not followed, 1.5
        )

    run_scenario(script)


def test_an_observer_leaves_a_voter_that_is_cut_off() -> None:
    """A voter without a leader has no news."""

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        await cluster.settle(b"first")
        await cluster.until(lambda: watcher.has(b"first"), 3)
        for lonely in cluster.hosts:
            for other in cluster.hosts:
                if other != lonely:
                    cluster.loop.cut(cluster.hosts[lonely], cluster.hosts[other])
            rest = [node for node in cluster.hosts if node != lonely]
            await cluster.commit(b"without %d" % lonely, *rest, seconds=5)
            await cluster.until(partial(watcher.has, b"without %d" % lonely), 6)
            cluster.loop.heal()

    run_scenario(script)


@pytest.mark.parametrize("snapshot_first", [True, False])
def test_an_observer_far_behind_gets_a_snapshot(snapshot_first: bool) -> None:
    """The log begins after what it has: a snapshot, then the log from there."""

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        await cluster.commit(b"first")
        await cluster.until(lambda: watcher.has(b"first"), 3)
        if snapshot_first:
            watcher.host.crash()
        else:
            watcher.host.pause()
        for number in range(80):
            await cluster.commit(b"batch %d" % number)
        if snapshot_first:
            watcher.boot()
        else:
            watcher.host.resume()
        await cluster.commit(b"last")
        await cluster.until(lambda: watcher.has(b"last"), 5)
        assert watcher.machine.data == cluster.oracle.committed

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_an_observer_that_does_not_read_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is pulled from the log: a stopped observer has one buffer full, not a queue of its own."""
    monkeypatch.setattr(observer_feed, "STATUS_SECONDS", 3_600.0)

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        await cluster.commit(b"first")
        await cluster.until(lambda: watcher.has(b"first"), 3)
        watcher.host.pause()
        for number in range(40):
            await cluster.commit(b"%d" % number + b"x" * 100_000)
        waiting = [
            follower.channel.unsent_bytes()
            for quorum in cluster.nodes.values()
            for follower in (quorum._feed._followers if quorum._feed else [])
        ]
        assert max(waiting) < 1_500_000
        watcher.host.resume()
        await cluster.until(lambda: watcher.machine.data == cluster.oracle.committed, 10)

    run_scenario(script)


@pytest.mark.parametrize("wrong", ["secret", "cluster"])
def test_a_stranger_observes_nothing(wrong: str) -> None:
    """Metadata goes to nodes of this cluster only."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.commit(b"private")
        for quorum in cluster.nodes.values():
            object.__setattr__(quorum.identity, "cluster_id", lambda: "ours")
        options: dict[str, Any] = {"secret": b"wrong"} if wrong == "secret" else {"cluster_id": "theirs"}
        cluster.may_fail = wrong == "cluster"
        watcher = ObserverNode(cluster, **options)
        await asyncio.sleep(5)
        assert watcher.machine.data == [] and watcher.heard == []

    run_scenario(script)


@pytest.mark.parametrize(("foreign", "gives_up"), [(1, False), (3, True)])
def test_an_observer_gives_up_where_most_voters_are_of_another_cluster(foreign: int, gives_up: bool) -> None:
    """It needs more than one impostor to make it start nowhere else; the error names both clusters."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.commit(b"theirs")
        for node in range(1, foreign + 1):
            object.__setattr__(cluster.nodes[node].identity, "cluster_id", lambda: "theirs")
        cluster.may_fail = gives_up
        watcher = ObserverNode(cluster, cluster_id="ours")
        await asyncio.sleep(5)
        assert bool(cluster.oracle.failures) == gives_up
        assert all(
            "cluster theirs" in str(error) and "cluster ours" in str(error)
            for error in cluster.oracle.failures
        )
        assert watcher.has(b"theirs") == (not gives_up)

    run_scenario(script)


def test_the_leader_can_describe_its_observers() -> None:
    """DescribeQuorum lists the followers of the voter that is asked, and their offsets."""

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        await cluster.commit(b"first")
        await cluster.until(lambda: watcher.has(b"first"), 3)
        await asyncio.sleep(0.1)
        described: list[Any] = []
        for node, quorum in cluster.nodes.items():
            cluster.hosts[node].call(lambda quorum=quorum: described.extend(quorum.describe().observers))  # type: ignore[misc]
        await cluster.until(lambda: described, 1)
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

    async def script(cluster: QuorumCluster) -> None:
        watcher = ObserverNode(cluster)
        await cluster.commit(b"first")
        await cluster.until(lambda: watcher.has(b"first"), 3)
        voter = next(
            (quorum, follower.channel)
            for quorum in cluster.nodes.values()
            for follower in (quorum._feed._followers if quorum._feed else [])
        )
        quorum, channel = voter
        cluster.hosts[quorum.node_id].call(channel.send, msgspec.msgpack.encode(nonsense))
        await cluster.until(lambda: channel.close_reason is not None, 3)
        await cluster.commit(b"second")
        await cluster.until(lambda: watcher.has(b"second"), 3)

    run_scenario(script)
