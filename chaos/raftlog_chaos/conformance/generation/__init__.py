"""Histories that are drawn by chance: from a seed and a number comes a plan, whose steps are played in a session.

`plan` draws, `play` and the modules of words carry out, and `hunt` runs many on Apache Kafka and on raftlog.
"""
