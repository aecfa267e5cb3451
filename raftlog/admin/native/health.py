"""The health of the cluster, with reasons, from any node.

Red: partitions cannot be read or written now, or the cluster cannot be changed. Yellow: degraded; everything is served,
but a further failure may end that. Green reasons are for information.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from raftlog.admin.cluster_summary import Kind, Survey
from raftlog.admin.kafka_client import Asks, BrokerUnreachable
from raftlog.admin.native.clock import Clock, broker_clocks, compare
from raftlog.admin.native.decommissions import Decommission, progress_of
from raftlog.admin.native.quorum import Quorum, quorum_of
from raftlog.admin.route import Call, Route
from raftlog.admin.view import NodeView
from raftlog.base.errors import KafkaError
from raftlog.base.faults import name_of
from raftlog.base.record_ages import ClockState
from raftlog.base.recurring_failures import Failure
from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import BrokerState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import DESCRIBE_CLUSTER

ANSWER_S: Final = 1.0
"""Longest wait for each broker, in parallel."""

COMPACTION: Final = "compaction"
MAX_NAMED: Final = 5
"""Logs, groups or ids of one kind that a reason names."""
MAX_NAMED_CHARS: Final = 300
"""Characters for each, since clients choose names."""

Colour = Literal["green", "yellow", "red"]
_WORSE: Final[tuple[Colour, ...]] = ("green", "yellow", "red")

State = Literal["in_service", "silent", "draining", "stopping", "fenced", "down"]


class Reason(msgspec.Struct):
    """A reason for the status. `code` is stable, `message` is for people; the first few partitions are named."""

    severity: Colour
    code: str
    message: str
    count: int
    brokers: list[int] = []
    partitions: list[str] = []


class BrokerHealth(msgspec.Struct):
    """A registered broker.

    `state`: "silent" is in service but does not answer this node, "fenced" answers but is not in service, "down" is
    neither.
    """

    broker_id: int
    state: State
    offline_log_dirs: list[str]
    full_log_dirs: list[str] = []
    """The full directories that the broker reports. While it has any, it hands over its leaderships."""
    decommissioned: bool = False
    """Whether the broker is being decommissioned."""


class Health(msgspec.Struct):
    """The cluster's health as node `node_id` knows it."""

    status: Colour
    reasons: list[Reason]
    cluster_id: str | None
    node_id: int
    controller_id: int | None
    brokers: list[BrokerHealth]
    topics: int
    internal_topics: int
    """How many of the topics are internal."""
    partitions: int
    internal_partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    metadata_offset: int


async def get_health(call: Call) -> Health:
    """Ask the quorum and all brokers at once; a broker that does not respond costs ANSWER_S at most."""
    node, image = call.node, call.node.image()
    quorum, brokers, found, leaving, clocks = await asyncio.gather(
        quorum_of(node),
        asyncio.gather(*(broker_health(call.asker, each) for _, each in sorted(image.brokers.items()))),
        node.survey_of(image),
        asyncio.gather(*(progress_of(call, each) for each in sorted(image.decommissions))),
        broker_clocks(call),
    )
    for each in brokers:
        each.decommissioned = each.broker_id in image.decommissions
    reasons = [
        *_of_quorum(node, quorum),
        *_of_brokers(brokers),
        *_of_decommissions(leaving),
        *_of_partitions(found),
        *_of_leaders(node, found),
        *_of_replicas(node),
        *_of_memory(node),
        *_of_chores(node),
        *_of_directories(node),
        *_of_clock(node),
        *_of_other_clocks(node, clocks),
        *log_reasons(node),
        *_of_slowness(node),
        *_of_faults(node),
    ]
    reasons.sort(key=lambda each: -_WORSE.index(each.severity))
    return Health(
        status=max((each.severity for each in reasons), key=_WORSE.index, default="green"),
        reasons=reasons,
        cluster_id=image.cluster_id or None,
        node_id=node.config.node_id,
        controller_id=_controller(quorum, image.controller_id),
        brokers=list(brokers),
        topics=found.topics,
        internal_topics=found.internal_topics,
        partitions=found.partitions,
        internal_partitions=found.internal_partitions,
        leaderless_partitions=found.leaderless.count,
        under_replicated_partitions=found.under_replicated.count,
        under_min_isr_partitions=found.under_min_isr.count,
        metadata_offset=image.offset,
    )


