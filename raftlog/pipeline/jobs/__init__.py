"""The jobs of `raftlog pipeline`: each a function of a Spark session and its options, over the wire only."""
