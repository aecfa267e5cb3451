"""Controllers, and the metadata that each node keeps, over one list of batches: no logs, no network, no disk.

A hundred brokers with a hundred thousand partitions fit into one process. The steps are the control plane's alone: it
decides, applies, and sends each broker its changes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.controller.controller import Controller
from raftlog.metadata.broker_requests import (
    AlterPartition,
    BrokerHeartbeat,
    IsrChange,
    IsrMember,
    RegisterBroker,
)
from raftlog.metadata.controller_api import CreateTopics, NewTopic, Request
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.image import Endpoint, MetadataImage, changed_partitions
from raftlog.metadata.loader import MetadataLoader
from raftlog.metadata.metadata_records import Batch, encode_batch

VOTERS: Final = (1, 2, 3)
PER_TOPIC: Final = 10
TOPICS_AT_ONCE: Final = 500
REPLICAS: Final = 3


class ControlModel:
    """Three controllers; brokers 1 to `brokers`, all in service. Partitions come by `create`."""

    def __init__(self, brokers: int) -> None:
        self.now = 100.0
        self.term = 0
        self.changes = 0
        """Partitions with a change that was sent to a broker."""
        self._appended: list[bytes] = []
        self._published: list[Callable[[], None]] = []
        self._topics = 0
        self.loaders = {node_id: MetadataLoader(self._published.append) for node_id in VOTERS}
        self.controllers = {
            node_id: Controller(
                node_id,
                NodeConfig(node_id=node_id),
                Random(node_id),
                append=self._append,
                probe=lambda broker_id: None,
            )
            for node_id in VOTERS
        }
        self.loaders[VOTERS[0]].subscribe(self._changed)
        self.active = self.controllers[VOTERS[0]]
        self.brokers: tuple[int, ...] = ()
        self.elect(VOTERS[0])
        for _ in range(brokers):
            self.join()

    @property
    def image(self) -> MetadataImage:
        return self.loaders[VOTERS[0]].image

    def _append(self, batch: Batch) -> None:
        self._appended.append(encode_batch(batch))

    def _commit(self) -> None:
        """Have every voter apply what was appended, and what is appended because of that."""
        while self._appended:
            data = self._appended.pop(0)
            for node_id in VOTERS:
                self.loaders[node_id].apply(data)
            for node_id in VOTERS:
                self.controllers[node_id].committed(self.loaders[node_id].image, self.now)
            while self._published:
                self._published.pop()()

    def _changed(self, old: MetadataImage, new: MetadataImage) -> None:
        self.changes += sum(1 for _ in changed_partitions(old, new))

    def elect(self, node_id: int) -> None:
        """Let another controller lead, as a quorum does."""
        self.term += 1
        before, self.active = self.active, self.controllers[node_id]
        self.active.on_elected(self.term, self.image, self.now)
        if before is not self.active:
            before.resign()
        self._commit()

    def join(self) -> int:
        """Let one more broker register and be unfenced; return its id."""
        broker_id = len(self.brokers) + 1
        self.brokers = (*self.brokers, broker_id)
        self.active.peer_connected(broker_id, self.now)
        self.ask(_registration(broker_id, self.image))
        self.heartbeat(broker_id)
        return broker_id

    def ask(self, request: Request) -> Any:
        """Return the controller's reply."""
        replies: list[Any] = []
        self.active.submit(request, replies.append, self.now)
        self._commit()
        return replies[0]

    def heartbeat(self, broker_id: int) -> None:
        """Let a broker say that it has caught up, and ask the controller when it wants to look again."""
        epoch = self.image.brokers[broker_id].broker_epoch
        self.ask(BrokerHeartbeat(broker_id, epoch, self.image.offset))
        _ = self.active.next_deadline

    def create(self, partitions: int, brokers: tuple[int, ...]) -> None:
        """Make topics of PER_TOPIC partitions, spread over these brokers in turn."""
        wanted = []
        for _ in range(partitions // PER_TOPIC):
            first = self._topics * PER_TOPIC
            wanted.append(NewTopic(f"topic-{self._topics}", assignments=_spread(first, brokers)))
            self._topics += 1
        for first in range(0, len(wanted), TOPICS_AT_ONCE):
            reply = self.ask(CreateTopics(tuple(wanted[first : first + TOPICS_AT_ONCE])))
            assert all(each.error_code == 0 for each in reply.results), "a topic was refused"

    def shrink_isr(self, topic: str) -> None:
        """Let the leader of a topic's first partition drop its last follower."""
        state = self.image.topics[topic].partitions[0]
        rest = state.isr[:-1] or state.isr
        members = tuple(IsrMember(each, self.image.brokers[each].broker_epoch) for each in rest)
        topic_id = self.image.topics[topic].topic_id
        change = IsrChange(topic_id, 0, state.leader_epoch, state.partition_epoch, members)
        leader_epoch = self.image.brokers[state.leader].broker_epoch
        self.ask(AlterPartition(state.leader, leader_epoch, (change,)))

    def kill(self, broker_id: int) -> None:
        """Drop a broker's connection, and let its port refuse new connections."""
        self.active.peer_lost(broker_id, self.now)
        self.active.on_probe_result(broker_id, "refused", self.now)
        self._commit()
        assert self.image.brokers[broker_id].fenced, "the broker was not fenced"

    def fail_over(self) -> None:
        """Let another controller take over; every broker registers with it."""
        self.elect(VOTERS[1])
        assert self.active.active, "the controller did not become active"
        for broker_id in self.brokers:
            self.active.peer_connected(broker_id, self.now)
            self.heartbeat(broker_id)


def _spread(first: int, brokers: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    count = len(brokers)
    return {
        number: tuple(brokers[(first + number + each) % count] for each in range(REPLICAS))
        for number in range(PER_TOPIC)
    }


def _registration(broker_id: int, image: MetadataImage) -> RegisterBroker:
    return RegisterBroker(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        cluster_id=image.cluster_id,
        endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", 9092),),
        rack=None,
        directory_ids=(UUID(int=1_000 + broker_id),),
        features=SUPPORTED_FEATURES,
    )
