"""Connections from this broker to others: authenticated by the cluster secret, one Kafka request and response each."""
