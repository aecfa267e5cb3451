"""Stock clients as a run's ground: confluent-kafka for the workload, and a meter on the same library."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from raftlog.testing.progress import signs_of_descendants
from raftlog_chaos.runs.commit_meter import StockCommitMeter
from raftlog_chaos.runs.meter import PATIENCE, Beats, UnavailabilityMeter
from raftlog_chaos.runs.rig import OpenTestbed, Rig
from raftlog_chaos.workloads.schema_workload import HttpRegistries

PACE_S: Final = 0.005
"""Between an acknowledgement and the meter's next record of that partition: it shares the machine with the cluster."""


NO_RETRIES: Final = {"enable.idempotence": False, "retries": 0}


class StockMeter:
    """The meter of stock clients, for a run on an event loop. The loop's clock is time.monotonic."""

    def __init__(self, testbed: OpenTestbed, topic: str, partitions: int, *, retries: bool) -> None:
        settings = {**PATIENCE, **testbed.client_settings, **({} if retries else NO_RETRIES)}
        self._meter = UnavailabilityMeter(
            testbed.bootstrap, topic, partitions, pace_s=PACE_S, log_level=0, **settings
        )
        self._running = False

    @property
    def beats(self) -> Sequence[Beats]:
        return self._meter.beats

    @property
    def errors(self) -> list[str]:
        return self._meter.errors

    async def start(self) -> None:
        self._running = True
        self._meter.__enter__()

    async def stop(self) -> None:
        if self._running:
            self._running = False
            await asyncio.to_thread(self._meter.__exit__, None, None, None)


class LoopedCommitMeter:
    """The meter of commits by stock clients, for a run on an event loop."""

    def __init__(self, testbed: OpenTestbed, topic: str) -> None:
        settings = {**PATIENCE, **testbed.client_settings}
        self._meter = StockCommitMeter(testbed.bootstrap, topic, **settings)
        self._running = False

    @property
    def beats(self) -> Mapping[str, Sequence[Beats]]:
        return self._meter.beats

    @property
    def faults(self) -> list[str]:
        return self._meter.faults

    async def start(self) -> None:
        self._running = True
        self._meter.start()

    async def stop(self) -> None:
        if self._running:
            self._running = False
            await asyncio.to_thread(self._meter.stop)


def stock_rig(testbed: OpenTestbed, *, retries: bool = True, racks: Sequence[str] = ()) -> Rig:
    """Return a place with stock clients in these racks, in turn. Raises ImportError without confluent-kafka.

    `retries`: whether the meter retries.
    """
    from raftlog_chaos.workloads.queue_port import stock_queue_ports
    from raftlog_chaos.workloads.stock import StockPorts

    ports = StockPorts(testbed.bootstrap, testbed.client_settings, racks)

    def open_meter(topic: str, partitions: int) -> StockMeter:
        return StockMeter(testbed, topic, partitions, retries=retries)

    def open_commit_meter(topic: str) -> LoopedCommitMeter:
        return LoopedCommitMeter(testbed, topic)

    return Rig(
        testbed,
        ports,
        open_meter,
        time.time,
        ports.left_behind,
        open_commit_meter,
        stock_queue_ports(testbed.bootstrap, testbed.client_settings),
        HttpRegistries(testbed.registries, testbed.admin_urls) if testbed.registries else None,
        signs_of_descendants,
    )
