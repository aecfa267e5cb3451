"""A bit of one node's log rots while the node is down, and that node comes back before the others.

Sound batches behind the damage were acknowledged, so it is no torn tail. Such a replica reports the damage and does not
lead while another replica has everything. It serves no wrong bytes, and its leader repairs it.
"""

from __future__ import annotations

import asyncio

from raftlog.base.errors import CorruptMessage
from raftlog.faults.harm import guarded_batches
from raftlog.records.header import check_crc, iter_headers
from raftlog.storage.log_directory import RECOVERY_POINTS
from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.simulator.disk import SimDisk
from raftlog_chaos.simulator.loop import SimLoop

SCRUBS_AT_MOST = 20
WITH_TIME_INDEX = 0.4
"""How often the time index of the segment is gone too."""


async def corruption(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Flip bits of one node at a time, for some virtual seconds. Raises AssertionError."""
    scene = Choreography(loop)
    scene.cluster.may_rot = True
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scrub(scene)
        await scene.served(5)
        leader = await scene.leader()
        rotten = scene.chance.choice((leader, *scene.followers(leader)))
        all_die = scene.chance.random() < 0.6
        scene.cluster.crash(*(scene.cluster.nodes if all_die else (rotten,)))
        disk = scene.cluster.nodes[rotten].host.disk
        rot(scene, disk)
        if all_die:
            distrust(disk)
        scene.cluster.start(rotten)
        if scene.chance.random() < 0.3:
            await asyncio.sleep(scene.a_while(0.1, 0.5))
            scene.cluster.crash(leader)
        await scene.others_follow(rotten)
    scene.stop()
    await scrub(scene)
    return await scene.end()


async def scrub(scene: Choreography) -> None:
    """Read every rotten log as a whole, so that undetected rot never coincides with rot on another node."""
    for _ in range(SCRUBS_AT_MOST):
        await scene.whole()
        rotten = [each for each, sim_node in scene.cluster.nodes.items() if _is_rotten(sim_node.host.disk)]
        damaged = [
            each for index in range(PARTITIONS) for each in scene.replicas(index).values() if each.log.damage
        ]
        if not rotten and not damaged:
            return
        for node_id in rotten:
            scene.cluster.crash(node_id)
            distrust(scene.cluster.nodes[node_id].host.disk)
            scene.cluster.start(node_id)
        await asyncio.sleep(0.3)
    raise AssertionError("a replica is damaged still")


def distrust(disk: SimDisk) -> None:
    """Make the next start check everything.

    A replica that comes back before all others may become the last of its ISR. If rot is found only then, no replica
    can repair it: the partition waits for an unclean election, as documented.
    """
    if disk.exists(f"/data/{RECOVERY_POINTS}"):
        disk.remove(f"/data/{RECOVERY_POINTS}")


def _is_rotten(disk: SimDisk) -> bool:
    for folder in (f"/data/{name}" for name in disk.listdir("/data") if name.startswith(f"{TOPIC}-")):
        for name in disk.listdir(folder):
            if name.endswith(".log"):
                content = disk.read_file(f"{folder}/{name}")
                if _sound_bytes(name, content) < len(content):
                    return True
    return False


def rot(scene: Choreography, disk: SimDisk) -> bool:
    """Flip a bit of the scene's partition; see `rot_log`."""
    return rot_log(scene, disk, f"/data/{TOPIC}-{scene.partition}")


def rot_log(scene: Choreography, disk: SimDisk, folder: str) -> bool:
    """Flip a bit of a batch that other batches follow: damage in the last batch looks like a torn write.

    Return whether there was one.
    """
    logs = [name for name in disk.listdir(folder) if name.endswith(".log")] if disk.exists(folder) else []
    batches = [
        (f"{folder}/{name}", each.where)
        for name in logs
        for content in (disk.read_file(f"{folder}/{name}"),)
        for each in guarded_batches(content[: _sound_bytes(name, content)])
    ]
    if batches:
        path, where = scene.chance.choice(batches)
        disk.flip_bit(path, scene.chance.choice(where), scene.chance.randrange(8))
        if scene.chance.random() < WITH_TIME_INDEX:
            _rot_time_index(disk, path.removesuffix(".log") + ".timeindex")
    return bool(batches)


def _rot_time_index(disk: SimDisk, path: str) -> None:
    """Remove the entries of an index, which must be rebuilt from batches of which one has rotted."""
    if disk.exists(path):
        with disk.undisturbed():
            file = disk.open(path)
            file.truncate(0)
            file.sync()
            file.close()


def _sound_bytes(name: str, data: bytes) -> int:
    """How many bytes of a segment file are whole batches in their place; no CRC covers offsets and leader epochs."""
    offset, epoch, size = int(name.removesuffix(".log")), -1, 0
    try:
        for position, header in iter_headers(data):
            check_crc(data, position, header)
            if header.base_offset != offset or header.leader_epoch < epoch:
                break
            offset, epoch = header.end_offset, header.leader_epoch
            size = position + header.length
    except CorruptMessage:
        pass
    return size
