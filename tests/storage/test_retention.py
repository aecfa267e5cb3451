"""Retention by time, size and log start (Kafka: UnifiedLog.deleteOldSegments)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from raftlog.base.disk import RealDisk
from raftlog.storage.dropped_segments import HEAD
from raftlog.storage.log import Log
from raftlog.storage.log_directory import LogDirectory
from tests.storage.batches import NOW_MS, append, read_all
from tests.storage.conftest import OpenLog

DAY_MS = 24 * 3_600_000


def filled(open_log: OpenLog, count: int = 10, **config: object) -> Log:
    """Return a log of one batch a segment, written a day apart, the last one now."""
    log = open_log(segment_bytes=100, message_timestamp_before_max_ms=2**63 - 1, **config)
    for number in range(count):
        append(
            log,
            b"v" * 20,
            timestamp=NOW_MS + (number + 1 - count) * DAY_MS + 100 * DAY_MS,
            now_ms=NOW_MS + 100 * DAY_MS,
        )
    log.flush()
    return log


NOW = NOW_MS + 100 * DAY_MS


def test_segments_older_than_retention_ms_go(open_log: OpenLog) -> None:
    """A segment goes when its largest timestamp is more than retention.ms ago; the log then starts at the next."""
    log = filled(open_log, retention_ms=3 * DAY_MS)
    assert log.delete_old_segments(NOW, end_limit=10) == 6
    assert (log.log_start_offset, log.log_end_offset) == (6, 10)
    assert read_all(log)[:8] == (6).to_bytes(8, "big")
    assert log.delete_old_segments(NOW, end_limit=10) == 0


def test_an_empty_cleanup_policy_keeps_all_but_deleted_records(open_log: OpenLog) -> None:
    """Kafka since 4.2: age and size are ignored, the log start is not."""
    log = filled(open_log, retention_ms=3 * DAY_MS, retention_bytes=0, cleanup_policy=())
    assert log.delete_old_segments(NOW + 50 * DAY_MS, end_limit=10) == 0
    log.advance_log_start(4)
    assert log.delete_old_segments(NOW, end_limit=10) == 4


def test_nothing_beyond_the_high_watermark_goes(open_log: OpenLog) -> None:
    """Only whole segments below the high watermark may be dropped."""
    log = filled(open_log, retention_ms=3 * DAY_MS)
    assert log.delete_old_segments(NOW, end_limit=4) == 4
    assert log.log_start_offset == 4


def test_a_wholly_expired_log_rolls_and_drops_everything(open_log: OpenLog) -> None:
    """The active segment goes too once all its records are old; the log's end stays where it is.

    One empty segment is left, so its name must be on the disk before the last of the others goes.
    """
    log = filled(open_log, retention_ms=3 * DAY_MS)
    assert log.delete_old_segments(NOW + 50 * DAY_MS, end_limit=10) == 9
    assert log.log_start_offset == 9
    log.flush()
    assert log.delete_old_segments(NOW + 50 * DAY_MS, end_limit=10) == 1
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (10, 10, b"")
    assert log.delete_old_segments(NOW + 99 * DAY_MS, end_limit=10) == 0
    assert append(log, b"x", timestamp=NOW, now_ms=NOW).base_offset == 10


def test_the_oldest_segments_beyond_retention_bytes_go(open_log: OpenLog) -> None:
    """A segment goes when what is left without it still has retention.bytes; -1 means no limit."""
    log = filled(open_log, retention_ms=-1, retention_bytes=-1)
    assert log.delete_old_segments(NOW, end_limit=10) == 0
    each = log.active_segment.size
    log = filled(open_log, retention_ms=-1, retention_bytes=3 * each + 1)
    assert log.delete_old_segments(NOW, end_limit=10**9) == 16
    assert log.size_bytes == 4 * each


def test_segments_before_the_log_start_go(open_log: OpenLog) -> None:
    """DeleteRecords advances the log start; segments wholly before it go whatever the policy says."""
    log = filled(open_log, retention_ms=-1, cleanup_policy=("compact",))
    log.advance_log_start(5)
    assert log.delete_old_segments(NOW, end_limit=10) == 5
    assert log.log_start_offset == 5


def test_dropped_files_go_after_a_delay(open_log: OpenLog, tmp_path: Path) -> None:
    """Files are renamed to `.deleted` at once and removed file.delete.delay.ms later, snapshots and indexes too."""
    log = filled(open_log, retention_ms=3 * DAY_MS, file_delete_delay_ms=60_000)
    log.delete_old_segments(NOW, end_limit=10)
    deleted = [path.name for path in (tmp_path / "t-0").iterdir() if path.suffix == ".deleted"]
    assert sum(name.endswith(".log" + HEAD) for name in deleted) == 6
    log.flush()
    assert log.delete_due_files(NOW) == 0
    assert log.delete_due_files(NOW + 59_999) == 0
    assert log.delete_due_files(NOW + 60_000) == len(deleted)
    left = {path.name[:20] for path in (tmp_path / "t-0").iterdir() if path.name[0] == "0"}
    assert left == {f"{offset:020d}" for offset in range(6, 10)}


def test_a_restarted_log_retains_the_same(open_log: OpenLog) -> None:
    """The largest timestamps come back from the time indexes."""
    log = filled(open_log)
    log.close(clean=True)
    again = open_log(segment_bytes=100, retention_ms=3 * DAY_MS, clean=True)
    assert again.delete_old_segments(NOW, end_limit=10) == 6


def test_a_deleted_logs_folder_is_renamed_away(open_log: OpenLog, tmp_path: Path) -> None:
    """delete renames the folder to `<name>.<id>-delete`, so that the topic can be made again at once."""
    directory = LogDirectory.open(
        RealDisk(), str(tmp_path), node_id=1, cluster_id=None, new_directory_id=lambda: UUID(int=1)
    )
    log = filled(open_log)
    log.close(clean=False)
    path = Path(directory.rename_for_deletion(log.directory, "01ab"))
    assert path.parent == tmp_path and path.name.startswith("t-0.") and path.name.endswith("-delete")
    assert path.is_dir() and not (tmp_path / "t-0").exists()
    assert open_log().log_end_offset == 0
