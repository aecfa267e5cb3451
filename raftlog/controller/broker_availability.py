"""Brokers that may be leaders now, by the image's fencing (hard state) and the controller's suspicions (soft state)."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import MetadataImage


class BrokerAvailability(NamedTuple):
    """Brokers by availability. A broker in none of the first three sets is fenced or unknown.

    `alive`: unfenced, with a heartbeat. `suspected`: unfenced, but its connection is lost or it has not come to a new
    controller yet. `shutting_down`: unfenced, in controlled shutdown. `draining`: being drained of its leaderships, in
    addition to any of these; decommissioned brokers, and brokers with a `full` disk, count too. `disk_lost`:
    without the records of a lost disk, as far as they are not in sync since. `cordoned`: with cordoned log
    directories alone, as they report; the image may name others.
    """

    alive: frozenset[int]
    suspected: frozenset[int]
    shutting_down: frozenset[int]
    draining: frozenset[int] = frozenset()
    disk_lost: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    cordoned: frozenset[int] = frozenset()

    def with_suspected(self, broker_ids: Set[int]) -> BrokerAvailability:
        """Return the availability with every live broker of `broker_ids` suspected."""
        return self._replace(
            alive=self.alive - broker_ids, suspected=self.suspected | (self.alive & broker_ids)
        )

    def is_unfenced(self, broker_id: int) -> bool:
        """Return whether a broker may lead at all."""
        return broker_id in self.alive or broker_id in self.suspected or broker_id in self.shutting_down

    def with_fenced(self, broker_ids: Set[int]) -> BrokerAvailability:
        """Return the availability with `broker_ids` fenced."""
        return self._replace(
            alive=self.alive - broker_ids,
            suspected=self.suspected - broker_ids,
            shutting_down=self.shutting_down - broker_ids,
        )

    def with_alive(self, broker_id: int) -> BrokerAvailability:
        """Return the availability with `broker_id` unfenced."""
        return self._replace(alive=self.alive | {broker_id})

    def with_reports(self, *, full: frozenset[int], cordoned: frozenset[int]) -> BrokerAvailability:
        """Return the availability with what brokers report.

        A broker with a full disk leads only what no other can. Cordoned brokers get no new replicas.
        """
        return self._replace(draining=self.draining | full, full=full, cordoned=cordoned)

    def with_draining(self, broker_id: int, draining: bool) -> BrokerAvailability:
        """Return the availability with `broker_id` drained, or not; a full disk counts as a drain all the same."""
        rest = (self.draining - {broker_id}) | self.full
        return self._replace(draining=rest | {broker_id} if draining else rest)

    def with_shutting_down(self, broker_id: int) -> BrokerAvailability:
        """Return the availability with `broker_id` in controlled shutdown."""
        rest = self.with_fenced({broker_id})
        return rest._replace(shutting_down=rest.shutting_down | {broker_id})


def availability_of(image: MetadataImage) -> BrokerAvailability:
    """Return the availability of the image's brokers, without a controller's suspicions."""
    alive, leaving = set(), set()
    disk_lost = frozenset(each.broker_id for each in image.brokers.values() if each.disk_lost)
    for broker_id, broker in image.brokers.items():
        if broker.fenced:
            continue
        if broker.in_controlled_shutdown:
            leaving.add(broker_id)
        else:
            alive.add(broker_id)
    draining = {broker.broker_id for broker in image.brokers.values() if broker.draining}
    draining |= image.decommissions.keys()
    return BrokerAvailability(
        frozenset(alive), frozenset(), frozenset(leaving), frozenset(draining), disk_lost
    )


def elect_leader(replicas: tuple[int, ...], isr: tuple[int, ...], availability: BrokerAvailability) -> int:
    """Return the first live ISR member in the replicas' order, else a suspected member, else NO_BROKER.

    A drained broker is elected only if no other member is alive.
    """
    for group in (availability.alive - availability.draining, availability.alive, availability.suspected):
        for replica in replicas:
            if replica in group and replica in isr:
                return replica
    return NO_BROKER
