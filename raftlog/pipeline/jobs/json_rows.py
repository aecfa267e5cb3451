"""JSON values into columns; the reason for a value that does not fit names the field and its type."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from raftlog.pipeline.jobs.control import JobError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MALFORMED: Final = "_malformed"
"""The column in which Spark puts the text of a value that did not fit."""


def parse_rows(records: DataFrame, schema: str, event_time: str) -> DataFrame:
    """Return records with `_row`, `_event_time` and `reason`. Raises JobError for a wrong schema or expression."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    try:
        fields = StructType.fromDDL(schema)
    except PySparkException as error:
        raise JobError(f"schema: {schema!r} is not a list of columns: {str(error).splitlines()[0]}") from None
    if reserved := [each.name for each in fields if each.name.startswith("_")]:
        raise JobError(f"schema: names that begin with an underscore are reserved: {', '.join(reserved)}")
    with_malformed = StructType([*fields.fields]).add(MALFORMED, StringType())
    text = f.col("value").cast("string")
    parsed = f.from_json(text, with_malformed, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED})
    rows = records.withColumn("_row", parsed)
    try:
        timed = _with_time(rows, event_time)
        return timed.withColumn("reason", _reason(text, fields, event_time)).withColumn(
            "_row", f.struct(*(f.col("_row").getField(each.name).alias(each.name) for each in fields))
        )
    except PySparkException as error:
        raise JobError(f"event_time: {event_time!r}: {str(error).splitlines()[0]}") from None


def _with_time(rows: DataFrame, event_time: str) -> DataFrame:
    """Add `event_time`, an expression of the row's own columns."""
    from pyspark.sql import functions as f

    # the expression sees only the row's columns; the record waits in one column meanwhile
    record = rows.select(
        f.struct(*(name for name in rows.columns if name != "_row")).alias("_record"), "_row"
    )
    timed = record.select("_record", "_row", "_row.*").withColumn(
        "_time", f.expr(event_time).cast("timestamp")
    )
    return timed.select("_record.*", "_row", f.col("_time").alias("_event_time"))


def _reason(text: Column, fields: StructType, event_time: str) -> Column:
    """Return why a record is malformed, or null."""
    from pyspark.sql import functions as f

    unfit = f.concat_ws(
        ", ",
        *(
            f.when(
                f.get_json_object(text, f"$['{each.name}']").isNotNull()
                & f.col("_row").getField(each.name).isNull(),
                f.lit(f"{each.name} is not {each.dataType.simpleString()}"),
            )
            for each in fields
        ),
    )
    no_json = f.trim(text).startswith("{") & f.get_json_object(text, "$").isNotNull()
    cases = [
        (f.col("value").isNull(), f.lit("no value")),
        (~f.coalesce(no_json, f.lit(False)), f.lit("not a JSON object")),
        (unfit != "", unfit),
        (f.col("_row").getField(MALFORMED).isNotNull(), f.lit("does not fit the schema")),
        (f.col("_event_time").isNull(), f.lit(f"no event time ({event_time})")),
    ]
    fits = f.lit(None).cast("string")
    return reduce(lambda rest, case: f.when(case[0], case[1]).otherwise(rest), reversed(cases), fits)
