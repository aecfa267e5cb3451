"""Claims about whole nodes, in virtual time: what a failure, a stop and a name of the cluster mean."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.base.errors import KafkaError
from raftlog.metadata.bootstrap import BOOTSTRAP, write_bootstrap
from raftlog.metadata.broker_requests import AllocateProducerIds
from raftlog.metadata.controller_api import (
    PREFERRED,
    AlterConfigs,
    AlterScramCredentials,
    ConfigAlteration,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Done,
    ElectLeaders,
    NewPartitions,
    NewTopic,
    Request,
    ScramAlteration,
    TopicRef,
    UnregisterBroker,
)
from raftlog.metadata.metadata_records import ScramCredentialChanged
from raftlog.node import CONTROLLED_SHUTDOWN_S, Node
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.quorum.quorum import LEADERLESS_S
from raftlog.security.scram import MIN_ITERATIONS, credential
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT, SimCluster, SimNode
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.simple import SimpleClient

DESCRIBE_CLUSTER = ApiKey.DESCRIBE_CLUSTER


def run_scenario(script: Callable[[SimCluster], Awaitable[Any]], nodes: int = 3, **settings: str) -> Any:
    async def program(loop: SimLoop) -> Any:
        cluster = SimCluster(loop, nodes, settings={"min.insync.replicas": "1", **settings})
        return await script(cluster)

    return simulate(program, seed=nodes).result


def _format(sim_node: SimNode, cluster_id: str) -> None:
    disk = sim_node.host.disk
    disk.mkdir("/data")
    disk.write_file(
        "/data/meta.properties", f"version=1\nnode.id={sim_node.node_id}\ncluster.id={cluster_id}\n".encode()
    )


async def _ask(node: Node, request: Request) -> None:
    try:
        await node.control.submit(request, timeout=5)
    except KafkaError:
        return


def test_a_formatted_folder_names_the_cluster() -> None:
    """`raftlog format --cluster-id` before the first start: the nodes agree on that name, and all join."""

    async def script(cluster: SimCluster) -> None:
        for sim_node in cluster.nodes.values():
            _format(sim_node, "chosen-beforehand")
        cluster.start()
        await cluster.until_ready()
        image = cluster.newest_image()
        assert image is not None and image.cluster_id == "chosen-beforehand"
        cluster.check()

    run_scenario(script, 1)
    run_scenario(script, 3)


def test_users_of_a_formatted_folder_are_there_from_the_first_moment_and_come_once() -> None:
    """`raftlog format --add-scram`: the first controller brings its own users; later changes are not undone."""

    async def script(cluster: SimCluster) -> None:
        for sim_node in cluster.nodes.values():
            kept = credential("SCRAM-SHA-256", f"of node {sim_node.node_id}", b"salt", MIN_ITERATIONS)
            write_bootstrap(
                sim_node.host.disk, "/data", [ScramCredentialChanged("admin", "SCRAM-SHA-256", kept)]
            )
        with capture_logs() as logs:
            cluster.start()
            await cluster.until_ready()
        assert [each["user"] for each in logs if each["event"] == "scram_credential_set"] == ["admin"]
        disks = [node.host.disk for node in cluster.nodes.values()]
        left = [name for disk in disks for name in disk.listdir("/data") if name.startswith(BOOTSTRAP)]
        assert not left, "the credentials are in the metadata"
        leader = cluster.leader_id()
        assert leader is not None
        image = cluster.newest_image()
        assert image is not None
        assert image.scram["admin", "SCRAM-SHA-256"] == credential(
            "SCRAM-SHA-256", f"of node {leader}", b"salt", MIN_ITERATIONS
        )
        node = cluster.nodes[leader].node
        assert node is not None
        removed = AlterScramCredentials((ScramAlteration("admin", "SCRAM-SHA-256", None),))
        await cluster.nodes[leader].host.start(_ask(node, removed))
        cluster.restart(*cluster.nodes)
        await cluster.until_ready()
        image = cluster.newest_image()
        assert image is not None and not image.scram
        cluster.check()

    run_scenario(script, 1)
    run_scenario(script, 3)


def test_a_voter_whose_bootstrap_file_is_damaged_does_not_start() -> None:
    """No user could log in to the cluster otherwise; the message names the file, without its content."""

    async def script(cluster: SimCluster) -> None:
        disk = cluster.nodes[1].host.disk
        disk.mkdir("/data")
        disk.write_file(f"/data/{BOOTSTRAP}", b'{"version": 1, "scram": "secret"}')
        cluster.start()
        await asyncio.sleep(5)
        assert not cluster.nodes[1].ready
        (told,) = cluster.failures
        assert f"/data/{BOOTSTRAP} is not what raftlog format wrote" in told and "secret" not in told

    run_scenario(script, 1)


def test_a_node_of_another_cluster_never_joins() -> None:
    """Its folder says so; the others go on without it."""

    async def script(cluster: SimCluster) -> None:
        for each in cluster.nodes.values():
            _format(each, "ours")
        cluster.start()
        await cluster.until_ready()
        cluster.crash(3)
        disk = cluster.nodes[3].host.disk
        with disk.undisturbed():
            disk.rmtree("/data")
        _format(cluster.nodes[3], "theirs")
        cluster.start(3)
        await asyncio.sleep(30)
        assert not cluster.nodes[3].ready
        image = cluster.newest_image()
        assert image is not None and image.brokers[3].fenced and image.cluster_id == "ours"

    run_scenario(script)


def test_a_voter_whose_journal_fails_ends_its_node() -> None:
    """EIO under the quorum: the node says why it cannot go on, and the others elect."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        leader = cluster.leader_id()
        assert leader is not None
        sim_node = cluster.nodes[leader]
        assert sim_node.node is not None and sim_node.node.broker is not None
        sim_node.host.disk.fail("any", under="/data/raftlog-metadata")
        request = AllocateProducerIds(leader, sim_node.node.broker.lifecycle.broker_epoch)
        sim_node.host.start(_ask(sim_node.node, request))
        while cluster.leader_id() in (None, leader):
            await asyncio.sleep(0.1)
        assert len(cluster.failures) == 1 and "metadata quorum failed" in cluster.failures[0]

    run_scenario(script)


