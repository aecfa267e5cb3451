"""Members of one group come, go, sleep and fight over static ids, while the coordinator dies at every step.

Each partition has one owner in each generation, a present member, and a committed offset is never taken back (KIP-345,
KAFKA-9752).
"""

from __future__ import annotations

from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.group_model import GroupModel
from raftlog_chaos.workloads.group_worker import PATIENCE_S, GroupWorker
from raftlog_chaos.workloads.raw_client import Client

REBALANCED_S = 5.0
"""A rebalance is expected within this, virtual seconds."""

INSTANCES = (None, None, None, "one", "one", "two")
"""The members' static ids: two processes use the same id."""


async def group_churn(loop: SimLoop, seconds: float = 6.0) -> Report:
    """For some virtual seconds, kill the coordinator after it has served for a while. Raises AssertionError."""
    chance = loop.stream("group-churn")
    scene = Choreography(
        loop,
        settings={
            "offsets.topic.num.partitions": "1",
            "group.min.session.timeout.ms": "500",
            "group.initial.rebalance.delay.ms": chance.choice(("0", "0", "300")),
        },
    )
    await scene.begin()
    scene.pace([2.0] * len(scene.producers))
    book = GroupModel("churn", scene.history, frozenset(filter(None, INSTANCES)))
    workers = [_employ(scene, book, f"m{number}", each) for number, each in enumerate(INSTANCES)]
    await scene.more_commits(book, 1, SERVED_S)
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.moment(book.member_admitted, REBALANCED_S)
        await scene.crash_coordinator(chance)
        await scene.more_commits(book, chance.randrange(10), SERVED_S)
    for each in workers:
        each.calm = True
    before, since = dict(book.acked), loop.time()
    await scene.cluster.until(
        lambda: (
            all(book.least(index) > before.get(index, 0) for index in range(PARTITIONS))
            or book.finds_sleepers(since, loop.time())
        ),
        SERVED_S,
        "every partition is read by somebody",
    )
    for each in workers:
        each.stopping = True
    return await scene.end()


def _employ(scene: Choreography, book: GroupModel, name: str, instance: str | None) -> GroupWorker:
    client = Client(name, scene.cluster.bootstrap, timeout_s=PATIENCE_S)
    chance = scene.loop.stream(f"client/{name}")
    worker = GroupWorker(client, (TOPIC, PARTITIONS), book=book, instance=instance, chance=chance)
    scene.loop.host(name).start(worker.run())
    return worker
