"""Operations that must precede themselves: G0 and G1c, alone, with process order and with real-time order.

T1 → T2 by ww: T1 wrote the value right before a value of T2; by wr: T2 read a value of T1. Only committed operations
count. Real-time order has too many edges to store, and need not be stored. If a cycle has real-time edges, then a cycle
with a single real-time edge exists. So each operation needs only the latest beginning among all its dependencies. If
none of these lies behind the operation's end, and there is no other cycle, process order cannot close a cycle either.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from raftlog_chaos.checkers.evidence import NOBODY, NOWHERE, OK, Evidence
from raftlog_chaos.checkers.findings import Findings
from raftlog_chaos.checkers.graph import Components, Edges, Graph, components, shortest_circle
from raftlog_chaos.checkers.steps import Step, steps
from raftlog_chaos.history import Op

WW: Final = 0
WR: Final = 1
PROCESS: Final = 2
REALTIME: Final = 3
KINDS: Final = ("ww", "wr", "process", "realtime")
SWEEPS = 20
"""The maximum number of rounds that propagate times in a cycle."""


class Dependencies:
    """The edges, collected completion by completion.

    Of an operation's reads of a key the last value is enough: earlier writers lead there by ww. Only cycles of reads
    alone need `every_read`.
    """

    def __init__(self, evidence: Evidence, *, every_read: bool = False) -> None:
        self._evidence = evidence
        self._every_read = every_read
        self.wr = Edges(WR, array("i"), array("i"))

    def take(self, step: Step) -> None:
        """Record the writers of the values that were read."""
        committed = self._evidence.committed
        if not step.reads or not committed[step.number]:
            return
        for log, values in step.reads.items():
            for at in values if self._every_read else (max(values, key=log.index.__getitem__),):
                writer = log.writer[at]
                if writer not in (NOBODY, step.number) and committed[writer]:
                    self.wr.sources.append(writer)
                    self.wr.targets.append(step.number)

    def ww(self) -> Edges:
        """Return the edges between writers of neighbours in a version order; uncommitted writers are skipped."""
        edges = Edges(WW, array("i"), array("i"))
        committed = self._evidence.committed
        for log in self._evidence.keys.values():
            before = NOBODY
            for at in log.order:
                writer = log.writer[at]
                if writer in (NOBODY, before) or not committed[writer]:
                    continue
                if before >= 0:
                    edges.sources.append(before)
                    edges.targets.append(writer)
                before = writer
        return edges

    def process(self) -> Edges:
        """Return the edges between neighbours of one process."""
        edges = Edges(PROCESS, array("i"), array("i"))
        last: dict[int, int] = {}
        for number, process in enumerate(self._evidence.process):
            if self._evidence.committed[number]:
                if process in last:
                    edges.sources.append(last[process])
                    edges.targets.append(number)
                last[process] = number
        return edges


def check_cycles(
    history: Iterable[Op], evidence: Evidence, dependencies: Dependencies, findings: Findings
) -> None:
    """Look for all kinds of cycles; skip the expensive search if the cheap search finds none."""
    nodes = len(evidence.invoked)
    ww, wr = dependencies.ww(), dependencies.wr
    graph = Graph(nodes, (ww, wr))
    parts = components(graph)
    late = _Lateness(evidence, graph, parts)
    if not parts.circles and not late.found:
        return
    if parts.circles:
        every = Dependencies(evidence, every_read=True)
        for step in steps(history, evidence):
            every.take(step)
        _judge_circles(evidence, findings, Graph(nodes, (every.wr,)), _Class("G1c-pure", WR))
    graph_of_writes = Graph(nodes, (ww,))
    _judge_circles(evidence, findings, graph_of_writes, _Class("G0", WW))
    _judge_circles(evidence, findings, graph, _Class("G1c", WR))
    process = dependencies.process()
    _judge_circles(evidence, findings, Graph(nodes, (ww, process)), _Class("G0-process", PROCESS))
    _judge_circles(evidence, findings, Graph(nodes, (ww, wr, process)), _Class("G1c-process", WR, PROCESS))
    late_writes = _Lateness(evidence, graph_of_writes, components(graph_of_writes))
    for number in late_writes.found:
        _report(evidence, findings, "G0-realtime", late_writes.circle(number))
    for number in late.found:
        if number not in late_writes.found:
            _report(evidence, findings, "G1c-realtime", late.circle(number))


class _Class(NamedTuple):
    """A kind of cycle, by the kinds of edges it must have."""

    name: str
    through: int
    containing: int | None = None


def _judge_circles(evidence: Evidence, findings: Findings, graph: Graph, kind: _Class) -> None:
    for members in components(graph).circles:
        circle = shortest_circle(graph, members, through=kind.through, containing=kind.containing)
        if circle:
            _report(evidence, findings, kind.name, circle)


def _report(evidence: Evidence, findings: Findings, name: str, circle: list[tuple[int, int]]) -> None:
    text = "".join(f"#{evidence.index[number]} -{KINDS[kind]}→ " for number, kind in circle)
    findings.add(
        name,
        "",
        f"{text}#{evidence.index[circle[0][0]]}",
        positions=[line for number, _ in circle for line in _lines(evidence, number, name)],
    )


def _lines(evidence: Evidence, number: int, name: str) -> Iterator[int]:
    """In real time the beginnings matter, too."""
    if name.endswith("-realtime"):
        return evidence.lines_of(number)
    return iter((evidence.line_of(number),))


class _Lateness:
    """For each operation the latest beginning among its dependencies; `found`: where that lies behind its end.

    Of operations that depend on each other only the first are found.
    """

    def __init__(self, evidence: Evidence, graph: Graph, parts: Components) -> None:
        self._graph = graph
        self._begin = array("i", map(_beginning, evidence.invoked, evidence.completed))
        self._latest = self._begin[:]
        self._via = array("i", [NOBODY]) * graph.nodes
        circles = {circle[-1]: circle for circle in parts.circles}  # by what comes first in reverse
        for number in reversed(parts.popped):
            if number in circles:
                self._pass_round(circles[number])
            self._pass_on(number)
        self.found = frozenset(self._find(evidence))

    def _pass_on(self, number: int) -> bool:
        graph, latest = self._graph, self._latest
        mine, changed = latest[number], False
        for target in graph.targets[graph.start[number] : graph.start[number + 1]]:
            if latest[target] < mine:
                latest[target] = mine
                self._via[target] = number
                changed = True
        return changed

    def _pass_round(self, circle: list[int]) -> None:
        for _ in range(SWEEPS):
            changed = [self._pass_on(number) for number in reversed(circle)]
            if not any(changed):
                return

    def _find(self, evidence: Evidence) -> Iterator[int]:
        latest, ends, outcome = self._latest, evidence.completed, evidence.outcome
        late = {each for each in range(len(ends)) if latest[each] > ends[each] and outcome[each] == OK}
        return (each for each in late if self._via[each] not in late)

    def circle(self, number: int) -> list[tuple[int, int]]:
        """Return the cycle that a real-time edge from this operation closes, beginning with that edge."""
        way = [(number, REALTIME)]
        while self._begin[number] != self._latest[number]:
            before = self._via[number]
            kind = next(kind for target, kind in self._graph.edges_of(before) if target == number)
            way.insert(1, (before, kind))
            number = before
        return way


def _beginning(invoked: int, completed: int) -> int:
    """An operation without an invocation may have begun at any time."""
    return NOWHERE if invoked == completed else invoked
