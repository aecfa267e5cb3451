"""Members of one consumer group (KIP-848) come, go, sleep and fight over static ids, while their coordinator dies.

No partition ever has two readers, each has one owner per epoch, and a committed offset is never taken back. In
`group-migration` some members use the classic protocol, eager or cooperative, so the group changes its type all the
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.classic_worker import ClassicWorker
from raftlog_chaos.workloads.consumer_group_model import SESSION_S, ConsumerGroupModel
from raftlog_chaos.workloads.consumer_worker import ConsumerWorker
from raftlog_chaos.workloads.cooperative_worker import CooperativeWorker
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.visitor import Visitor

REBALANCED_S = 5.0
"""A member gets a partition within this, virtual seconds."""

PATIENCE_S = 8.0
"""How long a request may take: a classic member's JoinGroup waits for the others."""

ROUNDS = 4
"""How many times in turn each partition must be read in the end: its first readers may have yet to give it up."""

LATE_SHARE = 0.5
"""Share of members that get some answers too late."""

INSTANCES = (None, None, None, "one", "one", "two")
"""The members' static ids: two processes use the same id."""


class GroupMembers(NamedTuple):
    """The static ids, or None, of a group's members, by their kind."""

    consumers: Sequence[str | None] = ()
    classic: Sequence[str | None] = ()
    visitors: Sequence[str | None] = ()


CONSUMERS = GroupMembers(INSTANCES)
HALF_CLASSIC = GroupMembers((None, "one"), (None, None))
VISITED = GroupMembers(classic=(None, None, None), visitors=(None,))


async def consumer_churn(loop: SimLoop, seconds: float = 6.0) -> Report:
    """For some virtual seconds, kill the coordinator after it has served for a while. Raises AssertionError."""
    return await _churn(loop, seconds, CONSUMERS)


async def group_migration(loop: SimLoop, seconds: float = 6.0) -> Report:
    """The same with a few members, some of them classic, or all but visitors. Raises AssertionError."""
    return await _churn(loop, seconds, loop.stream("company").choice((HALF_CLASSIC, VISITED)))


async def _churn(loop: SimLoop, seconds: float, company: GroupMembers) -> Report:
    chance = loop.stream("consumer-churn")
    scene = Choreography(
        loop,
        settings={
            "offsets.topic.num.partitions": "1",
            "group.min.session.timeout.ms": "500",
            "group.consumer.min.session.timeout.ms": "500",
            "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.assignors": chance.choice(("uniform,range", "uniform", "range")),
        },
    )
    await scene.begin()
    scene.pace([2.0] * len(scene.producers))
    book = ConsumerGroupModel("churn", scene.history, frozenset(filter(None, INSTANCES)))
    kind = chance.choice((ClassicWorker, CooperativeWorker))
    workers = [
        _employ(scene, book, f"{letter}{number}", each, kind=its)
        for letter, its, instances in (
            ("m", ConsumerWorker, company.consumers),
            ("c", kind, company.classic),
            ("v", Visitor, company.visitors),
        )
        for number, each in enumerate(instances)
    ]
    await scene.more_commits(book, 1, SERVED_S)
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.moment(book.member_admitted, REBALANCED_S)
        await scene.crash_coordinator(chance)
        await scene.more_commits(book, chance.randrange(10), SERVED_S)
    if not company.classic:  # the last member gets what the others revoke; no other event triggers that
        workers.append(_employ(scene, book, "last", None))
    await _calm_down(scene, book, workers)
    return await scene.end()


async def _calm_down(scene: Choreography, book: ConsumerGroupModel, workers: list[ConsumerWorker]) -> None:
    for each in workers:
        each.calm = True
    for _ in range(ROUNDS):
        before = dict(book.acked)
        await scene.cluster.until(
            partial(_all_are_read, book, before), SERVED_S, "every partition is read by somebody"
        )
    for each in workers:
        each.stopping = True


def _all_are_read(book: ConsumerGroupModel, before: dict[int, int]) -> bool:
    return all(book.least(index) > before.get(index, 0) for index in range(PARTITIONS))


def _employ(
    scene: Choreography,
    book: ConsumerGroupModel,
    name: str,
    instance: str | None,
    *,
    kind: type[ConsumerWorker] = ConsumerWorker,
) -> ConsumerWorker:
    client = Client(name, scene.cluster.bootstrap, timeout_s=PATIENCE_S)
    chance = scene.loop.stream(f"client/{name}")
    worker = kind(client, (TOPIC, PARTITIONS), book=book, instance=instance, chance=chance)
    late = scene.loop.stream(f"late answers/{name}")
    if late.random() < LATE_SHARE:
        worker.late_answers = late
    scene.loop.host(name).start(worker.run())
    return worker
