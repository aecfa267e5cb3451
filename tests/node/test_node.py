"""Claims about whole nodes, in virtual time: what a failure, a stop and a name of the cluster mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from raftlog.base.errors import KafkaError
from raftlog.metadata.requests import AllocateProducerIds, Request
from raftlog.node import CONTROLLED_SHUTDOWN_S, Node
from raftlog.proof.simulator import SimLoop, simulate
from raftlog.proof.simulator.cluster import SimCluster, SimNode


def play(script: Callable[[SimCluster], Awaitable[Any]], nodes: int = 3, **settings: str) -> Any:
    async def program(loop: SimLoop) -> Any:
        cluster = SimCluster(loop, nodes, settings={"min.insync.replicas": "1", **settings})
        return await script(cluster)

    return simulate(program, seed=nodes).result


def _format(place: SimNode, cluster_id: str) -> None:
    disk = place.host.disk
    disk.mkdir("/data")
    disk.write_file(
        "/data/meta.properties", f"version=1\nnode.id={place.node_id}\ncluster.id={cluster_id}\n".encode()
    )


async def _ask(node: Node, request: Request) -> None:
    try:
        await node.control.submit(request, timeout=5)
    except KafkaError:
        return


def test_a_formatted_folder_names_the_cluster() -> None:
    """`raftlog format --cluster-id` before the first start: the nodes agree on that name, and all join."""

    async def script(cluster: SimCluster) -> None:
        for place in cluster.nodes.values():
            _format(place, "chosen-beforehand")
        cluster.start()
        await cluster.until_ready()
        image = cluster.newest_image()
        assert image is not None and image.cluster_id == "chosen-beforehand"
        cluster.check()

    play(script, 1)
    play(script, 3)


def test_a_node_of_another_cluster_never_joins() -> None:
    """Its folder says so; the others go on without it."""

    async def script(cluster: SimCluster) -> None:
        _format(cluster.nodes[1], "ours")
        _format(cluster.nodes[2], "ours")
        _format(cluster.nodes[3], "theirs")
        cluster.start()
        await cluster.until_ready([1, 2])
        await asyncio.sleep(5)
        assert not cluster.nodes[3].ready
        image = cluster.newest_image()
        assert image is not None and set(image.brokers) == {1, 2} and image.cluster_id == "ours"

    play(script)


def test_a_voter_whose_journal_fails_ends_its_node() -> None:
    """EIO under the quorum: the node says why it cannot go on, and the others elect."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        leader = cluster.leader_id()
        assert leader is not None
        place = cluster.nodes[leader]
        assert place.node is not None and place.node.broker is not None
        place.host.disk.fail("any", under="/data/raftlog-metadata")
        request = AllocateProducerIds(leader, place.node.broker.lifecycle.broker_epoch)
        place.host.start(_ask(place.node, request))
        while cluster.leader_id() in (None, leader):
            await asyncio.sleep(0.1)
        assert len(cluster.failures) == 1 and "metadata quorum failed" in cluster.failures[0]

    play(script)


def test_a_node_without_a_majority_leaves_in_bounded_time() -> None:
    """Nobody can be asked for leave, so it waits for CONTROLLED_SHUTDOWN_S at most, then for its files."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        cluster.crash(1, 2)
        began_at = cluster.loop.time()
        cluster.leave(3)
        await cluster.until(lambda: not cluster.nodes[3].running, 30, "node 3 stopped")
        assert cluster.loop.time() - began_at < CONTROLLED_SHUTDOWN_S + 2.5
        assert cluster.nodes[3].host.disk.exists("/data/.kafka_cleanshutdown")

    play(script)


def test_the_active_controller_leaves_at_once() -> None:
    """It lets its own broker go and hands the quorum's lead on: no election by timeout (KIP-631)."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        leader = cluster.leader_id()
        assert leader is not None
        began_at = cluster.loop.time()
        cluster.leave(leader)
        await cluster.until(lambda: cluster.leader_id() not in (None, leader), 5, "another leads")
        await cluster.until(lambda: not cluster.nodes[leader].running, 5, "the node stopped")
        assert cluster.loop.time() - began_at < 0.5

    play(script)


def test_one_node_alone_leaves_at_once() -> None:
    """There is nobody to take its leaderships."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        began_at = cluster.loop.time()
        cluster.leave(1)
        await cluster.until(lambda: not cluster.nodes[1].running, 5, "the node stopped")
        assert cluster.loop.time() - began_at < 0.2

    play(script, 1)
