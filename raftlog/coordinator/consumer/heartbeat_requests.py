"""The requests of members of the consumer protocol, and their responses. Values only; failures are KafkaErrors."""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.coordinator.consumer.consumer_membership import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    Partitions,
)
from raftlog.coordinator.consumer.topic_regex_resolver import Viewer

JOIN_GROUP_MEMBER_EPOCH: Final = 0
LEAVE_GROUP_MEMBER_EPOCH: Final = -1
"""The epoch of a leaving member; LEAVE_GROUP_STATIC_MEMBER_EPOCH means a temporary leave."""

LEAVE_EPOCHS: Final = frozenset({LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH})


class ConsumerGroupHeartbeat(msgspec.Struct, frozen=True):
    """ConsumerGroupHeartbeat. None, and a rebalance timeout of -1: unchanged. `owned`: the member's present
    partitions.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    viewer: Viewer | None = None
    """The sender, with the rights for matching expressions; None: it may see all topics."""

    @property
    def is_full_request(self) -> bool:
        """Whether it has all fields, as after a join or a lost response: the response then has all too."""
        is_full = self.rebalance_timeout_ms != -1 and self.topics is not None and self.owned is not None
        return self.epoch == JOIN_GROUP_MEMBER_EPOCH or is_full


class ConsumerGroupHeartbeatResult(msgspec.Struct, frozen=True):
    """The response. `assignment`: the partitions to read from now on; None: unchanged."""

    member_id: str
    epoch: int
    assignment: Partitions | None = None
