"""A node in numbers: it fills the admin API's port `Facts` from the roles of a `Node`.

It only reads, and does not know the use of the facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any

from raftlog.admin.facts import (
    AccountFacts,
    AdmissionFacts,
    AuditFacts,
    ClientMetricsFacts,
    CompactionFacts,
    ConnectionFacts,
    DeliveryCountFacts,
    DirectoryFacts,
    GroupFacts,
    PartitionFacts,
    RaftFacts,
    RefusedReplica,
    ShareFacts,
    ShareLag,
    SharePartitionFacts,
    TransactionFacts,
)
from raftlog.base.histogram import Histogram
from raftlog.base.recurring_failures import Failure
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.node import Node
from raftlog.replication.traffic import Traffic

NO_LOG = -1

ACKNOWLEDGE_TYPES = ("Gap", "Accept", "Release", "Reject", "Renew")
"""Kafka's names of the types of acknowledgements, by their numbers on the wire."""


class NodeFacts:
    """See `raftlog.admin.facts.Facts`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._replicas = None if node.broker is None else node.broker.replicas

    def partition_names(self) -> list[TopicPartition]:
        """Return the replicas held here."""
        return [] if self._replicas is None else list(self._replicas.partitions)

    def partition(self, name: TopicPartition) -> PartitionFacts | None:
        """Return a replica, None if it was removed meanwhile."""
        each = None if self._replicas is None else self._replicas.partitions.get(name)
        if each is None:
            return None
        log = each.log
        return PartitionFacts(
            each.is_leader,
            log.log_start_offset,
            each.high_watermark,
            log.log_end_offset,
            log.size_bytes,
            len(log.segments),
            each.last_stable_offset,
        )

    def traffic(self) -> Mapping[str, Traffic]:
        """Return topics' traffic by name."""
        return {} if self._replicas is None else self._replicas.traffic

    def connections(self) -> ConnectionFacts | None:
        """Return what listeners count; None without the broker role."""
        return None if self._node.broker is None else self._node.broker.server.counters

    def memory(self) -> list[AccountFacts]:
        """Return the parts of the budget for memory."""
        if self._node.broker is None:
            return []
        return [AccountFacts.of(each) for each in self._node.broker.server.memory]

    def group_bytes(self) -> int:
        """Return about how many bytes the groups take that are coordinated here."""
        return 0 if self._node.broker is None else self._node.broker.coordinators.memory_bytes()

    def admission(self) -> AdmissionFacts | None:
        """Return the connected clients; None without the broker role."""
        if self._node.broker is None:
            return None
        server = self._node.broker.server
        admission, sessions = server.admission, server.sessions
        return AdmissionFacts(
            admission.strangers,
            admission.most_strangers,
            admission.brokers,
            admission.in_hall,
            server.requests.waiting,
            len(sessions),
            sessions.evicted,
        )

    def directories(self) -> list[DirectoryFacts]:
        """Return the log directories."""
        if self._replicas is None:
            return []
        return [
            DirectoryFacts(
                each.path,
                each.error is None,
                each.flusher.seconds,
                each.full,
                each.trouble if each.is_troubled(self._replicas.now()) else "",
            )
            for each in self._replicas.logs.volumes
        ]

    def failed_replicas(self) -> Mapping[TopicPartition, str]:
        """Return the replicas that stopped following rather than truncate committed records, with the reasons."""
        return {} if self._replicas is None else self._replicas.failed_replicas()

    def refused_replicas(self) -> list[RefusedReplica]:
        """Return the replicas that belong here and could not be made."""
        if self._replicas is None:
            return []
        image, broker_id = self._node.metadata.published_image, self._node.config.node_id
        found = []
        for name, reason in self._replicas.refused.reasons.items():
            state = image.partition(name.topic, name.partition)
            if state is not None:
                found.append(RefusedReplica(name, state.leader == broker_id, reason))
        return found

    def compaction(self) -> CompactionFacts | None:
        """Return the results of cleanings; None without the broker role."""
        return None if self._node.broker is None else self._node.broker.housekeeping.compaction

    def failures(self) -> list[Failure]:
        """Return the failures of recurring work for single logs, groups and transactional ids."""
        broker = self._node.broker
        if broker is None:
            return []
        return [
            *broker.housekeeping.failures,
            *broker.coordinators.failures(),
            *broker.transactions.failures(),
        ]

    def transactions(self) -> TransactionFacts | None:
        """Return the transactions coordinated here; None without the broker role."""
        if self._node.broker is None:
            return None
        found = self._node.broker.transactions
        ended = found.ended
        return TransactionFacts(
            found.states(),
            ended.committed,
            ended.aborted,
            ended.timed_out,
            ended.fenced,
            len(found.markers),
            found.oldest_open_ms(),
        )

    def shares(self) -> ShareFacts | None:
        """Return the share groups with members or partitions here; None without the broker role."""
        if self._node.broker is None:
            return None
        led = self._node.broker.context.made_share_partitions
        if led is None:
            return ShareFacts(0, 0, Histogram(), ())
        groups = [
            (
                group_id,
                DeliveryCountFacts(
                    each.acquired,
                    each.redelivered,
                    each.lock_timeouts,
                    each.archived,
                    dict(zip(ACKNOWLEDGE_TYPES, each.acknowledged, strict=True)),
                    each.letters,
                    each.failed_letters,
                    each.lost_letters,
                ),
            )
            for group_id, each in led.record.counts.all().items()
        ]
        return ShareFacts(len(led.sessions), led.sessions.partitions, led.record.write_seconds, groups)

    def share_keys(self) -> list[Hashable]:
        """Return the keys of the share partitions that this node leads and has in memory."""
        led = None if self._node.broker is None else self._node.broker.context.made_share_partitions
        return [] if led is None else [key for key, _ in led.all()]

    def share_partition(self, key: Hashable) -> SharePartitionFacts | None:
        """Return a share partition that this node leads, None if it was dropped meanwhile."""
        led = None if self._node.broker is None else self._node.broker.context.made_share_partitions
        found = None if led is None else led.describe(key)
        if found is None:
            return None
        return SharePartitionFacts(
            found.key.group_id,
            found.topic,
            found.key.partition,
            found.in_flight.end_offset - found.in_flight.start_offset,
            found.in_flight.held,
            found.oldest_lock_s,
            found.in_flight.deliveries,
        )

    def share_parts(self, key: Hashable) -> int:
        """Return how many parts of a request `share_partition` is."""
        led = None if self._node.broker is None else self._node.broker.context.made_share_partitions
        return 1 if led is None else led.parts_of(key)

    def share_state_keys(self) -> list[Hashable]:
        """Return the keys of the share partitions that this node coordinates."""
        states = None if self._node.broker is None else self._node.broker.context.made_share_states
        return [] if states is None else list(states.keys())

    def share_lag(self, key: Hashable) -> ShareLag | None:
        """Return the lag of a share partition; None if it has not begun, or has no replica here."""
        states = None if self._node.broker is None else self._node.broker.context.made_share_states
        if states is None or self._replicas is None:
            return None
        named: Any = key
        state = states.last_state(named)
        topic = self._node.metadata.published_image.topic_names.get(named.topic_id)
        replica = (
            None if topic is None else self._replicas.partitions.get(TopicPartition(topic, named.partition))
        )
        if state is None or topic is None or replica is None or state.start_offset < 0:
            return None
        done = max(0, state.delivery_complete_count)
        return ShareLag(named.group_id, topic, max(0, replica.high_watermark - state.start_offset - done))

    def audit(self) -> AuditFacts | None:
        """Return the denials; None without the broker role."""
        return None if self._node.broker is None else self._node.broker.context.audit

    def client_metrics(self) -> ClientMetricsFacts | None:
        """Return what clients pushed here; None without the broker role."""
        if self._node.broker is None:
            return None
        telemetry = self._node.broker.context.telemetry
        telemetry.forget(asyncio.get_running_loop().time())
        return telemetry

    def raft(self) -> RaftFacts | None:
        """Return the quorum as this node sees it; None while it is not started."""
        quorum, observer = self._node.control.quorum, self._node.control.observer
        if observer is not None:
            leader_id = NO_BROKER if observer.leader_id is None else observer.leader_id
            return RaftFacts(leader_id, observer.term, observer.applied_index, NO_LOG, False, False)
        if quorum is None or not quorum.started:
            return None
        leader_id = NO_BROKER if quorum.leader_id is None else quorum.leader_id
        end_index = quorum.driver.core.journal.last_index
        return RaftFacts(leader_id, quorum.term, quorum.commit_index, end_index, quorum.leading, True)

    async def groups(self) -> list[GroupFacts]:
        """Return the groups coordinated here. Raise KafkaError if they are unavailable now."""
        if self._node.broker is None:
            return []
        return [
            GroupFacts(
                each.group_id,
                each.state,
                len(each.membership.members),
                {where: committed.offset for where, committed in each.offsets.items()},
            )
            for each in await self._node.broker.coordinators.read_all()
        ]
