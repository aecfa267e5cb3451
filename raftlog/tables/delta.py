"""A topic's table in Delta Lake's format, by the package deltalake.

Epoch and offsets are Delta's own transaction identifiers, an integer per application id. They are in the same commit as
the files, and checkpoints of the log keep them. A commit is a new file of the log, named by the next version, and the
store refuses a second file of that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError

from raftlog.tables import patience
from raftlog.tables.progress import NO_EPOCH, Attempt, Head, Source
from raftlog.tables.table import Conflict, NoLogin, StoreFailed

SOURCE: Final = "raftlog.source"
"""The table property that names the topic."""
OFFSETS: Final = "raftlog.offsets"
"""The offsets from and to of each partition in a commit's information, for people and other programs."""
LEADER_EPOCH: Final = "leader-epoch"
UNKNOWN: Final = -1
"""The leader epoch of a partition that had one, and was read on from elsewhere."""
TARGET_BYTES: Final = 128 << 20
"""The size of files after small files are merged."""
RETRIES: Final = 0
"""deltalake would try a commit again on top of a newer version."""
NO_LOGIN: Final = ("error occurred while loading credentials", "no credentials found in chain")
"""What it says of a store without a login, after it looked for one in all places."""
_FILES: Final = WriterProperties(compression="ZSTD")
_DECORATION: Final = re.compile(r"\x1b\[\d+m|↳")


class DeltaBackend:
    """A Delta table in a folder or an object store."""

    def __init__(self, where: str, schema: pa.Schema, storage: Mapping[str, str] | None = None) -> None:
        self.where = where
        self._schema = schema
        self._storage = {**_limits(), **(storage or {})}
        self._table: DeltaTable | None = None

    @property
    def asked(self) -> str:
        """The table."""
        return f"the table {self.where}"

    def load(self) -> Head | None:
        """Read the newest version; None if there is no table. Raise StoreFailed."""
        try:
            if self._table is None:
                self._table = DeltaTable(self.where, storage_options=self._storage)
            else:
                self._table.update_incremental()
            return _head(self._table)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            self._table = None
            raise _failed(error) from error

    def columns(self) -> pa.Schema:
        """Return the columns of the version that was read last."""
        assert self._table is not None
        return pa.schema(self._table.schema().to_arrow())

    def read(self, columns: Sequence[str], offset: int) -> pa.Table:
        """Return columns of the rows from an offset on, of the version that was read last. Raise StoreFailed."""
        assert self._table is not None
        try:
            return self._table.to_pyarrow_table(columns=list(columns), filters=[("offset", ">=", offset)])
        except (DeltaError, OSError) as error:
            raise _failed(error) from error

    def create(self, source: Source) -> None:
        """Make the table, without records. Raise Conflict, StoreFailed."""
        try:
            DeltaTable.create(
                self.where,
                self._schema,
                name=source.topic,
                configuration={SOURCE: source.to_json()},
                raise_if_key_not_exists=False,
                storage_options=self._storage,
                commit_properties=CommitProperties(max_commit_retries=RETRIES),
            )
        except (DeltaError, OSError) as error:  # a table that another writer made is found by the next load
            raise _failed(error) from error

    def append(self, head: Head, attempt: Attempt, rows: pa.Table) -> None:
        """Commit rows, epoch and offsets as the version after this head. Raise Conflict, StoreFailed."""
        table = self._table
        assert table is not None and head.source is not None and str(table.version()) == head.version
        properties = CommitProperties(
            custom_metadata={OFFSETS: _moves(attempt)},
            max_commit_retries=RETRIES,
            app_transactions=_transactions(head.source, attempt, head),
        )
        try:
            if rows.num_rows:
                write_deltalake(
                    table,
                    rows,
                    mode="append",
                    schema_mode="merge",
                    commit_properties=properties,
                    writer_properties=_FILES,
                )
            else:
                table.create_write_transaction(
                    [], mode="append", schema=table.schema(), commit_properties=properties
                )
        except CommitFailedError as error:
            raise Conflict(_words(error)) from error
        except SchemaMismatchError:
            raise
        except (DeltaError, OSError) as error:
            raise _failed(error) from error

    def tidy(self) -> Mapping[str, Any]:
        """Merge small files, and delete files that no version of the last week needs. Raise StoreFailed."""
        try:
            table = DeltaTable(self.where, storage_options=self._storage)
            merged = table.optimize.compact(target_size=TARGET_BYTES, writer_properties=_FILES)
            deleted = table.vacuum(dry_run=False)
        except (DeltaError, OSError) as error:
            raise _failed(error) from error
        return {
            "merged": merged["numFilesRemoved"],
            "into": merged["numFilesAdded"],
            "deleted": len(deleted),
        }


def _limits() -> dict[str, str]:
    """Return the limits of requests to an object store; deltalake would try each for three minutes."""
    return {
        "connect_timeout": f"{patience.CONNECT_S}s",
        "timeout": f"{patience.ANSWER_S}s",
        "retry_timeout": f"{patience.ANSWER_S}s",  # so a request that took so long is not tried again by itself
    }


def _head(table: DeltaTable) -> Head:
    version = str(table.version())
    text = table.metadata().configuration.get(SOURCE)
    if text is None:
        return Head(version, None)
    source = Source.from_json(text)
    epoch = table.transaction_version(_application(source, "epoch"))
    offsets: dict[int, int] = {}
    leader_epochs: dict[int, int] = {}
    for partition in count():
        offset = table.transaction_version(_application(source, partition))
        if offset is None:
            break
        offsets[partition] = offset
        leader_epoch = table.transaction_version(_application(source, f"{partition}/{LEADER_EPOCH}"))
        if leader_epoch is not None and leader_epoch >= 0:
            leader_epochs[partition] = leader_epoch
    return Head(version, source, NO_EPOCH if epoch is None else epoch, offsets, leader_epochs)


def _application(source: Source, name: str | int) -> str:
    return f"raftlog/{source.cluster}/{source.topic_id or source.topic}/{name}"


def _transactions(source: Source, attempt: Attempt, head: Head) -> list[Transaction]:
    """Return the epoch, and the offset and leader epoch of each partition where they changed."""
    moved = {
        partition: offset
        for partition, offset in attempt.end.items()
        if head.offsets.get(partition) != offset
    }
    epochs = {partition: attempt.leader_epochs.get(partition, UNKNOWN) for partition in attempt.end}
    return [
        Transaction(_application(source, "epoch"), attempt.epoch),
        *(
            Transaction(_application(source, partition), offset)
            for partition, offset in sorted(moved.items())
        ),
        *(
            Transaction(_application(source, f"{partition}/{LEADER_EPOCH}"), leader_epoch)
            for partition, leader_epoch in sorted(epochs.items())
            if leader_epoch != head.leader_epochs.get(partition, UNKNOWN)
        ),
    ]


def _moves(attempt: Attempt) -> dict[str, list[int | None]]:
    return {
        str(partition): [attempt.start.get(partition), end]
        for partition, end in sorted(attempt.end.items())
        if attempt.start.get(partition) != end
    }


def _failed(error: Exception) -> StoreFailed:
    """Return the failure for an error of the store. deltalake has a type for all of them."""
    words = _words(error)
    if any(each in words for each in NO_LOGIN):
        return NoLogin(
            "no login for the object store was found: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or "
            f"AWS_PROFILE ({words})"
        )
    return StoreFailed(words)


def _words(error: Exception) -> str:
    """Return an error in one line: deltalake has a line for each layer, in colours."""
    lines = (_DECORATION.sub("", line).strip() for line in str(error).splitlines())
    return ": ".join(filter(None, lines)) or type(error).__name__
