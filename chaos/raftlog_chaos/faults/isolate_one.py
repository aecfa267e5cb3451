"""A node reaches no other and is reached by none; clients reach it still."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, OfLinks, around
from raftlog_chaos.testbeds.testbed import Place, View


class IsolateOne(OfLinks):
    name = "isolate-one"

    def pick(self, view: View, place: Place, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(place.nodes)
        return f"node {node_id}", around(node_id, place)
