"""Kafka frames and messages ⇄ objects, every version, on kio schemas. Must not know what a request is for."""
