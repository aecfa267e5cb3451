"""Failures: gaps around a kill -9 and a pause of a leader, and the restart after a crash of all nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Load
from raftlog_chaos.compare.parts.bench import Bench
from raftlog_chaos.compare.systems.kafka_wire import KafkaWire
from raftlog_chaos.compare.systems.system import Refused, wait_for
from raftlog_chaos.runs.meter import PATIENCE, UnavailabilityMeter

TOPIC: Final = "failure"
PARTITIONS: Final = 6
SETTLE_S: Final = 1.0
GAP_S: Final = 45.0
"""A gap that is longer has failed."""
FILL_S: Final = 5.0
FILL_LIMIT_S: Final = 90.0
RECOVERY_S: Final = 180.0


def gaps(bench: Bench) -> Iterator[Sample]:
    """Yield the longest time that a partition took no acks=all record around a kill -9 and a pause of its leader."""
    system = bench.system
    if not isinstance(system, KafkaWire):
        system.check_alive()
        raise Refused("the client that measures gaps speaks Kafka's protocol only")
    system.create_topic(TOPIC, PARTITIONS)
    yield Sample("kill -9 of a leader, longest gap", _gap(system, system.kill, system.restart), "s", "less")
    victim = _Paused(system)
    yield Sample("pause of a leader, longest gap", _gap(system, victim.pause, victim.resume), "s", "less")


class _Paused:
    """The node that is paused."""

    def __init__(self, system: KafkaWire) -> None:
        self._system = system
        self._node = 0

    def pause(self, node: int) -> None:
        self._node = node
        self._system.pause(node)

    def resume(self) -> None:
        self._system.resume(self._node)


def _gap(system: KafkaWire, strike: Callable[[int], None], heal: Callable[[], object]) -> float:
    """Return the longest gap of any partition around a strike at the leader of the first."""
    meter = UnavailabilityMeter(",".join(system.servers()), TOPIC, PARTITIONS, log_level=0, **PATIENCE)
    with meter:
        _wait_for_acks(meter)
        leader = system.leader_of(TOPIC)
        began = time.monotonic()
        strike(leader)
        try:
            time.sleep(SETTLE_S)
            _wait_for_acks(meter)
            ended = time.monotonic()
        finally:
            heal()
    wait_for(lambda: system.is_whole(TOPIC), "all replicas are in sync again")
    return max(each.seconds for each in meter.longest_gaps(began, ended))


def _wait_for_acks(meter: UnavailabilityMeter) -> None:
    since = time.monotonic()
    wait_for(lambda: meter.acknowledged(since), "every partition acknowledges", timeout_s=GAP_S)


def recovery(bench: Bench) -> Iterator[Sample]:
    """Yield the time from the start after a kill -9 of all nodes until all replicas are in sync."""
    if not bench.system.restarts:
        raise Refused("its nodes keep nothing to start again with")
    with bench.open(3) as (system, _):
        wanted, there, began = bench.scale.crash_bytes, 0.0, time.monotonic()
        while there < wanted and time.monotonic() - began < FILL_LIMIT_S:
            there += system.run(Load(kind="produce", topic=TOPIC, seconds=FILL_S)).gigabytes * 1e9
        system.kill_all()
        began = time.monotonic()
        system.restart()
        wait_for(lambda: system.is_whole(TOPIC), "all replicas are in sync", timeout_s=RECOVERY_S)
        seconds = time.monotonic() - began
    if there < wanted:
        bench.note(f"it took {there / 1e9:.2f} of {wanted / 1e9:.2f} GB in {FILL_LIMIT_S:.0f} s")
    yield Sample("restart after a crash", seconds, "s", "less")
    yield Sample("written before the crash", there / 1e9, "GB")
