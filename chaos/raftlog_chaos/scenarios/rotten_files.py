"""A bit of any small file of a node's folder rots while the node is down; no acknowledged record is lost by it.

The node believes its files only as far as it wrote them. Records of one topic are deleted up to known offsets. No
record beyond them may be missing on any replica, and no committed record.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.errors import KafkaError
from raftlog.base.types import NO_EPOCH, NO_OFFSET, TopicPartition
from raftlog.quorum.wal import GROUP_BYTES, NAME
from raftlog.records.batch import build_batch, new_record
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog.storage import log_directory as names
from raftlog_chaos.checkers.records import read_batches, values_of
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.cluster import SimNode
from raftlog_chaos.simulator.disk import SimDisk
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import Client, create_topic

TRIMMED = "trimmed"
DATA: Final = "/data"
OFFSET_FILES: Final = {
    "recovery_points": names.RECOVERY_POINTS,
    "log_starts": names.LOG_STARTS,
    "high_watermarks": names.HIGH_WATERMARKS,
    "cleaner_offsets": names.CLEANER_OFFSETS,
}
ENDS_A_START: Final = ("quorum.wal", "raftlog-metadata/snapshot")
"""Kinds of files without which a voter does not start; an operator has to restore them."""
TAIL: Final = "tail"
"""The last batch of the trimmed topic's log, which then ends before it begins."""
MOST: Final = 4
EMPTY: Final = 0.15
"""The share of rounds in which only the tail rots."""
CHECKPOINT_S: Final = 1.0
"""The log starts are on the disk after so long."""
SIDE: Final = 0.25
"""The share of flips that hit the checksums and not the file."""


class Flip(NamedTuple):
    """One bit that flipped."""

    path: str
    position: int
    bit: int


class Written(NamedTuple):
    """The content of small files of a node that is down; none of files that still have what rotted before.

    `strays`: the folders that it had set aside.
    """

    offsets: dict[str, dict[TopicPartition, int]]
    properties: bytes
    strays: frozenset[str]


