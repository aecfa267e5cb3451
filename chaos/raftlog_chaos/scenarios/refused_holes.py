"""A base offset rots in the memory of a compacted topic's leader, and looks like a hole to the follower that was away.

No CRC covers it, and holes are usual there. A replica that accepts it as a hole has a record at another offset than all
other replicas, or counts as having what it lacks.
"""

from __future__ import annotations

from dataclasses import replace

from raftlog.faults.harm import guarded_batches
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.compaction import SETTINGS, TABLE, clean_all, cleanings, write_to_table
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.keyed import KeyedWriter
from raftlog_chaos.workloads.raw_client import Client, create_topic

BASE_OFFSET_BYTES = 8
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2", "segment.bytes": "3000"}


async def refused_holes(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Flip bits of base offsets that a follower has yet to fetch, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    scene.cluster.may_rot = True
    await scene.begin()
    await loop.host("admin").start(
        create_topic(Client("table", scene.cluster.bootstrap), TABLE, partitions=1, configs=CONFIGS)
    )
    writer, flipped = KeyedWriter(loop.stream("keyed")), 0
    end = loop.time() + seconds
    while loop.time() < end or not flipped:
        await scene.whole()
        await scene.cluster.until(lambda: _is_whole(scene), SERVED_S, "all in sync")
        state = scene.cluster.state(TABLE, 0)
        assert state is not None
        late, other = (each for each in state.replicas if each != state.leader)
        behind = _end_of(scene, late)
        scene.cluster.crash(late)
        due = behind + scene.chance.randint(10, 60)

        def has_written(due: int = due, other: int = other) -> bool:
            write_to_table(scene, writer)
            return _committed_on(scene, other) >= due

        await scene.cluster.until(has_written, SERVED_S, "the others have it")
        flipped += _rot(scene, range(behind + 1, _committed_on(scene, other)))
        scene.cluster.start(late)
    scene.stop()
    await scene.whole()
    await scene.cluster.until(lambda: _is_whole(scene), SERVED_S, "all in sync")
    await clean_all(scene, writer)
    report = await scene.end()
    return replace(report, faults={**report.faults, "offset flipped": flipped, "cleaning": cleanings(scene)})


def _replica(scene: Choreography, node_id: int) -> Partition | None:
    return scene.cluster.replica(node_id, TABLE, 0)


def _end_of(scene: Choreography, node_id: int) -> int:
    replica = _replica(scene, node_id)
    return 0 if replica is None else replica.log_end_offset


def _committed_on(scene: Choreography, node_id: int) -> int:
    replica = _replica(scene, node_id)
    return 0 if replica is None else replica.high_watermark


def _is_whole(scene: Choreography) -> bool:
    state = scene.cluster.state(TABLE, 0)
    return state is not None and state.leader >= 0 and sorted(state.isr) == sorted(state.replicas)


def _rot(scene: Choreography, offsets: range) -> bool:
    """Flip a bit of a base offset that the others have; False if there is none in the leader's newest segment."""
    state = scene.cluster.state(TABLE, 0)
    replica = None if state is None else _replica(scene, state.leader)
    if state is None or replica is None or not replica.is_leader:
        return False
    disk, path = scene.cluster.nodes[state.leader].host.disk, f"{replica.log.active_segment.path}.log"
    heads = [
        each.where.start
        for each in guarded_batches(bytes(disk.peek(path) or b""))[::2]
        if each.base_offset in offsets and each.end_offset in offsets
    ]
    if not heads:
        return False
    low_bits = scene.chance.random() < 0.8
    at = BASE_OFFSET_BYTES - 1 if low_bits else scene.chance.randrange(BASE_OFFSET_BYTES)
    disk.flip_bit(path, scene.chance.choice(heads) + at, scene.chance.randrange(8))
    return True
