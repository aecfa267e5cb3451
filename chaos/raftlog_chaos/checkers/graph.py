"""A directed graph of numbered nodes and edges of several kinds, in flat arrays, and the search for cycles in it."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

START_EDGES = 32
SEARCHED_STATES = 50_000
"""A search for a short cycle gives up after so many edges to start from, and each after so many states."""


class Edges(NamedTuple):
    """All edges of one kind."""

    kind: int
    sources: array[int]
    targets: array[int]


class Graph:
    """Node n's edges are `targets[start[n] : start[n + 1]]`, of the `kinds` at the same places."""

    def __init__(self, nodes: int, edges: Iterable[Edges]) -> None:
        edges = tuple(edges)
        self.nodes = nodes
        start = self.start = array("i", [0]) * (nodes + 2)
        for each in edges:
            for source in each.sources:
                start[source + 2] += 1
        for node in range(2, nodes + 2):
            start[node] += start[node - 1]
        self.targets = array("i", [0]) * start[-1]
        self.kinds = bytearray(start[-1])
        for kind, sources, targets in edges:
            for source, target in zip(sources, targets, strict=True):
                position = start[source + 1]
                start[source + 1] = position + 1
                self.targets[position] = target
                self.kinds[position] = kind
        start.pop()

    def edges_of(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield target and kind."""
        begin, end = self.start[node], self.start[node + 1]
        return zip(self.targets[begin:end], self.kinds[begin:end], strict=True)


class Components(NamedTuple):
    """The strongly connected components. `popped` holds all nodes, component after component, sinks first."""

    popped: array[int]
    circles: list[list[int]]
    """The components of more than one node."""


def components(graph: Graph) -> Components:
    """Find them by Tarjan's algorithm, without recursion, in O(nodes + edges)."""
    start, targets = graph.start, graph.targets
    done = graph.nodes + 1
    low = array("i", [0]) * graph.nodes  # 0: not visited; `done`: its component is known
    found = Components(array("i"), [])
    clock = 0
    waiting: list[int] = []
    for root in range(graph.nodes):
        if low[root]:
            continue
        clock += 1
        low[root] = clock
        waiting.append(root)
        path = [(root, clock, start[root])]
        while path:
            node, entered, edge = path.pop()
            end, reached = start[node + 1], low[node]
            while edge < end:
                target = targets[edge]
                if not low[target]:
                    low[node] = reached
                    path.append((node, entered, edge))  # this edge is looked at again, then it is known
                    clock += 1
                    low[target] = clock
                    waiting.append(target)
                    path.append((target, clock, start[target]))
                    break
                reached = min(reached, low[target])
                edge += 1
            else:
                low[node] = reached
                if reached == entered:
                    _close(found, waiting, node=node, low=low, done=done)
    return found


def _close(found: Components, waiting: list[int], *, node: int, low: array[int], done: int) -> None:
    """Take a component off the stack; its root is `node`."""
    size = len(found.popped)
    while True:
        member = waiting.pop()
        low[member] = done
        found.popped.append(member)
        if member == node:
            break
    if len(found.popped) - size > 1:
        found.circles.append(found.popped[size:].tolist())


def shortest_circle(
    graph: Graph, members: Collection[int], *, through: int, containing: int | None = None
) -> list[tuple[int, int]]:
    """Return a short cycle within a component as (node, kind of the edge to the next), or [] if there is none.

    It has an edge of the kind `through` and, if requested, another of the kind `containing`.
    """
    inside = frozenset(members)
    best: list[tuple[int, int]] = []
    tried = 0
    for node in members:
        for target, kind in graph.edges_of(node):
            if kind != through or target not in inside:
                continue
            tried += 1
            if tried > START_EDGES and best:
                return best
            way = _way(graph, inside, target, node, containing)
            if way and (not best or len(way) < len(best)):
                best = [(node, kind), *way[:-1]]
    return best


def _way(
    graph: Graph, inside: frozenset[int], source: int, target: int, containing: int | None
) -> list[tuple[int, int]]:
    """Return the shortest way from source to target, both included (the last with kind -1); [] if there is none."""
    first = (source, containing is None)
    came: dict[tuple[int, bool], tuple[tuple[int, bool], int] | None] = {first: None}
    waiting = deque([first])
    while waiting and len(came) < SEARCHED_STATES:
        state = waiting.popleft()
        if state == (target, True):
            return _walk_back(came, state)
        for node, kind in graph.edges_of(state[0]):
            following = (node, state[1] or kind == containing)
            if node in inside and following not in came:
                came[following] = (state, kind)
                waiting.append(following)
    return []


def _walk_back(
    came: dict[tuple[int, bool], tuple[tuple[int, bool], int] | None], state: tuple[int, bool]
) -> list[tuple[int, int]]:
    way = [(state[0], -1)]
    step = came[state]
    while step is not None:
        (node, _), kind = step
        way.append((node, kind))
        step = came[step[0]]
    return way[::-1]
