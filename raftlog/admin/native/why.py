"""Explains a partition or a broker: its last changes, with times and causes, newest first.

Every node returns the same, from its own history of the metadata log (`raftlog.metadata.history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, not_found
from raftlog.admin.native.cause_sentences import (
    BrokerChange,
    PartitionChange,
    because,
    of_broker,
    of_partition,
)
from raftlog.admin.route import Call, Route, of_topic
from raftlog.base.types import NO_BROKER
from raftlog.metadata.causes import describe_cause
from raftlog.metadata.history import AppliedBatch, History
from raftlog.metadata.image import PartitionState
from raftlog.security.acls import DESCRIBE_CLUSTER, Operation


class CauseOfChange(msgspec.Struct):
    """A cause of a change. `kind` is stable; `broker_id` is null if it is about no broker."""

    kind: str
    broker_id: int | None
    message: str


class When(msgspec.Struct):
    """One metadata batch. `at_ms` is the wall clock of the controller that decided it, null where it did not say."""

    metadata_offset: int
    at_ms: int | None
    at: str | None
    controller_id: int
    controller_epoch: int


class BrokerEvent(msgspec.Struct):
    """The change of a broker in one batch. `partitions_changed`: how many partitions that batch changed too."""

    broker_id: int
    when: When
    what: list[str]
    message: str
    because: str
    causes: list[CauseOfChange]
    partitions_changed: int


class PartitionEvent(msgspec.Struct):
    """The change of a partition in one batch. `brokers`: what became of the brokers concerned, in that batch too.

    Of a broker that left the ISR it may be an earlier batch, which took it out of service.
    """

    when: When
    what: list[str]
    message: str
    because: str
    causes: list[CauseOfChange]
    brokers: list[BrokerEvent]
    leader: int | None
    leader_epoch: int
    isr: list[int]


class PartitionWhy(msgspec.Struct):
    """A partition, how it came to be so, and how far back this node remembers.

    `complete`: all of its changes since it was created are among the events.
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    summary: str
    events: list[PartitionEvent]
    complete: bool
    known_since_offset: int


class BrokerWhy(msgspec.Struct):
    """A broker, how it came to be so, and how far back this node remembers."""

    broker_id: int
    registered: bool
    fenced: bool
    in_controlled_shutdown: bool
    draining: bool
    summary: str
    events: list[BrokerEvent]
    complete: bool
    known_since_offset: int


async def get_partition_why(call: Call) -> PartitionWhy:
    """Return the changes of one partition."""
    image, history = call.node.image(), history_of(call)
    name, index = call.path["topic_name"], call.path["partition_id"]
    topic, state = image.topics.get(name), image.partition(name, index)
    if topic is None or state is None:
        raise ApiError(404, f"there is no partition {name[:249]}-{index}", code=UNKNOWN_PARTITION)
    changes = history.partition(topic.topic_id, index)
    events = [partition_event(history, each) for each in reversed(changes)]
    return PartitionWhy(
        topic=name,
        partition=index,
        leader=_or_none(state.leader),
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        replicas=list(state.replicas),
        summary=_partition_summary(state, events),
        events=events,
        complete=bool(changes) and changes[0].old is None,
        known_since_offset=history.since_offset,
    )


async def get_broker_why(call: Call) -> BrokerWhy:
    """Return the changes of one broker; unregistered brokers included, as far as remembered."""
    image, history = call.node.image(), history_of(call)
    broker_id = call.path["broker_id"]
    broker, changes = image.brokers.get(broker_id), history.broker(broker_id)
    if broker is None and not changes:
        raise not_found(f"broker {broker_id}")
    events = [_broker_event(broker_id, each) for each in reversed(changes)]
    return BrokerWhy(
        broker_id=broker_id,
        registered=broker is not None,
        fenced=broker is None or broker.fenced,
        in_controlled_shutdown=broker is not None and broker.in_controlled_shutdown,
        draining=broker is not None and broker.draining,
        summary=_broker_summary(broker_id, events),
        events=events,
        complete=bool(changes) and changes[0].old is None,
        known_since_offset=history.since_offset,
    )


