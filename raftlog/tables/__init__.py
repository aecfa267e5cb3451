"""Topics as tables: a writer that appends a topic's records to a Delta or Iceberg table, each record exactly once.

The next offsets are part of the table's own commits, so table and offsets cannot disagree. `progress` decides what an
attempted commit means, `writer` carries the decisions out, `delta` and `iceberg` are the formats, and `job` reads the
topics. `values` makes columns of values by the schemas of a registry. The room knows a cluster only by the wire
protocol, so it works with any Kafka.
"""
