"""The same questions to Apache Kafka and to raftlog: histories, the answers of both, and what differs."""
