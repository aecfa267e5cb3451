"""Start and rest: time to ready, memory, idle CPU, and idle connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Load, usage_of
from raftlog_chaos.compare.parts.bench import Bench

SETTLE_S: Final = 2.0
IDLE_S: Final = 3.0
MEGABYTE: Final = 1e6
CONNECTIONS: Final = 10_000


def ready(bench: Bench) -> Iterator[Sample]:
    """Yield the time to ready, and the cost of three idle nodes."""
    yield Sample("three nodes ready", bench.ready_s, "s", "less")
    time.sleep(SETTLE_S)
    pids = bench.system.check_alive()
    before = usage_of(pids, bench.system.folder)
    time.sleep(IDLE_S)
    after = usage_of(pids, bench.system.folder)
    bench.system.check_alive()
    yield Sample("RSS idle, a node", after.resident_bytes / len(pids) / MEGABYTE, "MB", "less")
    yield Sample("CPU idle, a node", 100 * after.since(before).cpu_s / IDLE_S / len(pids), "%", "less")


def memory(bench: Bench) -> Iterator[Sample]:
    """Yield a node's memory at its most, and once a load is over."""
    bench.system.run(Load(kind="produce", topic="produce-6", seconds=bench.scale.seconds))
    pids = bench.system.check_alive()
    most = sum(_peak_bytes(pid) for pid in pids)
    time.sleep(SETTLE_S)
    after = usage_of(pids, bench.system.folder).resident_bytes
    bench.system.check_alive()
    yield Sample("RSS at its most, a node", most / len(pids) / MEGABYTE, "MB", "less")
    yield Sample("RSS after the load, a node", after / len(pids) / MEGABYTE, "MB", "less")


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def connections(bench: Bench) -> Iterator[Sample]:
    """Yield what idle connections cost."""
    load = Load(kind="connections", topic="latency", clients=CONNECTIONS, seconds=SETTLE_S)
    measured = bench.system.run(load)
    opened = measured.answer.records
    yield Sample("connections opened", opened, "")
    if measured.answer.failed:
        bench.note(f"{measured.answer.failed} connections were refused, or not answered")
    if opened:
        opening_s = measured.answer.seconds - SETTLE_S
        yield Sample("time to open one", opening_s / opened * 1e6, "µs", "less")
        yield Sample("RSS for one", max(0.0, measured.used.resident_bytes / opened / 1e3), "KB", "less")
