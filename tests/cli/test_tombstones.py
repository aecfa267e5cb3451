"""A reader of a compacted topic hears that its position is older than tombstones are kept."""

from __future__ import annotations

from contextlib import closing

import pytest

from raftlog.cli.target import Target
from raftlog.cli.tombstones import missed_tombstones
from raftlog.client.producer import ALL, Producer
from raftlog.records.batch import new_record
from tests.cli.live import CommandLine

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def write(target: Target, topic: str, *ages_ms: int) -> None:
    """Write a record of each age to partition 0."""
    import time

    producer = Producer(target.cluster, topic, acks=ALL, codec=0, idempotent=True)
    for age_ms in ages_ms:
        now_ms = int(time.time() * 1000)
        producer.send(new_record(b"k", b"v", timestamp=now_ms - age_ms), 0)
    producer.flush()
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_an_old_position_in_a_compacted_topic_is_named(raftlog: CommandLine, name: str, policy: str) -> None:
    """Old is what has records behind it that are older than delete.retention.ms; the end of a quiet topic is not."""
    name = f"{name}-{policy.replace(',', '-')}"
    kept = ("-c", f"cleanup.policy={policy}", "-c", f"delete.retention.ms={HOUR_MS}", "-c", "retention.ms=-1")
    made = raftlog("topic", "create", name, "-p", "2", *kept)
    assert made.returncode == 0, made.stderr
    with closing(Target(raftlog.bootstrap)) as target:
        write(target, name, 2 * DAY_MS, DAY_MS)
        line = missed_tombstones(target, name, {0: 1, 1: 0})
        assert line == (
            f"{name}: partition 0: the position is older than delete.retention.ms ({HOUR_MS}) of this compacted "
            "topic: keys that were deleted since may still have their last value"
        )
        assert missed_tombstones(target, name, {0: 2, 1: 0}) == ""
        write(target, name, HOUR_MS // 2)
        assert missed_tombstones(target, name, {0: 2, 1: 0}) == ""
        assert missed_tombstones(target, name, {0: 0}) != ""


@pytest.mark.slow
def test_other_topics_and_unknown_ones_have_no_such_line(raftlog: CommandLine, name: str) -> None:
    """A topic that is not compacted keeps tombstones like other records."""
    kept = ("-c", f"delete.retention.ms={HOUR_MS}", "-c", "retention.ms=-1")
    assert raftlog("topic", "create", name, "-p", "1", *kept).returncode == 0
    with closing(Target(raftlog.bootstrap)) as target:
        write(target, name, DAY_MS)
        assert missed_tombstones(target, name, {0: 0}) == ""
        assert missed_tombstones(target, f"no-{name}", {0: 0}) == ""
