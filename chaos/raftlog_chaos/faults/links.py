"""The common part of faults of the network: which links they stop, and that healing opens every one again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import ClassVar

from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

Link = tuple[int, int]
"""From, to."""


class LinkFault:
    """A fault of some links. `links` picks them and says in words what it picked."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})
    destructive: ClassVar[bool] = False

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        """Return whom it befalls and the links that stop; "" and none if there is nobody."""
        raise NotImplementedError

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        target, links = self.pick(await testbed.view(), testbed, chance)
        struck = list(links)
        for source, sink in struck:
            await self.strike(testbed, source, sink, chance)
        return target if struck else ""  # who is alone, or a ring of two, has no link to lose

    async def strike(self, testbed: Testbed, source: int, target: int, chance: random.Random) -> None:
        await testbed.cut(source, target)

    async def heal(self, testbed: Testbed) -> None:
        """Open all links of the place, those of other faults too: a place has one network."""
        await testbed.heal_links()


def both_ways(pairs: Iterable[Link]) -> Iterator[Link]:
    for one, other in pairs:
        yield one, other
        yield other, one


def around(node_id: int, testbed: Testbed) -> list[Link]:
    """Return every link of a node, in both directions."""
    return list(both_ways((node_id, other) for other in testbed.nodes if other != node_id))


def all_links(testbed: Testbed) -> list[Link]:
    return [(one, other) for one in testbed.nodes for other in testbed.nodes if one != other]
