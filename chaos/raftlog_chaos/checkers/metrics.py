"""Figures without a verdict: how far reads were behind, how often subscribers consumed a value, and counts of
operations."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from itertools import groupby

from raftlog_chaos.checkers.evidence import OK, Evidence, KeyLog
from raftlog_chaos.checkers.steps import Step
from raftlog_chaos.history import Op

NS_PER_S = 1e9


class Tally:
    """Counts lines of the first pass."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        """How many operations by function and outcome; "invoke" counts the invocations."""
        self.lines = 0
        self.subscribed = False
        """Whether a process commits offsets outside of transactions; transactional groups have stricter checks."""
        self._times = (0, 0)

    def take(self, op: Op) -> None:
        of_function = self.counts.setdefault(op.f, {})
        of_function[op.type] = of_function.get(op.type, 0) + 1
        self.subscribed = self.subscribed or (op.f == "subscribe" and not op.group)
        self._times = (self._times[0] if self.lines else op.time_ns, op.time_ns)
        self.lines += 1

    @property
    def duration_s(self) -> float:
        return (self._times[1] - self._times[0]) / NS_PER_S

    def completed(self) -> int:
        """Return the number of completed operations."""
        return sum(
            count for each in self.counts.values() for outcome, count in each.items() if outcome != "invoke"
        )


class Growth:
    """The times at which the end of a key's log was first known to have reached each offset."""

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.times = array("q")

    def note(self, offset: int, time_ns: int) -> None:
        if not self.offsets or offset > self.offsets[-1]:
            self.offsets.append(offset)
            self.times.append(time_ns)

    def since(self, offset: int) -> int | None:
        """Return when a record above an offset was first known to exist, in ns; None if there is none."""
        if not self.offsets or self.offsets[-1] <= offset:
            return None
        return self.times[bisect_right(self.offsets, offset)]


class Lag:
    """The age, at the beginning of a poll, of the first record that it should have found but did not.

    `worst_ns` is Jepsen's. `worst_following_ns` only counts consumers that have reached the end of that key since its
    assignment, so that reading from the beginning is no lag.
    """

    def __init__(self) -> None:
        self.worst_ns = 0
        self.worst_following_ns = 0
        self._growth: dict[str, Growth] = {}
        self._began_ns: dict[int, int] = {}
        self._held: dict[int, list[str]] = {}
        self._positions: dict[int, dict[str, int]] = {}
        self._following: dict[int, set[str]] = {}

    def take(self, op: Op) -> None:
        if op.type == "invoke":
            self._began_ns[op.process] = op.time_ns
            return
        began_ns = self._began_ns.pop(op.process, op.time_ns)
        if op.f == "crash":
            for each in (self._held, self._positions, self._following):
                each.pop(op.process, None)
        elif op.f in ("assign", "subscribe"):
            if op.type == "ok":
                self._assign(op)
        else:
            self._measure(op, began_ns)

    def _assign(self, op: Op) -> None:
        """It is unknown which of a subscriber's keys are its own: they count once it reads them."""
        keys = [] if op.seek_to_beginning else list(op.value or ())
        self._held[op.process] = list(op.value or ()) if op.f == "assign" else []
        positions, following = self._positions.get(op.process, {}), self._following.get(op.process, set())
        self._positions[op.process] = {key: positions[key] for key in keys if key in positions}
        self._following[op.process] = following.intersection(keys)

    def _measure(self, op: Op, began_ns: int) -> None:
        read: dict[str, int] = {}
        for micro in op.value or ():
            if micro[0] == "send":
                if isinstance(micro[2], list | tuple) and micro[2][0] is not None:
                    self._note(micro[1], micro[2][0], op.time_ns)
            elif len(micro) > 1 and micro[1]:
                for key, pairs in micro[1].items():
                    if pairs:
                        read[key] = pairs[-1][0]
                        self._note(key, pairs[-1][0], op.time_ns)
        if op.type == "ok" and op.f in ("poll", "txn"):
            positions = self._positions.setdefault(op.process, {})
            positions.update(read)
            for key in self._held.get(op.process) or read:
                self._measure_key(op.process, key, positions.get(key, -1), began_ns)

    def _note(self, key: str, offset: int, time_ns: int) -> None:
        growth = self._growth.get(key)
        if growth is None:
            growth = self._growth[key] = Growth()
        growth.note(offset, time_ns)

    def _measure_key(self, process: int, key: str, position: int, began_ns: int) -> None:
        growth = self._growth.get(key)
        since = growth.since(position) if growth else None
        following = self._following.setdefault(process, set())
        if since is None:
            following.add(key)
            return
        lag_ns = began_ns - since
        self.worst_ns = max(self.worst_ns, lag_ns)
        if key in following:
            self.worst_following_ns = max(self.worst_following_ns, lag_ns)


class Consumption:
    """Counts how often each process that subscribed read each value, in `ok` operations. A count of 1 is
    exactly once.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._bases: dict[KeyLog, int] = {}
        base = 0
        for log in evidence.keys.values():
            self._bases[log] = base
            base += len(log.writer)
        self._outcome = evidence.outcome
        self._reads: dict[int, array[int]] = {}
        self._total: Counter[int] = Counter()

    def take(self, step: Step) -> None:
        op = step.op
        if self._outcome[step.number] != OK or op.type == "invoke":
            return
        if op.f == "subscribe":
            self._reads.setdefault(op.process, array("q"))
        elif op.f == "assign" and op.process in self._reads:
            self._settle(op.process)
        elif step.reads and op.process in self._reads:
            mine = self._reads[op.process]
            for log, values in step.reads.items():
                base = self._bases[log]
                mine.extend([base + at for at in values])

    def _settle(self, process: int) -> None:
        """End a subscription; its reads so far count."""
        values = sorted(self._reads.pop(process))
        self._total.update(sum(1 for _ in same) for _, same in groupby(values))

    def counts(self) -> dict[int, int]:
        """Return how many values were consumed once, twice, …; the last thing to ask."""
        for process in list(self._reads):
            self._settle(process)
        return dict(sorted(self._total.items()))
