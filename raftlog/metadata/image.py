"""The cluster's state as a value: frozen, structurally shared, equal on every node at equal offsets.

An image does not know how it was decided or received. `raftlog.metadata.record_replay` makes the next one from records;
listeners get `(old, new)` and compare; a loaded snapshot is just a bigger difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress, count
from operator import is_not
from types import MappingProxyType
from typing import Final, Literal
from uuid import UUID

import msgspec

from raftlog.base.types import NO_BROKER, NO_EPOCH, TopicPartition
from raftlog.metadata.persistent_map import changed_keys
from raftlog.security.acls import Acl
from raftlog.security.quotas import Entity
from raftlog.security.scram import ScramCredential
from raftlog.security.tokens import DelegationToken

ResourceType = Literal["topic", "broker", "group", "client-metrics"]

EMPTY: Mapping[object, object] = MappingProxyType({})


class Endpoint(msgspec.Struct, frozen=True, array_like=True):
    """An address at which clients (or brokers) reach a broker: one advertised listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class SupportedFeature(msgspec.Struct, frozen=True, array_like=True):
    """The levels of a feature that a broker supports, both inclusive (KIP-584)."""

    name: str
    lowest: int
    highest: int


_WRITTEN_VERSION: Final = 8
"""The UUID version of an incarnation that its log directories name (RFC 9562: free for custom meanings)."""
_VERSION_BIT, _VARIANT_BIT = 76, 62


def new_incarnation(random_bits: int, *, written: bool) -> UUID:
    """Return an id from 128 random bits. `written`: the log directories name it before it is registered."""
    if not written:
        return UUID(int=random_bits, version=4)
    fixed = 0xF << _VERSION_BIT | 0x3 << _VARIANT_BIT
    return UUID(int=random_bits & ~fixed | _WRITTEN_VERSION << _VERSION_BIT | 0x2 << _VARIANT_BIT)


