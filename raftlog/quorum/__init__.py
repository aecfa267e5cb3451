"""The replicated metadata journal: PySyncObj's Raft core behind our own disk, wire, clock and guards.

It carries bytes and never looks into them. Broker-side rooms see `Quorum`, `Observer`, `ControllerClient` and nothing
of PySyncObj, which only `pysyncobj_adapter.py` imports.
"""
