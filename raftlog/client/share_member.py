"""A member of a share group (KIP-932): heartbeats to the group's coordinator, and the partitions that it assigns.

`tick` must be called often, since no other thread sends heartbeats. A partition has several members at a time, so none
of them revokes it for another. A change of the assignment only says where to fetch.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from raftlog.base.errors import FencedMemberEpoch, KafkaError, UnknownMemberId
from raftlog.client.errors import Refused, Unreachable
from raftlog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from raftlog.client.cluster import Cluster

JOINS: Final = 0
LEAVES: Final = -1
"""The member epochs of the first and of the last heartbeat."""
UNASSIGNED_S: Final = 0.5
"""The heartbeat interval at most while the member has no partition: states of a new group are made meanwhile."""

SharedPartition = tuple[UUID, int]
"""A topic id and a partition."""


class ShareMember:
    """One membership, from the first `tick` to `leave`."""

    def __init__(self, cluster: Cluster, group: str, topics: tuple[str, ...]) -> None:
        self.id = base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        """Chosen by the member itself, in the form of Kafka's clients."""
        self.group = group
        self.assigned: frozenset[SharedPartition] = frozenset()
        self._cluster = cluster
        self._topics = topics
        self._epoch = JOINS
        self._beat_at = 0.0

    def tick(self) -> None:
        """Send a heartbeat if it is due, and note what is assigned. Raise KafkaError, Unreachable, Refused."""
        if time.monotonic() < self._beat_at:
            return
        try:
            answer = self._beat(self._epoch)
        except (UnknownMemberId, FencedMemberEpoch):  # the session timed out
            self._epoch, self.assigned = JOINS, frozenset()
            return
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = frozenset(
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
        interval_s = answer.heartbeat_interval / 1000
        self._beat_at = time.monotonic() + (interval_s if self.assigned else min(interval_s, UNASSIGNED_S))

    def leave(self) -> None:
        """Give up the membership, if there is any. Without a coordinator it ends by its session timeout."""
        if self._epoch == JOINS:
            return
        self._epoch = JOINS
        try:
            self._beat(LEAVES)
        except (KafkaError, Unreachable, Refused):
            pass

    def _beat(self, epoch: int) -> Any:
        return self._cluster.ask_coordinator(
            self.group,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            lambda make: make.ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.id,
                member_epoch=epoch,
                subscribed_topic_names=self._topics if epoch == JOINS else None,
            ),
        )