def test_a_node_whose_last_log_directory_fails_ends() -> None:
    """As Kafka's: a broker without a disk is useless, and would be fenced for ever (jepsen seed 32)."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        sim_node = cluster.nodes[2]
        assert sim_node.node is not None and sim_node.node.broker is not None
        logs = sim_node.node.broker.replicas.logs
        logs.fail(logs.volumes[0], OSError(errno.EIO, "it rots"))
        await asyncio.sleep(0.1)
        assert cluster.failures == ["node 2 stopped itself: no log directory is left that works"]

    run_scenario(script)


def test_the_quorums_settings_are_those_of_the_config() -> None:
    """They were shown as in force, but had no effect."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        node = cluster.nodes[1].node
        assert node is not None and node.control.quorum is not None
        assert node.control.quorum.driver.election.timing.election_min == 0.7
        assert node.control.quorum.snapshot_policy.size_bytes == 12_345
        assert node.control.quorum.snapshot_policy.interval_s == 67

    settings = {
        "controller.quorum.election.timeout.ms": "700",
        "metadata.log.max.record.bytes.between.snapshots": "12345",
        "metadata.log.max.snapshot.interval.ms": "67000",
    }
    run_scenario(script, 1, **settings)


def test_a_node_that_finds_no_majority_at_its_start_ends_in_the_time_it_was_given() -> None:
    """initial.broker.registration.timeout.ms, as with Apache Kafka."""

    async def script(cluster: SimCluster) -> None:
        cluster.start(1)
        await _until_failed(cluster, 40)
        (failure,) = cluster.failures
        assert "within 20 s (initial.broker.registration.timeout.ms)" in failure

    run_scenario(script, **{"initial.broker.registration.timeout.ms": "20000"})