def _controller(quorum: Quorum, named: int) -> int | None:
    if not quorum.told_by_leader:
        return None
    return quorum.leader_id if named == NO_BROKER else named


async def broker_health(asker: Asks, broker: BrokerState) -> BrokerHealth:
    """Ask a broker for its log directories, for ANSWER_S at most."""
    offline: list[str] = []
    full: list[str] = []
    answers = True
    make = builders_for(ApiKey.DESCRIBE_LOG_DIRS)
    try:
        async with asyncio.timeout(ANSWER_S):
            request = make.DescribeLogDirsRequest(
                topics=()
            )  # without partitions, so the response has only the directories
            answer = await asker.ask(
                ApiKey.DESCRIBE_LOG_DIRS, request, broker_id=broker.broker_id, at_once=True
            )
        offline = [each.log_dir for each in answer.results if each.error_code]
        full = [each.log_dir for each in answer.results if each.usable_bytes == 0]
    except (BrokerUnreachable, KafkaError, TimeoutError):
        answers = False
    return BrokerHealth(broker.broker_id, _state(broker, answers=answers), offline, full)


def _state(broker: BrokerState, *, answers: bool) -> State:
    if broker.fenced:
        return "fenced" if answers else "down"
    if broker.in_controlled_shutdown:
        return "stopping"
    if not answers:
        return "silent"
    return "draining" if broker.draining else "in_service"


def _of_quorum(node: NodeView, quorum: Quorum) -> Iterator[Reason]:
    if not quorum.told_by_leader:
        voters = [each.node_id for each in quorum.voters]
        text = (
            f"no active controller answers: {quorum.needed} of the voters {_list(voters)} must run and reach "
            "each other; until then the metadata cannot change, and a failed leader has no successor"
        )
        yield Reason("red", "no_controller", text, 1)
    for reason in node.unready_reasons():
        text = f"node {node.config.node_id}, which answers: {reason}"
        yield Reason("yellow", "node_not_ready", text, 1, [node.config.node_id])
    behind = [each.node_id for each in quorum.voters if each.state in ("silent", "lags")]
    if behind:
        spare = len(quorum.voters) - len(behind) - quorum.needed
        text = f"{_voters(behind)} not keep up with the quorum's leader {quorum.leader_id}; " + (
            "one more that fails stops all changes"
            if spare <= 0
            else f"{spare} more may fail before changes stop"
        )
        yield Reason("yellow", "voters_lag", text, len(behind), behind)


def _voters(ids: list[int]) -> str:
    return f"voter {ids[0]} does" if len(ids) == 1 else f"voters {_list(ids)} do"


_OF_STATES: Final[dict[State, tuple[Colour, str, str, str]]] = {
    "down": (
        "yellow",
        "brokers_down",
        "is fenced, and does not answer: it is down or cut off",
        "are fenced, and do not answer: they are down or cut off",
    ),
    "fenced": (
        "yellow",
        "brokers_fenced",
        "is fenced, though it runs: it is starting, or lost a log directory",
        "are fenced, though they run: they are starting, or lost a log directory",
    ),
    "silent": (
        "yellow",
        "brokers_silent",
        "is in service, but does not answer this node",
        "are in service, but do not answer this node",
    ),
    "stopping": (
        "yellow",
        "brokers_stopping",
        "is stopping; its leaderships go to others",
        "are stopping; their leaderships go to others",
    ),
    "draining": (
        "green",
        "brokers_draining",
        "is drained: it leads only partitions that no other broker can lead",
        "are drained: they lead only partitions that no other broker can lead",
    ),
}
"""By state: severity, code, and what the message says of one broker and of several."""


