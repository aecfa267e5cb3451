"""Throughput of consumers: from memory, from disk, and beside producers."""

from __future__ import annotations

from collections.abc import Iterator

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Load, Measured
from raftlog_chaos.compare.parts.bench import Bench
from raftlog_chaos.compare.parts.cost import per_gigabyte
from raftlog_chaos.compare.systems.system import Failed, drop_from_memory

TOPIC = "consume"


def consume(bench: Bench) -> Iterator[Sample]:
    """Yield how fast records of 1 KB are read that were just written, and that are no longer in memory."""
    seconds = bench.scale.seconds
    bench.system.run(Load(kind="produce", topic=TOPIC, seconds=1.5 * seconds))
    measured = _read(bench)
    yield Sample("from memory", measured.megabytes_per_s, "MB/s", "more")
    yield from per_gigabyte("from memory", measured)
    if not bench.system.reads_disk:
        bench.note("from disk: it keeps all records in memory")
        return
    drop_from_memory(bench.system.folder)
    measured = _read(bench)
    yield Sample("from disk", measured.megabytes_per_s, "MB/s", "more")


def both(bench: Bench) -> Iterator[Sample]:
    """Yield the throughput of producers and of consumers that read the same records meanwhile."""
    measured = bench.system.run(Load(kind="both", topic="both", seconds=bench.scale.seconds))
    consumed = measured.answer.consumed / measured.answer.seconds * measured.load.record_bytes / 1e6
    yield Sample("produced meanwhile", measured.megabytes_per_s, "MB/s", "more")
    yield Sample("consumed meanwhile", consumed, "MB/s", "more")


def _read(bench: Bench) -> Measured:
    """Read the topic. Raises Failed without any record."""
    measured = bench.system.run(Load(kind="consume", topic=TOPIC, seconds=bench.scale.seconds))
    if not measured.answer.records:
        raise Failed("a consumer read nothing")
    return measured
