"""A topic's table in Apache Iceberg's format, by the package pyiceberg and any of its catalogs.

Each commit is a snapshot with epoch and offsets in its summary, a commit without rows too. pyiceberg compares only the
newest snapshot with the base of a commit, so a change of properties alone would fence no writer. The same commit
repeats epoch and offsets as properties of the table. They count once all snapshots of raftlog are expired, as after a
compaction by another engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.catalog import Catalog, CatalogType, infer_catalog_type, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table as IcebergTable
from pyiceberg.utils.config import Config, merge_config
from sqlalchemy.exc import SQLAlchemyError

from raftlog.base.disk import make_folders, write_file
from raftlog.tables import patience
from raftlog.tables.progress import NO_EPOCH, Attempt, Head, Source
from raftlog.tables.rest_catalog import PatientCatalog
from raftlog.tables.table import Conflict, StoreFailed

SOURCE: Final = "raftlog.source"
"""The table property that names the topic."""
EPOCH: Final = "raftlog.epoch"
OFFSETS: Final = "raftlog.offsets"
"""The next offset of each partition, as JSON."""
LEADER_EPOCHS: Final = "raftlog.leader-epochs"
"""The leader epoch of the last batch before each offset, as JSON, where it is known."""
PROPERTIES: Final = {
    "commit.retry.num-retries": "0",  # pyiceberg would try a commit again on top of a newer snapshot
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}
CATALOG: Final = "raftlog"
"""The name of a catalog that no configuration names. A database may have several catalogs by name."""
KEPT: Final = timedelta(days=1)
"""The time for which snapshots are kept: each of them makes the metadata longer, which every commit writes anew."""
S3_ATTEMPTS: Final = 3
"""The attempts that pyarrow makes of each request to an object store."""
_FAILURES: Final = (CommitStateUnknownException, RESTError, SQLAlchemyError, OSError, ValidationError)
"""A response that is no JSON of a catalog, such as the page of a proxy, is a ValidationError."""


class IcebergBackend:
    """An Iceberg table of a catalog, in a folder or an object store."""

    def __init__(self, catalog: Catalog, namespace: str, topic: str, where: str, schema: pa.Schema) -> None:
        self.where = where
        self._catalog = catalog
        self._name = (namespace, topic)
        self._schema = schema
        self._table: IcebergTable | None = None

    @property
    def asked(self) -> str:
        """The catalog or the place of the table, whichever is to answer."""
        return (
            self._catalog.asking if isinstance(self._catalog, PatientCatalog) else ""
        ) or f"the table {self.where}"

    def load(self) -> Head | None:
        """Read the newest version; None if there is no table. Raise StoreFailed."""
        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        except _FAILURES as error:
            raise StoreFailed(_words(error)) from error
        return _head(self._table)

    def columns(self) -> pa.Schema:
        """Return the columns of the version that was read last."""
        assert self._table is not None
        return self._table.schema().as_arrow()

    def read(self, columns: Sequence[str], offset: int) -> pa.Table:
        """Return columns of the rows from an offset on, of the version that was read last. Raise StoreFailed."""
        assert self._table is not None
        try:
            rows = self._table.scan(row_filter=f"offset >= {offset}", selected_fields=tuple(columns))
            return rows.to_arrow()
        except _FAILURES as error:
            raise StoreFailed(_words(error)) from error

    def create(self, source: Source) -> None:
        """Make the table, without records. Raise Conflict, StoreFailed."""
        try:
            self._catalog.create_namespace_if_not_exists(self._name[:1])
            self._catalog.create_table(
                self._name,
                self._schema,
                location=self.where,
                properties={**PROPERTIES, SOURCE: source.to_json()},
            )
        except TableAlreadyExistsError as error:
            raise Conflict(_words(error)) from error
        except _FAILURES as error:
            raise StoreFailed(_words(error)) from error

    def append(self, head: Head, attempt: Attempt, rows: pa.Table) -> None:
        """Commit rows, epoch and offsets as the snapshot after this head. Raise Conflict, StoreFailed."""
        table = self._table
        assert table is not None and _version(table) == head.version
        progress = {
            EPOCH: str(attempt.epoch),
            OFFSETS: _to_json(attempt.end),
            LEADER_EPOCHS: _to_json(attempt.leader_epochs),
        }
        try:
            transaction = table.transaction()
            with transaction.update_schema() as columns:
                columns.union_by_name(rows.schema)
            transaction.append(rows, snapshot_properties=progress)
            transaction.set_properties(progress)
            transaction.commit_transaction()
            self._write_hint(table)
        except CommitFailedException as error:
            raise Conflict(_words(error)) from error
        except _FAILURES as error:
            raise StoreFailed(_words(error)) from error

    def tidy(self) -> Mapping[str, Any]:
        """Expire snapshots that are older than a day. Raise StoreFailed."""
        try:
            table = self._catalog.load_table(self._name)
            before = len(table.snapshots())
            table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - KEPT).commit()
            self._write_hint(table)
        except (CommitFailedException, *_FAILURES) as error:
            raise StoreFailed(_words(error)) from error
        return {"expired snapshots": before - len(table.snapshots())}

    def _write_hint(self, table: IcebergTable) -> None:
        """Name the newest metadata file in a file of a known name, for readers without a catalog. Only in folders."""
        address = urlsplit(table.metadata_location)
        if address.scheme in ("", "file"):
            newest = Path(address.path)
            hint = newest.name.removesuffix(".metadata.json")
            write_file(newest.with_name("version-hint.text"), hint, beside=f".{os.getpid()}")


def open_catalog(to: str, catalog: str) -> Catalog:
    """Return a catalog by the URI of its server or database, or by its name in pyiceberg's own configuration.

    "" is a database in the folder of the tables. Raise StoreFailed, ValueError.
    """
    address = urlsplit(catalog)
    name, properties = CATALOG, {"warehouse": to, **_object_store()}
    try:
        if not catalog:
            folder = Path(urlsplit(to).path)
            make_folders(folder)
            properties |= {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}"}
        elif address.scheme:
            properties |= {"type": "rest" if address.scheme in ("http", "https") else "sql", "uri": catalog}
        else:
            name = catalog
        configured = merge_config(Config().get_catalog_config(name) or {}, {**properties})
        given = configured.get("type")
        kind = CatalogType(str(given).lower()) if given else infer_catalog_type(name, configured)
        if kind is CatalogType.REST:
            return PatientCatalog(name, **configured)
        return load_catalog(name, **properties)
    except _FAILURES as error:
        raise StoreFailed(_words(error)) from error


def _object_store() -> dict[str, str]:
    """Return time limits, and the settings that other programs take from the environment, and pyiceberg does not."""
    found = {
        "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL"),
        "s3.region": os.environ.get("AWS_REGION"),
        "s3.connect-timeout": str(patience.CONNECT_S),
        "s3.request-timeout": str(patience.ANSWER_S / S3_ATTEMPTS),
    }
    return {name: value for name, value in found.items() if value}


def _head(table: IcebergTable) -> Head:
    text = table.properties.get(SOURCE)
    if text is None:
        return Head(_version(table), None)
    progress = _progress(table)
    offsets, leader_epochs = (_from_json(progress.get(name, "{}")) for name in (OFFSETS, LEADER_EPOCHS))
    epoch = int(progress.get(EPOCH, NO_EPOCH))
    return Head(_version(table), Source.from_json(text), epoch, offsets, leader_epochs)


def _progress(table: IcebergTable) -> Mapping[str, str]:
    """Return the summary of the newest snapshot that raftlog made, or else the properties of the table.

    A table that was rolled back so has the offsets of the snapshot that it was rolled back to.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and snapshot.summary.get(OFFSETS) is not None:
            return dict(snapshot.summary.additional_properties)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return dict(table.properties)


def _version(table: IcebergTable) -> str:
    """Return the sequence number, which each snapshot counts up."""
    return str(table.metadata.last_sequence_number)


def _to_json(numbers: Mapping[int, int]) -> str:
    return json.dumps({str(partition): number for partition, number in sorted(numbers.items())})


def _from_json(text: str) -> dict[int, int]:
    return {int(partition): number for partition, number in json.loads(text).items()}


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
