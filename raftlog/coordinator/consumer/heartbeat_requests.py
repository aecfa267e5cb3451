"""The requests of members of the consumer protocol, and the responses. Values only; failures are KafkaErrors."""

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
"""Epochs that say what a member is about to do; LEFT_FOR_A_WHILE is another."""

LEAVE_EPOCHS: Final = frozenset({LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH})


class ConsumerGroupHeartbeat(msgspec.Struct, frozen=True):
    """ConsumerGroupHeartbeat. None, and a rebalance timeout of -1: as it was. `owned` is what the member has now."""

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
    """The sender, whose rights decide what expressions match; None: it may see all topics."""

    @property
    def is_full_request(self) -> bool:
        """Whether it tells all there is, as who joins does, or who lost an answer: it is told all as well."""
        told = self.rebalance_timeout_ms != -1 and self.topics is not None and self.owned is not None
        return self.epoch == JOIN_GROUP_MEMBER_EPOCH or told


class ConsumerGroupHeartbeatResult(msgspec.Struct, frozen=True):
    """The answer. `assignment` is what the member may read from now on; None: as before."""

    member_id: str
    epoch: int
    assignment: Partitions | None = None
