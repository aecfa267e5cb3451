"""Asking the active controller, wherever it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.errors import InvalidRequest, NotController, RequestTimedOut, UnknownServerError
from raftlog.quorum import rpc
from raftlog.quorum.channel import HANDSHAKE_SECONDS
from raftlog.quorum.client import ControllerClient
from raftlog.quorum.quorum import Quorum
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from raftlog_chaos.simulator import SimEnv
from tests.quorum.test_observer import ObserverNode
from tests.quorum.test_quorum import run_scenario


class RequestRecorder:
    """The active controller's answers here, and the nodes that it saw come and go."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.asked: list[tuple[bytes, int]] = []
        self.came: list[int] = []
        self.went: list[int] = []
        quorum.on_request = self.answer
        quorum.on_peer_connected = self.came.append
        quorum.on_peer_lost = self.went.append

    async def answer(self, payload: bytes, peer: int) -> bytes:
        self.asked.append((payload, peer))
        if payload == b"not yet" and len(self.asked) < 4:
            raise NotController()
        if payload == b"nonsense":
            raise InvalidRequest("that is nonsense")
        if payload == b"bug":
            raise ZeroDivisionError
        if payload == b"slow":
            await asyncio.sleep(60)
        return b"%s by %d" % (payload, self.quorum.node_id)


async def request_recorders(cluster: QuorumCluster) -> dict[int, RequestRecorder]:
    await cluster.leader()
    return {node: RequestRecorder(quorum) for node, quorum in cluster.nodes.items()}


def client(cluster: QuorumCluster, node: int, **options: Any) -> ControllerClient:
    """A client of the node's own; when the node leads, it answers itself."""
    quorum = cluster.nodes[node]
    return ControllerClient(SimEnv(cluster.hosts[node]), quorum, local=lambda: quorum.on_request, **options)


async def ask(
    cluster: QuorumCluster, node: int, payload: bytes, timeout: float = 5.0, **options: Any
) -> bytes:
    """Ask from a node, in its own process."""

    async def run() -> bytes:
        asking = client(cluster, node, **options)
        try:
            return await asking.submit(payload, timeout)
        finally:
            asking.close()

    return await cluster.hosts[node].start(run())


def test_a_connection_to_a_dead_controller_is_gone_at_once() -> None:
    """Long before there is another leader; no client is sent there meanwhile."""

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        node = next(each for each in cluster.hosts if each != leader)
        asking = client(cluster, node)
        assert not asking.is_connected_to(leader)
        await cluster.hosts[node].start(asking.submit(b"hello", 5.0))
        assert asking.is_connected_to(leader) and not asking.is_connected_to(node)
        cluster.crash(leader)
        await cluster.until(lambda: not asking.is_connected_to(leader), 0.01)

    run_scenario(script)


def test_every_voter_reaches_the_active_controller() -> None:
    """By call on the leader, over its channel elsewhere; the controller knows the caller."""

    async def script(cluster: QuorumCluster) -> None:
        known = await request_recorders(cluster)
        leader = await cluster.leader()
        for node in cluster.hosts:
            assert await ask(cluster, node, b"hello") == b"hello by %d" % leader
        assert known[leader].asked == [(b"hello", node) for node in cluster.hosts]

    run_scenario(script)


def test_an_observer_learns_where_the_controller_is() -> None:
    """It asks any voter and follows the hint."""

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        watcher = ObserverNode(cluster)
        await asyncio.sleep(0.01)
        answers: list[bytes] = []

        async def run() -> None:
            for _ in range(5):
                fresh = ControllerClient(SimEnv(watcher.host), watcher.observer)
                watcher.observer.leader_id = None
                answers.append(await fresh.submit(b"hello", 5))
                fresh.close()

        await watcher.host.start(run())
        assert answers == [b"hello by %d" % leader] * 5

    run_scenario(script)


