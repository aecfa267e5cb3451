"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and every member reconciles on its own.

`state` is what records say, `heartbeat` decides on it, `reconcile` moves one member towards its target, `group` holds
the clocks. Members of the classic protocol may be among them (`classic_members`), and whole groups turn from one type
into the other (`migration`).
"""
