"""Decodes values in Confluent's wire format: the column `value` of bytes becomes a column of fields.

The driver finds the ids of schemas in a batch, asks the registry for new ones, and decides the type of the column.
Tasks get the schemas with the query. Each value is read by the schema with which it was written. A
value that does not fit has a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from raftlog.tables.misfits import Misfit
from raftlog.tables.progress import TableError
from raftlog.tables.registry import RegisteredSchema, Registry
from raftlog.tables.values import UNFIT, Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MOST_IDS: Final = 100_000
"""Different ids of schemas in a batch. The registry is asked for each that it was not asked for yet, some minutes."""
RAW: Final = "raw"
REASON: Final = "reason"
_ID: Final = """CASE WHEN length(value) >= 5 AND substring(value, 1, 1) = X'00'
    THEN cast(conv(hex(substring(value, 2, 4)), 16, 10) AS long) END"""
_COUNT: Final = "cast(1 + conv(hex(substring(value, 6, 1)), 16, 10) / 2 AS int)"
_INDEXES: Final = f"""unhex(regexp_extract(hex(substring(value, 6, 330)),
    concat('^(([89A-F].){{0,4}}[0-7].){{', {_COUNT}, '}}'), 0))"""
"""Which message of its file a Protobuf value is of: a number of indexes, doubled, and the indexes. All are varints."""
PROTOBUF: Final = "PROTOBUF"


class TooManyIds(TableError):
    """The values of a batch are of more schemas than can be looked up."""


class Decoder:
    """Decodes batch after batch. The column gets the fields of every schema that it has met."""

    def __init__(self, registry: str, wait: Callable[[float], None] = time.sleep) -> None:
        """Take a registry's URL, which may hold a user and a password. Raise ValueError."""
        self._registry = Registry(registry, wait)
        self._values = Values(self._registry)

    def check_registry(self) -> None:
        """Raise RegistryFailed if no schema registry is at the address."""
        self._registry.check()

    def begin(self, type_: pa.DataType) -> None:
        """Take over the fields that the column of a table has. Raise Misfit if it is of bytes."""
        self._values.begin(type_)

    def decode(self, frame: DataFrame) -> DataFrame:
        """Return a frame with `value` as fields, and the columns `raw` and `reason` of values that do not fit.

        It reads the ids in the frame first, so the frame is that of a batch. Raise RegistryFailed, TooManyIds.
        """
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import BinaryType, StringType, StructField, StructType

        schemas = self._learn(frame)
        others = [each for each in frame.schema.fields if each.name != "value"]
        value = from_arrow_schema(pa.schema([("value", self._values.type)]), prefer_timestamp_ntz=False)
        own = [*value.fields, StructField(RAW, BinaryType()), StructField(REASON, StringType())]
        columns = StructType([*others, *own])
        return frame.mapInArrow(partial(decode_batches, schemas, self._values.type, columns), columns)

    def _learn(self, frame: DataFrame) -> dict[int, RegisteredSchema]:
        """Return the schemas of a frame's values, by id. Older schemas decide the types of fields."""
        with_id = frame.selectExpr(f"{_ID} AS id", f"{_INDEXES} AS indexes").where("id IS NOT NULL")
        ids = [row.id for row in _distinct(with_id, "id")]
        self._values.look_again()
        found = {schema_id: self._registry.schema(schema_id) for schema_id in ids}
        schemas = {schema_id: schema for schema_id, schema in found.items() if schema is not None}
        heads = [(schema_id, b"") for schema_id, schema in schemas.items() if schema.kind != PROTOBUF]
        if messages := [schema_id for schema_id, schema in schemas.items() if schema.kind == PROTOBUF]:
            rows = _distinct(with_id.where(with_id.id.isin(messages)).dropna(), "id", "indexes")
            heads += [(row.id, bytes(row.indexes)) for row in rows]
        for schema_id, head in sorted(heads):
            with suppress(Misfit):  # each value of it has this reason, in its task
                self._values.part(schema_id, head)
        return schemas


def _distinct(frame: DataFrame, *columns: str) -> list[Any]:
    """Return the different rows. Raise TooManyIds: a value whose schema was not asked for would be no misfit."""
    found: list[Any] = frame.select(*columns).distinct().limit(MOST_IDS + 1).collect()
    if len(found) > MOST_IDS:
        raise TooManyIds(
            f"the values of a batch are of more than {MOST_IDS:,} schemas, so most are of none: leave such records out "
            "before they are decoded, or read smaller batches"
        )
    return found


class KnownSchemas:
    """The schemas that a task got with its query."""

    def __init__(self, schemas: Mapping[int, RegisteredSchema]) -> None:
        self._schemas = schemas

    def check(self) -> None:
        """Do nothing: the driver has asked."""

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return self._schemas.get(schema_id)

    def forget_unknown(self) -> None:
        """Do nothing: the driver asked for the ids of this batch."""


def decode_batches(
    schemas: Mapping[int, RegisteredSchema],
    type_: pa.StructType,
    columns: StructType,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of `Decoder.decode`. For mapInArrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    values = Values(KnownSchemas(schemas), grows=False)
    values.begin(type_)
    schema = to_arrow_schema(columns, timezone="UTC")
    for batch in batches:
        raw = batch.column("value").to_pylist()
        decoded, reasons = _decoded(values, raw, schema.field("value").type)
        kept = [value if reason else None for value, reason in zip(raw, reasons, strict=True)]
        own = {"value": decoded, RAW: pa.array(kept, pa.binary()), REASON: pa.array(reasons, pa.string())}
        arrays = [own[name] if name in own else batch.column(name) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decoded(
    values: Values, raw: list[bytes | None], type_: pa.DataType
) -> tuple[pa.Array, list[str | None]]:
    """Return the values, null for misfits, and the reasons of misfits."""
    decoded: list[Any] = []
    reasons: list[str | None] = []
    for value in raw:
        found, reason = None, None
        if value is not None:
            try:
                found = values.read(value)
            except Misfit as misfit:
                reason = str(misfit)
        decoded.append(found)
        reasons.append(reason)
    try:
        return pa.array(decoded, type_), reasons
    except UNFIT:
        for number, value in enumerate(decoded):
            try:
                pa.array([value], type_)
            except UNFIT as error:
                decoded[number], reasons[number] = None, f"its value fits into no column: {error}"
        return pa.array(decoded, type_), reasons
