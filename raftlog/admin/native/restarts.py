"""The risks of restarting a broker, and whether a restarted node has caught up: for tools that restart nodes in turn.

The risks are judged by the metadata, the quorum's leader, and whether the other brokers answer now. A blocking risk
passes once other replicas or voters have caught up. A risk that waiting does not change is a note. Examples are a
partition with one replica, or with as many replicas as acks=all needs in sync.

Two nodes that are judged in the same moment may both be safe, though both together are not.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Annotated, Final

import msgspec

from raftlog.admin.cluster_summary import SLICE, PartitionHealths
from raftlog.admin.errors import not_found
from raftlog.admin.kafka_client import Asks
from raftlog.admin.native.health import State, broker_health
from raftlog.admin.native.quorum import Quorum, quorum_of
from raftlog.admin.route import NO_RIGHTS, Call, Route
from raftlog.admin.view import NodeView
from raftlog.base.turns import in_slices
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.security.acls import DESCRIBE_CLUSTER

MOST_NAMED: Final = 100
"""Partitions that are named of each risk; all are counted."""
JUDGED_S: Final = 0.5
"""How long a judgement is returned again: callers without a token may ask as often as they like."""
KEEPING_UP: Final = ("leads", "follows")
"""States of voters that have what the quorum's leader has."""
STAYING: Final[tuple[State, ...]] = ("in_service", "draining")
"""States of brokers that can be counted on."""
RUNNING: Final[tuple[State, ...]] = (*STAYING, "fenced")
"""States of brokers whose nodes may vote."""

OFFLINE: Final = "offline"
UNDER_MIN_ISR: Final = "under_min_isr"
BELOW_MARGIN: Final = "below_margin"
ONLY_REPLICA: Final = "only_replica"
ALWAYS_UNDER_MIN_ISR: Final = "always_under_min_isr"
AT_MIN_ISR: Final = "at_min_isr"
NO_CONTROLLER: Final = "no_controller"
QUORUM_MAJORITY: Final = "quorum_majority"
FEW_VOTERS: Final = "few_voters"
LEADS: Final = "leads"

BLOCKING: Final = (NO_CONTROLLER, QUORUM_MAJORITY, OFFLINE, UNDER_MIN_ISR, BELOW_MARGIN)
_MESSAGES: Final = {
    OFFLINE: "no other replica in service is in sync: the partition would be offline",
    UNDER_MIN_ISR: "fewer replicas than min.insync.replicas would be in sync: acks=all would be refused",
    BELOW_MARGIN: "fewer replicas than min.insync.replicas and the margin would be in sync",
    ONLY_REPLICA: "there is no other replica: the partition is offline during the restart",
    ALWAYS_UNDER_MIN_ISR: "min.insync.replicas leaves no replica to spare: acks=all is refused during the restart",
    AT_MIN_ISR: "just min.insync.replicas would be in sync: if one more fails meanwhile, acks=all is refused",
    LEADS: "their leaderships move to other brokers",
}


class Risk(msgspec.Struct):
    """One effect of a restart. `code` is stable, `message` is for people."""

    code: str
    message: str
    count: int = 0
    """Partitions; 0 for a risk of the quorum."""
    partitions: list[str] = []
    """The names of the first of them."""


class RestartRisks(msgspec.Struct):
    """The effects of restarting broker `broker_id`. A restart is safe if nothing is `blocking`."""

    broker_id: int
    safe: bool
    blocking: list[Risk]
    notes: list[Risk]
    """Effects of any restart, which waiting does not change."""


class CaughtUp(msgspec.Struct):
    """Shows whether each replica of this node has been in sync since the node started. It stays so until the
    next start.
    """

    caught_up: bool
    in_sync_percent: int
    """The share of replicas that have been in sync since the start."""
    reasons: list[str]


class Margin(msgspec.Struct, forbid_unknown_fields=True):
    """The number of replicas that must be in sync beyond min.insync.replicas, where a partition has so many."""

    margin: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0


async def get_own_restart_risks(call: Call) -> RestartRisks:
    """Return the risks without names of partitions, since any client may read them."""
    found = await restart_risks(call.node, call.asker, call.node.config.node_id, call.query.margin)
    blocking, notes = (
        [msgspec.structs.replace(each, partitions=[]) for each in risks]
        for risks in (found.blocking, found.notes)
    )
    return RestartRisks(found.broker_id, found.safe, blocking, notes)


async def get_restart_risks(call: Call) -> RestartRisks:
    return await restart_risks(call.node, call.asker, call.path["broker_id"], call.query.margin)


async def get_caught_up(call: Call) -> tuple[int, CaughtUp]:
    """Return 200 or 503. A node that has caught up once stays in service when its disk becomes slow."""
    found = await caught_up(call.node)
    return (200 if found.caught_up else 503), found


async def restart_risks(node: NodeView, asker: Asks, broker_id: int, margin: int = 0) -> RestartRisks:
    """Judge the restart of a node. Raise ApiError 404 for one that is neither broker nor voter."""
    clock = asyncio.get_running_loop().time
    async with node.judging_restarts:
        node.judged_restarts = {key: each for key, each in node.judged_restarts.items() if clock() < each[0]}
        _, found = node.judged_restarts.get((broker_id, margin), (0.0, None))
        if found is None:
            found = await _judge(node, asker, broker_id, margin=margin)
            node.judged_restarts[broker_id, margin] = clock() + JUDGED_S, found
        judged: RestartRisks = found
        return judged


