"""Read tables of `raftlog table run`: orders in Delta's format, and payments in Iceberg's."""

from pathlib import Path

from pyspark.sql import SparkSession

settings = {
    "spark.jars": ",".join(map(str, Path("jars").glob("*.jar"))),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.raftlog": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.raftlog.type": "jdbc",
    "spark.sql.catalog.raftlog.uri": "jdbc:sqlite:lake/catalog.db",
    "spark.sql.catalog.raftlog.warehouse": "lake",
}
spark = SparkSession.builder.config(map=settings).getOrCreate()
orders = spark.read.format("delta").load("lake/orders")
payments = spark.table("raftlog.raftlog.payments")
print(orders.count(), payments.count())
