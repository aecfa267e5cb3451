"""`python -m tests.pipeline.bench [rows]`: rows/s, beside Spark's own generators in the same run."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from raftlog.testing.cluster import Cluster
from tests.pipeline.topics import Topics

PARTITIONS = 2
ROWS = 5_000_000
ROWS_PER_TRIGGER = 500_000
ROW = (
    "cast(cast(id as string) as binary) as key",
    "cast(lpad(cast(id as string), 100, 'x') as binary) as value",
)
"""A value of 100 bytes, a short key."""


def main() -> None:
    """Measure and print one line per way."""
    from pyspark.sql import SparkSession

    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with Cluster(3) as cluster, tempfile.TemporaryDirectory() as folder:
        topics = Topics(cluster.bootstrap_servers)
        topics.make("bench", PARTITIONS)
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        generated = spark.range(rows).selectExpr(*ROW)

        def stream() -> None:
            limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_TRIGGER)}
            reader = spark.readStream.format("raftlog").options(subscribe="bench", **limits, **servers).load()
            reader.writeStream.format("noop").option("checkpointLocation", f"{folder}/a").trigger(
                availableNow=True
            ).start().awaitTermination()

        def rate() -> None:
            options = {"rowsPerBatch": str(ROWS_PER_TRIGGER), "numPartitions": "2"}
            query = (
                spark.readStream.format("rate-micro-batch")
                .options(**options)
                .load()
                .writeStream.format("noop")
            )
            running = query.option("checkpointLocation", f"{folder}/b").start()
            while sum(each.numInputRows for each in running.recentProgress) < rows:
                running.awaitTermination(0.05)
            running.stop()

        read = spark.read.format("raftlog").options(subscribe="bench", **servers).load
        warm = spark.range(100_000).selectExpr(*ROW)
        warm.write.format("noop").mode("append").save()
        topics.make("warm")
        warm.write.format("raftlog").options(topic="warm", **servers).mode("append").save()
        base = timed("range → noop", rows, lambda: generated.write.format("noop").mode("append").save())
        write = generated.write.format("raftlog").options(topic="bench", **servers).mode("append")
        timed("range → raftlog", rows, write.save, base)
        timed("raftlog → noop", rows, lambda: read().write.format("noop").mode("append").save(), base)
        timed("raftlog → count", rows, lambda: read().groupBy("partition").count().collect(), base)
        slow = timed("rate-micro-batch → noop", rows, rate)
        timed("raftlog stream → noop", rows, stream, slow)
    spark.stop()


def timed(name: str, rows: int, act: Callable[[], object], base: float | None = None) -> float:
    """Print and return rows/s, and what share of `base` that is."""
    began = time.perf_counter()
    act()
    rate = rows / (time.perf_counter() - began)
    print(f"{name:28} {rate:12,.0f} rows/s" + (f"   {rate / base:.2f} of it" if base else ""), flush=True)
    return rate


if __name__ == "__main__":
    main()