async def _judge(node: NodeView, asker: Asks, broker_id: int, *, margin: int) -> RestartRisks:
    brokers = node.image().brokers
    if broker_id not in brokers and broker_id not in (node.voters() or node.config.voters):
        raise not_found(f"broker {broker_id}")
    others = [each for number, each in brokers.items() if number != broker_id]
    quorum, states = await asyncio.gather(
        quorum_of(node), asyncio.gather(*(broker_health(asker, each) for each in others))
    )
    staying = {each.broker_id for each in states if each.state in STAYING}
    stopping = {each.broker_id for each in states if each.state not in RUNNING}
    risks = _of_quorum(quorum, broker_id, stopping)
    image = node.image()  # after the answers, which may take a second
    if (broker := image.brokers.get(broker_id)) is not None and not broker.fenced:
        risks += await _of_partitions(node, image, broker_id, staying=staying, margin=margin)
    blocking = [each for each in risks if each.code in BLOCKING]
    notes = [each for each in risks if each.code not in BLOCKING]
    return RestartRisks(broker_id, not blocking, blocking, notes)


async def _of_partitions(
    node: NodeView, image: MetadataImage, broker_id: int, *, staying: Collection[int], margin: int
) -> list[Risk]:
    counts: Counter[str] = Counter()
    names: defaultdict[str, list[str]] = defaultdict(list)
    healths = PartitionHealths(node.config, image)
    async for topic, number, state in in_slices(node, _partitions(image), SLICE):
        codes = [LEADS] if state.leader == broker_id else []
        if broker_id in state.isr:
            min_insync = healths.min_insync_of(topic.name, state)
            codes.append(risk_of(state, broker_id, min_insync=min_insync, staying=staying, margin=margin))
        for code in filter(None, codes):
            counts[code] += 1
            if counts[code] <= MOST_NAMED:
                names[code].append(f"{topic.name}-{number}")
    return [Risk(code, _MESSAGES[code], counts[code], names[code]) for code in _MESSAGES if counts[code]]


def risk_of(
    state: PartitionState, broker_id: int, *, min_insync: int, staying: Collection[int], margin: int
) -> str:
    """Return the risk code of a partition if this broker's replica leaves the ISR, or an empty string."""
    others = sum(each != broker_id and each in staying for each in state.isr)
    needed = state.effective_min_isr(min_insync)
    most = len({*state.original_replicas, *state.target_replicas} - {broker_id})
    if not others:
        return OFFLINE if most else ONLY_REPLICA
    if others < needed:
        return UNDER_MIN_ISR if most >= needed else ALWAYS_UNDER_MIN_ISR
    if others < needed + margin and most >= needed + margin:
        return BELOW_MARGIN
    return AT_MIN_ISR if others == needed else ""


def _of_quorum(quorum: Quorum, broker_id: int, stopping: Collection[int]) -> list[Risk]:
    """Judge the quorum, without voters whose brokers do not answer: the leader misses a dead voter seconds later."""
    if not quorum.told_by_leader:
        return [Risk(NO_CONTROLLER, "no active controller answers, so the leaderships would not move")]
    voters = [each.node_id for each in quorum.voters]
    left = [
        each.node_id
        for each in quorum.voters
        if each.state in KEEPING_UP and each.node_id != broker_id and each.node_id not in stopping
    ]
    if broker_id not in voters or len(left) >= quorum.needed:
        return []
    if len(voters) - 1 < quorum.needed:
        return [Risk(FEW_VOTERS, f"{len(voters)} voters: the metadata cannot change during the restart")]
    text = (
        f"only {len(left)} of {len(voters)} voters would keep up with the quorum's leader, and {quorum.needed} "
        "must: the metadata could not change"
    )
    return [Risk(QUORUM_MAJORITY, text)]


async def caught_up(node: NodeView) -> CaughtUp:
    """Compare the node's replicas with the ISRs, until each has been in one.

    Not awaited are replicas that a reassignment adds, replicas that stopped for good (health's reason replicas_failed),
    and partitions without a leader to copy from.
    """
    if node.never_in_sync is not None and not node.never_in_sync:
        return CaughtUp(True, 100, [])
    async with node.judging_restarts:
        if reasons := node.unready_reasons():
            return CaughtUp(False, 0, reasons)
        replicas, behind = await _behind(node, node.image())
        never = behind if node.never_in_sync is None else behind & node.never_in_sync
        node.never_in_sync = never
    percent = 100 * (replicas - len(never)) // replicas if replicas else 100
    reasons = [f"{len(never)} of {replicas} replicas are not in sync yet"] if never else []
    return CaughtUp(not never, percent, reasons)


async def _behind(node: NodeView, image: MetadataImage) -> tuple[int, set[TopicPartition]]:
    """Return the number of replicas here, and the partitions whose replica here is not in sync and could be."""
    node_id = node.config.node_id
    failed = () if node.facts is None else node.facts.failed_replicas()
    replicas = 0
    behind: set[TopicPartition] = set()
    async for topic, number, state in in_slices(node, _partitions(image), SLICE):
        if node_id not in state.replicas or node_id in state.adding_replicas:
            continue
        replicas += 1
        if node_id not in state.isr and state.leader != NO_BROKER:
            behind.add(TopicPartition(topic.name, number))
    return replicas, behind.difference(failed)


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicState, int, PartitionState]]:
    return (
        (topic, number, state)
        for topic in image.topics.values()
        for number, state in enumerate(topic.partitions)
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/restart-risks",
        get_own_restart_risks,
        "Get the risks of restarting this node",
        query=Margin,
        role="anyone",
        rights=NO_RIGHTS,
    ),
    Route(
        "GET",
        "/v1/brokers/{broker_id:int}/restart-risks",
        get_restart_risks,
        "Get the risks of restarting a broker",
        query=Margin,
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "GET",
        "/v1/caught-up",
        get_caught_up,
        "Has each replica of the node been in sync since it started?",
        role="anyone",
        unavailable=CaughtUp,
        rights=NO_RIGHTS,
    ),
)
