"""Clients of the simulated world: they speak the Kafka protocol as bytes and record what they saw."""