def test_a_request_that_no_frame_holds_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs of megabytes, say: an assertion of the channel's ended the connection of the client that sent them."""
    monkeypatch.setattr(rpc, "MAX_REQUEST_BYTES", 100)

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        node = next(each for each in cluster.hosts if each != leader)
        with pytest.raises(InvalidRequest, match="101 bytes for the controller are over the limit of 100"):
            await ask(cluster, node, b"x" * 101)
        with pytest.raises(UnknownServerError, match="an answer of 103 bytes is over the limit of 100"):
            await ask(cluster, node, b"x" * 98)
        assert await ask(cluster, node, b"fits")

    run_scenario(script)


@pytest.mark.parametrize("payload", [b"nonsense", b"bug"])
def test_an_error_of_the_request_travels_and_is_not_retried(payload: bytes) -> None:
    """A KafkaError keeps its code and message; a bug of ours is an unknown server error, and the connection stays."""

    async def script(cluster: QuorumCluster) -> None:
        known = await request_recorders(cluster)
        leader = await cluster.leader()
        asker = next(node for node in cluster.hosts if node != leader)
        with pytest.raises(Exception) as told:
            await ask(cluster, asker, payload)
        assert (type(told.value), str(told.value)) == (
            (InvalidRequest, "that is nonsense")
            if payload == b"nonsense"
            else (rpc.UnknownServerError, "UnknownServerError")
        )
        assert len(known[leader].asked) == 1

    run_scenario(script)


def test_not_controller_is_retried() -> None:
    """A leader that is not active yet is asked again, soon."""

    async def script(cluster: QuorumCluster) -> None:
        known = await request_recorders(cluster)
        leader = await cluster.leader()
        for node in cluster.hosts:
            known[leader].asked.clear()
            started = cluster.loop.time()
            assert await ask(cluster, node, b"not yet") == b"not yet by %d" % leader
            assert cluster.loop.time() - started < 0.3

    run_scenario(script)


def test_a_request_outlives_the_controller_it_was_sent_to() -> None:
    """kill -9 of the controller while it works on a request: the next one answers."""

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        asker = next(node for node in cluster.hosts if node != leader)
        asking = cluster.loop.create_task(_ask_twice(cluster, asker))
        await asyncio.sleep(0.2)
        cluster.crash(leader)
        new = await cluster.leader(among=cluster.nodes)
        assert await asking == b"slow by %d" % new

    async def _ask_twice(cluster: QuorumCluster, asker: int) -> bytes:
        answer = ask(cluster, asker, b"slow", timeout=100)
        return await answer

    run_scenario(script)


def test_without_a_majority_a_request_times_out_with_a_retriable_error() -> None:
    """And within its time."""

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        survivor = next(node for node in cluster.hosts if node != leader)
        cluster.crash(*[node for node in cluster.hosts if node != survivor])
        started = cluster.loop.time()
        with pytest.raises(RequestTimedOut) as told:
            await ask(cluster, survivor, b"hello", timeout=2.0)
        assert told.value.retriable and cluster.loop.time() - started == pytest.approx(2.0, abs=0.1)

    run_scenario(script)


def test_many_requests_share_one_connection() -> None:
    """Answers come as they are ready, matched by number."""

    async def script(cluster: QuorumCluster) -> None:
        known = await request_recorders(cluster)
        leader = await cluster.leader()
        asker = next(node for node in cluster.hosts if node != leader)

        async def run() -> list[bytes]:
            asking = client(cluster, asker)
            slow = asyncio.ensure_future(asking.submit(b"slow", 90))
            answers = await asyncio.gather(*(asking.submit(b"%d" % each, 5) for each in range(50)))
            assert not slow.done()
            assert len(asking._callers) == 1
            await slow
            return answers

        answers = await cluster.hosts[asker].start(run())
        assert answers == [b"%d by %d" % (each, leader) for each in range(50)]
        assert len(known[leader].asked) == 51

    run_scenario(script)


