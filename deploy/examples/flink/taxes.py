"""Adds a tax to orders, exactly once, with PyFlink. Run it: python taxes.py flink-sql-connector-kafka-….jar"""

import os
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092,localhost:9093,localhost:9094")
CHECKPOINTS = Path(os.environ.get("CHECKPOINTS", "checkpoints")).resolve()
KAFKA = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{SERVERS}', 'format' = 'json'"
SETTINGS = {
    "execution.checkpointing.interval": "1 s",  # a transaction is committed with each checkpoint
    "execution.checkpointing.dir": CHECKPOINTS.as_uri(),
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "restart-strategy.type": "exponential-delay",
}


def newest_checkpoint() -> str:
    """Return the newest complete checkpoint; "" for a first start."""
    found = sorted(CHECKPOINTS.glob("*/chk-*/_metadata"), key=lambda each: each.stat().st_mtime)
    return found[-1].parent.as_uri() if found else ""


def main(jar: str) -> None:
    """Run the job until it is stopped. It goes on where the newest checkpoint ends."""
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {**SETTINGS, "pipeline.jars": Path(jar).resolve().as_uri()}
    if restored := newest_checkpoint():
        settings["execution.state-recovery.path"] = restored
    for name, value in settings.items():
        table.get_config().set(name, value)
    table.execute_sql(
        f"""CREATE TABLE orders (id BIGINT, cents BIGINT) WITH ({KAFKA}, 'topic' = 'orders',
        'properties.group.id' = 'taxes', 'properties.isolation.level' = 'read_committed',
        'scan.startup.mode' = 'earliest-offset')"""
    )
    table.execute_sql(
        f"""CREATE TABLE taxed (id BIGINT, cents DOUBLE) WITH ({KAFKA}, 'topic' = 'taxed',
        'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'taxes',
        'sink.transaction-naming-strategy' = 'POOLING', 'properties.transaction.timeout.ms' = '600000')"""
    )
    table.execute_sql("INSERT INTO taxed SELECT id, cents * 1.19 FROM orders").wait()


if __name__ == "__main__":
    main(sys.argv[1])
