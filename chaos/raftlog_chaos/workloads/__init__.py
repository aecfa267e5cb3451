"""Clients of the simulated world: they speak the Kafka protocol as bytes and write down what they saw."""
