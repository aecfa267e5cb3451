"""Moves by an operator: a partition's leadership, all of a broker's (drain), or all of its replicas (decommission)."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import not_found
from raftlog.admin.leaderships import decommission, drain, transfer_leadership, undrain
from raftlog.admin.route import Call, Route
from raftlog.base.errors import BrokerIdNotRegistered
from raftlog.base.turns import each_part
from raftlog.base.types import NO_BROKER
from raftlog.metadata.controller_api import BrokerDrain
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

LARGEST_ID: Final = 2**31 - 1
MAX_NAMED: Final = 100
"""Partitions that the progress of a decommission names."""


class Drain(msgspec.Struct):
    """Whether a broker is drained. `leaderships`: the partitions that it leads; on a drained broker, those without
    another candidate.
    """

    broker_id: int
    draining: bool
    leaderships: int


class NewLeader(msgspec.Struct, forbid_unknown_fields=True):
    """Which replica shall lead."""

    leader: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)]


class Leader(msgspec.Struct):
    """The leader of a partition from now on."""

    topic: str
    partition: int
    leader: int


class NewDecommission(msgspec.Struct, forbid_unknown_fields=True):
    """`replace_with`: the broker that gets the replicas; without it any broker, or the broker that was named before."""

    replace_with: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)] | None = None


class Moving(msgspec.Struct):
    """A partition that moves to the brokers `to`."""

    topic: str
    partition: int
    to: list[int]


class Waiting(msgspec.Struct):
    """A partition that does not move yet."""

    topic: str
    partition: int
    reason: str


class Decommission(msgspec.Struct):
    """The progress of a broker's decommission. Its last replica gone, the broker is unregistered (404)."""

    broker_id: int
    decommissioned: bool
    replace_with: int | None
    votes: bool
    """Whether the node votes in the metadata quorum: then its process must go on running."""
    replicas: int
    """Replicas that the broker still has."""
    moving: list[Moving]
    """The first of those that move."""
    waiting: list[Waiting]
    """The first of the others."""


async def get_decommission(call: Call) -> Decommission:
    """As this node knows it."""
    image, broker_id = call.node.image(), call.path["broker_id"]
    if broker_id not in image.brokers:
        raise not_found(f"broker {broker_id}")
    moving: list[Moving] = []
    waiting: list[Waiting] = []
    held = await each_part(call, image.topics.values(), partial(_held, broker_id))
    for topic, number, state in chain.from_iterable(held):
        if broker_id in state.removing_replicas:
            to = [each for each in state.adding_replicas if each not in state.removing_replicas]
            moving.append(Moving(topic, number, to))
        elif len(waiting) < MAX_NAMED:
            waiting.append(Waiting(topic, number, _why_waiting(image, state)))
    other = image.decommissions.get(broker_id, NO_BROKER)
    return Decommission(
        broker_id,
        broker_id in image.decommissions,
        None if other == NO_BROKER else other,
        broker_id in (call.node.voters() or call.node.config.voters),
        sum(map(len, held)),
        moving[:MAX_NAMED],
        waiting,
    )


def _held(broker_id: int, topic: TopicState) -> list[tuple[str, int, PartitionState]]:
    return [
        (topic.name, number, state)
        for number, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    ]


def _why_waiting(image: MetadataImage, state: PartitionState) -> str:
    if state.leader == NO_BROKER or state.isr_lost:
        return "no broker leads it: start the brokers that have its records"
    if state.is_reassigned:
        return "another reassignment is under way"
    away = [
        each
        for each in state.replicas
        if each not in image.decommissions and (each not in image.brokers or image.brokers[each].fenced)
    ]
    if away:
        return f"broker {away[0]} has a replica that stays, and is not in service: start or decommission it"
    free = {number for number, broker in image.brokers.items() if not broker.fenced}
    if free <= {*state.replicas, *image.decommissions}:
        return "no other broker is in service that could take it: start or add one"
    return "its turn has not come"


async def decommission_broker(call: Call) -> None:
    """Its replicas move to other brokers, some at a time; then it is unregistered, and its process may be stopped."""
    wanted = call.query.replace_with
    await _decommissioned(call, replace_with=NO_BROKER if wanted is None else wanted)


async def recommission_broker(call: Call) -> None:
    """The broker keeps the replicas that have not begun to move, and gets new ones again."""
    await _decommissioned(call, ended=True)


async def _decommissioned(call: Call, *, replace_with: int = NO_BROKER, ended: bool = False) -> None:
    broker_id, by = call.path["broker_id"], call.caller.asked_by
    try:
        await decommission(call.node.submit, broker_id, replace_with=replace_with, ended=ended, by=by)
    except BrokerIdNotRegistered:
        raise not_found(f"broker {broker_id}") from None


async def get_drain(call: Call) -> Drain:
    """As this node knows it."""
    image, broker_id = call.node.image(), call.path["broker_id"]
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise not_found(f"broker {broker_id}")
    led = sum(each.leader == broker_id for topic in image.topics.values() for each in topic.partitions)
    return Drain(broker_id, broker.draining, led)


async def drain_broker(call: Call) -> Drain:
    """It holds until it is cancelled, through restarts too; a repeated request reports the progress."""
    try:
        return _told(await drain(call.node.submit, call.path["broker_id"], by=call.caller.asked_by))
    except BrokerIdNotRegistered:
        raise not_found(f"broker {call.path['broker_id']}") from None


async def undrain_broker(call: Call) -> Drain:
    """Its leaderships come back with the next rebalance or election of preferred leaders."""
    try:
        return _told(await undrain(call.node.submit, call.path["broker_id"], by=call.caller.asked_by))
    except BrokerIdNotRegistered:
        raise not_found(f"broker {call.path['broker_id']}") from None


def _told(reply: BrokerDrain) -> Drain:
    return Drain(reply.broker_id, reply.draining, reply.leaderships)


async def move_leadership(call: Call) -> Leader:
    """It may lead already."""
    topic, partition, leader = call.path["topic_name"], call.path["partition_id"], call.body.leader
    call.audit.update(topic=topic, partition=partition, leader=leader)
    await transfer_leadership(call.node.submit, topic, partition, leader, by=call.caller.asked_by)
    return Leader(topic, partition, leader)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/brokers/{broker_id:int}/drain",
        get_drain,
        "Is a broker drained of leaderships?",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/brokers/{broker_id:int}/drain",
        drain_broker,
        "Drain a broker of leaderships that other brokers can take",
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        "/v1/brokers/{broker_id:int}/drain",
        undrain_broker,
        "End the drain of a broker",
        rights=ALTER_CLUSTER,
    ),
    Route(
        "GET",
        "/v1/brokers/{broker_id:int}/decommission",
        get_decommission,
        "Get the progress of a broker's decommission",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/brokers/{broker_id:int}/decommission",
        decommission_broker,
        "Decommission a broker: move its replicas away, then unregister it",
        query=NewDecommission,
        status=204,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        "/v1/brokers/{broker_id:int}/decommission",
        recommission_broker,
        "End the decommission of a broker",
        status=204,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "POST",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/leader",
        move_leadership,
        "Have an in-sync replica lead a partition",
        body=NewLeader,
        rights=ALTER_CLUSTER,
    ),
)