def test_a_heartbeat_connection_that_drops_is_an_event() -> None:
    """The controller hears at once that a broker's process died, long before its session times out."""

    async def script(cluster: QuorumCluster) -> None:
        known = await request_recorders(cluster)
        leader = await cluster.leader()
        broker = next(node for node in cluster.hosts if node != leader)

        async def beat() -> None:
            asking = client(cluster, broker, kind="heartbeat")
            while True:
                await asking.submit(b"beat", 1)
                await asyncio.sleep(0.5)

        cluster.hosts[broker].start(beat())
        await cluster.until(lambda: known[leader].came == [broker], 1)
        assert cluster.nodes[leader].heartbeat_peers() == {broker}
        await asyncio.sleep(3)
        assert known[leader].went == [] and known[leader].came == [broker]
        cluster.crash(broker)
        await cluster.until(lambda: known[leader].went == [broker], 0.05)
        assert cluster.nodes[leader].heartbeat_peers() == frozenset()

    run_scenario(script)


def test_a_heartbeat_connection_that_is_replaced_is_no_loss() -> None:
    """A broker that reconnects before its old connection was seen to end is there all the time."""

    async def script(cluster: QuorumCluster) -> None:
        known = await request_recorders(cluster)
        leader = await cluster.leader()
        broker = next(node for node in cluster.hosts if node != leader)

        async def twice() -> None:
            first, second = (
                client(cluster, broker, kind="heartbeat"),
                client(cluster, broker, kind="heartbeat"),
            )
            await first.submit(b"beat", 1)
            await second.submit(b"beat", 1)
            first.close()
            await asyncio.sleep(1)
            second.close()

        await cluster.hosts[broker].start(twice())
        await asyncio.sleep(0.1)
        assert known[leader].came == [broker, broker] and known[leader].went == [broker]

    run_scenario(script)


def test_requests_of_one_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One peer cannot pile up work without limit."""
    monkeypatch.setattr(rpc, "MAX_IN_FLIGHT_REQUESTS", 5)

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        asker = next(node for node in cluster.hosts if node != leader)

        async def run() -> list[Any]:
            asking = client(cluster, asker)
            return await asyncio.gather(
                *(asking.submit(b"slow", 70) for _ in range(8)), return_exceptions=True
            )

        answers = await cluster.hosts[asker].start(run())
        assert [type(answer) for answer in answers].count(RequestTimedOut) == 3

    run_scenario(script)


def test_a_connection_that_fails_after_its_caller_gave_up_has_no_effect() -> None:
    """Dialling is shared, so it goes on; a simulation counts an unread error as a failure."""

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        asker = next(node for node in cluster.hosts if node != leader)
        cluster.loop.clog(cluster.hosts[leader], cluster.hosts[asker])
        asking = client(cluster, asker)

        async def run() -> None:
            with pytest.raises(RequestTimedOut):
                await asking.submit(b"hello", 0.1)

        await cluster.hosts[asker].start(run())
        await asyncio.sleep(2 * HANDSHAKE_SECONDS)

    run_scenario(script)


@pytest.mark.parametrize("connected", [True, False])
def test_a_request_leaves_a_controller_that_hangs_once_there_is_another(*, connected: bool) -> None:
    """Its connection stays, or its kernel accepts one: heartbeats waited for two seconds, and no leader was elected."""

    async def script(cluster: QuorumCluster) -> None:
        await request_recorders(cluster)
        leader = await cluster.leader()
        node = next(each for each in cluster.hosts if each != leader)
        asking = client(cluster, node)
        machine = cluster.machines[node]
        report = machine.leadership_changed

        def changed(*change: Any) -> None:
            report(*change)
            asking.leader_changed()

        machine.leadership_changed = changed  # type: ignore[method-assign]
        if connected:
            await cluster.hosts[node].start(asking.submit(b"hello", 5.0))
        cluster.hosts[leader].pause()
        began_at = cluster.loop.time()
        answer = await cluster.hosts[node].start(asking.submit(b"hello", 5.0))
        assert answer != b"hello by %d" % leader
        assert cluster.loop.time() < began_at + 1.5

    run_scenario(script)
