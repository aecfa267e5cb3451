"""The group and transaction coordinators of this broker: a shard for each coordinator partition that it leads.

The state machines themselves are in `raftlog.coordinator`; here they meet logs, replication and other brokers.
"""
