"""Spark's progress of a running query, batch by batch, summed up: it remembers the last hundred batches only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OBSERVED = "read"


@dataclass(slots=True)
class Tally:
    """Sums over the batches of a run. `dropped` are Spark's too late rows, after it grouped each batch.

    `watermark` is the event time, as ISO 8601 in UTC, below which windows are final ("": there is none yet).
    """

    rows: int = 0
    malformed: int = 0
    dropped: int = 0
    watermark: str = ""
    _seen: int = -1

    def update(self, query: StreamingQuery) -> None:
        """Take in the batches that ended since the last call."""
        for progress in query.recentProgress:
            if progress.batchId > self._seen and _is_batch(progress):
                self._seen = progress.batchId
                self._add(progress)

    def _add(self, progress: Any) -> None:
        observed = progress.observedMetrics.get(OBSERVED)
        if observed is not None:
            self.rows += observed["rows"] or 0
            self.malformed += observed["malformed"] or 0
        self.dropped += sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
        self.watermark = progress.eventTime.get("watermark", self.watermark)


def _is_batch(progress: Any) -> bool:
    """Return whether a batch was run: an idle query reports its next batch's number as well."""
    return "addBatch" in progress.durationMs
