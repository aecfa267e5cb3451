"""The fuzzer: valid and nearly valid frames made from Kafka's own message schemas, and sequences of them.

Everything is drawn from a seed. A run prints the bytes of each finding and keeps them as a file for regression tests.
"""
