"""The replicas of one broker that have damaged logs, or failed rather than truncate committed records."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from raftlog.base.types import TopicPartition
from raftlog.metadata.image import MetadataImage
from raftlog.replication.partition import Partition


class DamagedReplicas:
    """They stay here until they are repaired, or leave this broker."""

    def __init__(self, image: Callable[[], MetadataImage], *, broker_id: int) -> None:
        self._image = image
        self._broker_id = broker_id
        self._replicas: dict[Partition, None] = {}

    def add(self, partition: Partition) -> bool:
        """Add a replica. Returns whether that is news. A failure always is."""
        if partition in self._replicas and partition.failure is None:
            return False
        self._replicas[partition] = None
        return True

    def discard(self, partition: Partition) -> None:
        """Drop a replica that leaves this broker; no effect if it is not here."""
        self._replicas.pop(partition, None)

    def counted(self) -> tuple[tuple[UUID, int], ...]:
        """Return (topic id, partition) of damaged replicas that the metadata still counts on; drop repaired ones."""
        if not self._replicas:
            return ()
        self._replicas = {
            each: None for each in self._replicas if each.log.damage is not None or each.failure is not None
        }
        return tuple((each.topic_id, each.index) for each in self._replicas if self._is_counted(each))

    def _is_counted(self, partition: Partition) -> bool:
        image = self._image()
        topic = image.topics.get(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        state = image.partition(partition.topic, partition.index)
        if state is None or self._broker_id not in (*state.isr, *state.eligible):
            return False
        return not (state.isr_lost and state.leader == self._broker_id)

    def failures(self) -> dict[TopicPartition, str]:
        """Return the replicas that failed, with the reason of each."""
        return {each.name: each.failure for each in self._replicas if each.failure is not None}