async def _until_failed(cluster: SimCluster, seconds: float) -> None:
    end = cluster.loop.time() + seconds
    while not cluster.failures and cluster.loop.time() < end:
        await asyncio.sleep(0.1)


def test_a_node_without_a_majority_leaves_in_bounded_time() -> None:
    """No controller can give leave, so it waits for CONTROLLED_SHUTDOWN_S at most, then for its files."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        cluster.crash(1, 2)
        began_at = cluster.loop.time()
        cluster.leave(3)
        await cluster.until(lambda: not cluster.nodes[3].running, 30, "node 3 stopped")
        assert cluster.loop.time() - began_at < CONTROLLED_SHUTDOWN_S + 2.5
        assert cluster.nodes[3].host.disk.exists("/data/.kafka_cleanshutdown")

    run_scenario(script)


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

    run_scenario(script)


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "stopped"])
def test_a_node_whose_end_takes_long_hands_over_first(fails: bool) -> None:
    """Stopped after the broker, the quorum led on for as long as the broker's logs took to be synced."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        leader = cluster.leader_id()
        assert leader is not None
        node = cluster.nodes[leader].node
        assert node is not None and node.broker is not None
        stopped: list[float] = []

        async def take_long() -> None:
            await asyncio.sleep(43)
            stopped.append(cluster.loop.time())

        node.broker.stop = take_long  # type: ignore[method-assign]
        began_at = cluster.loop.time()
        if fails:
            cluster.nodes[leader].troubled = True  # it may end itself, so that the scenario goes on
            cluster.nodes[leader].host.call(node.fail, "something of ours is broken")
            assert node.control.quorum is not None
            await asyncio.sleep(0.01)
            assert node.ending and node.control.quorum.driver.candidacy_stopped
            return
        cluster.nodes[leader].host.start(node.stop())
        await cluster.until(lambda: cluster.leader_id() not in (None, leader), 2, "another leads")
        while not stopped:
            await asyncio.sleep(0.05)
            assert cluster.leader_id() != leader
        assert cluster.loop.time() - began_at > 43

    run_scenario(script)


def test_one_node_alone_leaves_at_once() -> None:
    """No other node could take its leaderships."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        began_at = cluster.loop.time()
        cluster.leave(1)
        await cluster.until(lambda: not cluster.nodes[1].running, 5, "the node stopped")
        assert cluster.loop.time() - began_at < 0.2

    run_scenario(script, 1)


@pytest.mark.parametrize("crash_after_ms", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
def test_a_controller_that_dies_under_a_request_causes_no_false_error(crash_after_ms: float) -> None:
    """At whatever moment: the topic is created, or deleted, once, and that is what the client hears."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        for request in (CreateTopics((NewTopic("t", 1, 3),)), DeleteTopics((TopicRef("t"),))):
            leader = cluster.leader_id()
            assert leader is not None
            asker = next(each for each in cluster.nodes.values() if each.node_id != leader)
            assert asker.node is not None
            asked = asker.host.start(_answer(asker.node, request))
            await asyncio.sleep(crash_after_ms / 1000)
            cluster.crash(leader)
            reply = await asked
            assert [(each.name, each.error_code) for each in reply.results] == [("t", 0)]
            cluster.start(leader)
            await cluster.until_ready()

    run_scenario(script)


async def _answer(node: Node, request: Request) -> Any:
    return await node.control.submit(request, timeout=20)


