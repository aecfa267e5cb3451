"""Small requests: how long an acknowledgement and an arrival take at steady rates, and the CPU time of a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Kind, Load, Measured
from raftlog_chaos.compare.parts.bench import Bench
from raftlog_chaos.compare.parts.cost import per_record

RATES: Final = (200, 1_000, 5_000, 20_000)
SHORT_RATES: Final = (1_000,)
RECORD_BYTES: Final = 100
MIN_RECORDS: Final = 5_000
"""The minimum for p99.9. With fewer records, it depends on a handful of them."""
SLOW_RATE: Final = 200
LONGER: Final = 3
"""The load at SLOW_RATE is longer by this factor, since its records would use too few ticks of CPU time otherwise."""
KEPT_UP: Final = 0.95
"""A load that reaches less of its rate is no proof about that rate."""
SLOWER_MS: Final = (0.3, 1.0, 5.0)
SLOW_DISK_RATE: Final = 1_000
WARM_UP_S: Final = 2.0
"""The warm-up of a cluster that has just started."""
PRODUCERS: Final = 200
PRODUCERS_RATE: Final = 5_000


def latency(bench: Bench) -> Iterator[Sample]:
    """Yield quantiles and CPU time at each rate."""
    for rate in SHORT_RATES if bench.scale.short else RATES:
        for kind in ("ack", "arrival"):
            seconds = bench.scale.seconds * (LONGER if rate == SLOW_RATE and kind == "ack" else 1)
            load = Load(kind=kind, topic="latency", record_bytes=RECORD_BYTES, rate=rate, seconds=seconds)
            measured = run_steady(bench, load, f"{kind} at {rate:,}/s")
            if measured is None:
                continue
            yield from quantiles(_said(kind, rate), measured)
            if kind == "ack":
                yield from per_record(f"at {rate:,}/s", measured)


def _said(kind: Kind, rate: int) -> str:
    return f"{'ack' if kind == 'ack' else 'end to end'} at {rate:,}/s"


def producers(bench: Bench) -> Iterator[Sample]:
    """Yield the same for a rate that comes from many producers."""
    load = Load(
        kind="producers",
        topic="latency",
        record_bytes=RECORD_BYTES,
        rate=PRODUCERS_RATE,
        clients=PRODUCERS,
        seconds=bench.scale.seconds,
    )
    name = f"{PRODUCERS} producers, {PRODUCERS_RATE:,}/s together"
    if (measured := run_steady(bench, load, name)) is not None:
        yield from quantiles(name, measured)
        yield from per_record(name, measured)


def slow_disk(bench: Bench) -> Iterator[Sample]:
    """Yield how long acknowledgements take if each sync takes longer, on a cluster of its own for each disk."""
    for slower_ms in SLOWER_MS:
        name = f"syncs {slower_ms:g} ms slower, ack at {SLOW_DISK_RATE:,}/s"
        load = Load(
            kind="ack",
            topic="latency",
            record_bytes=RECORD_BYTES,
            rate=SLOW_DISK_RATE,
            seconds=bench.scale.seconds,
            warmup_s=WARM_UP_S,
        )
        with bench.open(3, slower_s=slower_ms / 1000) as (system, _):
            measured = run_steady(bench._replace(system=system), load, name)
        if measured is not None:
            yield from quantiles(name, measured)


def run_steady(bench: Bench, load: Load, name: str) -> Measured | None:
    """Run a load, or note why its result is meaningless."""
    measured = bench.run(load, name)
    if measured is None:
        return None
    reached = measured.answer.records / (load.rate * load.seconds)
    if reached < KEPT_UP or measured.answer.took_ms is None:
        failed = f", {measured.answer.failed} failed" if measured.answer.failed else ""
        bench.note(f"{name}: too slow, {100 * reached:.0f} % of the records got there{failed}")
        return None
    return measured


def quantiles(name: str, measured: Measured) -> Iterator[Sample]:
    """Yield how long records took; p99.9 only of enough of them."""
    assert measured.answer.took_ms is not None
    yield from quantiles_of(name, measured, measured.answer.took_ms)


def quantiles_of(name: str, measured: Measured, took_ms: tuple[float, float, float]) -> Iterator[Sample]:
    """Yield quantiles of one of the times that a load measures."""
    for quantile, value in zip(("p50", "p99", "p99.9"), took_ms, strict=True):
        if quantile == "p99.9" and measured.answer.records < MIN_RECORDS:
            continue
        yield Sample(f"{name}, {quantile}", value, "ms", "less")
