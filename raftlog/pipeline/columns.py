"""The columns of a topic, as Spark and as Arrow see them: those of Spark's Kafka source."""

from __future__ import annotations

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


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Return the same columns for Arrow, exactly as Spark compares them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(include_headers=include_headers), timezone="UTC")