class Trimmed:
    """Writes records to a partition and deletes them from its begin, at its leader."""

    def __init__(self, chance: random.Random) -> None:
        self.committed: dict[int, bytes] = {}
        self.deleted_to = 0
        self._chance = chance
        self._epoch = NO_EPOCH
        self._pending: dict[int, bytes] = {}
        self._count = 0

    def step(self, replica: Partition) -> None:
        """Write or delete, if this replica leads. Call it in its node's process."""
        role = replica.role
        if type(role) is not LeaderRole:
            return
        if role.leader_epoch != self._epoch:
            self._epoch, self._pending = role.leader_epoch, {}
        for offset in [each for each in self._pending if each < replica.high_watermark]:
            self.committed[offset] = self._pending.pop(offset)
        try:
            if self._chance.random() < 0.2:
                self._delete(replica)
            else:
                self._count += 1
                value = b"%d" % self._count
                batch = build_batch([new_record(None, value, timestamp=-1)])
                appended = replica.append_produced(memoryview(batch), acks=-1, now_ms=0)
                self._pending[appended.base_offset] = value
        except KafkaError:
            pass

    def _delete(self, replica: Partition) -> None:
        start, high_watermark = replica.log_start_offset, replica.high_watermark
        offset = replica.delete_records(start + (high_watermark - start) // 4)
        self.deleted_to = max(self.deleted_to, offset)

    def delete_all(self, replica: Partition) -> None:
        """Delete all that is committed, if this replica leads."""
        if type(replica.role) is LeaderRole:
            self.deleted_to = max(self.deleted_to, replica.delete_records(NO_OFFSET))

    def judge(self, node_id: int, replica: Partition) -> list[str]:
        """Return the errors of a replica that is in sync."""
        faults = []
        if replica.log_start_offset > self.deleted_to:
            start = replica.log_start_offset
            faults.append(f"it begins at {start}, and nothing from offset {self.deleted_to} on was deleted")
        try:
            found = values_of(read_batches(replica.log, replica.high_watermark))
        except AssertionError as error:
            return [*faults, f"{TRIMMED}: node {node_id}: {error}"]
        for offset, value in self.committed.items():
            if offset >= self.deleted_to and found.get(offset) != value:
                faults.append(f"offset {offset} has {found.get(offset)!r}, and {value!r} was committed")
        return [f"{TRIMMED}: node {node_id}: {fault}" for fault in faults[:3]]


async def rotten_files(loop: SimLoop, seconds: float = 4.0, *, most: int = MOST) -> Report:
    """Flip up to `most` bits of a node that is down, again and again for some virtual seconds. AssertionError."""
    scene = Choreography(loop)
    scene.cluster.may_rot = True
    await scene.begin()
    await loop.host("admin").start(
        create_topic(Client("trimmer", scene.cluster.bootstrap), TRIMMED, partitions=1)
    )
    trimmed = Trimmed(loop.stream("trimmed"))
    known: dict[int, Written] = {}
    struck = 0
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        await _trim(scene, trimmed)
        await scene.served(3)
        rotten = scene.cluster.nodes[scene.chance.choice(sorted(scene.cluster.nodes))]
        is_empty = scene.chance.random() < EMPTY
        if is_empty:
            await _empty(scene, trimmed)
        all_die = not is_empty and scene.chance.random() < 0.5
        is_gentle = await _stop(scene, rotten, all_die=all_die)
        written = known[rotten.node_id] = _written(rotten.host.disk, known.get(rotten.node_id))
        kinds = _kinds(rotten.host.disk, others_run=not all_die)
        if is_empty:
            kinds = {kind: paths for kind, paths in kinds.items() if kind == TAIL}
        flips = _rot(scene.chance, rotten.host.disk, kinds, most)
        struck += len(flips)
        await _start(scene, rotten, flips, is_gentle=is_gentle)
        _judge_belief(rotten, written, flips)
        await scene.others_follow(rotten.node_id)
    scene.stop()
    await scene.whole()
    await scene.cluster.until(lambda: _is_equal(scene), SERVED_S, "equal replicas of the trimmed topic")
    report = await scene.end()
    replicas = _replicas(scene)
    faults = [fault for node_id, each in replicas.items() for fault in trimmed.judge(node_id, each)]
    faults += _judge_epochs(replicas)
    assert not faults, "; ".join(faults)
    return replace(report, faults={**report.faults, "flip": struck})


async def _trim(scene: Choreography, trimmed: Trimmed) -> None:
    for _ in range(scene.chance.randint(1, 60)):
        await asyncio.sleep(scene.a_while(0.005, 0.02))
        state = scene.cluster.state(TRIMMED, 0)
        replica = None if state is None else scene.cluster.replica(state.leader, TRIMMED, 0)
        if state is not None and replica is not None:
            scene.cluster.nodes[state.leader].host.call(trimmed.step, replica)


async def _empty(scene: Choreography, trimmed: Trimmed) -> None:
    """Delete all records, and wait until the checkpoints contain that: then the log may end before it begins."""

    def is_empty() -> bool:
        replicas = _replicas(scene).values()
        leader = next((each for each in replicas if each.is_leader), None)
        if leader is not None and leader.log_start_offset < leader.log_end_offset:
            scene.cluster.nodes[leader.host.broker_id].host.call(trimmed.delete_all, leader)
        return all(each.log_start_offset == each.log_end_offset for each in replicas)

    await scene.cluster.until(is_empty, SERVED_S, "the trimmed topic empty")
    await asyncio.sleep(CHECKPOINT_S)


async def _stop(scene: Choreography, rotten: SimNode, *, all_die: bool) -> bool:
    """Stop the node gently or not, alone or with all the others; returns whether it stopped gently."""
    is_gentle = scene.chance.random() < 0.5
    if is_gentle:
        scene.cluster.leave(rotten.node_id)
        await scene.cluster.until(lambda: not rotten.running, SERVED_S, "a gentle stop")
    else:
        scene.cluster.crash(rotten.node_id, power_loss=scene.power())
    if all_die:
        scene.cluster.crash(*scene.cluster.nodes, power_loss=scene.power())
    return is_gentle


def _written(disk: SimDisk, before: Written | None) -> Written:
    """Read what the node wrote. A checkpoint that still has rot of an earlier round held then what it says.

    The node believes its sound lines.
    """
    offsets = {}
    for field, name in OFFSET_FILES.items():
        path = f"{DATA}/{name}"
        if _is_sound(disk, path):
            offsets[field] = names.decode_offsets(disk.read_file(path))
        else:
            offsets[field] = before.offsets[field] if before is not None else {}
    return Written(offsets, disk.read_file(f"{DATA}/{names.META_PROPERTIES}"), _strays(disk))


def _strays(disk: SimDisk) -> frozenset[str]:
    return frozenset(each for each in disk.listdir(DATA) if each.endswith("-stray"))


def _is_sound(disk: SimDisk, path: str) -> bool:
    """Whether a file may rot: it has bytes, and neither it nor its checksums have rotted before."""
    is_empty = not disk.exists(path) or not disk.read_file(path)
    return not is_empty and not _has_rotted(disk, path)


def _has_rotted(disk: SimDisk, path: str) -> bool:
    paths = [each for each in (path, path + CHECKSUMS) if disk.exists(each)]
    return any(disk.has_rotted(each, range(len(disk.read_file(each)))) for each in paths)


def _kinds(disk: SimDisk, *, others_run: bool) -> dict[str, list[str]]:
    """The files that may rot, by kind."""
    kinds: dict[str, list[str]] = {}
    for path in _files_below(disk, DATA):
        if _is_sound(disk, path):
            kinds.setdefault(_kind(path), []).append(path)
    tails = [each for each in kinds.pop("log", []) if f"/{TRIMMED}-" in each]
    if others_run and tails:
        kinds[TAIL] = tails[-1:]  # alone it would be the only witness of what was acknowledged
    return {kind: paths for kind, paths in kinds.items() if others_run or kind not in ENDS_A_START}


def _rot(chance: random.Random, disk: SimDisk, kinds: Mapping[str, list[str]], most: int) -> list[Flip]:
    """Flip a bit in a file of some kinds, in each kind as likely as in the others."""
    flips = []
    for kind in chance.sample(sorted(kinds), min(chance.randint(1, most), len(kinds))):
        path = chance.choice(kinds[kind])
        if disk.exists(path + CHECKSUMS) and chance.random() < SIDE:
            path += CHECKSUMS
        size = len(disk.read_file(path))
        first = max(0, size - 40) if kind == TAIL else 0
        flips.append(Flip(path, chance.randrange(first, size), chance.randrange(8)))
    for each in flips:
        disk.flip_bit(*each)
    return flips


def _kind(path: str) -> str:
    folder, _, name = path.rpartition("/")
    stem, _, kind = name.partition(".")
    if not stem.isdecimal():
        return name
    return f"raftlog-metadata/{kind}" if folder.endswith("/raftlog-metadata") else kind


def _files_below(disk: SimDisk, folder: str) -> list[str]:
    """Return all files except checksum files, which rot with their files."""
    found = []
    for name in disk.listdir(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            found += _files_below(disk, path)
        elif not name.endswith(CHECKSUMS):
            found.append(path)
    return found


async def _start(scene: Choreography, rotten: SimNode, flips: list[Flip], *, is_gentle: bool) -> None:
    """Start the node; if it reports a damaged file where it may, restore that file and start it again.

    After a gentle stop all records of its journal are known to be synced, so that none may be truncated as torn.
    """
    must_end = is_gentle and any(map(partial(_is_in_a_record, rotten.host.disk), flips))
    ending = [each for each in flips if _kind(each.path) in ENDS_A_START]
    scene.cluster.start(rotten.node_id)
    rotten.troubled = bool(ending)
    await scene.cluster.until(lambda: rotten.started or not rotten.running, SERVED_S, "a start")
    assert not (must_end and rotten.started), f"node {rotten.node_id} started after {flips}"
    if not rotten.running:
        for each in ending:
            rotten.host.disk.flip_bit(*each)
        scene.cluster.start(rotten.node_id)
        await scene.cluster.until(lambda: rotten.started, SERVED_S, "a start")


def _is_in_a_record(disk: SimDisk, flip: Flip) -> bool:
    """Whether a bit flipped in the journal, before the mark with which it ends."""
    return flip.path.endswith(f"/{NAME}") and flip.position < len(disk.read_file(flip.path)) - GROUP_BYTES


def _identity(properties: bytes) -> list[bytes]:
    """Return the lines of meta.properties that do not change with each start."""
    return [line for line in properties.splitlines() if not line.startswith(names.INCARNATIONS.encode())]


def _judge_belief(rotten: SimNode, written: Written, flips: list[Flip]) -> None:
    """Check that the node believes at its start only what it had written. Raises AssertionError."""
    assert rotten.node is not None and rotten.node.broker is not None
    directory = rotten.node.broker.replicas.logs.volumes[0].directory
    where = f"node {rotten.node_id} after {flips}"
    for field, offsets in written.offsets.items():
        believed: Mapping[TopicPartition, int] = getattr(directory, field)
        wrong = {str(each): offset for each, offset in believed.items() if offsets.get(each) != offset}
        assert not wrong, f"{where} believes of {field}: {wrong}"
    own = directory.clean_broker_epoch
    marker = any(each.path.endswith(names.CLEAN_SHUTDOWN) for each in flips)
    assert not (marker and own is not None), f"{where} believes in a clean stop of broker epoch {own}"
    kept = rotten.host.disk.read_file(f"{DATA}/{names.META_PROPERTIES}")
    assert _identity(kept) == _identity(written.properties), f"{where} calls itself {kept!r}"
    rotted = {each.path.removeprefix(f"{DATA}/").partition("/")[0] for each in flips}
    # a log that lost its power before its first flush holds no acknowledged record, and may be set aside
    new = _strays(rotten.host.disk) - written.strays
    strays = sorted(each for each in new if each.partition(".")[0] in rotted)
    assert not strays, f"{where} has set aside {strays}"


def _replicas(scene: Choreography) -> dict[int, Partition]:
    found = {node_id: scene.cluster.replica(node_id, TRIMMED, 0) for node_id in scene.cluster.nodes}
    return {node_id: each for node_id, each in found.items() if each is not None}


def _is_equal(scene: Choreography) -> bool:
    replicas = _replicas(scene).values()
    ends = {(each.high_watermark, each.log_end_offset) for each in replicas}
    return len(replicas) == len(scene.cluster.nodes) and len(ends) == 1


def _judge_epochs(replicas: Mapping[int, Partition]) -> list[str]:
    """Above the newest log start, all replicas know the same epochs of the same offsets."""
    start = max(each.log_start_offset for each in replicas.values())
    end = min(each.log_end_offset for each in replicas.values())
    told = {
        node_id: [each.log.epoch_at(offset) for offset in range(start, end)]
        for node_id, each in replicas.items()
    }
    first = next(iter(told.values()))
    return [f"{TRIMMED}: node {node_id} has other epochs" for node_id, each in told.items() if each != first]
