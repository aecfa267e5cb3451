"""Group coordination: classic groups and committed offsets as state machines over a journal that is given.

Now: groups of one member. A second one is refused with GROUP_MAX_SIZE_REACHED, and with that everything a rebalance
has to wait for; `membership` is where waiting joins and syncs of several members will come in.
"""
