"""Fixtures of tables: each backend at a fresh place, and rows for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from raftlog.records.batch import Record
from tests.tables.in_memory import Row

if TYPE_CHECKING:
    from raftlog.tables.table import Table


class Backend(NamedTuple):
    """A format: opens a table in a folder. Polars reads its rows, and DuckDB counts them.

    `counts`: partition, rows, distinct offsets, least and greatest offset.
    """

    name: str
    open: Callable[[str], Table]
    read: Callable[[str], list[dict[str, Any]]]
    counts: Callable[[str], list[tuple[int, ...]]]


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


def _delta() -> Backend:
    from raftlog.tables.columns import SCHEMA
    from raftlog.tables.delta import DeltaBackend

    def read(where: str) -> list[dict[str, Any]]:
        import polars

        return polars.read_delta(where).to_dicts()

    def counts(where: str) -> list[tuple[int, ...]]:
        import deltalake
        import duckdb

        files = deltalake.DeltaTable(where).file_uris()
        return duckdb.sql(COUNTS.format(table=f"read_parquet({files})")).fetchall()

    return Backend("delta", lambda where: DeltaBackend(where, SCHEMA), read, counts)


BACKENDS = {"delta": _delta}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each format."""
    return BACKENDS[request.param]()


@pytest.fixture
def where(tmp_path: Path) -> str:
    """A place without a table."""
    return str(tmp_path / "lake" / "orders")
