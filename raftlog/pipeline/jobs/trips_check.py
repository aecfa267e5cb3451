"""Compares what `archive` and `aggregate` left on the disk with the file of the trips, as any reader does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from raftlog.pipeline.jobs.trips import Demand


@dataclass(frozen=True, slots=True)
class ArchiveVerdict:
    """The findings in the archive, in records."""

    archived: int
    missing: int
    doubled: int
    foreign: int

    @property
    def clean(self) -> bool:
        return not (self.missing or self.doubled or self.foreign)

    def as_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """The findings in the table of windows; `trips` and `fare_cents` are sums over them."""

    windows: int
    trips: int
    fare_cents: int
    wrong: int
    doubled: int
    unaccounted: int

    @property
    def clean(self) -> bool:
        return not (self.wrong or self.doubled or self.unaccounted)

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def check_archive(folder: Path, lines: Sequence[str]) -> ArchiveVerdict:
    """Compare an archive with the lines that were sent, each of which must be there once."""
    table = _read(folder)
    found = Counter(bytes(value).decode() for value in table["value"].to_pylist())
    positions = Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    sent = Counter(lines)
    more = (found - sent).total()
    known = sum(count for line, count in (found - sent).items() if line in sent)
    return ArchiveVerdict(
        archived=table.num_rows,
        missing=(sent - found).total(),
        doubled=max(known, sum(count - 1 for count in positions.values())),
        foreign=more - known,
    )


def check_windows(folder: Path, expected: dict[tuple[str, int], Demand], not_told: int) -> WindowVerdict:
    """Compare a table of windows with the demand computed plainly; `not_told` trips are in open windows or late."""
    table = _read(folder)
    rows = table.to_pylist()
    written = Counter((row["window_start"].strftime("%Y-%m-%dT%H"), row["zone"]) for row in rows)
    wrong = sum(
        expected.get((row["window_start"].strftime("%Y-%m-%dT%H"), row["zone"]))
        != Demand(row["records"], row["fare_cents"])
        for row in rows
    )
    trips = sum(row["records"] for row in rows)
    return WindowVerdict(
        windows=len(rows),
        trips=trips,
        fare_cents=sum(row["fare_cents"] for row in rows),
        wrong=wrong,
        doubled=sum(count - 1 for count in written.values()),
        unaccounted=abs(sum(each.trips for each in expected.values()) - trips - not_told),
    )


def _read(folder: Path) -> pa.Table:
    """Read a folder as a reader without knowledge of its writer."""
    return ds.dataset(folder, format="parquet", partitioning="hive").to_table()
