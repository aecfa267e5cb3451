"""What the simulator tells anew with every seed: a cluster, its clients, its faults, and what must hold afterwards.

A story is `async def story(loop, seconds)`; it raises AssertionError when a promise was broken, and returns a report.
"""