def _of_brokers(brokers: Iterable[BrokerHealth]) -> Iterator[Reason]:
    brokers = list(brokers)
    for state, (severity, code, of_one, of_several) in _OF_STATES.items():
        found = [each.broker_id for each in brokers if each.state == state]
        if found:
            text = (
                f"broker {found[0]} {of_one}" if len(found) == 1 else f"brokers {_list(found)} {of_several}"
            )
            yield Reason(severity, code, text, len(found), found)
    for each in brokers:
        if each.offline_log_dirs:
            text = f"broker {each.broker_id} lost {', '.join(each.offline_log_dirs)}: its disk failed"
            yield Reason("yellow", "log_dirs_offline", text, len(each.offline_log_dirs), [each.broker_id])
        if each.full_log_dirs:
            text = (
                f"broker {each.broker_id}: no room in {', '.join(each.full_log_dirs)}: its leaderships go to replicas "
                "that are in sync elsewhere; free space, and it leads again after a while"
            )
            yield Reason("yellow", "log_dirs_full", text, len(each.full_log_dirs), [each.broker_id])


def _of_decommissions(leaving: Iterable[Decommission]) -> Iterator[Reason]:
    for each in leaving:
        ids = [each.broker_id]
        text = f"broker {each.broker_id} is being decommissioned: it has {each.replicas} replicas left"
        yield Reason("green", "brokers_leaving", text, each.replicas, ids)
        if each.blocked:
            first = each.waiting[0]
            names = [f"{it.topic}-{it.partition}" for it in each.waiting[:MAX_NAMED] if it.blocked]
            text = (
                f"broker {each.broker_id} cannot leave: {each.blocked} of its partitions cannot move, as "
                f"{names[0]}: {first.reason}"
            )
            yield Reason("yellow", "decommission_blocked", text, each.blocked, ids, names)


def _of_partitions(found: Survey) -> Iterator[Reason]:
    yield from _if_any(found.leaderless, "red", "partitions_leaderless", "no leader: they are unavailable")
    yield from _if_any(
        found.isr_lost,
        "red",
        "partitions_isr_lost",
        "lost what only their last in-sync replica had: bring back its disk, or start an eligible leader, "
        "or elect another uncleanly",
    )
    yield from _if_any(
        found.under_min_isr,
        "red",
        "partitions_under_min_isr",
        "fewer in-sync replicas than min.insync.replicas: acks=all is refused",
    )
    yield from _if_any(
        found.under_replicated, "yellow", "partitions_under_replicated", "a replica that is not in sync"
    )
    yield from _if_any(found.reassigning, "green", "partitions_reassigning", "a reassignment under way")


def _of_leaders(node: NodeView, found: Survey) -> Iterator[Reason]:
    """Yield that brokers lead too few partitions, as after their return, and when and how they lead them again."""
    config = node.config
    deprived = found.deprived(config.leader_imbalance_per_broker_percentage)
    if not deprived:
        return
    count, ids = sum(deprived.values()), list(deprived)
    brokers = f"broker {ids[0]} leads" if len(ids) == 1 else f"brokers {_list(ids)} lead"
    text = (
        f"{brokers} fewer partitions than planned: others lead {count} of {found.partitions} partitions in place of "
        "their preferred leaders. `raftlog partition elect` gives them back at once"
    )
    if config.auto_leader_rebalance_enable:
        every_s = config.leader_imbalance_check_interval_seconds
        text += f"; the controller does it every {every_s} s (leader.imbalance.check.interval.seconds)"
    else:
        text += "; the controller does not (auto.leader.rebalance.enable)"
    yield Reason("green", "leaders_not_preferred", text, count, ids)


def _if_any(kind: Kind, severity: Colour, code: str, text: str) -> Iterator[Reason]:
    if kind.count:
        names = [f"{each.topic}-{each.partition}" for each in kind.named]
        message = f"{kind.count} {'partition has' if kind.count == 1 else 'partitions have'} {text}"
        yield Reason(severity, code, message, kind.count, partitions=names)


def _of_replicas(node: NodeView) -> Iterator[Reason]:
    """Yield the replicas of this node that stopped."""
    if node.facts is None:
        return
    node_id = node.config.node_id
    failed = sorted(node.facts.failed_replicas().items())
    if failed:
        names = [f"{name.topic}-{name.partition}" for name, _ in failed[:MAX_NAMED]]
        listed = "; ".join(f"{each} ({reason})" for each, (_, reason) in zip(names, failed, strict=False))
        text = (
            f"node {node_id}, which answers: {len(failed)} of its replicas stopped rather than cut committed records: "
            f"{listed}. Compare the replicas; elect one that has the records, or remove the folder of this one"
        )
        yield Reason("red", "replicas_failed", text, len(failed), [node_id], names)


