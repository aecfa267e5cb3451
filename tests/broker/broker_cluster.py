"""Brokers on a simulated network and disks: real replicas, fetchers, servers; the controller is one object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from raftlog.base.config import NodeConfig, load_config
from raftlog.base.errors import InvalidUpdateVersion, KafkaError, NotController
from raftlog.broker.context import BrokerContext
from raftlog.broker.dispatch import dispatch
from raftlog.broker.network.server import BrokerServer
from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.broker.replicas.replicas import Replicas
from raftlog.metadata.broker_requests import AlterPartition, AlterPartitionReply, IsrChange, IsrChangeResult
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.image import (
    EMPTY_IMAGE,
    BrokerState,
    Endpoint,
    MetadataImage,
    PartitionState,
    TopicState,
)
from raftlog.replication.partition import Partition
from raftlog_chaos.simulator import SimEnv, SimLoop, simulate
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import Run
from tests.replication.replica_cluster import NOW_MS, batch, values_in

PORT = 9092


class SimBroker:
    """One broker process on a host; `run` again after a crash."""

    def __init__(self, cluster: BrokerCluster, broker_id: int, settings: dict[str, str]) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.host: Host = cluster.loop.host(f"node{broker_id}")
        self.config: NodeConfig = load_config(
            {
                "node.id": str(broker_id),
                "log.dirs": "/data",
                "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
                "advertised.listeners": f"PLAINTEXT://node{broker_id}:{PORT}",
                "process.roles": "broker",
                "controller.quorum.voters": "9@node9:9093",
                "controller.listener.names": "CONTROLLER",
                "raftlog.cluster.secret": "a secret of the tests",
                **settings,
            }
        )
        self.image = EMPTY_IMAGE
        self.epoch = -1
        self.replicas: Replicas
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self.image = EMPTY_IMAGE
        self.ready = asyncio.Event()
        env = SimEnv(self.host)
        self.epoch = self.cluster.register(self.broker_id)
        self.replicas = Replicas(
            env, self.config, submit=self.submit, image=lambda: self.image, broker_epoch=lambda: self.epoch
        )
        await self.replicas.start()
        context = BrokerContext(
            env=env,
            config=self.config,
            image=lambda: self.image,
            submit=self.submit,
            replicas=self.replicas,
            broker_epoch=lambda: self.epoch,
        )
        self.server = BrokerServer(context, dispatch)
        self.replicas.touched.discard_listeners.append(self.server.sessions.detach)
        await self.server.start()
        self.housekeeping = Housekeeping(self.replicas)
        self.housekeeping.start()
        self.take(self.cluster.image)
        self.ready.set()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """A clean stop."""
        await self.server.stop(grace_s=0)
        await self.housekeeping.stop()
        await self.replicas.close()
        self.ready.clear()

    def take(self, image: MetadataImage) -> None:
        """The published image of this broker moves on."""
        if image.offset > self.image.offset:
            old, self.image = self.image, image
            self.replicas.on_metadata(old, image)

    def submit(self, request: Any, *, timeout: float | None = None) -> Awaitable[Any]:
        return self.cluster.answer(request)

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.replicas.partitions[topic, index]  # type: ignore[index]

    async def produce(self, *values: str, topic: str = "t", index: int = 0, acks: int = -1) -> str:
        """Append one batch; "committed", or the name of what went wrong."""
        partition = self.partition(topic, index)
        waiter = RecordedProduce()
        try:
            appended = partition.append_produced(batch(*values), acks=acks, now_ms=NOW_MS)
        except KafkaError as error:
            return type(error).__name__
        if acks != -1:
            return "appended"
        partition.await_commit(appended.end_offset, waiter)
        return await waiter.future

    def values(self, topic: str = "t", index: int = 0) -> list[str]:
        """All records in the log, committed or not."""
        log = self.partition(topic, index).log
        found: list[str] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, 1 << 20, end_offset=log.log_end_offset, cached=False)
            assert records
            new = values_in(records)
            found += new
            offset += len(new)
        return found


class RecordedProduce:
    """A producer that waits."""

    def __init__(self) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def committed(self, partition: Partition) -> None:
        self.future.set_result("committed")

    def failed(self, partition: Partition, error: KafkaError) -> None:
        self.future.set_result(type(error).__name__)


class BrokerCluster:
    """Brokers 1 … n, and the newest image. Their own id may be in `settings` as {id}."""

    def __init__(self, loop: SimLoop, size: int = 3, **settings: str) -> None:
        self.loop = loop
        self.image = EMPTY_IMAGE
        self.controller_is_away = False
        self.alterations: list[IsrChange] = []
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.brokers = {
            each: SimBroker(self, each, {key: value.format(id=each) for key, value in named.items()})
            for each in range(1, size + 1)
        }

    def __getitem__(self, broker_id: int) -> SimBroker:
        return self.brokers[broker_id]

    async def start(self, *broker_ids: int) -> None:
        chosen = [self.brokers[each] for each in broker_ids or self.brokers]
        for broker in chosen:
            broker.ready = asyncio.Event()
            broker.task = broker.host.start(broker.run())
        for broker in chosen:
            while not broker.ready.is_set():
                await asyncio.sleep(0.001)

    async def pass_time(self, seconds: float) -> None:
        """Virtual seconds."""
        await asyncio.sleep(seconds)

    # -- the controller -----------------------------------------------------------------------------------------

    def publish(self, **changes: Any) -> None:
        """The next image; every live broker gets it a moment later."""
        self.image = msgspec.structs.replace(self.image, offset=self.image.offset + 1, **changes)
        for broker in self.brokers.values():
            if broker.host.alive and broker.ready.is_set():
                broker.host.call(broker.take, self.image)

    def register(self, broker_id: int) -> int:
        epoch = self.image.offset + 100
        endpoint = Endpoint("PLAINTEXT", f"node{broker_id}", PORT)
        rack = self.brokers[broker_id].config.broker_rack
        state = BrokerState(
            broker_id,
            epoch,
            UUID(int=epoch),
            (endpoint,),
            rack=rack,
            fenced=False,
            features=SUPPORTED_FEATURES,
        )
        self.publish(brokers={**self.image.brokers, broker_id: state})
        return epoch

    def create(
        self,
        name: str = "t",
        *,
        partitions: int = 1,
        isr: tuple[int, ...] | None = None,
        replicas: tuple[int, ...] = (),
    ) -> None:
        ids = replicas or tuple(self.brokers)
        states = tuple(
            PartitionState(
                replicas=ids, isr=isr or ids, leader=ids[each % len(ids)] if isr is None else isr[0]
            )
            for each in range(partitions)
        )
        topic_id = UUID(int=self.image.offset + 1_000)
        self.publish(
            topics={**self.image.topics, name: TopicState(name, topic_id, states)},
            topic_names={**self.image.topic_names, topic_id: name},
        )

    def delete(self, name: str) -> None:
        gone = self.image.topics[name].topic_id
        self.publish(
            topics={key: topic for key, topic in self.image.topics.items() if key != name},
            topic_names={key: each for key, each in self.image.topic_names.items() if key != gone},
        )

    def change(self, name: str = "t", index: int = 0, **changes: Any) -> None:
        """Change a partition as a PartitionChanged record does."""
        topic = self.image.topics[name]
        state = topic.partitions[index]
        state = msgspec.structs.replace(
            state,
            partition_epoch=state.partition_epoch + 1,
            leader_epoch=state.leader_epoch + ("leader" in changes),
            **changes,
        )
        partitions = (*topic.partitions[:index], state, *topic.partitions[index + 1 :])
        topic = msgspec.structs.replace(topic, partitions=partitions)
        self.publish(topics={**self.image.topics, name: topic})

    async def answer(self, request: AlterPartition) -> AlterPartitionReply:
        await asyncio.sleep(0.001)
        if self.controller_is_away:
            raise NotController()
        results = []
        for change in request.changes:
            self.alterations.append(change)
            name = self.image.topic_names[change.topic_id]
            state = self.image.topics[name].partitions[change.partition]
            isr = tuple(member.broker_id for member in change.isr)
            current = (state.leader_epoch, state.partition_epoch)
            if current != (change.leader_epoch, change.partition_epoch):
                code = InvalidUpdateVersion.code
            else:
                code = 0
                self.change(name, change.partition, isr=isr)
            epochs = (change.leader_epoch, isr, change.partition_epoch + 1)
            results.append(IsrChangeResult(change.topic_id, change.partition, code, state.leader, *epochs))
        return AlterPartitionReply(tuple(results))

    def state(self, name: str = "t", index: int = 0) -> PartitionState:
        return self.image.topics[name].partitions[index]


async def until(condition: Any, *, within: float = 10.0) -> None:
    """Wait in virtual time; the condition is looked at ten thousand times at most."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(within / 10_000)


T = TypeVar("T")
Scenario = Callable[[BrokerCluster], Coroutine[Any, Any, T]]


def run_scenario(scenario: Scenario[T], *, seed: int = 0, size: int = 3, **settings: str) -> Run[T]:
    """Run a scenario in a world of `size` brokers that have started; at its end all of them are killed."""

    async def program(loop: SimLoop) -> T:
        cluster = BrokerCluster(loop, size, **settings)
        await cluster.start()
        try:
            return await scenario(cluster)
        finally:
            for broker in cluster.brokers.values():
                broker.host.crash()

    return simulate(program, seed=seed)
