"""Cases of chaos: what is done to a cluster while clients use it, what came of it, and a page that shows it.

Runs on any asyncio loop, in any place: the simulator runs the same case file in virtual time as processes do in real.
"""
