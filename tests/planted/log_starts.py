"""Bugs of offsets that are derived and not held to the log's bounds."""

from __future__ import annotations

import pytest

from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.partition import Partition
from raftlog.storage.log import Log
from raftlog_chaos.scenarios.log_starts import log_starts
from raftlog_chaos.scenarios.share_groups import share_groups
from tests.planted.plant import Plant


def stable_offset_below_the_log_start(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset stays at the first batch of a transaction that was deleted since."""

    def last_stable_offset(partition: Partition) -> int:
        unstable = partition.log.producers.first_unstable_offset
        return partition.high_watermark if unstable is None else min(unstable, partition.high_watermark)

    patch.setattr(Partition, "last_stable_offset", property(last_stable_offset))


def unstable_offset_below_the_log_start(patch: pytest.MonkeyPatch) -> None:
    """The log names the first offset of an open transaction, whether or not that was deleted."""
    patch.setattr(Log, "first_unstable_offset", property(lambda log: log.producers.first_unstable_offset))


def log_starts_wake_nobody(patch: pytest.MonkeyPatch) -> None:
    """A deletion that waits for a follower hears of its log start only with the next image."""
    patch.setattr(Partition, "low_watermark_moved", lambda partition: None)


def begin_within_no_batch(patch: pytest.MonkeyPatch) -> None:
    """A follower whose leader's log starts within a batch refuses that batch, again and again."""
    patch.setattr(FollowerRole, "_begin_within", lambda role, batches: None)


PLANTS = [
    Plant(
        "begins-within-no-batch",
        "KIP-107 a replica out of sync for ever",
        share_groups,
        begin_within_no_batch,
        6.0,
        test=(
            "tests/replication/test_following.py"
            "::test_a_follower_begins_anew_where_the_leaders_log_starts_within_a_batch"
        ),
    ),
    Plant("stable-below-log-start", "KIP-107 log start", log_starts, stable_offset_below_the_log_start),
    Plant("unstable-below-log-start", "KIP-107 log start", log_starts, unstable_offset_below_the_log_start),
    Plant(
        "log-starts-wake-nobody",
        "KIP-107 a lost wake",
        log_starts,
        log_starts_wake_nobody,
        test=(
            "tests/replication/test_partition.py"
            "::test_a_deletion_is_woken_when_a_followers_log_start_moves_and_when_the_role_changes"
        ),
    ),
]
