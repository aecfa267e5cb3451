"""Claims about the size of a snapshot: no voter writes a snapshot that others could not load."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftlog.base.compiled import crc32c
from raftlog.base.disk import RealDisk
from raftlog.quorum import snapshot
from raftlog.quorum.messages import SnapshotChunk
from raftlog.quorum.snapshot import (
    MAX_SNAPSHOT_BYTES,
    IncomingSnapshot,
    Snapshot,
    SnapshotFiles,
    decode_snapshot,
    encode_snapshot,
)
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.quorum.wal import MAX_COMMAND_BYTES, DamagedJournal
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from tests.quorum.test_quorum import run_scenario

TINY = Snapshot((b"", 1, 1), (b"", 2, 1), b"")


def test_the_largest_snapshot_that_is_written_is_one_that_is_taken() -> None:
    """The limit of the image, with the two largest entries, is within the limit of the receivers."""
    largest = snapshot.MAX_IMAGE_BYTES + 2 * MAX_COMMAND_BYTES + len(encode_snapshot(TINY))
    assert largest <= MAX_SNAPSHOT_BYTES
    incoming = IncomingSnapshot()
    assert incoming.take(1, SnapshotChunk(1, 5, MAX_SNAPSHOT_BYTES, 0, b"x")) is None
    assert incoming.take(1, SnapshotChunk(1, 5, MAX_SNAPSHOT_BYTES, 1, b"x")) is None
    assert incoming._received == 2


def test_a_state_that_has_outgrown_the_limit_stays_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log grows, which is said, and a voter that restarts or was away still has all of it."""
    monkeypatch.setattr(snapshot, "MAX_IMAGE_BYTES", 100)

    async def script(cluster: QuorumCluster) -> None:
        leader = await cluster.leader()
        away = next(node for node in cluster.hosts if node != leader)
        others = [node for node in cluster.hosts if node != away]
        cluster.crash(away)
        with capture_logs() as logs:
            for number in range(60):
                await cluster.commit(b"%d" % number, *others)
        failures = [each for each in logs if each["event"] == "quorum_snapshot_failed"]
        assert failures and all("over the limit of 100" in each["reason"] for each in failures)
        cluster.boot(away)
        await cluster.settle(b"all")
        assert {cluster.nodes[node].driver.journal.first_index for node in cluster.hosts} == {1}

    run_scenario(script, compaction=SnapshotPolicy(entries=20))


def test_a_file_of_another_name_is_no_snapshot(tmp_path: Path) -> None:
    """An operator's copy beside the snapshots keeps no voter from starting."""
    disk = RealDisk()
    files = SnapshotFiles(disk, str(tmp_path))
    files.write(2, encode_snapshot(TINY))
    for name in ("backup.snapshot", "7.snapshot", f"{2:020}.snapshot.old"):
        disk.write_file(str(tmp_path / name), b"x")
    assert files.indexes() == [2]
    assert files.load_newest() == TINY


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">QQQII", 5, 1, 1, 0, 0),
        struct.pack(">QQQIII", 5, 1, 1, 0, 0, 1 << 31),
        struct.pack(">QQQIII", 5, 1, 1, 1 << 31, 0, 0),
    ],
)
def test_a_snapshot_with_voters_that_ends_early_is_damaged(body: bytes) -> None:
    """Its checksum is right, as that of a faulty sender's: the receiver refuses it, and goes on."""
    with pytest.raises(DamagedJournal):
        decode_snapshot(b"RLQS\x02" + struct.pack(">I", crc32c(body)) + body)
