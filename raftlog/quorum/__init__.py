"""The replicated metadata journal: PySyncObj's Raft core behind our own disk, wire, clock and guards.

It carries opaque bytes. Other rooms see only `Quorum`, `Observer` and `ControllerClient`; only `pysyncobj_adapter.py`
imports PySyncObj.
"""
