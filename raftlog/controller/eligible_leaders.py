"""Eligible leader replicas (KIP-966): replicas that left an ISR below min.insync.replicas, and may still lead.

The high watermark does not rise while a partition has eligible leaders, whatever its leader's configuration says. So a
replica that was in the ISR, or eligible, when the ISR shrank has all committed records. In Kafka an unclean shutdown
ends the eligibility. Here it does not, since an offset counts only once it is on the disk. A lost disk ends it.

While no ISR member is in service, the eligible leaders are members too: the first to come back leads. Kafka's ISR is
empty then. A last member with a damaged log stays alone in the lost ISR, and leads for reading only until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from raftlog.base.config import NodeConfig, topic_config
from raftlog.base.machine import Decision
from raftlog.base.types import NO_BROKER
from raftlog.controller.decisions import DECIDE_AGAIN, MAX_PARTITION_RECORDS
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION, finalized_level
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import UNCHANGED_LEADER, PartitionChanged, Record
from raftlog.metadata.record_levels import FIELDS_SINCE
from raftlog.metadata.record_replay import changed

ELIGIBLE_SINCE: Final = FIELDS_SINCE[PartitionChanged]["eligible"]
"""The level of raftlog.metadata.version since which eligible leaders are recorded."""

MinInsync = Callable[[str, int], int]
"""Returns the min.insync.replicas of a topic at a leader."""


def min_insync_rule(image: MetadataImage, config: NodeConfig) -> MinInsync | None:
    """Return the min.insync.replicas in force. Precedence: topic, the leader's dynamic config, the cluster's, this
    controller's own config.

    Return None if no replica may be eligible: the cluster's level does not allow it, or a power loss may take records
    that count (log.flush.policy=os).
    """
    if finalized_level(image, RAFTLOG_METADATA_VERSION) < ELIGIBLE_SINCE or config.log_flush_policy == "os":
        return None
    known: dict[tuple[str, int], int] = {}
    configured: dict[int, int] = {}
    """The broker whose dynamic config applies to each leader: itself, or NO_BROKER if it has none, as most have."""

    def min_insync(topic: str, leader: int) -> int:
        if leader not in configured:
            configured[leader] = leader if image.config("broker", str(leader)) else NO_BROKER
        where = topic, configured[leader]
        if where not in known:
            brokers = image.broker_configs(configured[leader])
            effective = topic_config(config, brokers, image.config("topic", topic))
            known[where] = effective.min_insync_replicas
        return known[where]

    return min_insync


def add_eligible_leaders(
    image: MetadataImage, records: Iterable[Record], min_insync: MinInsync | None
) -> tuple[Record, ...]:
    """Return the records with the eligible leaders of each partition that they change.

    If a record sets `eligible`, no other replica can be eligible. That leaves out a replica with a lost disk.
    """
    changes: dict[tuple[str, int], tuple[PartitionState, PartitionChanged]] = {}
    """The state of each partition before its last record, and that record; by name, since UUIDs are hashed slowly."""
    done: list[Record] = []
    topic_id, topic = None, None
    for record in records:
        if type(record) is PartitionChanged:
            if record.topic_id is not topic_id:
                topic_id, topic = record.topic_id, image.topic_by_id(record.topic_id)
            if topic is not None:
                where = topic.name, record.partition
                last = changes.get(where)
                before = changed(*last) if last else topic.partitions[record.partition]
                record = with_eligible_leaders(before, record, topic.name, min_insync)  # noqa: PLW2901
                changes[where] = before, record
        done.append(record)
    return tuple(done)


def with_eligible_leaders(
    before: PartitionState, record: PartitionChanged, topic: str, min_insync: MinInsync | None
) -> PartitionChanged:
    """Return a record with the eligible leaders of its partition after it: none without a rule `min_insync`, but for
    a lost ISR.
    """
    eligible: tuple[int, ...] = ()
    isr = before.isr if record.isr is None else record.isr
    leader = before.leader if record.leader == UNCHANGED_LEADER else record.leader
    lost = before.isr_lost if record.isr_lost is None else record.isr_lost
    needed = 0 if min_insync is None else min_insync(topic, leader)
    if lost or len(isr) < needed:
        after = changed(before, record)
        candidates = before.trusted if record.eligible is None else record.eligible
        is_small = len(isr) < after.effective_min_isr(needed)
        # After an unclean election no replica is known to have its leader's log. A lost ISR's leader commits nothing.
        is_unclean = after.unclean_epoch != before.unclean_epoch
        if lost or (is_small and not is_unclean):
            eligible = after.in_replica_order(set(candidates).difference(isr))
    change = None if eligible == before.eligible else eligible
    return record if change == record.eligible else msgspec.structs.replace(record, eligible=change)


def decide_release(image: MetadataImage, config: NodeConfig, index: PartitionIndex) -> Decision:
    """End the eligibility in partitions with an ISR that a change of min.insync.replicas made large enough.

    All eligibility ends, but for lost ISRs, if there is no rule (see `min_insync_rule`).
    """
    min_insync = min_insync_rule(image, config)
    found = tuple(islice(_released(image, min_insync, index), MAX_PARTITION_RECORDS))
    return Decision(found, DECIDE_AGAIN if len(found) == MAX_PARTITION_RECORDS else None)


def _released(
    image: MetadataImage, min_insync: MinInsync | None, index: PartitionIndex
) -> Iterator[PartitionChanged]:
    for name in sorted(index.at(image).with_eligible):
        topic = image.topics[name.topic]
        state = topic.partitions[name.partition]
        if state.isr_lost:
            continue
        needed = 0 if min_insync is None else min_insync(name.topic, state.leader)
        if not len(state.isr) < state.effective_min_isr(needed):
            yield PartitionChanged(topic.topic_id, name.partition, eligible=())
