"""The fuzzer: frames made from Kafka's own message schemas, right ones and nearly right ones, and sequences of them.

Everything is drawn from a seed. A run prints the bytes of each finding and keeps them as a file that tests send again.
"""
