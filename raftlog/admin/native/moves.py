"""Moves by an operator: a partition's leadership, or all of a broker's (drain)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import not_found
from raftlog.admin.leaderships import drain, transfer_leadership, undrain
from raftlog.admin.route import Call, Route
from raftlog.base.errors import BrokerIdNotRegistered
from raftlog.base.turns import each_part
from raftlog.metadata.controller_api import BrokerDrain
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

LARGEST_ID: Final = 2**31 - 1


class Drain(msgspec.Struct):
    """The progress of a broker's drain. `leaderships`: the partitions that it leads; on a drained broker, those
    without another candidate.
    """

    broker_id: int
    draining: bool
    leaderships: int


class NewLeader(msgspec.Struct, forbid_unknown_fields=True):
    """The replica that shall lead."""

    leader: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)]


class Leader(msgspec.Struct):
    """The leader of a partition from now on."""

    topic: str
    partition: int
    leader: int


async def get_drain(call: Call) -> Drain:
    """Return the drain as this node knows it."""
    image, broker_id = call.node.image(), call.path["broker_id"]
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise not_found(f"broker {broker_id}")
    led = await each_part(
        call, image.topics.values(), lambda topic: sum(each.leader == broker_id for each in topic.partitions)
    )
    return Drain(broker_id, broker.draining, sum(led))


async def drain_broker(call: Call) -> Drain:
    """Drain a broker until it is cancelled, through restarts too; a repeated request reports the progress."""
    try:
        return _drain_state(await drain(call.node.submit, call.path["broker_id"], by=call.caller.asked_by))
    except BrokerIdNotRegistered:
        raise not_found(f"broker {call.path['broker_id']}") from None


async def undrain_broker(call: Call) -> Drain:
    """Cancel a drain. The broker's leaderships come back with the next rebalance or election of preferred leaders."""
    try:
        return _drain_state(await undrain(call.node.submit, call.path["broker_id"], by=call.caller.asked_by))
    except BrokerIdNotRegistered:
        raise not_found(f"broker {call.path['broker_id']}") from None


def _drain_state(reply: BrokerDrain) -> Drain:
    return Drain(reply.broker_id, reply.draining, reply.leaderships)


async def move_leadership(call: Call) -> Leader:
    """Transfer leadership to a broker, which may be the leader already."""
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
        "POST",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/leader",
        move_leadership,
        "Have an in-sync replica lead a partition",
        body=NewLeader,
        rights=ALTER_CLUSTER,
    ),
)
