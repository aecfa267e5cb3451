"""Settling a partition: who must be its leader and ISR, given how the brokers stand. One rule for every occasion.

Fencing, unfencing, a new incarnation, a controlled shutdown, a doubt that was cleared: each changes the standing, and
then every partition is settled anew. Settling is idempotent: a settled partition needs no record.

The rule: while any ISR member is alive, members that are fenced or leaving are out of the ISR, and a leader that is
gone is replaced, in the order of the replicas. While none is alive the ISR stands still: all of its members hold all
that was committed, so the first to come back may lead. A member that came back with another disk (`wiped`) leaves the
ISR at once; if it was the only one, the ISR is lost and only an unclean election helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.config import NodeConfig, topic_config
from raftlog.base.types import NO_BROKER
from raftlog.controller.decisions import MAX_PARTITION_RECORDS, Event
from raftlog.controller.standing import Standing
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.metadata.records import UNCHANGED_LEADER, PartitionChanged

UNCLEAN_KEY: Final = "unclean.leader.election.enable"
MAX_NAMED: Final = 10
"""Partitions that one event names; the rest it counts."""

UncleanRule = Callable[[str], bool]
"""Says whether a topic allows unclean leader election."""


class Settlement(NamedTuple):
    """The records that settle partitions, what an operator must know, and whether that was all of them."""

    records: tuple[PartitionChanged, ...]
    events: tuple[Event, ...]
    complete: bool


def unclean_rule(image: MetadataImage, config: NodeConfig) -> UncleanRule:
    """Return the rule from topic configs over cluster-wide dynamic config over the node's own."""
    cluster_wide = image.config("broker", "")

    def allowed(topic: str) -> bool:
        effective = topic_config(config, cluster_wide, image.config("topic", topic))
        return effective.unclean_leader_election_enable

    return allowed


def settle_all(
    image: MetadataImage,
    standing: Standing,
    unclean: UncleanRule,
    *,
    wiped: int = NO_BROKER,
) -> Settlement:
    """Settle every partition of the image, MAX_PARTITION_RECORDS at most; what is left, the next call settles."""
    changes = _Changes()
    for topic in image.topics.values():
        for change in _unsettled(topic, standing, unclean, wiped):
            if len(changes.records) == MAX_PARTITION_RECORDS:
                return Settlement(tuple(changes.records), changes.events(), False)
            changes.add(topic.name, topic.partitions[change.partition], change)
    return Settlement(tuple(changes.records), changes.events(), True)


def _unsettled(
    topic: TopicState, standing: Standing, unclean: UncleanRule, wiped: int
) -> Iterator[PartitionChanged]:
    present = standing.alive | standing.doubtful
    allowed: bool | None = None
    for index, state in enumerate(topic.partitions):
        if state.leader in present and present.issuperset(state.isr):
            continue
        if allowed is None:
            allowed = unclean(topic.name)
        change = settle(topic.topic_id, index, state, standing=standing, unclean=allowed, wiped=wiped)
        if change is not None:
            yield change


def settle_without_leader(topic: TopicState, index: int, standing: Standing, *, unclean: bool) -> Settlement:
    """Settle one partition whose leader gives up its place in the ISR."""
    state = topic.partitions[index]
    changes = _Changes()
    change = settle(topic.topic_id, index, state, standing=standing, unclean=unclean, wiped=state.leader)
    if change is not None:
        changes.add(topic.name, state, change)
    return Settlement(tuple(changes.records), changes.events(), True)


def settle(
    topic_id: UUID,
    index: int,
    state: PartitionState,
    *,
    standing: Standing,
    unclean: bool,
    wiped: int = NO_BROKER,
) -> PartitionChanged | None:
    """Return the record that settles one partition, or None if it is settled."""
    isr, lost = state.isr, state.isr_lost
    if wiped in isr:
        rest = tuple(member for member in isr if member != wiped)
        isr, lost = rest or isr, lost or not rest
    if any(member in standing.alive for member in isr) and not lost:
        isr = tuple(member for member in isr if member in standing.alive or member in standing.doubtful)
    leader = NO_BROKER if lost else _leader(state, isr, standing)
    if leader == NO_BROKER and unclean:
        leader = _unclean_leader(state, standing)
        if leader != NO_BROKER:
            isr, lost = (leader,), False
    return _change(topic_id, index, state, leader=leader, isr=isr, lost=lost)


def _leader(state: PartitionState, isr: tuple[int, ...], standing: Standing) -> int:
    if state.leader in isr and any(state.leader in group for group in standing):
        return state.leader
    return elect(state.replicas, isr, standing)


def elect(replicas: tuple[int, ...], isr: tuple[int, ...], standing: Standing) -> int:
    """Return the first ISR member in the replicas' order that is alive, else a doubtful one, else NO_BROKER."""
    for group in (standing.alive, standing.doubtful):
        for replica in replicas:
            if replica in group and replica in isr:
                return replica
    return NO_BROKER


def _unclean_leader(state: PartitionState, standing: Standing) -> int:
    live = [replica for replica in state.replicas if replica in standing.alive]
    # A member of a lost ISR has an empty disk: anyone else knows more.
    live.sort(key=lambda replica: replica in state.isr)
    return live[0] if live else NO_BROKER


def _change(
    topic_id: UUID, index: int, state: PartitionState, *, leader: int, isr: tuple[int, ...], lost: bool
) -> PartitionChanged | None:
    if leader == state.leader and isr == state.isr and lost == state.isr_lost:
        return None
    return PartitionChanged(
        topic_id=topic_id,
        partition=index,
        leader=UNCHANGED_LEADER if leader == state.leader else leader,
        isr=None if isr == state.isr else isr,
        isr_lost=None if lost == state.isr_lost else lost,
    )


class _Changes:
    """Records in the making, and what is remarkable among them."""

    def __init__(self) -> None:
        self.records: list[PartitionChanged] = []
        self._remarkable: dict[str, list[str]] = {}

    def add(self, topic: str, state: PartitionState, change: PartitionChanged) -> None:
        self.records.append(change)
        if change.isr_lost:
            self._note("isr_lost", topic, change)
        elif change.leader == NO_BROKER:
            self._note("partition_went_offline", topic, change)
        elif change.leader >= 0 and (state.isr_lost or change.leader not in state.isr):
            self._note("unclean_leader_elected", topic, change)

    def _note(self, name: str, topic: str, change: PartitionChanged) -> None:
        self._remarkable.setdefault(name, []).append(f"{topic}-{change.partition}")

    def events(self) -> tuple[Event, ...]:
        return tuple(_event(name, partitions) for name, partitions in self._remarkable.items())


def _event(name: str, partitions: list[str]) -> Event:
    fields: dict[str, Any] = {"count": len(partitions), "partitions": partitions[:MAX_NAMED]}
    return Event("warning" if name == "partition_went_offline" else "error", name, fields)