_OF_ACCOUNTS: Final = {
    "requests": "requests (queued.max.request.bytes): connections that send large ones wait",
    "answers": "answers that clients do not take (raftlog.answers.max.bytes): requests other than Produce wait",
    "objects": "decoded requests: large ones go one after the other",
    "unappended": "batches that are not appended yet: further batches get a retriable error",
    "connections": "connections: only brokers get further ones",
    "sessions": "fetch sessions: consumers are answered without one",
    "bodies": "bodies of requests to the admin API: further ones are refused",
    "contents": "downloads and searches of records: further downloads are refused",
}


def _of_memory(node: NodeView) -> Iterator[Reason]:
    for each in node.accounts():
        if each.used_bytes >= each.limit_bytes:
            text = (
                f"node {node.config.node_id}, which answers, uses all {each.limit_bytes} bytes of its memory for "
                f"{_OF_ACCOUNTS[each.name]}; raftlog.memory.max.bytes sets how much there is"
            )
            yield Reason("yellow", f"memory_for_{each.name}_exhausted", text, 1, [node.config.node_id])


def _of_slowness(node: NodeView) -> Iterator[Reason]:
    node_id, lateness = node.config.node_id, node.lateness
    if lateness.is_slow:
        text = (
            f"node {node_id}, which answers, is slow: its event loop is often {lateness.late_s:.1f} s late, "
            f"so it waits {lateness.patience_s:.1f} s longer than usual before it considers others dead"
        )
        yield Reason("green", "node_slow", text, 1, [node_id])


def _of_chores(node: NodeView) -> Iterator[Reason]:
    """Yield the recurring work of this node that fails for some logs, groups or ids; it continues for the others."""
    failing: dict[str, list[Failure]] = {}
    for failure in node.facts.failures() if node.facts is not None else ():
        failing.setdefault(failure.chore, []).append(failure)
    for chore, failures in sorted(failing.items()):
        code = "logs_uncleanable" if chore == COMPACTION else "chores_failing"
        listed = "; ".join(
            f"{each.subject} ({each.reason})"[:MAX_NAMED_CHARS] for each in failures[:MAX_NAMED]
        )
        more = f"; and {len(failures) - MAX_NAMED} more" if len(failures) > MAX_NAMED else ""
        node_id = node.config.node_id
        text = f"node {node_id}, which answers: {chore} fails, and is tried again later, for {listed}{more}"
        yield Reason("yellow", code, text, len(failures), [node_id])


def _of_directories(node: NodeView) -> Iterator[Reason]:
    """Yield the log directories of this node that refuse writes, and the replicas that it could not create."""
    if node.facts is None:
        return
    node_id = node.config.node_id
    for each in node.facts.directories():
        if each.trouble and each.online:
            text = f"node {node_id}, which answers: {each.path} has just refused something: {each.trouble}"
            yield Reason("yellow", "log_dir_refuses", text, 1, [node_id])
    refused = sorted(node.facts.refused_replicas())
    if refused:
        led = sum(each.leads for each in refused)
        text = (
            f"node {node_id}, which answers, could not make {len(refused)} of its replicas and tries again: "
            f"{refused[0].reason}"[:MAX_NAMED_CHARS]
        )
        text += f"; it leads {led} of them, which are unavailable" if led else ""
        names = [f"{each.name.topic}-{each.name.partition}" for each in refused[:MAX_NAMED]]
        severity: Colour = "red" if led else "yellow"
        yield Reason(severity, "replicas_not_created", text, len(refused), [node_id], names)


PAUSED: Final = "Retention by age is paused on this node"


