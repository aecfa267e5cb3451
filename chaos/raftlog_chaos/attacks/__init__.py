"""Attacks: short scripts that do to a cluster what a hostile client could, and a judge who looks at what became of it.

A script opens sockets to a cluster that the run itself started on loopback, and nothing else. It knows no node from the
inside. It is bounded in bytes, connections and seconds, and runs in a process of its own, whose memory is limited.
"""
