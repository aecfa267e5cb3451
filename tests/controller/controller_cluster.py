"""A quorum in one list, for controller tests: batches are appended, committed one by one, or lost with their leader."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import msgspec

from raftlog.base.config import NodeConfig
from raftlog.base.errors import NotController
from raftlog.base.record_ages import Ages
from raftlog.controller.controller import Controller
from raftlog.metadata.broker_requests import (
    AlterPartition,
    BrokerHeartbeat,
    IsrChange,
    IsrMember,
    RegisterBroker,
)
from raftlog.metadata.controller_api import CreateTopics, NewTopic, decode_reply, decode_request, encode
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.history import History
from raftlog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage, SupportedFeature
from raftlog.metadata.metadata_records import Batch, decode_batch, encode_batch
from raftlog.metadata.record_replay import apply_batch
from raftlog.metadata.snapshot import decode_image, encode_image

WALL_MS = 1_700_000_000_000

ENDPOINTS = (Endpoint("PLAINTEXT", "host", 9092),)


class ControllerCluster:
    """Some controllers over one journal. `commit_at_once`: every append is committed before it returns."""

    def __init__(self, controllers: int = 1, *, commit_at_once: bool = True, **config: Any) -> None:
        self.now = 100.0
        self.term = 0
        self.leader: int | None = None
        self.commit_at_once = commit_at_once
        self.journal: list[bytes] = []
        self.commit_index = 0
        self.images: dict[int, MetadataImage] = dict.fromkeys(range(1, controllers + 1), EMPTY_IMAGE)
        self.probes: list[int] = []
        self.incarnations = 0
        self.disks: dict[int, UUID] = {}
        self.refusals = 0
        self.controllers = {
            node_id: Controller(
                node_id,
                NodeConfig(node_id=node_id, **config),
                Random(node_id),
                append=lambda batch, node_id=node_id: self._append(node_id, batch),
                probe=self.probes.append,
                cluster_id=lambda: config.get("cluster_id"),
            )
            for node_id in self.images
        }
        self.history: History | None = None
        for controller in self.controllers.values():
            controller.wall_clock_ms = self.wall_clock_ms
            controller.ages = Ages(self.wall_clock_ms, lambda: self.now)

    def keep_history(self) -> None:
        """Keep the history of all batches from now on, for all controllers."""
        self.history = History()
        for controller in self.controllers.values():
            controller.history = self.history

    def wall_clock_ms(self) -> int:
        """The wall clock goes on with the loop's, from an hour of its own."""
        return WALL_MS + int(self.now * 1000)

    # --- the quorum

    def _append(self, node_id: int, batch: Batch) -> None:
        if self.refusals or node_id != self.leader:
            self.refusals = max(0, self.refusals - 1)
            raise NotController
        self.journal.append(encode_batch(msgspec.structs.replace(batch, at_ms=self.wall_clock_ms())))
        if self.commit_at_once:
            self.commit()

    def commit(self, batches: int | None = None) -> None:
        """Commit so many batches, or all."""
        left = len(self.journal) if batches is None else batches
        while left and self.commit_index < len(self.journal):
            left -= 1
            self._commit_one()

    def _commit_one(self) -> None:
        batch = decode_batch(self.journal[self.commit_index])
        self.commit_index += 1
        for node_id, image in list(self.images.items()):
            after = apply_batch(image, batch)
            if after is not None:
                self.images[node_id] = after
                if node_id == 1 and self.history is not None:
                    self.history.add_batch(image, after, batch)
        for node_id, controller in self.controllers.items():
            controller.committed(self.images[node_id], self.now)

    def elect(self, node_id: int, *, keep: int | None = None) -> None:
        """Another leader: of the uncommitted tail only the first `keep` batches survive (None: all)."""
        if keep is not None:
            del self.journal[self.commit_index + keep :]
        old, self.leader = self.leader, node_id
        self.term += 1
        self.controllers[node_id].on_elected(self.term, self.images[node_id], self.now)
        if old is not None and old != node_id:
            self.controllers[old].resign()

    def restart_from_snapshot(self, node_id: int) -> None:
        """A node comes back with what its snapshot holds."""
        self.images[node_id] = decode_image(encode_image(self.images[node_id]))

    # --- asking

    @property
    def image(self) -> MetadataImage:
        return self.images[1]

    @property
    def active(self) -> Controller:
        assert self.leader is not None
        return self.controllers[self.leader]

    def submit(self, request: Any, *, peer: int | None = None) -> list[Any]:
        """Ask the leader's controller; the reply is in the list once it has come."""
        replies: list[Any] = []
        self.active.submit(
            decode_request(encode(request)),
            lambda reply: replies.append(decode_reply(encode(reply))),
            self.now,
            peer=peer,
        )
        return replies

    def ask(self, request: Any, *, peer: int | None = None) -> Any:
        """Ask and return the one reply."""
        (reply,) = self.submit(request, peer=peer)
        return reply

    def advance(self, seconds: float, *, heartbeats: tuple[int, ...] = ()) -> None:
        """Let time pass, in steps of 100 ms, with ticks; `heartbeats` are the brokers that go on sending theirs."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.1)
            for broker_id in heartbeats:
                self.heartbeat(broker_id)
            self.active.tick(self.now)

    # --- brokers

    def register(
        self,
        broker_id: int,
        *,
        incarnation: int | None = None,
        wiped: bool = False,
        rack: str | None = None,
        features: tuple[SupportedFeature, ...] = SUPPORTED_FEATURES,
    ) -> Any:
        """Register a broker as a new incarnation on its old disk, or on a new disk."""
        self.incarnations += 1
        if wiped or broker_id not in self.disks:
            self.disks[broker_id] = UUID(int=1_000 + self.incarnations)
        number = self.incarnations if incarnation is None else incarnation
        request = RegisterBroker(
            broker_id=broker_id,
            incarnation_id=UUID(int=number),
            cluster_id=self.image.cluster_id,
            endpoints=ENDPOINTS,
            rack=rack,
            directory_ids=(self.disks[broker_id],),
            features=features,
        )
        return self.ask(request) if self.commit_at_once else self.submit(request)

    def heartbeat(self, broker_id: int, **fields: Any) -> Any:
        """Send the heartbeat of a broker that has caught up."""
        broker = self.image.brokers[broker_id]
        fields = {"broker_epoch": broker.broker_epoch, "metadata_offset": self.image.offset, **fields}
        request = BrokerHeartbeat(broker_id=broker_id, **fields)
        return self.ask(request) if self.commit_at_once else self.submit(request)

    def start(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        """Elect controller 1 if there is none, then register and unfence brokers."""
        if self.leader is None:
            self.elect(1)
        for broker_id in broker_ids:
            self.active.peer_connected(broker_id, self.now)
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.heartbeat(broker_id)

    def die(self, broker_id: int) -> None:
        """Kill a broker: its connection drops, its port refuses."""
        self.active.peer_lost(broker_id, self.now)
        self.active.on_probe_result(broker_id, "refused", self.now)

    def come_back(self, broker_id: int, *, wiped: bool = False) -> None:
        """Restart a broker as a new incarnation."""
        self.active.peer_connected(broker_id, self.now)
        self.register(broker_id, wiped=wiped)
        self.heartbeat(broker_id)

    # --- topics

    def create(self, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> Any:
        """Create a topic; config names have _ for dots."""
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, factor, configs=dotted)
        return self.ask(CreateTopics((topic,))).results[0]

    def assign(self, name: str, *replicas: tuple[int, ...]) -> Any:
        """Create a topic with these replicas for each partition."""
        topic = NewTopic(name, assignments=dict(enumerate(replicas)))
        return self.ask(CreateTopics((topic,))).results[0]

    def partition(self, name: str, partition: int = 0) -> Any:
        state = self.image.partition(name, partition)
        assert state is not None
        return state

    def alter(self, name: str, isr: tuple[int, ...], *, partition: int = 0, **overrides: Any) -> Any:
        """Have the leader of a partition ask for an ISR, with the epochs of the image unless overridden."""
        state = self.partition(name, partition)
        fields = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
        sender = overrides.pop("sender", state.leader)
        member_epochs = overrides.pop("member_epochs", {})
        fields.update(overrides)
        brokers = self.image.brokers
        members = tuple(
            IsrMember(each, member_epochs.get(each, brokers[each].broker_epoch if each in brokers else -1))
            for each in isr
        )
        change = IsrChange(self.image.topics[name].topic_id, partition, isr=members, **fields)
        return self.ask(AlterPartition(sender, brokers[sender].broker_epoch, (change,))).results[0]


def started(*brokers: int, controllers: int = 1, **topics: tuple[tuple[int, ...], ...]) -> ControllerCluster:
    """Return controllers with these brokers in service, and topics with these replicas for each partition."""
    cluster = ControllerCluster(controllers)
    cluster.start(*brokers)
    for name, replicas in topics.items():
        cluster.assign(name, *replicas)
    return cluster
