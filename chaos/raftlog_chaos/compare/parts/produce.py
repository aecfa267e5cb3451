"""Throughput of producers: by size, partitions, acks and codec, and what the system spends for a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import Load, Measured
from raftlog_chaos.compare.parts.bench import Bench
from raftlog_chaos.compare.parts.cost import per_gigabyte

SIZES: Final = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}


class Variant(NamedTuple):
    """One load of producers."""

    record_bytes: int = 1_000
    partitions: int = 6
    acks: str = "all"
    codec: str = "none"

    @property
    def name(self) -> str:
        """The row's name: the size, and what differs from the usual load."""
        parts = [SIZES[self.record_bytes]]
        if self.partitions != 6:
            parts.append(f"{self.partitions} partition{'s' if self.partitions > 1 else ''}")
        if self.acks != "all":
            parts.append(f"acks={self.acks}")
        if self.codec != "none":
            parts.append(self.codec)
        return ", ".join(parts)


USUAL: Final = (Variant(100), Variant(), Variant(10_000))
OTHERS: Final = (
    Variant(partitions=1),
    Variant(partitions=60),
    Variant(acks="0"),
    Variant(acks="1"),
    *(Variant(codec=each) for each in ("gzip", "snappy", "lz4", "zstd")),
)


def produce(bench: Bench) -> Iterator[Sample]:
    """Yield throughput of each load, and the cost of the usual loads."""
    for variant in USUAL:
        if (measured := _run(bench, variant)) is not None:
            yield Sample(variant.name, measured.megabytes_per_s, "MB/s", "more")
            yield from _cost(variant.name, measured)
    for variant in () if bench.scale.short or bench.again else OTHERS:
        if (measured := _run(bench, variant)) is not None:
            yield Sample(variant.name, measured.megabytes_per_s, "MB/s", "more")


def _run(bench: Bench, variant: Variant) -> Measured | None:
    load = Load(
        kind="produce",
        topic=f"produce-{variant.partitions}",
        partitions=variant.partitions,
        record_bytes=variant.record_bytes,
        acks=variant.acks,
        codec=variant.codec,
        seconds=bench.scale.seconds,
    )
    measured = bench.run(load, variant.name)
    if measured is None:
        return None
    if measured.answer.failed or not measured.answer.records:
        bench.note(
            f"{variant.name}: {measured.answer.failed} records failed, {measured.answer.records} did not"
        )
    return measured if measured.answer.records else None


def _cost(name: str, measured: Measured) -> Iterator[Sample]:
    yield from per_gigabyte(name, measured)
    if measured.used.flushes is not None:
        yield Sample(f"{name}, flushes of the disk", measured.used.flushes / measured.gigabytes, "/GB")
    yield Sample(
        f"{name}, the client's own CPU", 100 * measured.answer.client_s / measured.answer.seconds, "%"
    )
