"""Randomly drawn histories: a seed and a number make a plan; its steps are run in a session.

`plan` draws, `play` and the modules of words carry out, and `hunt` runs many on Apache Kafka and on raftlog.
"""
