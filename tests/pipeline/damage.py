"""A batch that rots on the disk under a running node, which hands it out as it is: clients check what they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raftlog.pipeline.jobs.audit import AuditOptions, audit
from raftlog.pipeline.jobs.settings import build
from raftlog.testing.cluster import Cluster
from tests.pipeline.topics import Topics

TOPIC = "rotting"
BATCHES, EACH = 5, 100
MARK = b"value 2-050 of 0"
"""A value in the third batch of partition 0."""


def check_audit_of_damage(spark: Any, *, connector: str) -> None:
    """Audit a topic before and after a bit is flipped in one partition, the other having a record twice."""
    with Cluster(1) as cluster:
        topics = Topics(cluster.bootstrap_servers)
        topics.make(TOPIC, 2, replicas=1)
        for partition in range(2):
            for batch in range(BATCHES):
                values = [b"value %d-%03d of %d" % (batch, n, partition) for n in range(EACH)]
                topics.fill(TOPIC, values, partition=partition)
        asked = {"topics": [TOPIC], "bootstrap": topics.servers, "connector": connector}
        options = build(AuditOptions, asked, {"identity": "value"})
        sound = audit(spark, options)
        assert sound.sound, sound.as_text()
        assert sound.records == 2 * BATCHES * EACH
        topics.fill(TOPIC, [b"value 0-000 of 1"], partition=1)
        _flip(cluster.directory / "node-1" / "data" / f"{TOPIC}-0")
        found = audit(spark, options)
    rotten, other = found.partitions
    assert "at offset 200" in rotten.corrupt, found.as_text()
    assert (other.corrupt, other.records) == ("", BATCHES * EACH + 1)
    assert {name: count for name, count in found.counts.items() if count} == {"doubled": 1, "corrupt": 1}
    assert "1 corrupt" in found.as_text()


def _flip(partition: Path) -> None:
    """Flip a bit within a value, so that only the checksum can show it."""
    (segment,) = partition.glob("*.log")
    at = segment.read_bytes().index(MARK)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([MARK[0] ^ 1]))