def _of_clock(node: NodeView) -> Iterator[Reason]:
    """Return why this node does not delete by age, and what to do; see `raftlog.base.record_ages`."""
    if node.ages is None or not node.deletes_by_age():
        return
    node_id, jump_ms, others = node.config.node_id, node.ages.jump_ms(), node.ages.contradiction
    if others is not None:
        text = (
            f"node {node_id}, which answers: its clock disagrees with those of {others.reported - others.agreeing} of "
            f"{others.reported} other brokers; the median of theirs is {_apart(others.ahead_ms)} it. {PAUSED} until "
            "most clocks agree: set the wrong ones right. If this one is right, POST /v1/clock/accept says so"
        )
        yield Reason("yellow", "clocks_disagree", text, 1, [node_id])
    if node.ages.state is ClockState.DOUBTED:
        at_start = node.ages.was_found_at_start
        what = "is" if at_start else "jumped, and is"
        beside = "the time that it trusted before it stopped" if at_start else "the monotonic clock"
        text = (
            f"node {node_id}, which answers: its clock {what} {_apart(jump_ms)} {beside}. {PAUSED} until the clock is "
            f"set right, most other brokers confirm it, or {abs(jump_ms) / 1000:.0f} s have passed. If the clock is "
            "right, as after a long stop of the whole cluster, POST /v1/clock/accept on one node says so"
        )
        yield Reason("yellow", "clock_doubted" if at_start else "clock_jumped", text, 1, [node_id])


def _of_other_clocks(node: NodeView, clocks: list[Clock]) -> Iterator[Reason]:
    """Yield the other brokers that do not delete by age because of their clocks. Each reports that itself, too."""
    for each in clocks:
        if each.node_id == node.config.node_id or each.deletes_by_age:
            continue
        others = compare(each, clocks)
        if others.contradict:
            text = (
                f"broker {each.node_id}: its clock disagrees with those of {others.reported - others.agreeing} of "
                f"{others.reported} other brokers; the median of theirs is {_apart(others.ahead_ms)} it. Retention by "
                "age is paused there until its clock is set right. If it is right, POST /v1/clock/accept there says so"
            )
            yield Reason("yellow", "clocks_disagree", text, 1, [each.node_id])
        elif each.jump_ms:
            text = (
                f"broker {each.node_id}: its clock is {_apart(each.jump_ms)} the time that it trusts. Retention by age "
                "is paused there until its clock is set right. If it is right, POST /v1/clock/accept there says so"
            )
            yield Reason("yellow", "clock_doubted", text, 1, [each.node_id])


def _apart(ahead_ms: int) -> str:
    return f"{abs(ahead_ms) / 1000:.0f} s {'ahead of' if ahead_ms > 0 else 'behind'}"


def log_reasons(node: NodeView) -> Iterator[Reason]:
    """Yield the reasons why this node cannot write its log, or the audit log's file."""
    node_id, state = node.config.node_id, node.log_state()
    if state.reason:
        text = (
            f"node {node_id}, which answers, cannot write its log: {state.reason}; {state.lines_lost} lines are lost "
            "so far; look at what reads its standard error, or at the disk that it is on"
        )
        yield Reason("yellow", "log_unwritable", text, 1, [node_id])
    if state.audit_reason:
        text = (
            f"node {node_id}, which answers, cannot write {state.audit_file}: {state.audit_reason}; lines of the audit "
            "log are in its log until it can"
        )
        yield Reason("yellow", "audit_file_unwritable", text, 1, [node_id])


def _of_faults(node: NodeView) -> Iterator[Reason]:
    if node.faults is None:
        return
    active = [name_of(each) for each in node.faults.active()]
    if not node.faults_enabled:
        if active:
            text = f"node {node.config.node_id} is cut off from the other nodes on purpose, for a time"
            yield Reason("yellow", "cut_off", text, 1, [node.config.node_id])
        return
    text = f"node {node.config.node_id} runs with --enable-faults, for tests only" + (
        f"; in force now: {', '.join(active)}" if active else ""
    )
    yield Reason("yellow", "faults_enabled", text, len(active), [node.config.node_id])


def _list(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


ROUTES: Final = (
    Route(
        "GET", "/v1/health", get_health, "Green, yellow or red, and why, in words", rights=DESCRIBE_CLUSTER
    ),
)