def test_without_a_majority_every_change_is_refused_in_time_and_nothing_is_half_done() -> None:
    """A retriable error each; once the majority is back, what was refused is wholly there or not at all."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        survivor = cluster.leader_id()
        assert survivor is not None
        others = [each for each in cluster.nodes if each != survivor]
        sim_node = cluster.nodes[survivor]
        node = sim_node.node
        assert node is not None and node.broker is not None
        epoch = node.broker.lifecycle.broker_epoch
        await sim_node.host.start(_answer(node, CreateTopics((NewTopic("there", 2, 3),))))
        cluster.crash(*others)
        changes: list[Request] = [
            CreateTopics((NewTopic("new", 3, 1),)),
            DeleteTopics((TopicRef("there"),)),
            CreatePartitions((NewPartitions("there", 5),)),
            AlterConfigs((ConfigAlteration("topic", "there", (ConfigOp("retention.ms", "1"),)),)),
            AllocateProducerIds(survivor, epoch),
            ElectLeaders(PREFERRED),
        ]
        began_at = cluster.loop.time()
        outcomes = await asyncio.gather(*(sim_node.host.start(_refusal(node, each)) for each in changes))
        assert outcomes == ["RequestTimedOut"] * len(changes)
        assert cluster.loop.time() - began_at < 3.5
        cluster.start(*others)
        await cluster.until_ready()
        image = cluster.newest_image()
        assert image is not None
        assert len(image.topics["new"].partitions) == 3 if "new" in image.topics else True
        assert len(image.topics["there"].partitions) in (2, 5) if "there" in image.topics else True
        await sim_node.host.start(_answer(node, CreateTopics((NewTopic("after", 1, 3),))))
        cluster.check()

    run_scenario(script)


async def _refusal(node: Node, request: Request) -> str:
    try:
        await node.control.submit(request, timeout=3)
    except KafkaError as error:
        return type(error).__name__
    return "answered"


def test_a_node_that_finds_no_majority_names_the_missing_voters() -> None:
    """The first of three that is started waits for others: once said, with addresses, and not when all is well."""

    async def script(cluster: SimCluster) -> list[list[Any]]:
        def complaints() -> list[Any]:
            return [each for each in logs if each["event"] == "quorum_leader_not_found"]

        found = []
        cluster.start()
        await cluster.until_ready()
        cluster.crash(1, 2, 3)
        with capture_logs() as logs:
            cluster.start(1)
            await asyncio.sleep(3 * LEADERLESS_S)
            found.append(complaints())
            cluster.start(2)
            await asyncio.sleep(3 * LEADERLESS_S)
            found.append(complaints())
            cluster.crash(2)
            await asyncio.sleep(3 * LEADERLESS_S)
            found.append(complaints())
        return found

    alone, together, alone_again = run_scenario(script)
    assert len(alone) == 1 and together == alone and len(alone_again) == 2
    for each in (alone[0], alone_again[1]):
        assert (each["log_level"], each["votes_needed"]) == ("warning", 2)
        assert each["voters"] == ["1@node1:9093", "2@node2:9093", "3@node3:9093"]
        assert each["unreached"] == ["2@node2:9093", "3@node3:9093"]


def test_a_running_broker_that_is_unregistered_hands_over_and_comes_back_with_its_next_start() -> None:
    """Its leaderships go to replicas in sync at once; it is no broker and no member of an ISR until it is restarted."""

    async def script(cluster: SimCluster) -> None:
        cluster.start()
        await cluster.until_ready()
        controller = cluster.leader_id()
        assert controller is not None
        victim = controller % 3 + 1
        sim_node = cluster.nodes[controller]
        assert sim_node.node is not None
        order = tuple(dict.fromkeys((victim, 1, 2, 3)))
        topic = NewTopic("t", assignments={0: order})
        await sim_node.host.start(_answer(sim_node.node, CreateTopics((topic,))))
        await cluster.until(lambda: _leads(cluster, victim), 5, "it leads")
        assert await sim_node.host.start(_answer(sim_node.node, UnregisterBroker(victim))) == Done()
        await cluster.until(lambda: not _leads(cluster, victim), 1, "another leads")
        await asyncio.sleep(10)
        image = cluster.last_image()
        assert victim not in image.brokers
        state = image.topics["t"].partitions[0]
        assert state.leader not in (-1, victim) and victim not in state.isr
        cluster.restart(victim)
        await cluster.until_ready()
        await cluster.until(
            lambda: victim in cluster.last_image().topics["t"].partitions[0].isr, 10, "it is in sync again"
        )

    run_scenario(script)


def _leads(cluster: SimCluster, broker_id: int) -> bool:
    topic = cluster.last_image().topics.get("t")
    return topic is not None and topic.partitions[0].leader == broker_id


async def _describe(address: tuple[str, int]) -> Any:
    make = request_builders(DESCRIBE_CLUSTER, 1)
    message = make.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    return await Client("client", [address]).ask(address, DESCRIBE_CLUSTER, message, version=1)


def test_a_controller_without_acls_serves_no_client_if_brokers_have_acls() -> None:
    """A stranger deleted topics and created users at a dedicated controller that did not know the brokers' settings."""

    async def script(cluster: SimCluster) -> None:
        for node_id, each in cluster.nodes.items():
            is_broker = node_id != 3
            each.config = dataclasses.replace(
                each.config,
                roles=frozenset({"broker", "controller"} if is_broker else {"controller"}),
                listeners=tuple(
                    one for one in each.config.listeners if is_broker or one.name == "CONTROLLER"
                ),
                authorizer_class_name=STANDARD_AUTHORIZER if is_broker else "",
                super_users=("User:ANONYMOUS",),
            )
        cluster.start()
        await cluster.until_ready((1, 2))
        assert not cluster.last_image().acls
        assert (await _describe(("node1", CONTROLLER_PORT))).error_code == 0
        node = cluster.nodes[3].node
        assert node is not None
        while not node.knows_rules():
            await asyncio.sleep(0.1)
        with capture_logs() as logs, pytest.raises(OSError):
            await _describe(("node3", CONTROLLER_PORT))
        (told,) = (each for each in logs if each["event"] == "controller_client_refused")
        assert "set authorizer.class.name and super.users as on brokers" in told["reason"]
        cluster.check()

    settings = {"default.replication.factor": "2", "raftlog.controller.anonymous.clients": "true"}
    run_scenario(script, **settings)


