"""Which brokers may lead, at this moment: the image's fencing (hard) seen through the controller's doubts (soft)."""

from __future__ import annotations

from collections.abc import Container, Set
from typing import NamedTuple

from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import MetadataImage


class Standing(NamedTuple):
    """Brokers by what may be expected of them; whoever is in no set is fenced or unknown.

    `alive`: unfenced and heard of. `doubtful`: unfenced, but its connection is lost or it has not come to a new
    controller yet. `leaving`: unfenced, in controlled shutdown. `draining`: whoever is drained of its leaderships,
    whichever of these it is.
    """

    alive: frozenset[int]
    doubtful: frozenset[int]
    leaving: frozenset[int]
    draining: frozenset[int] = frozenset()

    def is_unfenced(self, broker_id: int) -> bool:
        """Say whether a broker may lead at all."""
        return broker_id in self.alive or broker_id in self.doubtful or broker_id in self.leaving

    def without(self, broker_ids: Set[int]) -> Standing:
        """The standing once `broker_ids` are fenced."""
        return self._replace(
            alive=self.alive - broker_ids,
            doubtful=self.doubtful - broker_ids,
            leaving=self.leaving - broker_ids,
        )

    def with_alive(self, broker_id: int) -> Standing:
        """The standing once `broker_id` is unfenced."""
        return self._replace(alive=self.alive | {broker_id})

    def with_draining(self, broker_id: int, draining: bool) -> Standing:
        """The standing once `broker_id` is drained, or no more."""
        rest = self.draining - {broker_id}
        return self._replace(draining=rest | {broker_id} if draining else rest)

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
    draining = frozenset(broker.broker_id for broker in image.brokers.values() if broker.draining)
    return Standing(frozenset(alive), frozenset(in_doubt), frozenset(leaving), draining)


def elect(replicas: tuple[int, ...], isr: tuple[int, ...], standing: Standing) -> int:
    """Return the first ISR member in the replicas' order that is alive, else a doubtful one, else NO_BROKER.

    One that is drained is elected only where nobody else is alive.
    """
    for group in (standing.alive - standing.draining, standing.alive, standing.doubtful):
        for replica in replicas:
            if replica in group and replica in isr:
                return replica
    return NO_BROKER
