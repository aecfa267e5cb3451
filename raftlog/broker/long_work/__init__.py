"""Work that takes longer than one turn of the event loop: its slices, its memory, and the time of each turn.

Handlers do not count turns: they return generators of parts, or pass parts to `each_part` (`turns`). `object_memory`
limits the memory of large requests that are decoded at the same time. `arrivals` limits the requests of one turn.
`long_turns` reports requests that hold a turn for too long.
"""
