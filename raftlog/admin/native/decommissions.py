"""The decommission of brokers: begun and ended by an operator, with its progress and what holds it up."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import not_found
from raftlog.admin.leaderships import decommission
from raftlog.admin.native.moves import LARGEST_ID
from raftlog.admin.route import Call, Route
from raftlog.base.errors import BrokerIdNotRegistered
from raftlog.base.turns import each_part, in_slices
from raftlog.base.types import NO_BROKER
from raftlog.metadata.effective_config import cordoned_brokers
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

MAX_NAMED: Final = 100
"""Partitions that the progress of a decommission names."""


class NewDecommission(msgspec.Struct, forbid_unknown_fields=True):
    """`replace_with`: the broker that gets the replicas; without it any broker, or the broker that was named before."""

    replace_with: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)] | None = None


class Moving(msgspec.Struct):
    """A partition that moves to the brokers `to`."""

    topic: str
    partition: int
    to: list[int]


class Waiting(msgspec.Struct):
    """A partition that does not move yet. `blocked`: until an operator does something about the reason."""

    topic: str
    partition: int
    reason: str
    blocked: bool


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
    """The first that move."""
    waiting: list[Waiting]
    """The first of the others; blocked partitions come first."""
    blocked: int
    """How many are blocked in all."""


async def get_decommission(call: Call) -> Decommission:
    """Return the decommission as this node knows it."""
    broker_id = call.path["broker_id"]
    if broker_id not in call.node.image().brokers:
        raise not_found(f"broker {broker_id}")
    return await progress_of(call, broker_id)


async def progress_of(call: Call, broker_id: int) -> Decommission:
    """Return the progress of a registered broker's decommission, as this node knows it."""
    image = call.node.image()
    moving: list[Moving] = []
    waiting: list[Waiting] = []
    held = await each_part(call, image.topics.values(), partial(_held, broker_id))
    async for topic, number, state in in_slices(call, chain.from_iterable(held)):
        if broker_id in state.removing_replicas:
            to = [each for each in state.adding_replicas if each not in state.removing_replicas]
            moving.append(Moving(topic, number, to))
        else:
            waiting.append(_waiting(image, topic, number, state))
    waiting.sort(key=lambda each: not each.blocked)
    other = image.decommissions.get(broker_id, NO_BROKER)
    return Decommission(
        broker_id,
        broker_id in image.decommissions,
        None if other == NO_BROKER else other,
        broker_id in (call.node.voters() or call.node.config.voters),
        sum(map(len, held)),
        moving[:MAX_NAMED],
        waiting[:MAX_NAMED],
        sum(each.blocked for each in waiting),
    )


def _held(broker_id: int, topic: TopicState) -> list[tuple[str, int, PartitionState]]:
    return [
        (topic.name, number, state)
        for number, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    ]


def _waiting(image: MetadataImage, topic: str, number: int, state: PartitionState) -> Waiting:
    blocked_by = _blocked_by(image, state)
    turn = "another reassignment is under way" if state.is_reassigned else "its turn has not come"
    return Waiting(topic, number, blocked_by or turn, bool(blocked_by))


def _blocked_by(image: MetadataImage, state: PartitionState) -> str:
    """Return why a partition cannot move, "" if it can."""
    if state.leader == NO_BROKER or state.isr_lost:
        return "no broker leads it: start the brokers that have its records"
    if state.is_reassigned:
        return ""
    away = [
        each
        for each in state.replicas
        if each not in image.decommissions and (each not in image.brokers or image.brokers[each].fenced)
    ]
    if away:
        return f"broker {away[0]} has a replica that stays, and is not in service: start or decommission it"
    free = {number for number, broker in image.brokers.items() if not broker.fenced}
    busy = {*state.replicas, *image.decommissions}
    if free <= busy:
        return "no other broker is in service that could take it: start or add one"
    if free <= busy | cordoned_brokers(image):
        return "the other brokers in service are cordoned: raftlog broker cordon --undo, or add one"
    return ""


async def decommission_broker(call: Call) -> None:
    """Move the broker's replicas to others, some at a time, then unregister it: its process may be stopped."""
    wanted = call.query.replace_with
    await _decommissioned(call, replace_with=NO_BROKER if wanted is None else wanted)


async def recommission_broker(call: Call) -> None:
    """Cancel a decommission: the broker keeps the replicas that have not begun to move, and gets new ones again."""
    await _decommissioned(call, ended=True)


async def _decommissioned(call: Call, *, replace_with: int = NO_BROKER, ended: bool = False) -> None:
    broker_id, by = call.path["broker_id"], call.caller.asked_by
    try:
        await decommission(call.node.submit, broker_id, replace_with=replace_with, ended=ended, by=by)
    except BrokerIdNotRegistered:
        raise not_found(f"broker {broker_id}") from None


ROUTES: Final = (
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
)
