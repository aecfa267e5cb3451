"""The age of a segment with few or wrong timestamps: retention, rolls and compaction, also after a restart.

Source: Kafka's LogSegment (largestTimestamp, timeWaitedForRoll), and what raftlog 0.3.0 stored for stock clients.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from raftlog.base.config import TopicConfig
from raftlog.records.batch import build_batch, new_record
from raftlog.records.header import BatchHeader, read_header
from raftlog.records.raw_records import rebuild_batch
from raftlog.storage import segment_age
from raftlog.storage.log import Log
from raftlog.storage.log_to_clean import find_log_to_clean
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import append, read_all
from tests.storage.compacted_logs import clean, close_segment, flush_and_checkpoint, put

DAY_MS = 24 * 3_600_000
MADE_MS = 1_700_000_000_000
"""When the logs of these tests are made."""
RETENTION_MS = 7 * DAY_MS


class Machine:
    """A disk and its clock."""

    def __init__(self) -> None:
        self.disk = SimDisk(0)
        self.now_ms = MADE_MS
        self.disk.wall_clock_ms = lambda: self.now_ms

    def open(
        self, *, clean: bool = True, name: str = "t-0", recovery_point: int = 0, **config: object
    ) -> Log:
        """Open a log as a start finds it. Each batch is in the indexes, so that a start does not walk through all."""
        config = {"segment_ms": 100 * DAY_MS, "index_interval_bytes": 0, **config}
        return Log.open(
            self.disk,
            f"/data/{name}",
            config=TopicConfig(**config),  # type: ignore[arg-type]
            recovery_point=recovery_point,
            clean=clean,
            topic_id=None,
            now_ms=self.now_ms,
        )

    def append(self, log: Log, *, timestamp: int | None = None) -> int:
        """Append a record, by default of this moment; return its offset."""
        time_ms = self.now_ms if timestamp is None else timestamp
        return append(log, b"v", timestamp=time_ms, now_ms=self.now_ms).base_offset

    def append_odd(self, log: Log, odd: Odd) -> int:
        """Append a fresh record under a header that 0.3.0 stored as its client sent it; return its offset."""
        batch = odd(self.now_ms)
        placed = log.append_as_leader(read_header(batch), batch, leader_epoch=0, now_ms=self.now_ms)
        return placed.base_offset

    def retain(self, log: Log) -> int:
        """Look for what is too old now; return where the log begins then."""
        log.flush()
        segments = log.segments
        log.delete_old_segments(self.now_ms, end_limit=log.log_end_offset)
        if (
            log.segments is not segments
        ):  # an expired log rolls first, and the rest goes once that is on the disk
            log.flush()
            log.delete_old_segments(self.now_ms, end_limit=log.log_end_offset)
        return log.log_start_offset


Odd = Callable[[int], bytes]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def forged(times: tuple[int, ...], *, newest: int) -> bytes:
    """A batch with a header that has another largest timestamp than its records; the CRC holds."""
    batch = build_batch([new_record(None, b"v", timestamp=each) for each in times])
    header: BatchHeader = read_header(batch)
    delta = newest - header.base_timestamp
    return rebuild_batch(header, batch[61:], count=len(times), newest_delta=delta, horizon_ms=None)


def of_sarama(now_ms: int) -> bytes:
    """Sarama before 1.45.1 leaves the largest timestamp at -1."""
    return forged((now_ms, now_ms), newest=-1)


def of_librdkafka(now_ms: int) -> bytes:
    """librdkafka with timestamp -1: base -1 and 0 as the largest."""
    return forged((-1,), newest=0)


def of_kafkajs(now_ms: int) -> bytes:
    """KafkaJS takes the last record's for the largest."""
    return forged((now_ms, now_ms - 30 * DAY_MS), newest=now_ms - 30 * DAY_MS)


def without_timestamps(now_ms: int) -> bytes:
    """As the leader stores it now."""
    return forged((-1, -1), newest=-1)


ODD = [of_sarama, of_librdkafka, of_kafkajs, without_timestamps]
by_client = pytest.mark.parametrize("odd", ODD, ids=lambda each: each.__name__)


# -- retention ---------------------------------------------------------------------------------------------------


@by_client
def test_a_batch_without_a_timestamp_ages_by_its_files_last_modification(machine: Machine, odd: Odd) -> None:
    """A segment that was made long ago keeps the record that was just written, for retention.ms from now."""
    log = machine.open()
    machine.now_ms += 30 * DAY_MS
    machine.append_odd(log, odd)
    log.close(clean=True)
    log = machine.open()
    for _ in range(2):
        assert machine.retain(log) == 0
        assert log.next_expiry_ms() == machine.now_ms + RETENTION_MS + 1
    machine.now_ms += RETENTION_MS
    assert machine.retain(log) == 0
    machine.now_ms += 1
    assert machine.retain(log) == log.log_end_offset


