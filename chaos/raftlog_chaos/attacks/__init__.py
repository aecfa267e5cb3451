"""Attacks: short scripts that imitate a hostile client, and a judge that checks the cluster afterwards.

A script opens sockets to a cluster that the run itself started on loopback, and nowhere else. It has no view inside a
node. It is bounded in bytes, connections and seconds, and runs in a process of its own with limited memory.
"""
