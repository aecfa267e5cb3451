"""The columns of a topic, for Spark and Arrow, the same as in Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def spark_schema(*, include_headers: bool) -> StructType:
    """Return the columns of a read, with `headers` last if they are asked for."""
    return StructType([*COLUMNS.fields, *([StructField("headers", HEADERS)] if include_headers else [])])


def are_columns(given: StructType, *, include_headers: bool) -> bool:
    """Return whether a schema is made of columns of a read: in any order, and some may be left out."""
    types = {field.name: field.dataType for field in spark_schema(include_headers=include_headers).fields}
    names = given.fieldNames()
    fits = all(types.get(field.name) == field.dataType for field in given.fields)
    return fits and 0 < len(names) == len(set(names))


def arrow_schema(*, include_headers: bool, names: Sequence[str] = ()) -> pa.Schema:
    """Return the same columns for Arrow, exactly as Spark compares them; with `names`, these in this order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    whole = spark_schema(include_headers=include_headers)
    chosen = StructType([whole[name] for name in names]) if names else whole
    return to_arrow_schema(chosen, timezone="UTC")
