"""Which brokers may lead, at this moment: the image's fencing (hard) seen through the controller's doubts (soft)."""

from __future__ import annotations

from collections.abc import Container, Set
from typing import NamedTuple

from raftlog.metadata.image import MetadataImage


class Standing(NamedTuple):
    """Brokers by what may be expected of them; whoever is in no set is fenced or unknown.

    `alive`: unfenced and heard of. `doubtful`: unfenced, but its connection is lost or it has not come to a new
    controller yet. `leaving`: unfenced, in controlled shutdown.
    """

    alive: frozenset[int]
    doubtful: frozenset[int]
    leaving: frozenset[int]

    def without(self, broker_ids: Set[int]) -> Standing:
        """The standing once `broker_ids` are fenced."""
        return Standing(self.alive - broker_ids, self.doubtful - broker_ids, self.leaving - broker_ids)

    def with_alive(self, broker_id: int) -> Standing:
        """The standing once `broker_id` is unfenced."""
        return self._replace(alive=self.alive | {broker_id})

    def with_leaving(self, broker_id: int) -> Standing:
        """The standing once `broker_id` is in controlled shutdown."""
        rest = self.without({broker_id})
        return rest._replace(leaving=rest.leaving | {broker_id})


def standing_of(image: MetadataImage, doubtful: Container[int] = ()) -> Standing:
    """Return how the image's brokers stand, given whom the controller doubts."""
    alive, in_doubt, leaving = set(), set(), set()
    for broker_id, broker in image.brokers.items():
        if broker.fenced:
            continue
        if broker.in_controlled_shutdown:
            leaving.add(broker_id)
        elif broker_id in doubtful:
            in_doubt.add(broker_id)
        else:
            alive.add(broker_id)
    return Standing(frozenset(alive), frozenset(in_doubt), frozenset(leaving))
