"""The only interpreter of each metadata record, the same on every node.

A batch is applied whole or, when its fence does not match the image, skipped whole. The fence: a batch carries its
controller's epoch and the offset at which it was decided. Both must equal the image's. A controller's own
`ControllerElected` comes alone and is fenced by its epoch only. A new controller cannot know how much of its
predecessor's tail lies before it in the journal. The part of that tail behind it is skipped.

Replay does not know how records were decided. Records that contradict the image (an unknown broker, a partition out of
order) are a broken invariant of ours, and raise AssertionError or LookupError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from uuid import UUID

from msgspec.structs import replace

from raftlog.base.types import NO_BROKER
from raftlog.metadata.features import KEEPS_UNREGISTERED, RAFTLOG_METADATA_VERSION
from raftlog.metadata.image import (
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
    Usage,
    only_directories,
)
from raftlog.metadata.metadata_records import (
    UNCHANGED_LEADER,
    AclCreated,
    AclRemoved,
    Batch,
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClientQuotaChanged,
    ClusterNamed,
    ConfigChanged,
    ControllerElected,
    DecommissionChanged,
    FeatureChanged,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    ScramCredentialChanged,
    TokenChanged,
    TokenRemoved,
    TopicCreated,
    TopicDeleted,
    VoterRegistered,
)
from raftlog.metadata.persistent_map import REMOVED, PersistentMap, persistent
from raftlog.metadata.usage import (
    DECOMMISSION_BYTES,
    REPLICA_BYTES,
    VOTER_BYTES,
    acl_bytes,
    broker_bytes,
    partition_bytes,
    quota_bytes,
    resource_bytes,
    scram_bytes,
    token_bytes,
    topic_bytes,
    unregistered_bytes,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


def apply(image: MetadataImage, record: Record) -> MetadataImage:
    """Return the image after one record."""
    return apply_records(image, (record,))


def apply_records(image: MetadataImage, records: tuple[Record, ...]) -> MetadataImage:
    """Return the image after `records`, unfenced; unchanged parts are shared with `image`."""
    builder = _Builder(image)
    for record in records:
        _MEANING[type(record)](builder, record)
        builder.offset += 1
    return builder.build()


def apply_batch(image: MetadataImage, batch: Batch) -> MetadataImage | None:
    """Return the image after a batch, or None when its fence does not match and it is skipped."""
    return apply_records(image, batch.records) if matches(image, batch) else None


def matches(image: MetadataImage, batch: Batch) -> bool:
    """Return whether a batch's fence (controller epoch, base offset) is that of the image."""
    if batch.records and isinstance(batch.records[0], ControllerElected):
        elected = batch.records[0]
        return (
            len(batch.records) == 1
            and elected.controller_epoch == batch.controller_epoch
            and batch.controller_epoch > image.controller_epoch
        )
    return batch.controller_epoch == image.controller_epoch and batch.base_offset == image.offset


class _Part(Generic[Key, Value]):
    """One mapping of the image and its changes; `build` returns the next mapping, or the same object without
    changes.
    """

    __slots__ = ("_changes", "_shared")

    def __init__(self, shared: Mapping[Key, Value]) -> None:
        self._shared = shared
        self._changes: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        value = self._changes.get(key)
        if value is None:
            return self._shared.get(key)
        return None if value is REMOVED else value

    def __getitem__(self, key: Key) -> Value:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: Key, value: Value) -> None:
        self._changes[key] = value

    def pop(self, key: Key) -> Value:
        value = self[key]
        self._changes[key] = REMOVED
        return value

    def build(self) -> Mapping[Key, Value]:
        if not self._changes:
            return self._shared
        if isinstance(self._shared, PersistentMap):
            return self._shared.updated(self._changes)
        entries = {**self._shared, **self._changes}
        return {key: value for key, value in entries.items() if value is not REMOVED}