def history_of(call: Call) -> History:
    """Return what the node remembers. Raises ApiError."""
    if call.node.history is None:
        raise ApiError(503, "this node has no history of metadata")
    return call.node.history


def _or_none(broker_id: int) -> int | None:
    return None if broker_id == NO_BROKER else broker_id


def _when(moment: AppliedBatch) -> When:
    at = None
    if moment.at_ms:
        at = datetime.fromtimestamp(moment.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return When(moment.offset, moment.at_ms or None, at, moment.controller_id, moment.controller_epoch)


def _causes(moment: AppliedBatch) -> list[CauseOfChange]:
    return [
        CauseOfChange(each.kind, _or_none(each.broker_id), describe_cause(each)) for each in moment.causes
    ]


def partition_event(history: History, change: PartitionChange) -> PartitionEvent:
    """Return one change of a partition in words."""
    assert change.new is not None, "the history of a partition ends with it"
    what, message, concerned = of_partition(change)
    offset = change.batch.offset
    moved = history.broker_changes_at(offset)
    left = set(change.old.isr).difference(change.new.isr, moved) if change.old is not None else ()
    away = {each: found for each in left if (found := history.fencing(each, offset)) is not None}
    events = away | moved
    return PartitionEvent(
        when=_when(change.batch),
        what=what,
        message=message,
        because=because(change.batch, concerned, what, away=away),
        causes=_causes(change.batch),
        brokers=[_broker_event(each, events[each]) for each in sorted(concerned & events.keys())],
        leader=_or_none(change.new.leader),
        leader_epoch=change.new.leader_epoch,
        isr=list(change.new.isr),
    )


def _broker_event(broker_id: int, change: BrokerChange) -> BrokerEvent:
    what, message = of_broker(broker_id, change)
    return BrokerEvent(
        broker_id=broker_id,
        when=_when(change.batch),
        what=what,
        message=message,
        because=because(change.batch, {broker_id}, what),
        causes=_causes(change.batch),
        partitions_changed=change.batch.partitions,
    )


LEADER_CHANGES: Final = frozenset(
    {"created", "leader_changed", "leader_elected", "leader_lost", "unclean_election", "leader_reelected"}
)


def _partition_summary(state: PartitionState, events: Iterable[PartitionEvent]) -> str:
    who = "No broker leads" if state.leader == NO_BROKER else f"Broker {state.leader} leads"
    who += f" in epoch {state.leader_epoch}"
    event = next((each for each in events if LEADER_CHANGES.intersection(each.what)), None)
    sentences = [f"{who}.", _event_sentence(event) if event else "This node does not remember the reason."]
    missing = [each for each in state.target_replicas if each not in state.isr]
    if missing:
        sentences.append(f"Not in sync: {', '.join(map(str, missing))}.")
        left = next((each for each in events if "isr_shrunk" in each.what), None)
        if left is not None and left is not event:
            sentences.append(_event_sentence(left))
    return " ".join(sentences)


def _broker_summary(broker_id: int, events: list[BrokerEvent]) -> str:
    return (
        _event_sentence(events[0])
        if events
        else f"This node does not remember what happened to broker {broker_id}."
    )


def as_sentence(at: str | None, message: str, because: str) -> str:
    """Return an event as a sentence."""
    when = f"At {at}: " if at else ""
    reason = f", because {because}" if because else ""
    return f"{when}{message}{reason}."


def _event_sentence(event: PartitionEvent | BrokerEvent) -> str:
    return as_sentence(event.when.at, event.message, event.because)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/why",
        get_partition_why,
        "The last changes of a partition's leader, ISR and replicas, and the reasons",
        rights=of_topic(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        "/v1/brokers/{broker_id:int}/why",
        get_broker_why,
        "When a broker was fenced, unfenced, started or stopped, and why",
        rights=DESCRIBE_CLUSTER,
    ),
)