def test_every_controller_serves_kafka_clients_on_its_own_listener() -> None:
    """KIP-919: a node that is no broker, too; what changes the metadata is forwarded to the active controller."""

    async def script(cluster: SimCluster) -> None:
        sim_node = cluster.nodes[1]
        sim_node.config = dataclasses.replace(
            sim_node.config,
            roles=frozenset({"controller"}),
            listeners=tuple(each for each in sim_node.config.listeners if each.name == "CONTROLLER"),
        )
        cluster.start()
        await cluster.until_ready((2, 3))
        for node_id, each in cluster.nodes.items():
            address = (each.host.name, CONTROLLER_PORT)
            described = await _describe(address)
            assert [one.broker_id for one in described.brokers] == [1, 2, 3]
            assert described.controller_id == cluster.leader_id()
            client, name = SimpleClient(Client("client", [address])), f"from-{node_id}"
            await client.create_topic(name, partitions=1)
            image = each.node.metadata.published_image  # type: ignore[union-attr]
            assert name in image.topics, "who asks next of the same node sees it"
        await asyncio.sleep(1)
        await cluster.nodes[1].node.stop()  # type: ignore[union-attr]
        with pytest.raises(OSError):
            await _describe(("node1", CONTROLLER_PORT))
        cluster.check()

    settings = {"default.replication.factor": "2", "raftlog.controller.anonymous.clients": "true"}
    run_scenario(script, **settings)


def test_only_the_active_of_controllers_that_are_no_brokers_deletes_by_age() -> None:
    """No broker confirms the clocks of the others, and an alert for that would never end."""

    async def script(cluster: SimCluster) -> None:
        for node_id in (1, 2):
            sim_node = cluster.nodes[node_id]
            sim_node.config = dataclasses.replace(
                sim_node.config,
                roles=frozenset({"controller"}),
                listeners=tuple(each for each in sim_node.config.listeners if each.name == "CONTROLLER"),
            )
        cluster.start()
        await cluster.until_ready((3,))
        nodes = {node_id: each.node for node_id, each in cluster.nodes.items()}
        deleting = {node_id for node_id, each in nodes.items() if each is not None and each.deletes_by_age()}
        assert deleting == {3, cluster.leader_id()}
        cluster.check()

    run_scenario(script, **{"default.replication.factor": "1"})
