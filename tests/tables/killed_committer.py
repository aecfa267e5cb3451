"""Runs `raftlog …` as `killed_writer` does, and also kills it within the commits of an Iceberg catalog in a database.

A commit writes the table's new metadata, and then changes a row: a kill comes between both, and after the row.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from tests.tables import killed_writer


def kill_after(at: int) -> None:
    """Have this process kill itself after so many calls of its table and of its catalog."""
    wrapped = killed_writer.kill_after(at)
    write_metadata, commit_table = SqlCatalog._write_metadata, SqlCatalog.commit_table

    def committed(self: Any, *arguments: Any) -> Any:
        return wrapped(commit_table)(self, *arguments)

    SqlCatalog._write_metadata = staticmethod(wrapped(write_metadata))  # type: ignore[method-assign]
    SqlCatalog.commit_table = committed  # type: ignore[method-assign]


if __name__ == "__main__":
    for each in ("iceberg", "job"):
        import_module(f"raftlog.tables.{each}")

    killed_writer.run_all(kill_after)
