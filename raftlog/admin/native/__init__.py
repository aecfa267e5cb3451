"""raftlog's own resources: what Kafka's REST APIs have no name for."""
