"""Fixtures of tables: each backend at a fresh place, and rows for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from raftlog.records.batch import Record
from raftlog.tables.formats import Format, Place, open_table
from tests.tables.in_memory import Row

if TYPE_CHECKING:
    from raftlog.tables.table import Table


Counts = list[tuple[int, ...]]


class Backend(NamedTuple):
    """A format: opens a table in a folder. Polars reads its rows, and DuckDB counts them.

    `counts`: partition, rows, distinct offsets, least and greatest offset.
    """

    name: str
    open: Callable[[str], Table]
    read: Callable[[str], list[dict[str, Any]]]
    counts: Callable[[str], Counts]


COUNTS = (
    'SELECT partition, count(*), count(DISTINCT "offset"), min("offset"), max("offset") FROM {table} '
    "GROUP BY partition ORDER BY partition"
)


def rows(chunk: list[Row]) -> Any:
    """Return Arrow rows for these partitions and offsets."""
    from raftlog.tables.columns import Rows

    found = Rows()
    for partition, offset in chunk:
        found.add(partition, [(1, Record(offset, 1_700_000_000_000, b"k", b"v%d" % offset))])
    return found.take()


def _open(name: Format) -> Callable[[str], Table]:
    def opened(where: str) -> Table:
        folder, topic = os.path.split(where)
        from raftlog.tables.columns import SCHEMA

        return open_table(Place(name, folder), topic, SCHEMA)

    return opened


def _read_delta(where: str) -> list[dict[str, Any]]:
    import polars

    return polars.read_delta(where).to_dicts()


def _read_iceberg(where: str) -> list[dict[str, Any]]:
    import polars

    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # its own planner is a package more
    return polars.scan_iceberg(_newest_metadata(where)).collect().to_dicts()


def _newest_metadata(where: str) -> str:
    """Return the file that the hint names, as readers without a catalog find it."""
    folder = Path(where, "metadata")
    return str(folder / f"{(folder / 'version-hint.text').read_text()}.metadata.json")


def _count_delta(where: str) -> Counts:
    import deltalake
    import duckdb

    files = deltalake.DeltaTable(where).file_uris()
    return duckdb.sql(COUNTS.format(table=f"read_parquet({files}, union_by_name=true)")).fetchall()


def _count_iceberg(where: str) -> Counts:
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
            connection.load_extension(str(extension))
        return connection.sql(COUNTS.format(table=f"iceberg_scan('{where}')")).fetchall()


BACKENDS = {
    "delta": Backend("delta", _open(Format.DELTA), _read_delta, _count_delta),
    "iceberg": Backend("iceberg", _open(Format.ICEBERG), _read_iceberg, _count_iceberg),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each format."""
    return BACKENDS[request.param]


@pytest.fixture
def where(tmp_path: Path) -> str:
    """A place without a table."""
    return str(tmp_path / "lake" / "orders")
