"""The conformance card: any broker's answers beside those that Apache Kafka 4.3 gave when they were recorded."""