@by_client
@pytest.mark.parametrize("restart", ["clean", "killed", "power"])
def test_it_ages_the_same_beside_older_records_and_after_a_restart(
    machine: Machine, odd: Odd, restart: str
) -> None:
    """The time index knows the older record only, and recovery writes the bytes once more: neither counts."""
    log = machine.open()
    machine.append(log)
    machine.now_ms += 8 * DAY_MS
    machine.append_odd(log, odd)
    written_ms = machine.now_ms
    log.flush()
    log.checkpoint()
    machine.now_ms += DAY_MS
    if restart == "clean":
        log.close(clean=True)
    elif restart == "power":
        machine.disk.crash()
    else:
        machine.disk.release()
    log = machine.open(clean=restart == "clean", recovery_point=0)
    assert machine.retain(log) == 0
    assert log.next_expiry_ms() == written_ms + RETENTION_MS + 1
    machine.now_ms = written_ms + RETENTION_MS + 1
    assert machine.retain(log) == log.log_end_offset


@by_client
def test_a_follower_judges_as_its_leader_does(machine: Machine, odd: Odd) -> None:
    """A leader of 0.3.0 may send any of these headers."""
    leader = machine.open()
    machine.append(leader)
    machine.now_ms += 8 * DAY_MS
    machine.append_odd(leader, odd)
    follower = machine.open(name="t-1")
    follower.append_as_follower(read_all(leader), now_ms=machine.now_ms)
    assert machine.retain(follower) == 0
    machine.now_ms += RETENTION_MS + 1
    assert machine.retain(follower) == follower.log_end_offset


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_of_a_clock_that_was_behind_is_as_old_as_the_believed_time(
    machine: Machine, restarts: bool
) -> None:
    """The kernel stamps files by its clock, the log gets the time that the node trusts."""
    log = machine.open()
    machine.disk.wall_clock_ms = lambda: machine.now_ms - 30 * DAY_MS
    machine.append(log, timestamp=-1)
    if restarts:
        log.checkpoint()
        machine.disk.release()
        log = machine.open(clean=False, recovery_point=1)
    assert machine.retain(log) == 0
    machine.now_ms += RETENTION_MS + 1
    assert machine.retain(log) == 1


def test_old_records_that_came_late_go_all_the_same(machine: Machine) -> None:
    """A file that was modified today is no evidence if every header has a timestamp, before and after a restart."""
    for restarts in (False, True):
        log = machine.open()
        begin = machine.append(log, timestamp=machine.now_ms - 30 * DAY_MS)
        if restarts:
            log.close(clean=True)
            log = machine.open()
        assert machine.retain(log) == begin + 1


