"""The common part of faults of the network: which links they stop, and that healing opens every one again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import ClassVar

from raftlog_chaos.testbeds.testbed import Ability, Place, View

Link = tuple[int, int]
"""From, to."""


class OfLinks:
    """A fault of some links. `links` picks them and says in words what it picked."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})
    destructive: ClassVar[bool] = False

    def pick(self, view: View, place: Place, chance: random.Random) -> tuple[str, Iterable[Link]]:
        """Return whom it befalls and the links that stop; "" and none if there is nobody."""
        raise NotImplementedError

    async def inject(self, place: Place, chance: random.Random) -> str:
        target, links = self.pick(await place.view(), place, chance)
        struck = list(links)
        for source, sink in struck:
            await self.strike(place, source, sink, chance)
        return target if struck else ""  # who is alone, or a ring of two, has no link to lose

    async def strike(self, place: Place, source: int, target: int, chance: random.Random) -> None:
        await place.cut(source, target)

    async def heal(self, place: Place) -> None:
        """Open all links of the place, those of other faults too: a place has one network."""
        await place.heal_links()


def both_ways(pairs: Iterable[Link]) -> Iterator[Link]:
    for one, other in pairs:
        yield one, other
        yield other, one


def around(node_id: int, place: Place) -> list[Link]:
    """Return every link of a node, in both directions."""
    return list(both_ways((node_id, other) for other in place.nodes if other != node_id))


def all_links(place: Place) -> list[Link]:
    return [(one, other) for one in place.nodes for other in place.nodes if one != other]
