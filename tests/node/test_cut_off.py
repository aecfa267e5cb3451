"""Claims about a leader that is cut off from the other nodes, but not from its clients; whole nodes in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from structlog.testing import capture_logs

from raftlog.base.errors import (
    NONE,
    CoordinatorNotAvailable,
    FetchSessionIdNotFound,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
)
from raftlog.records.batch import build_batch, new_record
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT, PORT, SimCluster
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Client,
    shapes,
)
from raftlog_chaos.workloads.simple import SimpleClient

TOPIC = "t"
GROUP = "g"
SESSION_S = 3.0
"""broker.session.timeout.ms, by default."""


def run_scenario(script: Callable[[Stage], Awaitable[Any]], nodes: int = 3) -> None:
    async def program(loop: SimLoop) -> None:
        cluster = SimCluster(loop, nodes, settings={"default.replication.factor": str(nodes)})
        cluster.start()
        await cluster.until_ready()
        stage = Stage(cluster)
        await loop.host("client").start(stage.begin())
        await loop.host("client").start(script(stage))
        cluster.check()

    simulate(program, seed=nodes)


class Stage:
    """A cluster with a topic, and a client of it. `leader` leads its partition."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.client = Client("client", cluster.bootstrap)
        self.simple = SimpleClient(self.client)
        self.leader = -1

    async def begin(self) -> None:
        await self.simple.create_topic(TOPIC)
        await self.cluster.until(self._has_leader, 10, "a leader")
        await self.simple.produce(TOPIC, 0, b"before")

    def _has_leader(self) -> bool:
        state = self.cluster.state(TOPIC, 0)
        self.leader = -1 if state is None else state.leader
        return self.leader > 0

    def others(self) -> list[int]:
        return [each for each in self.cluster.nodes if each != self.leader]

    def cut(self, *ports: int) -> None:
        """Cut the leader off from the other nodes, or all nodes at some ports."""
        loop, nodes = self.cluster.loop, self.cluster.nodes
        for one in nodes if ports else (self.leader,):
            for other in nodes:
                if one != other:
                    loop.clog(nodes[one].host, nodes[other].host, ports)
                    loop.clog(nodes[other].host, nodes[one].host, ports)

    def is_cut_off(self) -> bool:
        node = self.cluster.nodes[self.leader].node
        assert node is not None and node.broker is not None
        return bool(node.broker.context.silent_members)

    async def knows(self) -> None:
        """Wait until the leader knows that it is cut off, and has closed its connections."""
        await self.cluster.until(self.is_cut_off, 10, "it knows")
        await asyncio.sleep(0.1)

    async def ask(self, api_key: int, message: Any) -> Any:
        """Ask the leader."""
        return await self.client.ask((f"node{self.leader}", PORT), api_key, message)

    async def produce(self, acks: int) -> int:
        batch = build_batch([new_record(None, b"more", timestamp=-1)])
        response = await self.ask(PRODUCE, produce_request((TOPIC, 0), batch, acks=acks))
        return int(response.responses[0].partition_responses[0].error_code)

    async def fetch(self) -> int:
        response = await self.fetch_in_session(0, -1)
        return int(response.responses[0].partitions[0].error_code)

    async def fetch_in_session(self, session_id: int, epoch: int) -> Any:
        """Fetch with a session (KIP-227), or without a session: epoch -1."""
        make = shapes(FETCH)
        wanted = make.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        topic = make.FetchTopic(topic=TOPIC, partitions=(wanted,))
        request = make.FetchRequest(
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=() if epoch > 0 else (topic,),
        )
        return await self.ask(FETCH, request)

    async def end_offset(self) -> int:
        make = shapes(LIST_OFFSETS)
        wanted = make.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topic = make.ListOffsetsTopic(name=TOPIC, partitions=(wanted,))
        response = await self.ask(LIST_OFFSETS, make.ListOffsetsRequest(replica_id=-1, topics=(topic,)))
        return int(response.topics[0].partitions[0].error_code)

    async def metadata(self) -> Any:
        make = shapes(METADATA)
        topic = make.MetadataRequestTopic(topic_id=None, name=TOPIC)
        request = make.MetadataRequest(topics=(topic,), allow_auto_topic_creation=False)
        return await self.ask(METADATA, request)

    async def coordinator(self) -> Any:
        request = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=GROUP, key_type=0)
        return await self.ask(FIND_COORDINATOR, request)

    async def heartbeat(self) -> int:
        request = shapes(HEARTBEAT).HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
        return int((await self.ask(HEARTBEAT, request)).error_code)


def test_a_leader_that_is_cut_off_refuses_clients_and_serves_them_again_later() -> None:
    """NOT_LEADER_OR_FOLLOWER for records and offsets, whatever acks; after the cut all is well by itself."""

    async def script(stage: Stage) -> None:
        stage.cut()
        await stage.knows()
        assert await stage.produce(acks=1) == NotLeaderOrFollower.code
        assert await stage.produce(acks=-1) == NotLeaderOrFollower.code
        assert await stage.fetch() == NotLeaderOrFollower.code
        assert await stage.end_offset() == NotLeaderOrFollower.code
        stage.cluster.loop.heal()
        await stage.cluster.until(lambda: not stage.is_cut_off(), 20, "it is in touch again")
        await stage.cluster.until(stage._has_leader, 20, "a leader")
        await stage.cluster.until(stage.cluster.all_in_sync, 20, "all in sync")
        assert await stage.produce(acks=-1) == NONE

    run_scenario(script)


