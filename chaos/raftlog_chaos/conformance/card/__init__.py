"""The conformance card: any broker's answers beside Apache Kafka 4.3's recorded answers."""