class _Builder:
    """An image in the making."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.offset = image.offset
        self.controller_id = image.controller_id
        self.controller_epoch = image.controller_epoch
        self.cluster_id = image.cluster_id
        self.next_producer_id = image.next_producer_id
        self.brokers = _Part(image.brokers)
        self.topics = _Part(persistent(image.topics))
        self.topic_names = _Part(persistent(image.topic_names))
        self.configs = _Part(persistent(image.configs))
        self.departed = _Part(image.unregistered)
        self.features = _Part(image.features)
        self.features_epoch = image.features_epoch
        self.partitions: dict[UUID, list[PartitionState]] = {}
        self.topics_offset = image.topics_offset
        self.partition_count = image.usage.partitions
        self.config_count = image.usage.configs
        self.acls = _Part(persistent(image.acls))
        self.scram = _Part(persistent(image.scram))
        self.tokens = _Part(persistent(image.tokens))
        self.quotas = _Part(persistent(image.quotas))
        self.voters = _Part(image.voters)
        self.decommissions = _Part(image.decommissions)
        self.security_count = image.usage.security
        self.token_count = image.usage.tokens
        self.size_bytes = image.usage.size_bytes
        self.new_resources: Counter[str] = Counter()

    def build(self) -> MetadataImage:
        for topic_id, partitions in self.partitions.items():
            name = self.topic_names[topic_id]
            self.topics[name] = TopicState(name, topic_id, tuple(partitions))
        return MetadataImage(
            offset=self.offset,
            controller_epoch=self.controller_epoch,
            controller_id=self.controller_id,
            cluster_id=self.cluster_id,
            brokers=self.brokers.build(),
            topics=self.topics.build(),
            topic_names=self.topic_names.build(),
            configs=self.configs.build(),
            next_producer_id=self.next_producer_id,
            topics_offset=self.topics_offset,
            usage=self.usage(),
            features=self.features.build(),
            features_epoch=self.features_epoch,
            unregistered=self.departed.build(),
            acls=self.acls.build(),
            scram=self.scram.build(),
            tokens=self.tokens.build(),
            quotas=self.quotas.build(),
            voters=self.voters.build(),
            decommissions=self.decommissions.build(),
        )

    def usage(self) -> Usage:
        """Return the image's usage; the same object if it did not change."""
        before = self.image.usage
        after = Usage(
            partitions=self.partition_count,
            configs=self.config_count,
            groups=before.groups + self.new_resources["group"],
            subscriptions=before.subscriptions + self.new_resources["client-metrics"],
            security=self.security_count,
            tokens=self.token_count,
            size_bytes=self.size_bytes,
        )
        return before if after == before else after

    def topics_changed(self) -> None:
        """Note that this record changed topics."""
        self.topics_offset = self.offset + 1

    def partitions_of(self, topic_id: UUID) -> list[PartitionState]:
        """The writable partitions of a topic."""
        partitions = self.partitions.get(topic_id)
        if partitions is None:
            topic = self.topics[self.topic_names[topic_id]]
            partitions = self.partitions[topic_id] = list(topic.partitions)
        return partitions

    def set_broker(self, broker: BrokerState) -> None:
        self.brokers[broker.broker_id] = broker

    def cluster_named(self, record: ClusterNamed) -> None:
        assert not self.cluster_id, "a cluster is named once"
        self.cluster_id = record.cluster_id

    def controller_elected(self, record: ControllerElected) -> None:
        assert record.controller_epoch > self.controller_epoch, "controller epochs only grow"
        self.controller_id = record.controller_id
        self.controller_epoch = record.controller_epoch

    def voter_registered(self, record: VoterRegistered) -> None:
        if record.voter_id not in self.voters:
            self.size_bytes += VOTER_BYTES
        self.voters[record.voter_id] = record.directory_id

    def decommission_changed(self, record: DecommissionChanged) -> None:
        self._end_decommission(record.broker_id)
        if not record.ended:
            self.decommissions[record.broker_id] = record.replace_with
            self.size_bytes += DECOMMISSION_BYTES

    def _end_decommission(self, broker_id: int) -> None:
        if broker_id in self.decommissions:
            self.decommissions.pop(broker_id)
            self.size_bytes -= DECOMMISSION_BYTES

    def broker_registered(self, record: BrokerRegistered) -> None:
        before = self.brokers.get(record.broker_id)
        last = before or self.departed.get(record.broker_id)
        after = BrokerState(
            broker_id=record.broker_id,
            broker_epoch=self.offset,
            incarnation_id=record.incarnation_id,
            endpoints=record.endpoints,
            rack=record.rack,
            directory_ids=record.directory_ids,
            draining=before is not None and before.draining,
            features=record.features,
            disk_lost=(last is not None and last.disk_lost) if record.disk_lost is None else record.disk_lost,
        )
        self.set_broker(after)
        if after.rack != (None if before is None else before.rack):
            self.topics_changed()  # the racks of its replicas
        if record.broker_id in self.departed:
            self.size_bytes -= unregistered_bytes(self.departed.pop(record.broker_id))
        self.size_bytes += broker_bytes(after) - (0 if before is None else broker_bytes(before))

    def broker_changed(self, record: BrokerChanged) -> None:
        broker = self.brokers[record.broker_id]
        assert broker.broker_epoch == record.broker_epoch, "a change of another incarnation"
        fenced = broker.fenced if record.fenced is None else record.fenced
        shutting_down = record.in_controlled_shutdown
        if shutting_down is None:
            shutting_down = broker.in_controlled_shutdown
        draining = broker.draining if record.draining is None else record.draining
        disk_lost = broker.disk_lost if record.disk_lost is None else record.disk_lost
        self.set_broker(
            replace(
                broker,
                fenced=fenced,
                in_controlled_shutdown=shutting_down,
                draining=draining,
                disk_lost=disk_lost,
            )
        )

    def broker_unregistered(self, record: BrokerUnregistered) -> None:
        broker = self.brokers.pop(record.broker_id)
        assert broker.broker_epoch == record.broker_epoch, "another incarnation"
        self.size_bytes -= broker_bytes(broker)
        if broker.rack is not None:
            self.topics_changed()  # the racks of its replicas
        self._end_decommission(record.broker_id)
        if record.directory_ids:
            level = self.features.get(RAFTLOG_METADATA_VERSION) or 0
            # An older release does not keep it, and no two nodes' images shall differ.
            is_kept = level >= KEEPS_UNREGISTERED
            last = broker if is_kept else only_directories(broker.broker_id, record.directory_ids)
            self.departed[broker.broker_id] = last
            self.size_bytes += unregistered_bytes(last)

    def topic_created(self, record: TopicCreated) -> None:
        assert record.name not in self.topics, "a topic is created once"
        assert record.topic_id not in self.topic_names, "a topic id is given once"
        topic = self.topics[record.name] = TopicState(record.name, record.topic_id, ())
        self.size_bytes += topic_bytes(topic)
        self.topic_names[record.topic_id] = record.name
        self.topics_changed()

    def partition_created(self, record: PartitionCreated) -> None:
        partitions = self.partitions_of(record.topic_id)
        assert record.partition == len(partitions), "partitions are numbered without gaps"
        state = PartitionState(replicas=record.replicas, isr=record.isr, leader=record.leader)
        partitions.append(_checked(state))
        self.partition_count += 1
        self.size_bytes += partition_bytes(len(record.replicas))
        self.topics_changed()

    def partition_changed(self, record: PartitionChanged) -> None:
        partitions = self.partitions_of(record.topic_id)
        before = partitions[record.partition]
        partitions[record.partition] = _checked(changed(before, record))
        if record.replicas is not None:
            self.size_bytes += REPLICA_BYTES * (len(record.replicas) - len(before.replicas))
            if self._racks(record.replicas) != self._racks(before.replicas):
                self.topics_changed()  # groups may assign its partitions to other members

    def _racks(self, replicas: tuple[int, ...]) -> set[str | None]:
        """Return the racks of some brokers, None for brokers without a rack."""
        return {broker.rack for each in replicas if (broker := self.brokers.get(each)) is not None}

    def topic_deleted(self, record: TopicDeleted) -> None:
        partitions = self.partitions_of(record.topic_id)
        name = self.topic_names.pop(record.topic_id)
        self.topics.pop(name)
        del self.partitions[record.topic_id]
        self.partition_count -= len(partitions)
        self.size_bytes -= topic_bytes(TopicState(name, record.topic_id, tuple(partitions)))
        self.topics_changed()
        if ("topic", name) in self.configs:
            self.set_configs(("topic", name), {})

    def config_changed(self, record: ConfigChanged) -> None:
        resource = (record.resource_type, record.resource_name)
        values = dict(self.configs.get(resource) or {})
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        self.set_configs(resource, values)

    def set_configs(self, resource: tuple[str, str], values: dict[str, str]) -> None:
        """Give a resource exactly these configs."""
        kind, name = resource
        before = self.configs.get(resource) or {}
        self.config_count += len(values) - len(before)
        self.new_resources[kind] += bool(values) - bool(before)
        self.size_bytes += resource_bytes(name, values) - resource_bytes(name, before)
        if values:
            self.configs[resource] = values
        elif before:
            self.configs.pop(resource)

    def producer_ids_allocated(self, record: ProducerIdsAllocated) -> None:
        assert record.next_producer_id > self.next_producer_id, "producer ids are given once"
        self.next_producer_id = record.next_producer_id

    def feature_changed(self, record: FeatureChanged) -> None:
        self.features[record.name] = record.level
        self.features_epoch = self.offset + 1

    def acl_created(self, record: AclCreated) -> None:
        assert record.acl not in self.acls, "a rule is created once"
        self.acls[record.acl] = True
        self.security_changed(1, acl_bytes(record.acl))

    def acl_removed(self, record: AclRemoved) -> None:
        self.acls.pop(record.acl)
        self.security_changed(-1, -acl_bytes(record.acl))

    def scram_credential_changed(self, record: ScramCredentialChanged) -> None:
        key = record.user, record.mechanism
        if key in self.scram:
            self.scram.pop(key)
            self.security_changed(-1, -scram_bytes(record.user))
        if record.credential is not None:
            self.scram[key] = record.credential
            self.security_changed(1, scram_bytes(record.user))

    def token_changed(self, record: TokenChanged) -> None:
        token = record.token
        if token.token_id in self.tokens:
            self.token_removed(TokenRemoved(token.token_id))
        self.tokens[token.token_id] = token
        self.token_count += 1
        self.size_bytes += token_bytes(token)

    def token_removed(self, record: TokenRemoved) -> None:
        self.size_bytes -= token_bytes(self.tokens.pop(record.token_id))
        self.token_count -= 1

    def client_quota_changed(self, record: ClientQuotaChanged) -> None:
        entity, before = record.entity, self.quotas.get(record.entity) or {}
        values = {key: value for key, value in before.items() if key != record.key}
        if record.value is not None:
            values[record.key] = record.value
        self.security_changed(
            len(values) - len(before), quota_bytes(entity, values) - quota_bytes(entity, before)
        )
        if values:
            self.quotas[entity] = values
        elif before:
            self.quotas.pop(entity)

    def security_changed(self, count: int, size_bytes: int) -> None:
        """Count ACLs, credentials and quotas that were added or removed."""
        self.security_count += count
        self.size_bytes += size_bytes


