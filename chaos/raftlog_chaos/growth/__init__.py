"""Counts how work grows with what exists: curves of steps and bytes, and the laws that they must follow.

A step is a line of raftlog's own Python that runs, so loops and comprehensions count with each turn. The same program
counts the same number on every machine, unlike seconds.
"""
