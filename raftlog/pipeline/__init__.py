"""`format("raftlog")`: topics as Spark tables and streams, read and written without a jar, on a stock client library.

The room uses clusters only by the wire protocol. Driver and executors may be on different machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("raftlog")` known to a session that did not find it by itself, as when raftlog is not installed."""
    from raftlog.pipeline.source import RaftlogDataSource

    spark.dataSource.register(RaftlogDataSource)
