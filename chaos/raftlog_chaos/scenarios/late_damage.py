"""A broker reports damage of the only replica of a partition, while an operator lets that replica lead as it is.

The broker learns late of both, so its next report comes after the election, and the ISR is lost again. The replica then
leads for reading only although its log is sound. It must acknowledge no record, since an unclean election may follow.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from raftlog.base.errors import CorruptMessage, NotEnoughReplicas
from raftlog.metadata.controller_api import UNCLEAN, CreateTopics, ElectLeaders, NewTopic
from raftlog.metadata.image import PartitionState
from raftlog.records.batch import build_batch, new_record
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.corruption import rot_log
from raftlog_chaos.scenarios.eligible_leaders import Leaving
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop

ALONE: Final = "alone"
SETTINGS: Final = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "200"}
"""A broker repeats its report before it is fenced."""
BATCHES: Final = 5
LOG_BYTES: Final = 1 << 20
"""More than all of them."""
LOOK_S: Final = 0.02
LOOKS_FOR_DAMAGE: Final = 50
"""The first report of it comes within so many, unless the broker waits for the answer to a heartbeat."""
LOOKS: Final = 100
"""A report that is late comes within so many."""


class LateDamage(Leaving):
    """The stage, with topics of one replica."""

    late = 0
    """How often an ISR was lost again after an election."""
    taken = False
    """Whether a leader for reading only took a record."""

    async def of_one(self, name: str, node_id: int) -> None:
        """Create a topic with one replica, and write some batches."""
        await self.submit(CreateTopics((NewTopic(name, assignments={0: (node_id,)}),)))
        await self.cluster.until(lambda: self._leads(name, node_id), SERVED_S, f"node {node_id} leads {name}")
        for _ in range(BATCHES):
            self.cluster.nodes[node_id].host.call(self.write, name, node_id)
        await self.cluster.until(
            lambda: self.replica_of(name, node_id).high_watermark == BATCHES, SERVED_S, "all committed"
        )

    def replica_of(self, name: str, node_id: int) -> Partition:
        replica = self.cluster.replica(node_id, name, 0)
        assert replica is not None
        return replica

    def state_of(self, name: str) -> PartitionState:
        state = self.cluster.state(name, 0)
        assert state is not None
        return state

    def _leads(self, name: str, node_id: int) -> bool:
        replica = self.cluster.replica(node_id, name, 0)
        return replica is not None and type(replica.role) is LeaderRole

    def write(self, name: str, node_id: int) -> None:
        """Append a batch that all of the ISR shall have. Raises NotEnoughReplicas."""
        batch = memoryview(build_batch([new_record(None, b"v", timestamp=-1)]))
        self.replica_of(name, node_id).append_produced(batch, acks=-1, now_ms=0)

    async def elect(self, name: str) -> None:
        await self.submit(ElectLeaders(UNCLEAN, ((name, 0),)))

    async def report_late(self, name: str, node_id: int) -> None:
        """Have a reader find damage, and elect the replica while its node hears no controller."""
        cluster = self.cluster
        controller = cluster.leader_id()
        if controller is None or controller == node_id:
            return
        assert rot_log(self, cluster.nodes[node_id].host.disk, f"/data/{name}-0")
        self.loop.clog(cluster.nodes[controller].host, cluster.nodes[node_id].host)
        cluster.nodes[node_id].host.call(self._read, name, node_id)
        for _ in range(LOOKS_FOR_DAMAGE):
            if self.state_of(name).isr_lost:
                await self.elect(name)
                await asyncio.sleep(self.a_while(0.3, 1.0, 2.0))
                break
            await asyncio.sleep(LOOK_S)
        self.loop.heal()
        for _ in range(LOOKS):
            was_known = self._reads_only(name, node_id)
            await asyncio.sleep(LOOK_S)
            if was_known and self._reads_only(name, node_id):
                break
        else:
            return
        self.late += 1
        cluster.nodes[node_id].host.call(self._try_to_write, name, node_id)
        await asyncio.sleep(LOOK_S)
        assert not self.taken, (
            f"{self.state_of(name)}: node {node_id} leads for reading only, and took a record"
        )

    async def mended(self, name: str, node_id: int) -> None:
        """Have the replica lead as it is, until it does and its log is sound."""
        end = self.loop.time() + SERVED_S
        while self.state_of(name).isr_lost or self.replica_of(name, node_id).log.damage is not None:
            assert self.loop.time() < end, f"{name}: {self.state_of(name)}: the elections come to nothing"
            if self.state_of(name).isr_lost:
                await self.elect(name)
            await asyncio.sleep(LOOK_S)

    def _reads_only(self, name: str, node_id: int) -> bool:
        """Return whether a node knows that it leads for reading only, with a log that is sound."""
        node, replica = self.cluster.nodes[node_id].node, self.cluster.replica(node_id, name, 0)
        if node is None or replica is None or type(replica.role) is not LeaderRole:
            return False
        known = node.metadata.published_image.partition(name, 0)
        return known is not None and known.isr_lost and known.leader == node_id and replica.log.damage is None

    def _read(self, name: str, node_id: int) -> None:
        """Find the damage, as a consumer would."""
        replica = self.replica_of(name, node_id)
        try:
            replica.log.read(0, LOG_BYTES, end_offset=replica.high_watermark, cached=False)
        except CorruptMessage as error:
            replica.read_error_for_client(error)

    def _try_to_write(self, name: str, node_id: int) -> None:
        try:
            self.write(name, node_id)
        except NotEnoughReplicas:
            return
        self.taken = True


async def late_damage(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Damage the only replica of a partition, again and again for some virtual seconds. Raises AssertionError."""
    scene = LateDamage(loop, nodes=5, settings=SETTINGS)
    scene.cluster.may_rot = True
    await scene.begin()
    end, number = loop.time() + seconds, 0
    while loop.time() < end:
        await scene.whole()
        node_id, name = scene.chance.choice(sorted(scene.cluster.nodes)), f"{ALONE}-{number}"
        number += 1
        await scene.of_one(name, node_id)
        await scene.report_late(name, node_id)
        await scene.whole()
        await scene.mended(name, node_id)
    report = await scene.end()
    return replace(report, faults={**report.faults, "late report": scene.late})
