"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and every member reconciles on its own.

`consumer_membership` is the recorded state, `heartbeat` decides on it, `reconcile` moves one member towards its target,
`consumer_group` holds the timers. Members of the classic protocol may be among them (`classic_members`), and whole
groups migrate from one type to the other (`migration`).
"""
