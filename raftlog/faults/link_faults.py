"""The fault that any node of `raftlog dev` can do to itself: to cut its links with other nodes, for some seconds.

It harms no data, and ends by itself: no page has to stay open for that. Other faults need `--enable-faults`, see
`raftlog.faults.node_faults`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from threading import RLock, Timer

import msgspec

from raftlog.base.faults import CUT_OFF, CutOff, NodeFault, name_of
from raftlog.base.log import get_logger
from raftlog.faults.node_links import NodeLinks

log = get_logger("faults")
ALL = "all"


class LinkFaults:
    """The cut of one node's links. Any thread may call it."""

    available: Sequence[str] = (CUT_OFF,)
    enabled = False

    def __init__(self) -> None:
        self.links = NodeLinks()
        self._active: dict[str, NodeFault] = {}
        self._lock = RLock()
        self._end: Timer | None = None
        """Ends the cut."""
        self._ends_at = 0.0

    def active(self) -> list[NodeFault]:
        """Return the faults in force; of a cut that ends by itself with the seconds that are left."""
        with self._lock:
            left_s = max(1, math.ceil(self._ends_at - time.monotonic()))
            return [
                msgspec.structs.replace(each, seconds=left_s)
                if isinstance(each, CutOff) and each.seconds
                else each
                for each in self._active.values()
            ]

    def inject(self, fault: NodeFault) -> None:
        """Begin a fault that is `available`; replace a fault of the same name."""
        name = name_of(fault)
        assert name in self.available
        with self._lock:
            self._active = {**self._active, name: fault}
            self._act()
            if isinstance(fault, CutOff):
                self._end_later(fault)
        log.warning("fault_injected", fault=name, **msgspec.structs.asdict(fault))

    def heal(self, name: str = ALL) -> None:
        """End a fault, or all; ignore an unknown name."""
        with self._lock:
            healed = [each for each in self._active if name in (each, ALL)]
            self._active = {each: fault for each, fault in self._active.items() if each not in healed}
            if CUT_OFF in healed:
                self._forget_end()
            self._act()
        for each in healed:
            log.warning("fault_healed", fault=each)

    def _end_later(self, cut: CutOff) -> None:
        """Let a cut end after its seconds, in place of the end of a cut that it replaces."""
        self._forget_end()
        if cut.seconds:
            self._ends_at = time.monotonic() + cut.seconds
            self._end = Timer(cut.seconds, self._heal_cut, [cut])
            self._end.daemon = True
            self._end.start()

    def _forget_end(self) -> None:
        if self._end is not None:
            self._end.cancel()  # or its thread lives as long as the cut would have
            self._end = None

    def _heal_cut(self, cut: CutOff) -> None:
        with self._lock:
            if self._active.get(CUT_OFF) is cut:
                self.heal(CUT_OFF)

    def _act(self) -> None:
        self.links.cut(CUT_OFF in self._active)