class BrokerState(msgspec.Struct, frozen=True, array_like=True):
    """A registered broker. `broker_epoch` is the metadata offset of its registration record (KIP-631)."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directory_ids: tuple[UUID, ...] = ()
    draining: bool = False
    """Whether the broker shall lead only what no other broker can lead, through restarts, until an operator ends it."""
    features: tuple[SupportedFeature, ...] = ()
    """Empty for a broker of a release that registers none."""
    disk_lost: bool = False
    """Whether it came back without a log directory, or with an older copy, and not all of its replicas have caught up
    since.
    """

    @property
    def wrote_incarnation(self) -> bool:
        """Whether its log directories name its incarnation; older releases than 0.4.0 do not."""
        return self.incarnation_id.version == _WRITTEN_VERSION

    def endpoint(self, listener: str | None) -> Endpoint | None:
        """Return the endpoint of a listener name, or None. None selects the first: a controller may know no name."""
        return next((each for each in self.endpoints if listener in (each.listener, None)), None)


def only_directories(broker_id: int, directory_ids: tuple[UUID, ...]) -> BrokerState:
    """Return a broker's last registration as far as a release before 0.4.0 keeps it."""
    return BrokerState(broker_id, NO_EPOCH, UUID(int=0), (), directory_ids=directory_ids)


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """One partition: isr ⊆ replicas, leader ∈ isr or NO_BROKER.

    `leader_epoch` grows with every leader election, `partition_epoch` with every change. `isr_lost`: the last in-sync
    replica came back with another disk or lacks records, so only an eligible leader or an unclean election may follow.
    A replica with some of its records leads until then, for reading only. `unclean_epoch`: the leader epoch of the last
    unclean election, which accepted its leader's log. The isr may hold fenced brokers, but only while none of its
    members is known to be alive.

    During a reassignment (KIP-455) `replicas` are all replicas: first the target replicas, then the leaving replicas.
    `adding_replicas` came with the reassignment, `removing_replicas` leave with it. A replica that one reassignment
    added and the next does not want is in both.

    `eligible` are Kafka's eligible leader replicas (KIP-966): they left the ISR when it was below min.insync.replicas.
    The high watermark does not rise while there are any, so they have all committed records.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_BROKER
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    isr_lost: bool = False
    unclean_epoch: int = -1
    eligible: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas once the reassignment is done."""
        return without(self.replicas, self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """The replicas after a cancelled reassignment: the original replicas, perhaps in another order."""
        return without(self.replicas, self.adding_replicas)

    def in_replica_order(self, members: Iterable[int]) -> tuple[int, ...]:
        """Return the replicas that are among `members`, in the order of `replicas`."""
        wanted = frozenset(members)
        return tuple(each for each in self.replicas if each in wanted)

    def effective_min_isr(self, min_insync: int) -> int:
        """Return how many replicas must be in sync for acks=all: the topic's min.insync.replicas.

        A partition with fewer replicas before its reassignment needs only that many: an added replica must not raise
        the requirement.
        """
        return min(min_insync, len(self.original_replicas))

    def is_under_min_isr(self, min_insync: int, isr: tuple[int, ...] | None = None) -> bool:
        """Return whether the leader refuses acks=all; `isr`: a newer ISR that the leader knows is committed.

        The leader of a lost ISR is in no ISR, whether its log is still damaged or not: it acknowledges no record.
        """
        members = self.isr if isr is None else isr
        return self.isr_lost or bool(self.eligible) or len(members) < self.effective_min_isr(min_insync)

    @property
    def trusted(self) -> tuple[int, ...]:
        """The replicas that have all committed records, as far as the metadata knows: in sync, or eligible.

        The last member of a lost ISR lacks some.
        """
        return self.eligible if self.isr_lost else (*self.isr, *self.eligible)


def is_deprived(missing: int, preferred: int, percentage: int) -> bool:
    """Return whether a broker gets leaderships back (KIP-183).

    It is the preferred leader of `preferred` partitions, and does not lead `missing` of them, which is more than
    `percentage` (leader.imbalance.per.broker.percentage).
    """
    return 100 * missing > percentage * preferred


def without(replicas: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas that are not among others, in their order."""
    return tuple(each for each in replicas if each not in others) if others else replicas


class TopicState(msgspec.Struct, frozen=True, array_like=True):
    """A topic; `partitions` is indexed by partition number."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]


class Usage(msgspec.Struct, frozen=True):
    """The amounts of metadata in an image that the controller limits. Replay keeps it up to date, record by record."""

    partitions: int = 0
    configs: int = 0
    """Config entries of all resources."""
    groups: int = 0
    """Groups that have configs, whether or not such a group exists."""
    subscriptions: int = 0
    """Client metrics subscriptions."""
    security: int = 0
    """ACLs, credentials and client quotas."""
    tokens: int = 0
    """Delegation tokens."""
    size_bytes: int = 0
    """Upper bound of the bytes of all that, encoded (see `raftlog.metadata.usage`)."""


class MetadataImage(msgspec.Struct, frozen=True):
    """Everything the cluster agreed on up to (not including) the metadata record at `offset`.

    Treat every mapping as read-only; unchanged parts are shared between images, so `is` finds changes. Topics and
    configs are `PersistentMap`s: the next image copies what changed, not what exists, and `changed_keys` looks at that.
    `configs[(resource_type, name)][key]`: dynamic configs; broker name "" is the cluster-wide default.
    """

    offset: int = 0
    controller_epoch: int = 0
    controller_id: int = NO_BROKER
    cluster_id: str = ""
    brokers: Mapping[int, BrokerState] = {}
    topics: Mapping[str, TopicState] = {}
    topic_names: Mapping[UUID, str] = {}
    configs: Mapping[tuple[str, str], Mapping[str, str]] = {}
    next_producer_id: int = 0
    topics_offset: int = 0
    """After the last record that created, extended or deleted a topic, or took replicas to other racks. A listener for
    topics compares only this, and ignores changes of leaders or ISRs.
    """
    usage: Usage = Usage()
    features: Mapping[str, int] = {}
    """The levels of changed features (see `raftlog.metadata.features`)."""
    features_epoch: int = 0
    """After the last record that changed a feature."""
    unregistered: Mapping[int, BrokerState] = {}
    """The last registrations of brokers that were unregistered while no other replica had all records somewhere."""

    acls: Mapping[Acl, bool] = {}
    """A set; the values have no meaning."""
    scram: Mapping[tuple[str, str], ScramCredential] = {}
    """Keyed by user and mechanism."""
    tokens: Mapping[str, DelegationToken] = {}
    """Delegation tokens by their ids; expired tokens stay until the controller removes them."""
    quotas: Mapping[Entity, Mapping[str, float]] = {}
    voters: Mapping[int, UUID] = {}
    """The directory that votes under each voter's id, as far as recorded."""
    decommissions: Mapping[int, int] = {}
    """The brokers that are being decommissioned, and the broker that replaces each, or NO_BROKER."""

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """Return one partition's state, or None."""
        state = self.topics.get(topic)
        if state is None or not 0 <= partition < len(state.partitions):
            return None
        return state.partitions[partition]

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the dynamic configs set on one resource."""
        return self.configs.get((resource_type, name), {})

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """Return the dynamic configs of one broker: its own over the cluster-wide default."""
        of_all, own = self.config("broker", ""), self.config("broker", str(broker_id))
        return {**of_all, **own} if own else of_all


EMPTY_IMAGE = MetadataImage()


def changed_partitions(
    old: MetadataImage, new: MetadataImage
) -> Iterator[tuple[TopicPartition, TopicState | None, PartitionState | None, PartitionState | None]]:
    """Yield (partition, its topic in `new`, old state, new state) for each partition that differs.

    A topic that was deleted and recreated (another id) appears twice: removed, then new. A topic may have fewer
    partitions in `new` only where that is older than `old`.
    """
    for name in changed_keys(old.topics, new.topics):
        before, topic = old.topics.get(name), new.topics.get(name)
        if before is not None and (topic is None or before.topic_id != topic.topic_id):
            yield from _all_partitions_gone(before)
            before = None
        if topic is None:
            continue
        old_partitions = before.partitions if before else ()
        for index in _different(old_partitions, topic.partitions):
            was = old_partitions[index] if index < len(old_partitions) else None
            state = topic.partitions[index] if index < len(topic.partitions) else None
            if was != state:
                yield TopicPartition(name, index), topic, was, state


def _different(old: tuple[PartitionState, ...], new: tuple[PartitionState, ...]) -> Iterable[int]:
    """Return the numbers of the partitions that are other objects, at the speed of C: a topic may have thousands."""
    sizes = sorted((len(old), len(new)))
    return chain(compress(count(), map(is_not, old, new)), range(*sizes))


def _all_partitions_gone(
    topic: TopicState,
) -> Iterator[tuple[TopicPartition, None, PartitionState, None]]:
    for index, state in enumerate(topic.partitions):
        yield TopicPartition(topic.name, index), None, state, None