@pytest.mark.parametrize("bound", ["MAX_SCANNED_HEADERS", "MAX_SCAN_BYTES"])
def test_headers_are_looked_at_a_part_at_a_time_and_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Until all were read the segment stays; a long segment would hold up the loop."""
    log = machine.open()
    for _ in range(10):
        machine.append(log, timestamp=machine.now_ms - 30 * DAY_MS)
    each = log.active_segment.size // 10
    log.close(clean=True)
    log = machine.open()
    monkeypatch.setattr(segment_age, bound, 4 if bound == "MAX_SCANNED_HEADERS" else 4 * each)
    seen = []
    for _ in range(3):
        seen.append((machine.retain(log), segment_age.bytes_looked_at(log.segments)))
    assert seen == [(0, 4 * each), (0, 8 * each), (10, 0)]


@by_client
def test_a_start_does_not_walk_through_segments_without_timestamps(machine: Machine, odd: Odd) -> None:
    """Their time indexes say so. A start would hold up the loop for seconds, since retention asks for all of them."""
    log = machine.open(segment_bytes=400)
    for _ in range(20):
        machine.append_odd(log, odd)
    log.close(clean=True)
    sealed = len(log.segments) - 1
    assert sealed >= 3
    machine.now_ms += RETENTION_MS - 1
    log = machine.open(segment_bytes=400)
    with capture_logs() as logs:
        assert machine.retain(log) == 0
    assert not [each for each in logs if each["event"] == "index_rebuilt"]
    machine.now_ms += 2
    assert machine.retain(log) == log.log_end_offset


def test_damaged_headers_count_as_headers_without_a_timestamp(machine: Machine) -> None:
    """A reader finds and reports the damage; age does not delete it first."""
    log = machine.open()
    for _ in range(3):
        machine.append(log, timestamp=machine.now_ms - 30 * DAY_MS)
    position = log.active_segment.size // 3
    log.close(clean=True)
    machine.disk.flip_bit(f"{log.active_segment.path}.log", position + 8, 7)
    log = machine.open()
    assert machine.retain(log) == 0
    machine.now_ms += RETENTION_MS + 1
    assert machine.retain(log) == log.log_end_offset


def test_a_delete_horizon_is_no_reason_to_doubt_a_timestamp(machine: Machine) -> None:
    """It stands in the place of the base timestamp, and lies in the future (KIP-534)."""
    batch = build_batch([new_record(b"k", None, timestamp=MADE_MS)])
    horizon = rebuild_batch(
        read_header(batch), batch[61:], count=1, newest_delta=0, horizon_ms=MADE_MS + DAY_MS
    )
    log = machine.open()
    log.append_as_follower(horizon, now_ms=machine.now_ms)
    assert (log.active_segment.max_timestamp, log.active_segment.has_untimed) == (MADE_MS, False)


def test_no_bytes_of_retention_leave_no_segment(machine: Machine) -> None:
    """retention.bytes=0 takes the active segment too, which is rolled first (Kafka: deleteOldSegments)."""
    log = machine.open(retention_bytes=0)
    for _ in range(10):
        machine.append(log)
    assert (machine.retain(log), log.log_end_offset, log.size_bytes) == (10, 10, 0)
    log = machine.open(name="t-2", retention_bytes=log.size_bytes + 1)
    machine.append(log)
    assert machine.retain(log) == 0


# -- rolls -------------------------------------------------------------------------------------------------------


def bases(log: Log) -> list[int]:
    return [each.base_offset for each in log.segments]


def test_a_segment_whose_first_batch_has_no_timestamp_rolls_by_the_clock(machine: Machine) -> None:
    """From when the batch was written, whatever timestamps come later (timeWaitedForRoll)."""
    log = machine.open(segment_ms=10)
    machine.now_ms += 100
    machine.append(log, timestamp=-1)
    machine.now_ms += 10
    machine.append(log, timestamp=-1)
    assert bases(log) == [0]
    machine.now_ms += 1
    machine.append(log, timestamp=MADE_MS - DAY_MS)
    assert bases(log) == [0, 2]


def test_a_batch_without_a_timestamp_ends_an_old_segment(machine: Machine) -> None:
    """In Kafka a segment that begins with a timestamp never rolls for batches without any."""
    log = machine.open(segment_ms=10)
    machine.append(log)
    machine.now_ms += 11
    machine.append(log, timestamp=-1)
    assert bases(log) == [0, 1]


@by_client
def test_followers_and_restarted_logs_roll_by_the_clock_too(machine: Machine, odd: Odd) -> None:
    """A start counts anew, as Kafka's does."""
    leader, follower = machine.open(), machine.open(name="t-1", segment_ms=10)
    ends = [machine.append_odd(leader, odd) for _ in range(3)]
    content = read_all(leader)
    size = read_header(content).length
    for number, wait_ms in enumerate((0, 10, 1)):
        machine.now_ms += wait_ms
        follower.append_as_follower(content[number * size : (number + 1) * size], now_ms=machine.now_ms)
    assert bases(follower) == [0, ends[2]]
    follower.close(clean=True)
    machine.now_ms += 100
    follower = machine.open(name="t-1", segment_ms=10)
    for wait_ms in (10, 1):
        machine.now_ms += wait_ms
        last = machine.append_odd(follower, odd)
    assert bases(follower) == [0, ends[2], last]


# -- compaction --------------------------------------------------------------------------------------------------

LAG_MS = 600_000


@pytest.mark.parametrize("restarts", [False, True])
def test_records_without_timestamps_wait_for_min_compaction_lag(machine: Machine, restarts: bool) -> None:
    """They are not from 1970: the last modification counts, of a cleaned segment too."""
    policy = {
        "cleanup_policy": ("compact",),
        "min_compaction_lag_ms": LAG_MS,
        "min_cleanable_dirty_ratio": 0.0,
    }
    log = machine.open(**policy)
    for _ in range(2):
        put(log, (b"k", b"v"), timestamp=-1)
        close_segment(log)
    put(log, (b"k", b"v"), timestamp=-1)
    flush_and_checkpoint(log)
    if restarts:
        log.close(clean=True)
        log = machine.open(**policy)
    written_ms = machine.now_ms
    end = log.log_end_offset
    assert find_log_to_clean(log, end_limit=end, now_ms=written_ms + LAG_MS - 1) is None
    assert find_log_to_clean(log, end_limit=end, now_ms=written_ms + LAG_MS) is not None
    machine.now_ms += LAG_MS
    clean(log, now_ms=machine.now_ms)
    assert log.segments[0].file.modified_ms() == written_ms
