"""What shows that raftlog keeps its promises: a simulated world to run it in, and what to judge a run by.

May use every room; no room uses it.
"""
