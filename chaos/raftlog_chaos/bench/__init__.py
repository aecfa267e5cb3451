"""Measurements of a real cluster: throughput, latency, cost, gaps at failover, and many groups."""
