"""The scenario of a bare quorum that always has a healthy majority: its leader stays, whichever other nodes come and
go.

And vice versa: a leader that lost its majority resigns soon, and has a successor soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raftlog_chaos.scenarios.quorum import Report
from raftlog_chaos.scenarios.quorum_choreography import QuorumChoreography
from raftlog_chaos.simulator.loop import SimLoop

LOOK_S: Final = 0.01
STEPS_DOWN_WITHIN_S: Final = 3.0
"""An isolated leader resigns within this (reliability of Kafka's controllers: 3 s)."""
SUCCEEDED_WITHIN_S: Final = 3.0
COMMITS_WITHIN_S: Final = 1.0
"""With a leader and a majority in touch, a batch takes no longer than this."""


async def _disturb(stage: QuorumChoreography) -> None:
    """A minority of followers is lost in some way, and comes back: the leader stays, and goes on committing."""
    cluster, chance = stage.cluster, stage.chance
    await cluster.until(cluster.all_answered)  # messages of a node that was just cut off may be late
    leader = await cluster.leader()
    term = cluster.nodes[leader].term
    minority = (len(cluster.hosts) - 1) // 2
    lost = stage.others(leader)[: chance.randint(1, minority)]
    for node in lost:
        _lose(stage, node, leader)
    busy = chance.random() < 0.5  # else the lost nodes miss no entry, and could be elected
    await _keeps(stage, leader, term, seconds=chance.choice((0.1, 0.5, 1.0, 2.5)), busy=busy)
    stage.back()
    await _keeps(stage, leader, term, seconds=1.5, busy=True)


def _lose(stage: QuorumChoreography, node: int, leader: int) -> None:
    cluster, chance = stage.cluster, stage.chance
    others = stage.others(node)
    ways: list[Callable[[], object]] = [
        lambda: cluster.crash(node),
        cluster.hosts[node].pause,
        lambda: stage.part([node], others),
        lambda: stage.part([node], [leader]),
        lambda: stage.hush(node, *others),
        lambda: stage.hush(leader, node),
        lambda: stage.deafen(node),
    ]
    chance.choice(ways)()


async def _keeps(stage: QuorumChoreography, leader: int, term: int, *, seconds: float, busy: bool) -> None:
    """Check that the leader leads its term all the time, and, if `busy`, commits its batches."""
    cluster, loop = stage.cluster, stage.loop
    end = loop.time() + seconds
    waiting_since: float | None = None
    acked = cluster.oracle.acked
    while loop.time() < end:
        quorum = cluster.nodes[leader]
        assert quorum.leading and quorum.term == term, (
            f"node {leader} no longer leads term {term} (now {quorum.term}), and had a majority all along"
        )
        if not busy:
            waiting_since = loop.time()
        elif waiting_since is None or cluster.oracle.acked > acked:
            acked, waiting_since = cluster.oracle.acked, loop.time()
            stage.append(leader, 1)
        late = loop.time() - waiting_since
        assert late < COMMITS_WITHIN_S, f"leader {leader} committed nothing for {late:.2f} s"
        cluster.check()
        await asyncio.sleep(LOOK_S)


async def _isolate_the_leader(stage: QuorumChoreography) -> None:
    """The leader loses touch with all others, or they with it: it steps down in time, and is succeeded in time."""
    cluster, chance, loop = stage.cluster, stage.chance, stage.loop
    leader = await cluster.leader()
    others = stage.others(leader)
    if chance.random() < 0.5:
        stage.part([leader], others)
    elif chance.random() < 0.5:
        stage.hush(leader, *others)
    else:
        stage.deafen(leader)
    began_at = loop.time()
    if chance.random() < 0.5:  # else it has no traffic that would make it count the responses
        stage.append(leader, 2)
    await stage.watch(STEPS_DOWN_WITHIN_S)
    assert not cluster.nodes[leader].leading, f"isolated leader {leader} leads after {STEPS_DOWN_WITHIN_S} s"
    limit = max(0.0, began_at + SUCCEEDED_WITHIN_S - loop.time())
    assert await stage.leader_among(others, limit + LOOK_S), f"nobody leads {SUCCEEDED_WITHIN_S} s later"


async def _disturb_or_isolate(stage: QuorumChoreography) -> None:
    await (_disturb if stage.chance.random() < 0.7 else _isolate_the_leader)(stage)


async def quorum_calm(loop: SimLoop, seconds: float = 15.0) -> Report:
    """A healthy majority keeps its leader, and no minority has a leader. Raises AssertionError."""
    return await QuorumChoreography(loop).play(_disturb_or_isolate, seconds)
