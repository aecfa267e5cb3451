"""The columns of a topic's table, and the records of a topic as rows of these columns.

Keys are bytes as they are in the log, and so are values without a registry. A timestamp that a record does not have, or
that is after the year 9999, is null: readers of tables cannot represent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from raftlog.client.fetching import APPEND_TIME
from raftlog.records.batch import Record, name_text
from raftlog.tables.misfits import DeadLetter, Decided, Misfit
from raftlog.tables.progress import TableError
from raftlog.tables.values import UNFIT, Values

MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
VALUE: Final = "value"
SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False)), nullable=False),
        pa.field(VALUE, pa.binary()),
    ]
)
"""As Kafka and Spark's Kafka source name them; `timestamp_type` 0 is the producer's clock, 1 the broker's."""
BASE: Final = SCHEMA.remove(SCHEMA.get_field_index(VALUE))
"""The columns of a table before the first schema brings its values."""
DEAD: Final = SCHEMA.append(pa.field("reason", pa.string()))
"""The columns of dead letters: records that do not fit, as bytes, and why."""


class Rows:
    """Rows that wait for the next commit. Values are bytes, or with `values` columns of their own."""

    def __init__(self, values: Values | None = None) -> None:
        self.values = values
        self.decided = Decided()
        self._batches: list[tuple[int, pa.RecordBatch]] = []
        self._dead: list[DeadLetter] = []
        self.count = 0
        self.bytes = 0

    def add(self, partition: int, records: Iterable[tuple[int, Record]]) -> None:
        """Add the records of a partition, each with its timestamp type. Raise CorruptMessage, TableError."""
        found = list(records)
        if self.values is None:
            batch = record_batch(SCHEMA, base_columns(partition, found), [each.value for _, each in found])
        else:
            batch = self._decoded(partition, found, self.values)
        if batch.num_rows:
            self._batches.append((partition, batch))
            self.count += batch.num_rows
            self.bytes += batch.nbytes

    def take(self) -> pa.Table:
        """Return all rows, by partition and offset, and forget them."""
        batches, self._batches, self.count, self.bytes = self._batches, [], 0, 0
        batches.sort(key=lambda each: each[0])  # keeps the order within a partition
        if self.values is None:
            return pa.Table.from_batches([batch for _, batch in batches], SCHEMA)
        schema = _with_value(self.values.type)
        return pa.concat_tables(
            [schema.empty_table(), *(pa.Table.from_batches([batch]) for _, batch in batches)],
            promote_options="permissive",
        )

    def take_dead(self) -> pa.Table:
        """Return the dead letters, and forget them."""
        found, self._dead = self._dead, []
        tables = [
            record_batch(
                DEAD,
                base_columns(each.partition, [(each.kind, each.record)]),
                [each.record.value],
                [each.reason],
            )
            for each in found
        ]
        return pa.Table.from_batches(tables, DEAD)

    def clear(self) -> None:
        """Forget all rows and dead letters."""
        self.take()
        self._dead = []

    @property
    def dead_count(self) -> int:
        return len(self._dead)

    @property
    def first_reason(self) -> str:
        """The reason of the first dead letter, "" if there is none."""
        return self._dead[0].reason if self._dead else ""

    def _decoded(self, partition: int, records: list[tuple[int, Record]], values: Values) -> pa.RecordBatch:
        """Return the rows of the records that fit, and keep the others as dead letters."""
        fitting, decoded = [], []
        for kind, record in records:
            if (partition, record.offset) in self.decided.letters:
                continue
            try:
                decoded.append(None if record.value is None else values.read(record.value))
                fitting.append((kind, record))
            except Misfit as misfit:
                self._keep_dead(DeadLetter(partition, kind, record, str(misfit)))
        schema = _with_value(values.type)
        extra = [] if schema is BASE else [decoded]
        try:
            return record_batch(schema, base_columns(partition, fitting), *extra)
        except UNFIT:
            kept = [
                number
                for number, each in enumerate(decoded)
                if self._fits(each, values, partition, fitting[number])
            ]
            columns = base_columns(partition, [fitting[number] for number in kept])
            return record_batch(schema, columns, [decoded[number] for number in kept])

    def _fits(self, value: Any, values: Values, partition: int, record: tuple[int, Record]) -> bool:
        """Return whether Arrow takes a value, such as a decimal of the right precision; else keep a dead letter."""
        try:
            pa.array([value], values.type)
        except UNFIT as error:
            self._keep_dead(DeadLetter(partition, *record, f"its value fits into no column: {error}"))
            return False
        return True

    def _keep_dead(self, letter: DeadLetter) -> None:
        """Keep a dead letter. Raise TableError if the record was not a dead letter before a crash."""
        if letter.record.offset < self.decided.ends.get(letter.partition, 0):
            raise TableError(
                f"record {letter.partition}/{letter.record.offset} fitted before a crash, and the dead letters around "
                f"it are written; now it does not: {letter.reason}. Give the registry the schemas back that it had"
            )
        self._dead.append(letter)


def _with_value(type_: pa.StructType) -> pa.Schema:
    """Return the columns with values of a type; no format has a column without fields."""
    return BASE.append(pa.field(VALUE, type_)) if type_.num_fields else BASE


def base_columns(partition: int, records: Sequence[tuple[int, Record]]) -> list[Sequence[Any]]:
    """Return the columns of BASE for records of a partition."""
    found = [record for _, record in records]
    return [
        [partition] * len(found),
        [each.offset for each in found],
        [each.timestamp * 1000 if 0 <= each.timestamp <= MAX_TIMESTAMP_MS else None for each in found],
        [int(kind == APPEND_TIME) for kind, _ in records],
        [each.key for each in found],
        [[(name_text(name), value) for name, value in each.headers] for each in found],
    ]


def record_batch(schema: pa.Schema, columns: list[Sequence[Any]], *more: Sequence[Any]) -> pa.RecordBatch:
    """Return columns as a batch. Raise ArrowException."""
    arrays = [pa.array(column, field.type) for column, field in zip([*columns, *more], schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)
