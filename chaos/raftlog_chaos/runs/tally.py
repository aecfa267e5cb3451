"""Counts a history while it is recorded: what was acknowledged and read, when, and how long each write took."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from raftlog_chaos.history import Op

NS: Final = 1e-9


class Tally:
    """Hand every operation to `keep`. Times are the history's, seconds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Completed operations by function and outcome, "send ok"."""
        self.acked = 0
        self.read = 0
        self.acked_at: array[float] = array("d")
        self.took_s: array[float] = array("d")
        self.read_at: array[float] = array("d")
        self.read_count: array[int] = array("L")
        self.registered_at: array[float] = array("d")
        """When the id of a schema was acknowledged for the first time."""
        self._ids: set[int] = set()
        self._invoked: dict[int, float] = {}

    def keep(self, op: Op) -> None:
        at_s = op.time_ns * NS
        if op.type == "invoke":
            self._invoked[op.process] = at_s
            return
        self.counts[f"{op.f} {op.type}"] += 1
        began_s = self._invoked.pop(op.process, at_s)
        if op.type == "ok" and op.value and op.f in ("send", "poll", "txn"):
            self._count(op.value, at_s, began_s)
        if op.type == "ok" and op.f == "register":
            ids = {micro[3][0] for micro in op.value or () if len(micro) > 3} - self._ids
            self._ids |= ids
            self.registered_at.extend([at_s] * len(ids))

    def _count(self, value: Sequence[Any], at_s: float, began_s: float) -> None:
        read = 0
        for micro in value:
            if micro[0] == "send":
                self.acked += 1
                self.acked_at.append(at_s)
                self.took_s.append(at_s - began_s)
            elif len(micro) > 1:
                read += sum(map(len, micro[1].values()))
        if read:
            self.read += read
            self.read_at.append(at_s)
            self.read_count.append(read)
