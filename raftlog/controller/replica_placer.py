"""Placement of new replicas: spread over racks, then evenly over brokers, leaders evenly too (KIP-36).

Greedy and load-aware: each choice takes the broker that carries least, first of this topic, then of the cluster. Chance
breaks ties, so that a broker that fails leaves its load to all others.
"""

from __future__ import annotations

from collections.abc import Set
from random import Random

from raftlog.base.errors import InvalidReplicationFactor
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.effective_config import cordoned_brokers
from raftlog.metadata.image import BrokerState, MetadataImage, TopicState


def closed_brokers(image: MetadataImage, reported: Set[int]) -> dict[int, str]:
    """Return the brokers that get no new replicas, each with a sentence that says why."""
    cordoned = cordoned_brokers(image, reported)
    return {
        **{each: f"all log directories of broker {each} are cordoned" for each in sorted(cordoned)},
        **{each: f"broker {each} is being decommissioned" for each in image.decommissions},
    }


class _Load:
    """The load of one broker; the first two count one topic only."""

    __slots__ = (
        "broker_id",
        "draining",
        "fenced",
        "leaders",
        "rack",
        "replicas",
        "topic_leaders",
        "topic_replicas",
    )

    def __init__(self, broker: BrokerState, *, draining: bool) -> None:
        self.broker_id = broker.broker_id
        self.rack = broker.rack
        self.fenced = broker.fenced or broker.in_controlled_shutdown
        self.draining = draining
        self.topic_leaders = self.topic_replicas = self.leaders = self.replicas = 0


class ReplicaPlacer:
    """Places the partitions of one request; placed replicas count as load for the next."""

    def __init__(
        self, image: MetadataImage, random: Random, index: PartitionIndex, availability: BrokerAvailability
    ) -> None:
        self._random = random.random
        self.availability = availability
        """The controller's view of the brokers: the image does not name those with a full disk."""
        self.closed = closed_brokers(image, availability.cordoned)
        """The brokers that get no new replicas, and why."""
        self._loads = {
            broker.broker_id: _Load(broker, draining=broker.broker_id in availability.draining)
            for broker in image.brokers.values()
            if broker.broker_id not in self.closed
        }
        counts = index.at(image)
        for broker_id, load in self._loads.items():
            load.replicas, load.leaders = counts.replicas[broker_id], counts.preferred_leaders[broker_id]

    def _count(self, replicas: tuple[int, ...]) -> None:
        for broker_id in replicas:
            load = self._loads.get(broker_id)
            if load is not None:
                load.replicas += 1
                load.topic_replicas += 1
        leader = self._loads.get(replicas[0])
        if leader is not None:
            leader.leaders += 1
            leader.topic_leaders += 1

    def place(
        self, partitions: int, replication_factor: int, existing: TopicState | None = None
    ) -> list[tuple[int, ...]]:
        """Return replicas for `partitions` new partitions, leader first; fenced brokers only if the others are too few.

        Raise InvalidReplicationFactor when there are too few brokers, or none in service.
        """
        loads = list(self._loads.values())
        if replication_factor > len(loads):
            closed = f"; {', '.join(self.closed.values())}" if self.closed else ""
            raise InvalidReplicationFactor(
                f"replication factor {replication_factor} is larger than the number of brokers that get new replicas, "
                f"{len(loads)}{closed}"
            )
        if all(load.fenced for load in loads):
            raise InvalidReplicationFactor("no broker is in service")
        for load in loads:
            load.topic_leaders = load.topic_replicas = 0
        for state in existing.partitions if existing else ():
            self._recount_topic(state.replicas)
        placed = []
        for _ in range(partitions):
            replicas = self._place_one(loads, replication_factor)
            self._count(replicas)
            placed.append(replicas)
        return placed

    def _recount_topic(self, replicas: tuple[int, ...]) -> None:
        for position, broker_id in enumerate(replicas):
            load = self._loads.get(broker_id)
            if load is not None:
                load.topic_replicas += 1
                load.topic_leaders += position == 0

    def _place_one(self, loads: list[_Load], replication_factor: int) -> tuple[int, ...]:
        random = self._random
        leader = min(
            loads,
            key=lambda each: (
                each.fenced,
                each.draining,
                each.topic_leaders,
                each.topic_replicas,
                each.leaders,
                each.replicas,
                random(),
            ),
        )
        chosen = [leader]
        left = [load for load in loads if load is not leader]
        racks: dict[str | None, int] = {leader.rack: 1}
        while len(chosen) < replication_factor:
            follower = min(
                left,
                key=lambda each: (
                    each.fenced,
                    racks.get(each.rack, 0),
                    each.topic_replicas,
                    -each.topic_leaders,  # others become leaders sooner, which brings them a replica each
                    each.replicas,
                    random(),
                ),
            )
            chosen.append(follower)
            left.remove(follower)
            racks[follower.rack] = racks.get(follower.rack, 0) + 1
        return tuple(load.broker_id for load in chosen)