def test_metadata_names_no_leader_but_all_brokers_and_then_the_connection_ends() -> None:
    """librdkafka, Java and KafkaJS ask the broker that they are connected to; so they have to connect to another."""

    async def script(stage: Stage) -> None:
        assert (await stage.metadata()).topics[0].partitions[0].leader_id == stage.leader
        stage.cut()
        await stage.knows()
        address = (f"node{stage.leader}", PORT)
        answer = await stage.metadata()
        partition = answer.topics[0].partitions[0]
        assert (int(partition.error_code), partition.leader_id) == (LeaderNotAvailable.code, -1)
        assert {each.node_id for each in answer.brokers} == {1, 2, 3}
        wire = stage.client._wires[address]
        await stage.cluster.until(lambda: wire.closed, 1, "the connection ends")

    run_scenario(script)


def test_connections_of_clients_end_when_their_broker_knows_that_it_is_cut_off() -> None:
    """An acks=all request that waits there hears of it long before its own time is over."""

    async def script(stage: Stage) -> None:
        stage.client.timeout_s = 60.0
        stage.cut()
        began_at = stage.cluster.loop.time()
        batch = build_batch([new_record(None, b"more", timestamp=-1)])
        request = produce_request((TOPIC, 0), batch)
        request = dataclasses.replace(request, timeout=request.timeout * 40)
        try:
            await stage.ask(PRODUCE, request)
        except ConnectionError:
            pass
        else:
            raise AssertionError("it was answered")
        assert SESSION_S - 1.0 < stage.cluster.loop.time() - began_at < SESSION_S + 5.0

    run_scenario(script)


def test_a_fetch_session_does_not_outlive_the_leadership() -> None:
    """It leaves out partitions without news, so a consumer that came back with it would wait for ever."""

    async def script(stage: Stage) -> None:
        session_id = int((await stage.fetch_in_session(0, 0)).session_id)
        assert session_id
        stage.cut()
        await stage.knows()
        answer = await stage.fetch_in_session(session_id, 1)
        assert int(answer.error_code) == FetchSessionIdNotFound.code

    run_scenario(script)


def test_groups_are_sent_away_from_a_coordinator_that_is_cut_off() -> None:
    """Its members' heartbeats would be answered for ever, while others have rebalanced elsewhere."""

    async def script(stage: Stage) -> None:
        await stage.cluster.until(stage._has_leader, 10, "a leader")
        found = await stage.coordinator()
        while int(found.error_code):
            await asyncio.sleep(0.1)
            found = await stage.coordinator()
        stage.leader = int(found.node_id)
        await asyncio.sleep(1.0)  # its followers follow
        stage.cut()
        await stage.knows()
        assert await stage.heartbeat() == NotCoordinator.code
        assert int((await stage.coordinator()).error_code) == CoordinatorNotAvailable.code

    run_scenario(script)


def test_brokers_serve_on_while_there_is_no_controller() -> None:
    """As Apache Kafka's do: their followers still fetch, so no other leader was elected."""

    async def script(stage: Stage) -> None:
        stage.cut(CONTROLLER_PORT)
        for _ in range(30):
            await asyncio.sleep(0.5)
            assert not stage.is_cut_off()
            assert await stage.produce(acks=-1) == NONE
            assert await stage.fetch() == NONE

    with capture_logs() as logs:
        run_scenario(script)
    assert not [each for each in logs if each["event"] == "controller_session_lost"]


def test_a_controllers_failover_refuses_nothing() -> None:
    """An election is over long before a session."""

    async def script(stage: Stage) -> None:
        cluster = stage.cluster
        for _ in range(3):
            leader = cluster.leader_id()
            assert leader is not None
            cluster.crash(leader)
            await cluster.until(lambda gone=leader: cluster.leader_id() not in (None, gone), 10, "a new one")
            await asyncio.sleep(1.0)
            cluster.start(leader)
            await cluster.until_ready()
            await cluster.until(cluster.all_in_sync, 20, "all in sync")

    with capture_logs() as logs:
        run_scenario(script)
    assert not [each for each in logs if each["event"] == "controller_session_lost"]


def test_nodes_that_all_stood_still_doubt_nothing() -> None:
    """A suspended machine with a whole cluster on it wakes up, and goes on."""

    async def script(stage: Stage) -> None:
        cluster = stage.cluster
        for each in cluster.nodes:
            cluster.pause(each)
        await asyncio.sleep(20.0)
        for each in cluster.nodes:
            cluster.resume(each)
        await asyncio.sleep(10.0)
        await cluster.until(cluster.all_in_sync, 20, "all in sync")

    with capture_logs() as logs:
        run_scenario(script)
    assert not [each for each in logs if each["event"] == "controller_session_lost"]


def test_a_node_alone_is_never_cut_off() -> None:
    """No other node could lead its partitions, however long it stood still."""

    async def script(stage: Stage) -> None:
        stage.cluster.pause(1)
        await asyncio.sleep(20.0)
        stage.cluster.resume(1)
        assert await stage.produce(acks=-1) == NONE
        await asyncio.sleep(5.0)
        assert not stage.is_cut_off()
        assert await stage.fetch() == NONE

    run_scenario(script, nodes=1)
