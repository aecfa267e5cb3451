"""Group configs that the leader of a share partition applies, and the group's first offset (KIP-932, KIP-1240).

Group configs may change at any time, so callers read them at each use. `ShareConfig` makes that cheap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

from raftlog.base.config import GroupConfig, group_config
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.replicas.offset_search import OffsetSearch, search_all
from raftlog.metadata.features import DEAD_LETTERS, SHARE_VERSION, finalized_level
from raftlog.replication.leader_role import EARLIEST, LATEST
from raftlog.replication.partition import Partition
from raftlog.sharing.delivery import ShareLimits

READ_COMMITTED: Final = "read_committed"


def share_config(broker: LocalBroker, group_id: str, topic_id: UUID | None = None) -> GroupConfig:
    """Return the group configs in force, for a topic: the group's own, over the broker's defaults.

    There are no dead letters below level 2 of `share.version`: brokers of older releases would not go on with them. Nor
    are there letters about records of the dead-letter topic itself: each would be read by the group, and fail again.
    """
    image = broker.image()
    config = group_config(broker.config, image.config("group", group_id))
    name = config.errors_deadletterqueue_topic_name
    if name and (
        finalized_level(image, SHARE_VERSION) < DEAD_LETTERS
        or (topic_id is not None and image.topic_names.get(topic_id) == name)
    ):
        return replace(config, errors_deadletterqueue_topic_name="")
    return config


class ShareConfig:
    """The group configs in force for a topic, as `share_config` returns them: the same object until any change."""

    __slots__ = ("_broker", "_found", "_found_in", "_group_id", "_topic_id")

    def __init__(self, broker: LocalBroker, group_id: str, topic_id: UUID) -> None:
        self._broker, self._group_id, self._topic_id = broker, group_id, topic_id
        self._found_in: tuple[object, ...] = ()
        self._found: GroupConfig | None = None

    def __call__(self) -> GroupConfig:
        image, node = self._broker.image(), self._broker.config
        known = self._found_in
        if (
            self._found is None
            or known[0] is not image.configs
            or known[1] is not image.features
            or known[2] is not node
        ):
            self._found_in = image.configs, image.features, node
            self._found = share_config(self._broker, self._group_id, self._topic_id)
        return self._found


def share_limits(config: GroupConfig) -> ShareLimits:
    """Return the limits that a group's configs set for its share partitions."""
    return ShareLimits(
        config.share_record_lock_duration_ms / 1_000,
        config.share_delivery_count_limit,
        config.share_partition_max_record_locks,
        config.errors_deadletterqueue_topic_name != "",
    )


async def find_first_offset(broker: LocalBroker, replica: Partition, group_id: str) -> int:
    """Return the offset at which a group begins to read a partition, by `share.auto.offset.reset`.

    With `by_duration`, a group begins at the log end if no record is recent enough. Apache Kafka waits for such a
    record. Raises OffsetNotAvailable while a new leader's high watermark may be too low, NotLeaderOrFollower, and
    disk errors.
    """
    reset = share_config(broker, group_id).share_auto_offset_reset
    if reset.strategy == "by_duration":
        timestamp_ms = max(0, broker.env.ages.believed_ms() - reset.duration_ms)
        search = OffsetSearch(replica, timestamp_ms)
        await search_all(broker, [search], is_wanted=lambda: True)
        found = replica.offset_for_timestamp(timestamp_ms, read_committed=False, search=search.found)
        if found is not None:
            return found[0]
    special = EARLIEST if reset.strategy == "earliest" else LATEST
    found = replica.offset_for_timestamp(special, read_committed=False)
    assert found is not None, "a log has a start and an end"
    return found[0]
