"""What restarting a broker puts at risk, and whether a restarted one has caught up: for whoever restarts nodes in turn.

The risks are judged from one metadata image and the quorum's state. A blocking risk passes by itself once other
replicas or voters have caught up. What no waiting can change is a note: a partition with one
replica, or with as many as acks=all needs in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Annotated, Final

import msgspec

from raftlog.admin.cluster_summary import SLICE, BrokerRisks, PartitionHealths
from raftlog.admin.errors import not_found
from raftlog.admin.native.quorum import Quorum, quorum_of
from raftlog.admin.route import NO_RIGHTS, Call, Route
from raftlog.admin.view import NodeView
from raftlog.base.types import TopicPartition
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.security.acls import DESCRIBE_CLUSTER

IN_STEP: Final = ("leads", "follows")
"""States of voters that have what the quorum's leader has."""

OFFLINE: Final = "offline"
UNDER_MIN_ISR: Final = "under_min_isr"
BELOW_MARGIN: Final = "below_margin"
ONLY_REPLICA: Final = "only_replica"
ALWAYS_UNDER_MIN_ISR: Final = "always_under_min_isr"
AT_MIN_ISR: Final = "at_min_isr"
NO_CONTROLLER: Final = "no_controller"
QUORUM_MAJORITY: Final = "quorum_majority"
LEADS: Final = "leads"

BLOCKING: Final = (NO_CONTROLLER, QUORUM_MAJORITY, OFFLINE, UNDER_MIN_ISR, BELOW_MARGIN)
_MESSAGES: Final = {
    OFFLINE: "no other replica in service is in sync: nobody could read or write",
    UNDER_MIN_ISR: "fewer replicas than min.insync.replicas would be in sync: acks=all would be refused",
    BELOW_MARGIN: "fewer replicas than min.insync.replicas and the margin would be in sync",
    ONLY_REPLICA: "there is no other replica: nobody can read or write during the restart",
    ALWAYS_UNDER_MIN_ISR: "min.insync.replicas leaves no replica to spare: acks=all is refused during the restart",
    AT_MIN_ISR: "just min.insync.replicas would be in sync: if one more fails meanwhile, acks=all is refused",
    LEADS: "their leaderships move to other brokers",
}


class Risk(msgspec.Struct):
    """One thing that a restart would bring. `code` is stable, `message` is for people."""

    code: str
    message: str
    count: int
    """Partitions; 1 where it is about the quorum."""
    partitions: list[str] = []
    """The names of the first of them."""


class RestartRisks(msgspec.Struct):
    """What would be while broker `broker_id` restarts. It is safe to restart it if nothing is `blocking`."""

    broker_id: int
    safe: bool
    blocking: list[Risk]
    notes: list[Risk]
    """What a restart brings in any case, and does not pass by waiting."""


class CaughtUp(msgspec.Struct):
    """Whether every replica of this node has been in sync since the node started. It stays so until the next start."""

    caught_up: bool
    replicas: int
    """The replicas of this node in the metadata, but for the stopped ones (`replicas_failed` in health)."""
    in_sync: int
    in_sync_percent: int
    reasons: list[str]


class Margin(msgspec.Struct, forbid_unknown_fields=True):
    """How many replicas must be in sync beyond min.insync.replicas, where a partition has so many."""

    margin: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


async def get_own_restart_risks(call: Call) -> RestartRisks:
    """Without names of partitions, since anyone may ask."""
    found = await restart_risks(call.node, call.node.config.node_id, call.query.margin)
    for each in (*found.blocking, *found.notes):
        each.partitions = []
    return found


async def get_restart_risks(call: Call) -> RestartRisks:
    return await restart_risks(call.node, call.path["broker_id"], call.query.margin)


async def get_caught_up(call: Call) -> tuple[int, CaughtUp]:
    """200 or 503. A disk that is slow later does not take the node out of service: it has caught up once."""
    found = await caught_up(call.node)
    return (200 if found.caught_up else 503), found


async def restart_risks(node: NodeView, broker_id: int, margin: int = 0) -> RestartRisks:
    """Judge the restart of a node. Raise ApiError 404 for one that is neither broker nor voter."""
    image = node.image()
    if broker_id not in image.brokers and broker_id not in node.config.voters:
        raise not_found(f"broker {broker_id}")
    seen = await _risks_of_broker(node, image, broker_id, margin)
    risks = _of_quorum(await quorum_of(node), broker_id, image.brokers.keys() - _in_service(image))
    risks += (
        Risk(code, message, seen.counts[code], list(seen.names[code]))
        for code, message in _MESSAGES.items()
        if seen.counts[code]
    )
    blocking = [each for each in risks if each.code in BLOCKING]
    notes = [each for each in risks if each.code not in BLOCKING]
    return RestartRisks(broker_id, not blocking, blocking, notes)


