"""The memory of a running leader rots before one of its followers has fetched it, and no read of the disk reveals that.

The follower refuses the batch as often as it is served. So the leader has to learn that it serves bad bytes, and hand
over to a replica with a sound copy. Otherwise the follower never catches up.
"""

from __future__ import annotations

from raftlog.faults.harm import guarded_batches
from raftlog.records.header import STAMP_BYTES
from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import TOPIC, Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.consumer import Consumer

EPOCH = range(12, STAMP_BYTES)


async def refused(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Flip bits in what a follower that is away has yet to fetch, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    scene.cluster.may_rot = True
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        for each in _consumers(scene):
            each.rewinds = True
        await scene.served(3)
        leader = await scene.leader()
        late = scene.followers(leader)[0]
        replica = scene.cluster.replica(late, TOPIC, scene.partition)
        if replica is None:
            continue
        behind = replica.log_end_offset
        for each in _consumers(scene):
            each.rewinds = False  # a process does not check the batches that it wrote itself
        scene.cluster.crash(late)
        await scene.served(10)
        _rot(scene, behind)
        scene.cluster.start(late)
    await scene.whole()
    scene.stop()
    return await scene.end()


def _consumers(scene: Choreography) -> list[Consumer]:
    where = (TOPIC, scene.partition)
    return [each for each in scene.others if isinstance(each, Consumer) and each.where == where]


def _rot(scene: Choreography, behind: int) -> None:
    """Flip a bit of a batch that all other replicas have, and that no client will read before all is well."""
    leader = scene.state().leader
    replica = scene.cluster.replica(leader, TOPIC, scene.partition)
    if replica is None or not replica.is_leader:
        return
    disk, path = scene.cluster.nodes[leader].host.disk, f"{replica.log.active_segment.path}.log"
    read = min(each.offset for each in _consumers(scene))
    content = bytes(disk.peek(path) or b"")
    where = [
        each.where
        for each in guarded_batches(content)
        if behind <= each.base_offset and each.end_offset <= read
    ]
    heads = [each for each in where if len(each) == STAMP_BYTES]
    if not where or not heads:
        return
    if scene.chance.random() < 0.4:
        at = scene.chance.choice(heads)[scene.chance.choice(EPOCH)]
    else:
        at = scene.chance.choice(scene.chance.choice(where))
    disk.flip_bit(path, at, scene.chance.randrange(8))
