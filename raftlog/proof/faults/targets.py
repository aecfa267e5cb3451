"""Whom a fault hits, and the shape that most faults have: something done to one node, and undone.

Nodes are drawn in the order of their ids, so that the same chance hits the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import ClassVar

from raftlog.proof.place import Ability, Place, View


def awake(view: View) -> list[int]:
    """Return the nodes that run and are not paused."""
    return sorted(view.running - view.paused)


def one_of(nodes: Iterable[int], chance: random.Random) -> int | None:
    """Draw a node; None if there is none."""
    ordered = sorted(nodes)
    return chance.choice(ordered) if ordered else None


def a_leader(view: View, chance: random.Random) -> int | None:
    """Draw the leader of some partition, of those that are awake."""
    return one_of({each.leader for each in view.partitions.values() if each.leader in awake(view)}, chance)


def the_controller(view: View, _chance: random.Random) -> int | None:
    """Return the active controller, if it is awake."""
    return view.controller if view.controller in awake(view) else None


def a_follower(view: View, chance: random.Random) -> int | None:
    """Draw a node that leads as few partitions as any."""
    led = {node: sum(each.leader == node for each in view.partitions.values()) for node in awake(view)}
    return one_of((node for node, count in led.items() if count == min(led.values())), chance)


class OneNode:
    """Something that is done to one node, and undone."""

    needs: ClassVar[frozenset[Ability]]
    destructive: ClassVar[bool] = False

    def __init__(self) -> None:
        self.node: int | None = None
        self.only: int | None = None
        """The one node that may be hit, if the others must not be."""

    def choose(self, view: View, chance: random.Random) -> int | None:
        """Draw whom to hit; None: nobody."""
        return one_of(awake(view), chance)

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        """Do it; False: there was nothing to be done."""
        raise NotImplementedError

    async def undo(self, place: Place, node: int) -> None:
        """Undo it."""
        raise NotImplementedError

    async def inject(self, place: Place, chance: random.Random) -> str:
        view = await place.view()
        node = self.choose(view, chance)
        if node is None or self.only not in (None, node):
            return ""
        if self.destructive and not view.is_whole_without(node):
            return ""
        self.node = node
        if not await self.strike(place, node, chance):
            self.node = None
            return ""
        return f"node {node}"

    async def heal(self, place: Place) -> None:
        node, self.node = self.node, None
        if node is not None:
            await self.undo(place, node)


class OneCut:
    """Something that is done to links; healing heals every link."""

    destructive: ClassVar[bool] = False

    def __init__(self) -> None:
        self._done = False

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        """Draw the links, (source, target) each; none: there is nobody to do it to."""
        raise NotImplementedError

    async def strike(self, place: Place, source: int, target: int) -> None:
        """Do it to one link. Cut it, unless a fault does something else."""
        await place.cut(source, target)

    def said(self, links: list[tuple[int, int]]) -> str:
        """Say in a few words which links they are."""
        return ", ".join(f"{source}→{target}" for source, target in links)

    async def inject(self, place: Place, chance: random.Random) -> str:
        links = self.links(await place.view(), place.nodes, chance)
        for source, target in links:
            await self.strike(place, source, target)
        self._done = bool(links)
        return self.said(links)

    async def heal(self, place: Place) -> None:
        if self._done:
            self._done = False
            await place.heal_links()


def around(node: int, nodes: Iterable[int]) -> list[tuple[int, int]]:
    """Return every link of a node, in both directions."""
    return [link for other in nodes if other != node for link in ((node, other), (other, node))]


def a_pair(nodes: Iterable[int], chance: random.Random) -> tuple[int, int] | None:
    """Draw two nodes; None if there are not two."""
    ordered = sorted(nodes)
    if len(ordered) < 2:
        return None
    one, other = chance.sample(ordered, 2)
    return one, other
