"""Resources of the REST API v3 that Kafka users know: a file for each kind."""
