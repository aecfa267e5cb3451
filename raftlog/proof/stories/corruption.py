"""A bit of one node's log rots while the node is down, and that node comes back before the others.

What lies before sound batches was acknowledged, so it is no torn tail: such a replica says that it is damaged, does not
lead while another has everything, serves nothing that is wrong, and is repaired from its leader.
"""

from __future__ import annotations

import asyncio

from raftlog.base.errors import CorruptMessage
from raftlog.proof.place import guarded_batches
from raftlog.proof.simulator.disk import SimDisk
from raftlog.proof.simulator.loop import SimLoop
from raftlog.proof.stories.endurance import PARTITIONS, TOPIC, Report
from raftlog.proof.stories.scene import Scene
from raftlog.records.header import check_crc, iter_headers
from raftlog.storage.log_directory import RECOVERY_POINTS

SCRUBS_AT_MOST = 20


async def corruption(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Flip bits of one node at a time, for some virtual seconds. Raises AssertionError."""
    scene = Scene(loop)
    scene.cluster.may_rot = True
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await _scrub(scene)
        await scene.served(5)
        leader = await scene.leader()
        rotten = scene.chance.choice((leader, *scene.followers(leader)))
        scene.cluster.crash(*(scene.cluster.nodes if scene.chance.random() < 0.6 else (rotten,)))
        _rot(scene, scene.cluster.nodes[rotten].host.disk)
        scene.cluster.start(rotten)
        if scene.chance.random() < 0.3:
            await asyncio.sleep(scene.a_while(0.1, 0.5))
            scene.cluster.crash(leader)
        await scene.others_follow(rotten)
    scene.stop()
    await _scrub(scene)
    return await scene.end()


async def _scrub(scene: Scene) -> None:
    """Have every rotten log read as a whole: what nobody has met yet must not meet the next rot elsewhere."""
    for _ in range(SCRUBS_AT_MOST):
        await scene.whole()
        rotten = [each for each, place in scene.cluster.nodes.items() if _is_rotten(place.host.disk)]
        damaged = [
            each for index in range(PARTITIONS) for each in scene.replicas(index).values() if each.log.damage
        ]
        if not rotten and not damaged:
            return
        for node_id in rotten:
            scene.cluster.crash(node_id)
            scene.cluster.nodes[node_id].host.disk.remove(f"/data/{RECOVERY_POINTS}")
            scene.cluster.start(node_id)
        await asyncio.sleep(0.3)
    raise AssertionError("a replica is damaged still")


def _is_rotten(disk: SimDisk) -> bool:
    for name in disk.listdir("/data"):
        for each in disk.listdir(f"/data/{name}") if name.startswith(f"{TOPIC}-") else ():
            content = disk.read_file(f"/data/{name}/{each}") if each.endswith(".log") else b""
            if _sound_bytes(content) < len(content):
                return True
    return False


def _rot(scene: Scene, disk: SimDisk) -> None:
    """Flip a bit of a batch that others follow: of the very last nobody could tell that it was ever whole."""
    folder = f"/data/{TOPIC}-{scene.partition}"
    logs = [name for name in disk.listdir(folder) if name.endswith(".log")] if disk.exists(folder) else []
    batches = [
        (f"{folder}/{name}", each.where)
        for name in logs
        for content in (disk.read_file(f"{folder}/{name}"),)
        for each in guarded_batches(content[: _sound_bytes(content)])
    ]
    if batches:
        path, where = scene.chance.choice(batches)
        disk.flip_bit(path, scene.chance.choice(where), scene.chance.randrange(8))


def _sound_bytes(data: bytes) -> int:
    """How many bytes of a segment are batches that follow one another, up to rot or a torn tail."""
    epoch = following = -1
    size = 0
    try:
        for position, header in iter_headers(data):
            check_crc(data, position, header)
            if header.leader_epoch < epoch or following not in (-1, header.base_offset):
                break
            epoch, following = header.leader_epoch, header.end_offset
            size = position + header.length
    except CorruptMessage:
        pass
    return size
