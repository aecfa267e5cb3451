"""Opens a topic's table at a place, in a format. The libraries of a format are imported only then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from raftlog.tables.table import Table

NAMESPACE: Final = "raftlog"


class Format(StrEnum):
    """The formats of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or URL with a table per topic. `catalog` and `namespace` are Iceberg's."""

    format: Format
    to: str
    catalog: str = ""
    namespace: str = NAMESPACE

    def __post_init__(self) -> None:
        if self.catalog and self.format is not Format.ICEBERG:
            raise ValueError(f"the format {self.format} has no catalog")
        if self.format is Format.ICEBERG and not self.catalog and not self.is_folder:
            raise ValueError("an Iceberg table in an object store needs a catalog")

    @property
    def is_folder(self) -> bool:
        return "://" not in self.to or self.to.startswith("file://")

    def where(self, topic: str) -> str:
        """Return the folder or URL of a topic's table."""
        if self.is_folder:
            folder = Path(self.to.removeprefix("file://")).resolve() / topic
            return str(folder) if self.format is Format.DELTA else f"file://{folder}"
        return f"{self.to.rstrip('/')}/{topic}"


def open_table(place: Place, topic: str) -> Table:
    """Return a topic's table, which need not be there. Raise ImportError, StoreFailed, ValueError."""
    from raftlog.tables.columns import SCHEMA

    where = place.where(topic)
    if place.format is Format.DELTA:
        from raftlog.tables.delta import DeltaBackend

        return DeltaBackend(where, SCHEMA)
    from raftlog.tables.iceberg import IcebergBackend, open_catalog

    catalog = open_catalog(where.removesuffix(f"/{topic}"), place.catalog)
    return IcebergBackend(catalog, place.namespace, topic, where, SCHEMA)
