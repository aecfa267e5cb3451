"""A cleaning that a crash interrupts: the old segments or the new segment, after every single change of the disk."""

from __future__ import annotations

import pytest

from raftlog.storage import swap
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.compacted_logs import (
    FOLDER,
    batches_of,
    clean,
    close_segment,
    committed_of,
    end,
    flush_and_checkpoint,
    open_compacted,
    put,
    records_of,
    table_of,
)

MAX_CHANGES = 400
"""More than any cleaning here makes on the disk."""


def filled(disk: SimDisk) -> Log:
    """A log with superseded records, tombstones and transactions in several segments, and a tail."""
    log = open_compacted(disk, delete_retention_ms=0)
    for number in range(7):
        put(log, (b"k%d" % (number % 3), b"%d" % number), (b"t", None if number % 2 else b"x"))
        put(log, (b"a", b"%d" % number), producer=(7, 0, number), transactional=True)
        end(log, 7, commit=number % 3 > 0)
    close_segment(log)
    put(log, (b"tail", b"tail"))
    flush_and_checkpoint(log)
    return log


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
def test_a_crash_at_any_change_of_a_cleaning_leaves_the_old_or_the_new(power: bool) -> None:
    """Cut before each change in turn: no log is damaged, every key reads the same, and cleaning goes on."""
    expected = table_of(committed_of(filled(SimDisk(0))))
    interrupted = 0
    for changes in range(MAX_CHANGES):
        disk = SimDisk(changes)
        log = filled(disk)
        end_offset = log.log_end_offset
        disk.set_trap(changes, lambda: None)
        try:
            clean(log)
        except OSError:
            interrupted += 1
        else:
            assert interrupted > 20, "the power hardly ever went"
            return
        disk.crash() if power else disk.release()
        disk.power_up()
        again = open_compacted(disk, recovery_point=end_offset, delete_retention_ms=0)
        again.on_high_watermark_updated(end_offset)
        assert (again.damage, again.log_end_offset) == (None, end_offset), f"after {changes} changes"
        assert table_of(committed_of(again)) == expected, f"after {changes} changes"
        assert again.first_unstable_offset is None
        assert not [name for name in disk.listdir(FOLDER) if name.endswith((".cleaned", ".swap"))]
        clean(again)
        assert table_of(committed_of(again)) == expected
        put(again, (b"a", b"next"), producer=(7, 0, 7))
    raise AssertionError("a cleaning is some hundred changes at most")


def test_a_power_loss_at_any_change_of_a_start_that_finishes_a_swap_is_no_harm() -> None:
    """Recovery may be interrupted too, any number of times."""
    disk = SimDisk(3)
    log = filled(disk)
    expected, end_offset = table_of(committed_of(log)), log.log_end_offset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swap, "take_names", lambda disk, cleaned: disk.remove("/data/nowhere"))
        with pytest.raises(OSError):
            clean(log)
    disk.sync_dir(FOLDER)
    assert [name for name in disk.listdir(FOLDER) if name.endswith(".log.swap")]
    disk.crash()
    for changes in range(MAX_CHANGES):
        disk.set_trap(changes % 12, lambda: None)
        try:
            again = open_compacted(disk, recovery_point=end_offset)
        except OSError:
            disk.crash()
            disk.power_up()
            if changes % 12 < 11:
                continue
        disk.disarm()
        again = open_compacted(disk, recovery_point=end_offset)
        again.on_high_watermark_updated(end_offset)
        assert (again.damage, again.log_end_offset) == (None, end_offset)
        assert table_of(committed_of(again)) == expected
        return


def test_a_swap_file_that_is_not_sound_gives_way_to_what_is_still_there() -> None:
    """It was synced before it had that name, so it has rotted since."""
    disk = SimDisk(0)
    log = filled(disk)
    held = batches_of(log)
    disk.release()
    disk.write_file(f"{FOLDER}/{0:020d}.log.swap", b"junk")
    again = open_compacted(disk)
    assert batches_of(again) == held
    assert len(records_of(again)) > 0