async def caught_up(node: NodeView) -> CaughtUp:
    """Compare the node's replicas with the ISRs."""
    reasons = node.unready_reasons()
    seen = await _risks_of_broker(node, node.image(), node.config.node_id, 0)
    failed = () if node.facts is None else node.facts.failed_replicas()
    behind = sum(each not in failed for each in seen.behind)
    in_sync = seen.replicas - len(seen.behind)
    replicas = in_sync + behind
    if behind:
        reasons.append(f"{behind} of {replicas} replicas are not in sync")
    node.has_caught_up = node.has_caught_up or not reasons
    percent = 100 * in_sync // replicas if replicas else 100
    return CaughtUp(node.has_caught_up, replicas, in_sync, percent, reasons)


async def _risks_of_broker(node: NodeView, image: MetadataImage, broker_id: int, margin: int) -> BrokerRisks:
    """Visit all partitions once for each image: callers without a token may ask again and again."""
    last = node.restart_risks.get((broker_id, margin))
    if last is not None and last.image is image:
        return last
    seen, healths = BrokerRisks(image), PartitionHealths(node.config, image)
    in_service = _in_service(image)
    visited = 0
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            visited += 1
            if visited % SLICE == 0:
                await asyncio.sleep(0)
            if broker_id not in state.replicas:
                continue
            name = TopicPartition(topic.name, number)
            if broker_id not in state.adding_replicas or broker_id in state.isr:
                seen.replicas += 1
            if state.leader == broker_id:
                seen.add(LEADS, name)
            if broker_id in state.isr:
                min_insync = healths.min_insync_of(topic.name, state)
                if code := risk_of(state, broker_id, min_insync, in_service, margin):
                    seen.add(code, name)
            elif broker_id not in state.adding_replicas:
                seen.behind.add(name)
    current = {key: each for key, each in node.restart_risks.items() if each.image is image}
    node.restart_risks = current | {(broker_id, margin): seen}
    return seen


def risk_of(
    state: PartitionState, broker_id: int, min_insync: int, in_service: Collection[int], margin: int
) -> str:
    """Return the code of what a partition would be without an in-sync replica of its; "" if nothing."""
    others = sum(each != broker_id and each in in_service for each in state.isr)
    needed = state.effective_min_isr(min_insync)
    most = len(state.original_replicas) - 1
    if not others:
        return OFFLINE if most else ONLY_REPLICA
    if others < needed:
        return UNDER_MIN_ISR if most >= needed else ALWAYS_UNDER_MIN_ISR
    if others < needed + margin and most >= needed + margin:
        return BELOW_MARGIN
    return AT_MIN_ISR if others == needed else ""


def _in_service(image: MetadataImage) -> set[int]:
    return {
        each.broker_id for each in image.brokers.values() if not (each.fenced or each.in_controlled_shutdown)
    }


def _of_quorum(quorum: Quorum, broker_id: int, out_of_service: Collection[int]) -> list[Risk]:
    """Judge the quorum. The brokers out of service do not count: the leader misses a dead voter only seconds later."""
    if not quorum.told_by_leader:
        return [
            Risk(NO_CONTROLLER, "no active controller answers: nobody would take over the leaderships", 1)
        ]
    voters = [each.node_id for each in quorum.voters]
    left = [
        each.node_id
        for each in quorum.voters
        if each.state in IN_STEP and each.node_id not in (broker_id, *out_of_service)
    ]
    if broker_id not in voters or len(left) >= quorum.needed:
        return []
    if len(voters) - 1 < quorum.needed:
        return [Risk("few_voters", f"{len(voters)} voters: nothing can be changed during the restart", 1)]
    return [
        Risk(
            QUORUM_MAJORITY,
            f"only {len(left)} of {len(voters)} voters would keep up with the quorum's leader, and "
            f"{quorum.needed} must: nothing could be changed",
            1,
        )
    ]


ROUTES: Final = (
    Route(
        "GET",
        "/v1/restart-risks",
        get_own_restart_risks,
        "What would be at risk while this node restarts?",
        query=Margin,
        role="anyone",
        rights=NO_RIGHTS,
    ),
    Route(
        "GET",
        "/v1/brokers/{broker_id:int}/restart-risks",
        get_restart_risks,
        "What would be at risk while a broker restarts?",
        query=Margin,
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "GET",
        "/v1/caught-up",
        get_caught_up,
        "Has every replica of the node been in sync since it started?",
        role="anyone",
        unavailable=CaughtUp,
        rights=NO_RIGHTS,
    ),
)
