"""raftlog: a Kafka-wire-compatible, replicated log cluster in Python. Start with ARCHITECTURE.md beside this file."""

__version__ = "0.3.0"
