"""The simulator as a run's ground: the case files that hurt processes hurt simulated nodes, in virtual time.

One seed is one run, and the same seed is the same run.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from raftlog_chaos.history import Op
from raftlog_chaos.runs.case import Case
from raftlog_chaos.runs.meter import Beats
from raftlog_chaos.runs.record import Record
from raftlog_chaos.runs.rig import Rig
from raftlog_chaos.runs.runner import Runner
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.simulator.testbed import SimTestbed
from raftlog_chaos.workloads.log_workload import OpenPort
from raftlog_chaos.workloads.port import Definite, Indefinite
from raftlog_chaos.workloads.simulated import SimPorts

PACE_S: Final = 0.02
AGAIN_S: Final = 0.02
"""After an error, virtual seconds."""
METER_PROCESS: Final = 1_000_000
"""Process numbers of the meter's ports, which no history knows."""


class PortMeter:
    """The meter on the workload's own ports: one record in flight for each partition."""

    def __init__(self, open_port: OpenPort, topic: str, partitions: int) -> None:
        self.beats = tuple(Beats(array("d"), array("d")) for _ in range(partitions))
        self.errors: list[str] = []
        self._open_port = open_port
        self._topic = topic
        self._stopping = False
        self._loops: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        self._loops = [asyncio.ensure_future(self._beat(each)) for each in range(len(self.beats))]

    async def stop(self) -> None:
        self._stopping = True
        loops, self._loops = self._loops, []
        await asyncio.gather(*loops)

    async def _beat(self, partition: int) -> None:
        loop, key = asyncio.get_running_loop(), f"{self._topic}-{partition}"
        port = self._open_port(METER_PROCESS + partition, "writer")
        value = 0
        while not self._stopping:
            value, sent_at = value + 1, loop.time()
            try:
                await port.send(key, value)
            except (Definite, Indefinite) as error:
                self.errors.append(f"partition {partition}: {error}")
                await asyncio.sleep(AGAIN_S)
                continue
            self.beats[partition].acked_at.append(loop.time())
            self.beats[partition].took_s.append(loop.time() - sent_at)
            await asyncio.sleep(PACE_S)
        await port.close()


class OpenSimTestbed(SimTestbed):
    """A simulated cluster that was opened for one run."""

    bootstrap = ""
    client_settings: Mapping[str, str] = MappingProxyType({})
    registries: Mapping[int, str] = MappingProxyType({})
    admin_urls: Mapping[int, str] = MappingProxyType({})

    def logs(self) -> Mapping[int, Path]:
        """Return no paths: simulated nodes write no log files."""
        return {}

    def fallen(self) -> Mapping[int, str]:
        """Return none: a node that ends for no reason is among the cluster's failures, which no case excuses."""
        return {}

    def violations(self) -> Sequence[str]:
        """Return none: here hanging nodes and unnoticed rot are among the cluster's failures."""
        return ()

    async def close(self) -> None:
        """Return at once: the simulated cluster ends with its loop."""


class SimulatedRun(NamedTuple):
    """A run in virtual time, and what its clients saw."""

    record: Record
    history: list[Op]


async def run_simulated(case: Case, loop: SimLoop) -> SimulatedRun:
    """Run a case from the beginning of a simulated world. Raises AssertionError when the nodes do not start."""
    cluster = SimCluster(loop, case.nodes, settings=case.settings)
    cluster.start()
    await cluster.until_ready()
    testbed = OpenSimTestbed(cluster, loop.stream("place"))
    ports = SimPorts(loop, cluster.bootstrap)

    def open_meter(topic: str, partitions: int) -> PortMeter:
        return PortMeter(ports, topic, partitions)

    history: list[Op] = []
    ground = Rig(testbed, ports, open_meter, loop.time)
    runner = Runner(case, ground, seed=loop.seed, keep=history.append)
    record = await runner.run()
    try:
        cluster.check()
    except AssertionError as error:
        record.troubles.append(str(error))
    return SimulatedRun(record, history)
