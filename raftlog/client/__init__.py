"""A Kafka client for the command line: blocking, on one thread, without another client library.

It asks, produces, consumes and joins groups. It must not know commands, and no role of a node.
"""
