"""Found by Spark without registration: it looks through top-level modules named `pyspark_*` for a DefaultSource."""

from raftlog.pipeline.source import RaftlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