def changed(state: PartitionState, record: PartitionChanged) -> PartitionState:
    """Return a partition after one record.

    An election is unclean if the leader is neither in the ISR nor eligible, or if a lost ISR is trusted again with it.
    """
    elected = record.leader != UNCHANGED_LEADER
    uncleanly = (
        record.leader >= 0
        and record.leader not in state.eligible
        and (record.leader not in state.isr or (state.isr_lost and record.isr_lost is False))
    )
    return PartitionState(
        replicas=state.replicas if record.replicas is None else record.replicas,
        isr=state.isr if record.isr is None else record.isr,
        leader=record.leader if elected else state.leader,
        leader_epoch=state.leader_epoch + elected,
        partition_epoch=state.partition_epoch + 1,
        adding_replicas=(state.adding_replicas if record.adding_replicas is None else record.adding_replicas),
        removing_replicas=(
            state.removing_replicas if record.removing_replicas is None else record.removing_replicas
        ),
        isr_lost=state.isr_lost if record.isr_lost is None else record.isr_lost,
        unclean_epoch=state.leader_epoch + 1 if uncleanly else state.unclean_epoch,
        eligible=state.eligible if record.eligible is None else record.eligible,
    )


def _checked(state: PartitionState) -> PartitionState:
    assert set(state.isr) <= set(state.replicas), f"isr {state.isr} ⊄ replicas {state.replicas}"
    assert state.isr, "the last in-sync replica is never forgotten"
    assert set(state.eligible) <= set(state.replicas) - set(state.isr), (
        f"eligible {state.eligible} of {state}"
    )
    if state.adding_replicas or state.removing_replicas:
        assert state.target_replicas, "a reassignment leaves replicas"
        assert state.original_replicas, "a reassignment can be cancelled"
    assert state.leader == NO_BROKER or state.leader in state.isr, f"leader {state.leader} ∉ isr {state.isr}"
    return state


_MEANING: dict[type[Any], Callable[[_Builder, Any], None]] = {
    ClusterNamed: _Builder.cluster_named,
    ControllerElected: _Builder.controller_elected,
    VoterRegistered: _Builder.voter_registered,
    DecommissionChanged: _Builder.decommission_changed,
    BrokerRegistered: _Builder.broker_registered,
    BrokerChanged: _Builder.broker_changed,
    BrokerUnregistered: _Builder.broker_unregistered,
    TopicCreated: _Builder.topic_created,
    PartitionCreated: _Builder.partition_created,
    PartitionChanged: _Builder.partition_changed,
    TopicDeleted: _Builder.topic_deleted,
    ConfigChanged: _Builder.config_changed,
    ProducerIdsAllocated: _Builder.producer_ids_allocated,
    FeatureChanged: _Builder.feature_changed,
    AclCreated: _Builder.acl_created,
    AclRemoved: _Builder.acl_removed,
    ScramCredentialChanged: _Builder.scram_credential_changed,
    TokenChanged: _Builder.token_changed,
    TokenRemoved: _Builder.token_removed,
    ClientQuotaChanged: _Builder.client_quota_changed,
}
