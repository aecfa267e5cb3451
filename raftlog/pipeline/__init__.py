"""raftlog and PySpark: a source and sink for Spark, and the jobs that people run between a log and their tables."""
