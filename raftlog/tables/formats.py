"""Opens a topic's table at a place, in a format. The libraries of a format are imported only then."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import pyarrow as pa

    from raftlog.tables.job import Destination
    from raftlog.tables.table import Table

NAMESPACE: Final = "raftlog"
DEAD_LETTERS: Final = "__dlq"
"""The end of the name of a table of dead letters."""


class Format(StrEnum):
    """The formats of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


MARKS: Final = {Format.DELTA: "_delta_log", Format.ICEBERG: "metadata"}
"""A folder that a table of the format has."""


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

    @property
    def asked(self) -> str:
        """What is asked when tables are opened, for people: without a login."""
        address = urlsplit(self.catalog)
        if not address.scheme:
            return f"the catalog {self.catalog}" if self.catalog else self.to
        return f"the catalog at {address.scheme}://{address.netloc.rpartition('@')[2]}"

    def where(self, topic: str) -> str:
        """Return the folder or URL of a topic's table."""
        if self.is_folder:
            folder = Path(self.to.removeprefix("file://")).resolve() / topic
            return str(folder) if self.format is Format.DELTA else f"file://{folder}"
        return f"{self.to.rstrip('/')}/{topic}"

    def check(self, topic: str) -> None:
        """Raise ValueError if a topic's table cannot have its folder.

        A file is there, or a table of the other format, or its name is too long.
        """
        if not self.is_folder:
            return
        folder = Path(self.to.removeprefix("file://")).resolve() / topic
        try:
            file = next((each for each in (folder, *folder.parents) if each.is_file()), None)
            found = [each for each, mark in MARKS.items() if (folder / mark).is_dir()]
        except OSError as error:  # a name that is too long, or a folder that this user may not look into
            raise ValueError(f"--to {self.to}: {error.strerror}") from error
        if file is not None:
            raise ValueError(f"--to {self.to}: {file} is a file, and tables are folders")
        if found and self.format not in found:
            raise ValueError(
                f"--to {self.to}: {folder} is a table of the format {found[0]}; choose another place"
            )


def open_destination(place: Place, topic: str, registry: str = "") -> Destination:
    """Return a topic's table, which need not be there, with values by the schemas of a registry if there is a URL.

    Raise ImportError, StoreFailed, ValueError.
    """
    from raftlog.tables.columns import BASE, DEAD, SCHEMA
    from raftlog.tables.job import Destination

    if not registry:
        return Destination(open_table(place, topic, SCHEMA))
    from raftlog.tables.registry import Registry
    from raftlog.tables.values import Values

    values = Values(Registry(registry, time.sleep))
    return Destination(
        open_table(place, topic, BASE), values, open_table(place, f"{topic}{DEAD_LETTERS}", DEAD)
    )


def open_table(place: Place, name: str, schema: pa.Schema) -> Table:
    """Return the table of a name, with the columns that it is to have. Raise ImportError, StoreFailed, ValueError."""
    where = place.where(name)
    place.check(name)
    if place.format is Format.DELTA:
        os.environ.setdefault("RUST_LOG", "error")  # of its warnings the errors say what counts
        from raftlog.tables.delta import DeltaBackend

        return DeltaBackend(where, schema)
    from raftlog.tables.iceberg import IcebergBackend, open_catalog

    catalog = open_catalog(where.removesuffix(f"/{name}"), place.catalog)
    return IcebergBackend(catalog, place.namespace, name, where, schema)
