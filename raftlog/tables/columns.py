"""The columns of a topic's table, and the records of a topic as rows of these columns.

Keys and values are bytes as they are in the log. A timestamp that a record does not have, or that is after the year
9999, is null: readers of tables cannot represent it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from raftlog.client.fetching import APPEND_TIME
from raftlog.records.batch import Record

MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False)), nullable=False),
    ]
)
"""As Kafka and Spark's Kafka source name them; `timestamp_type` 0 is the producer's clock, 1 the broker's."""


class Rows:
    """Rows that wait for the next commit."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, pa.RecordBatch]] = []
        self.count = 0
        self.bytes = 0

    def add(self, partition: int, records: Iterable[tuple[int, Record]]) -> None:
        """Add the records of a partition, each with its timestamp type. Raise CorruptMessage."""
        batch = to_batch(partition, list(records))
        if batch.num_rows:
            self._batches.append((partition, batch))
            self.count += batch.num_rows
            self.bytes += batch.nbytes

    def take(self) -> pa.Table:
        """Return all rows, by partition and offset, and forget them."""
        batches, self._batches, self.count, self.bytes = self._batches, [], 0, 0
        batches.sort(key=lambda each: each[0])  # keeps the order within a partition
        return pa.Table.from_batches([batch for _, batch in batches], SCHEMA)


def to_batch(partition: int, records: list[tuple[int, Record]]) -> pa.RecordBatch:
    """Return records of a partition as rows."""
    found = [record for _, record in records]
    columns = (
        [partition] * len(found),
        [each.offset for each in found],
        [each.timestamp * 1000 if 0 <= each.timestamp <= MAX_TIMESTAMP_MS else None for each in found],
        [int(kind == APPEND_TIME) for kind, _ in records],
        [each.key for each in found],
        [each.value for each in found],
        [each.headers for each in found],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)
