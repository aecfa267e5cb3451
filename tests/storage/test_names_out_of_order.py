"""A power cut keeps any of a folder's unsynced changes of names: a log is whole all the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from raftlog.base.config import TopicConfig
from raftlog.records.header import read_header
from raftlog.storage.dropped_segments import HEAD, TAIL
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from raftlog_chaos.simulator.medium import Folder
from tests.kit.examples import examples
from tests.storage.batches import NOW_MS, append, read_all
from tests.storage.compacted_logs import (
    clean,
    close_segment,
    committed_of,
    end,
    open_compacted,
    put,
    table_of,
)

FOLDER = "/data/t-0"
BATCHES = 16
SEEDS = range(examples(20))
MAX_CHANGES = 200
"""More than any act here makes on the disk."""


class CountingDisk(SimDisk):
    """Counts syncs of folders."""

    folder_syncs = 0

    def sync_dir(self, path: str) -> None:
        self.folder_syncs += 1
        super().sync_dir(path)


def open_log(disk: SimDisk, recovery_point: int, **config: int) -> Log:
    """Open the log of /data/t-0, of which a segment holds one transaction."""
    settings = {"segment_bytes": 100, "retention_ms": -1, "file_delete_delay_ms": 0, **config}
    return Log.open(
        disk,
        FOLDER,
        config=TopicConfig(**settings),
        recovery_point=recovery_point,
        clean=False,
        topic_id=None,
        now_ms=NOW_MS,
    )


def filled(disk: SimDisk, **config: int) -> Log:
    """Return a log with aborted transactions only, checkpointed and flushed, in many segments."""
    log = open_log(disk, 0, **config)
    for number in range(BATCHES // 2):
        put(log, (b"k", b"%d" % number), producer=(7, 0, number), transactional=True)
        end(log, 7, commit=False)
    log.on_high_watermark_updated(BATCHES)
    log.flush()
    log.checkpoint()
    return log


def assert_whole(log: Log, why: str) -> None:
    """Segments follow each other, and no record of a transaction counts as committed: none was."""
    assert log.damage is None, f"{why}: {log.damage}"
    for segment, following in pairwise(log.segments):
        *_, (_, header) = segment.iter_headers(0)
        assert header.end_offset == following.base_offset, why
    content, position = read_all(log), 0
    while position < len(content):
        header = read_header(content, position)
        aborted = log.transaction_index.between(header.base_offset, header.end_offset)
        unstable = log.first_unstable_offset
        is_open = unstable is not None and header.base_offset >= unstable
        is_plain = header.producer_id < 0 or header.is_control
        assert is_plain or aborted or is_open, f"{why}: offset {header.base_offset} counts as committed"
        position += header.length


def remains(disk: SimDisk, log: Log, act: Callable[[Log], object]) -> list[Folder]:
    """Return what a power cut would leave before each change that an act makes on the disk, and after the last."""
    left: list[Folder] = []

    def note() -> None:
        left.append(disk.snapshot())
        disk.power_up()
        disk.set_trap(0, note)

    disk.set_trap(0, note)
    act(log)
    disk.disarm()
    return [*left, disk.snapshot()]


def crashes(act: Callable[[Log], object], judge: Callable[[Log, str], object], **config: int) -> None:
    """Cut the power before each change that an act makes, with several outcomes each; judge what is left twice."""
    for seed in SEEDS:
        disk = SimDisk(seed)
        log = filled(disk, **config)
        for changes, left in enumerate(remains(disk, log, act)):
            again = SimDisk(seed)
            again.restore(left, "/data")
            for start in ("first", "second"):
                why = f"seed {seed}, {changes} changes, the {start} start"
                judge(open_log(again, BATCHES, **config), why)
                again.crash()


def drop_oldest(log: Log) -> None:
    assert log.delete_old_segments(NOW_MS, end_limit=BATCHES) > 2


def test_segments_that_left_the_head_of_a_log_leave_no_hole() -> None:
    """Retention dropped several: a start finishes that, whichever of the renames reached the disk."""
    crashes(drop_oldest, assert_whole, retention_bytes=300)


def test_files_of_dropped_segments_go_once_the_drop_is_durable() -> None:
    """They say that others were dropped too, and have to until those are."""

    def drop_and_remove(log: Log) -> None:
        drop_oldest(log)
        assert log.delete_due_files(NOW_MS) == 0
        log.flush()
        assert log.delete_due_files(NOW_MS) > 0

    crashes(drop_and_remove, assert_whole, retention_bytes=300)


@pytest.mark.parametrize(
    ("cut", "ends"),
    [
        (lambda log: log.truncate_to(5), range(BATCHES + 1)),
        (lambda log: log.truncate_fully_and_start_at(3), range(BATCHES + 1)),
        (lambda log: log.truncate_fully_and_start_at(900), [*range(BATCHES + 1), 900]),
    ],
    ids=["cut", "anew-behind", "anew-ahead"],
)
def test_a_cut_through_several_segments_leaves_no_hole(cut: Callable[[Log], object], ends: list[int]) -> None:
    """And no record counts as lost, neither truncated records, nor records before a later log start."""

    def judge(log: Log, why: str) -> None:
        assert_whole(log, why)
        assert log.log_end_offset in ends, why

    crashes(cut, judge)


def test_a_log_that_begins_anew_further_back_is_not_taken_for_what_was_dropped_before() -> None:
    """The files of the drop are still there, and say that all before them went."""
    for seed in SEEDS:
        disk = SimDisk(seed)
        log = filled(disk, retention_bytes=300, file_delete_delay_ms=60_000)
        drop_oldest(log)
        log.flush()
        assert [name for name in disk.listdir(FOLDER) if name.endswith(HEAD)]
        log.truncate_fully_and_start_at(2)
        append(log, b"new")
        log.flush()
        assert not [name for name in disk.listdir(FOLDER) if name.endswith((HEAD, TAIL))]
        disk.crash()
        again = open_log(disk, 3)
        assert (again.log_start_offset, again.log_end_offset, again.damage) == (2, 3, None)


def test_a_new_segment_does_not_inherit_the_aborted_transactions_of_an_old_one() -> None:
    """Its name was lost, and that of its index was not: a later segment may begin at the same offset."""
    disk = SimDisk(0)
    log = filled(disk)
    last = log.segments[-1]
    disk.release()
    disk.remove(last.path + ".log")
    again = open_log(disk, 0)
    assert not [name for name in disk.listdir(FOLDER) if name.startswith(last.path.rpartition("/")[2])]
    assert again.log_end_offset == last.base_offset


def test_a_second_segment_waits_for_the_name_of_the_first() -> None:
    """Else a power cut could take the first and leave the second, and the log would begin there."""
    for seed in SEEDS:
        disk = CountingDisk(seed)
        log = open_log(disk, 0)
        disk.sync_dir("/data")
        disk.folder_syncs = 0
        for _ in range(4):
            append(log, b"v" * 40)
        assert len(log.segments) == 4 and disk.folder_syncs == 1
        disk.crash()
        assert open_log(disk, 0).log_start_offset == 0


def test_the_segment_that_is_to_be_first_has_a_durable_name_before_others_are_dropped() -> None:
    """All below the high watermark may go, but the next segment was begun since the last sync."""
    for seed in SEEDS:
        disk = SimDisk(seed)
        log = filled(disk, retention_bytes=0)
        for _ in range(3):
            append(log, b"v" * 40)
        assert log.segments[-3].base_offset == BATCHES
        log.delete_old_segments(NOW_MS, end_limit=BATCHES)
        assert log.log_start_offset < BATCHES
        log.flush()
        log.delete_old_segments(NOW_MS, end_limit=BATCHES)
        assert log.log_start_offset == BATCHES


def test_folder_syncs_of_a_cleaning_and_of_drops_are_few() -> None:
    """Two for each group of segments that is cleaned, one more for the first hole; dropping waits for none."""
    disk = CountingDisk(0)
    log = open_compacted(disk, segment_bytes=10_000)
    syncs = []
    for _ in range(2):
        for number in range(30):
            put(log, (b"k%d" % (number % 3), b"%d" % number))
        close_segment(log)
        disk.folder_syncs, log.cleaned_until = 0, 0
        clean(log)
        syncs.append(disk.folder_syncs)
    assert syncs == [3, 2]
    disk = CountingDisk(0)
    log = filled(disk, retention_bytes=300)
    disk.folder_syncs = 0
    drop_oldest(log)
    assert disk.folder_syncs == 0
    log.flush()
    assert disk.folder_syncs == 1


def test_a_cleaned_segment_takes_the_place_of_several_or_of_none() -> None:
    """Whichever renames of the exchange are lost: no old segment stays beside the segment with its records."""

    def small_segments(disk: SimDisk) -> Log:
        log = open_compacted(disk, delete_retention_ms=0)
        for number in range(10):
            put(log, (b"k%d" % (number % 2), b"%d" % number), (b"k%d" % (number % 3), b"x"))
        close_segment(log)
        clean(log)
        log.flush()
        log.cleaned_until = 0
        return log

    expected = table_of(committed_of(small_segments(SimDisk(0))))
    for seed in SEEDS:
        for changes in range(MAX_CHANGES):
            disk = SimDisk(seed)
            log = small_segments(disk)
            end_offset, count = log.log_end_offset, len(log.segments)
            disk.set_trap(changes, lambda: None)
            is_done = True
            try:
                clean(log)
                assert len(log.segments) < count - 1, "no group of several"
            except OSError:
                is_done = False
            disk.crash()
            disk.power_up()
            again = open_compacted(disk, recovery_point=end_offset, delete_retention_ms=0)
            again.on_high_watermark_updated(end_offset)
            assert_whole(again, f"seed {seed}, {changes} changes")
            assert table_of(committed_of(again)) == expected
            if is_done:
                break
