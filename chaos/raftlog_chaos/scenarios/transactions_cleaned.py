"""`__transaction_state` and `__consumer_offsets` are cleaned on every replica while transactions go through both.

As in `exactly_once.py`, the nodes in charge die or are isolated at critical moments. Here coordinators begin with logs
full of holes. They must find outcomes, markers and pending offsets as they were, also of an id that has been idle for
long. And the logs stay small.
"""

from __future__ import annotations

from dataclasses import replace

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.compaction import cleanings
from raftlog_chaos.scenarios.exactly_once import ExactlyOnce
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop

SEGMENT_BYTES = 1000
MAX_BYTES = 12 * SEGMENT_BYTES
"""Limit for one replica: a few keys, the active segment, and the writes between two runs of the cleaner."""
COMMITS_AFTER = 15
"""Commits of the active members: the last commits of the others are cleaned several times, and then read back."""

SETTINGS = {
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
    "transaction.state.log.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.delete.retention.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.2",
    "log.cleaner.backoff.ms": "150",
    "log.flush.offset.checkpoint.interval.ms": "100",
}


async def transactions_cleaned(loop: SimLoop, seconds: float = 3.0) -> Report:
    """For some virtual seconds, trouble as in `exactly_once`, and cleanings all the time. Raises AssertionError."""
    scenario = ExactlyOnce(loop, settings=SETTINGS)
    await scenario.begin()
    begun_at = loop.time()
    while loop.time() < begun_at + seconds:
        if loop.time() > begun_at + seconds / 3:
            scenario.rest(scenario.ids[0])
        await scenario.moment()
        await scenario.trouble()
        await scenario.progress(scenario.chance.randrange(10))
    await scenario.scene.whole()
    await scenario.progress(COMMITS_AFTER)
    for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        await scenario.scene.cluster.until(
            lambda topic=topic: _largest(scenario.scene, topic) < MAX_BYTES,  # type: ignore[misc]
            SERVED_S,
            f"every replica's log of {topic} is small",
        )
    scenario.scene.cluster.crash(*scenario.scene.cluster.nodes, power_loss=scenario.scene.power())
    scenario.scene.cluster.start()
    report = await scenario.end()
    return replace(report, faults={**report.faults, "cleaning": cleanings(scenario.scene)})


def _largest(scene: Choreography, topic: str) -> int:
    replicas = [scene.cluster.replica(each, topic, 0) for each in scene.cluster.nodes]
    sizes = [each.log.size_bytes for each in replicas if each is not None and each.log.cleaned_until > 0]
    return max(sizes) if len(sizes) == len(scene.cluster.nodes) else MAX_BYTES
