"""Recovery: torn tails are cut, damage is set aside and never served, everything beside the log can be made anew."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftlog.base.config import TopicConfig
from raftlog.base.errors import CorruptMessage, KafkaError, KafkaStorageError, OutOfOrderSequenceNumber
from raftlog.records.batch import iter_headers
from raftlog.storage.damage import Damage
from raftlog.storage.log import Log
from raftlog.storage.recovery import TruncationMark
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.errors import raises_errno
from tests.kit.examples import examples
from tests.storage.batches import NOW_MS, append, read_all
from tests.storage.conftest import OpenLog

FOLDER = "/data/t-0"
FIRST = f"{FOLDER}/{0:020d}"
MAX_CHANGES = 200
"""More than any truncation makes on the disk."""


def sim_log(disk: SimDisk, *, clean: bool = False, recovery_point: int = 0, segment_bytes: int = 600) -> Log:
    """Open the log of /data/t-0 on a simulated disk."""
    return Log.open(
        disk,
        FOLDER,
        config=TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=150),
        recovery_point=recovery_point,
        clean=clean,
        topic_id=None,
        now_ms=NOW_MS,
    )


def filled_disk(count: int = 12, *, segment_bytes: int = 600) -> tuple[SimDisk, bytes]:
    """Return a disk with a log of some batches in several segments, all flushed, and its content."""
    disk = SimDisk(0)
    log = sim_log(disk, segment_bytes=segment_bytes)
    for number in range(count):
        append(log, b"value %d" % number, b"v" * 40, leader_epoch=number // 4, producer=(9, 0, 2 * number))
    log.flush()
    log.checkpoint()
    content = read_all(log)
    disk.release()
    return disk, content


def overwrite(disk: SimDisk, path: str, position: int, replacement: bytes) -> None:
    """Change bytes of a file behind the log's back."""
    file = disk.open(path)
    file.pwritev([replacement], position)
    file.sync()


def test_a_log_cut_at_every_byte_of_its_tail_keeps_the_whole_batches(tmp_path: Path) -> None:
    """A file that ends anywhere in its last batches keeps exactly the whole batches, and appends go on from there."""
    disk, content = filled_disk(4, segment_bytes=1 << 20)
    headers = list(iter_headers(content))
    first_cut = headers[-2][0]
    for size in range(first_cut, len(content)):
        disk = SimDisk(0)
        disk.mkdir(FOLDER)
        disk.write_file(FIRST + ".log", content[:size])
        log = sim_log(disk, segment_bytes=1 << 20)
        whole = [header for at, header in headers if at + header.length <= size]
        assert read_all(log) == content[: sum(header.length for header in whole)]
        assert log.damage is None
        assert disk.open(FIRST + ".log").size() == log.size_bytes
        assert log.latest_epoch == whole[-1].leader_epoch
        assert append(log, b"a", b"b", producer=(9, 0, 2 * len(whole))).base_offset == 2 * len(whole)


@pytest.mark.parametrize("tail", [b"\0" * 7, b"\0" * 600, b"garbage", b"\xff" * 100])
def test_bytes_after_the_last_batch_are_cut(tail: bytes) -> None:
    """Zeros of a preallocated or unwritten block and garbage after the last batch are a torn tail."""
    disk, content = filled_disk(3, segment_bytes=1 << 20)
    overwrite(disk, FIRST + ".log", len(content), tail)
    for clean in (False, True):
        log = sim_log(disk, clean=clean, segment_bytes=1 << 20)
        assert (read_all(log), log.damage) == (content, None)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=st.integers(0, 10), share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@example(batch=3, share=11.5 / 122, bit=0)  # a length that grew, in the last batch of a segment
def test_a_flipped_bit_in_the_middle_is_damage_not_a_torn_tail(batch: int, share: float, bit: int) -> None:
    """One flipped bit before sound batches: no batch from there on is served, and the replica is marked.

    The leader epoch (bytes 12 to 15) lies outside the CRC: see the next test.
    """
    disk, content = filled_disk()
    headers = [header for _, header in iter_headers(content)]
    target = headers[batch]
    base = max(
        int(name[:20])
        for name in disk.listdir(FOLDER)
        if name.endswith(".log") and int(name[:20]) <= target.base_offset
    )
    position = sum(header.length for header in headers if base <= header.base_offset < target.base_offset)
    at = int(share * target.length)
    disk.flip_bit(f"{FOLDER}/{base:020d}.log", position + (at if not 12 <= at < 16 else 16), bit)
    log = sim_log(disk)
    sound = content[: sum(header.length for header in headers[:batch])]
    assert read_all(log) == sound
    assert log.log_end_offset == target.base_offset
    assert log.damage is not None and log.damage.offset == target.base_offset
    with pytest.raises(KafkaStorageError):
        append(log, b"x")


@pytest.mark.parametrize("point", [0, 24])
def test_a_leader_epoch_that_rots_upwards_is_damage(point: int) -> None:
    """The checkpoint of epochs shows it up to the recovery point; beyond it, the epoch that goes back a batch later."""
    disk, _ = filled_disk(segment_bytes=1 << 20)
    disk.flip_bit(FIRST + ".log", 122 + 13)
    disk.remove(FIRST + ".index")
    log = sim_log(disk, recovery_point=point, segment_bytes=1 << 20)
    assert log.damage == Damage(2, 24)
    assert log.epoch_end(0).end_offset == 2


@pytest.mark.parametrize(("position", "offset"), [(122 + 15, 2), (5 * 122 + 15, 10)])
def test_a_rotten_leader_epoch_is_found_by_its_first_reader(position: int, offset: int) -> None:
    """No CRC covers it: the log's notes on epochs do, also where the rotten epoch was possible (epoch 1 to 0)."""
    disk, _ = filled_disk(segment_bytes=1 << 20)
    log = sim_log(disk, segment_bytes=1 << 20)
    log.close(clean=True)
    disk.flip_bit(FIRST + ".log", position)
    log = sim_log(disk, clean=True, segment_bytes=1 << 20)
    with pytest.raises(CorruptMessage):
        log.read(0, 1 << 20, end_offset=24)
    assert log.damage is not None and log.damage.offset == offset


@pytest.mark.parametrize("at", [0, 7, 8, 11, 12, 15, 40, 90])
def test_what_rots_in_memory_is_found_when_a_reader_trusts_nothing(at: int) -> None:
    """Bytes that this process wrote itself are not checked without a reason."""
    log = sim_log(disk := SimDisk(0), segment_bytes=1 << 20)
    for number in range(6):
        append(log, b"value %d" % number, b"v" * 40, leader_epoch=1)
    size = log.size_bytes // 6
    log.read(2, size, end_offset=12)
    disk.flip_bit(FIRST + ".log", 2 * size + at, 0)
    with pytest.raises(CorruptMessage):
        log.read(4, size, end_offset=12, checked=True)
    assert log.damage == Damage(4, 12)


def test_epochs_that_go_back_in_a_log_whose_checkpoint_is_lost_are_damage() -> None:
    """A cache that is made anew from the log is no evidence against it; that epochs only grow still is."""
    disk, _ = filled_disk(segment_bytes=1 << 20)
    disk.remove(f"{FOLDER}/leader-epoch-checkpoint")
    disk.flip_bit(FIRST + ".log", 122 + 13)
    assert sim_log(disk, recovery_point=24, segment_bytes=1 << 20).damage == Damage(2, 24)


def test_a_damaged_replica_is_healed_by_its_leader_and_marked_until_then() -> None:
    """It refuses to lead, over restarts too, until it has fetched up to its former end; bad bytes are kept aside."""
    disk, content = filled_disk()
    disk.flip_bit(FIRST + ".log", 200)
    log = sim_log(disk)
    damage = log.damage
    assert damage == Damage(2, 24)
    assert f"{2:020d}.damaged" in disk.listdir(FOLDER)
    log.close(clean=True)
    log = sim_log(disk, clean=True)
    assert log.damage == damage
    position = next(at for at, header in iter_headers(content) if header.base_offset == 2)
    half = next(at for at, header in iter_headers(content) if header.base_offset == 12)
    log.append_as_follower(content[position:half], now_ms=NOW_MS)
    assert log.damage == damage
    log.append_as_follower(content[half:], now_ms=NOW_MS)
    assert log.damage is None
    assert read_all(log) == content
    assert append(log, b"x", leader_epoch=3).base_offset == 24
    log.close(clean=True)
    assert sim_log(disk, clean=True).damage is None


@pytest.mark.parametrize("found_by", ["start", "reader"])
def test_a_recovery_point_from_before_a_cut_of_damage_is_not_believed(found_by: str) -> None:
    """Records that are fetched again are not flushed yet, and their leader epochs are in no file."""
    disk, content = filled_disk(segment_bytes=1 << 20)
    log = sim_log(disk, recovery_point=24, segment_bytes=1 << 20)
    log.close(clean=False)
    disk.flip_bit(FIRST + ".log", 520)
    if found_by == "start":
        disk.remove(FIRST + ".index")
    log = sim_log(disk, recovery_point=24, segment_bytes=1 << 20)
    if found_by == "reader":
        with pytest.raises(CorruptMessage):
            log.read(0, 1 << 20, end_offset=24)
        log.truncate_damage()
    kept, cut_at = len(read_all(log)), log.log_end_offset
    assert 0 < cut_at < 24 and log.damage is not None
    log.append_as_follower(content[kept:], now_ms=NOW_MS)
    assert log.damage is None
    log.active_segment.save_indexes(final=True)
    disk.release()
    again = sim_log(disk, recovery_point=24, segment_bytes=1 << 20)
    assert again.recovery_point == cut_at
    for _, header in iter_headers(content):
        assert again.epoch_at(header.base_offset) == header.leader_epoch


def test_damage_found_by_a_reader_stops_the_log_there() -> None:
    """Bytes from before the start are checked when first read: a bad batch is never returned, what precedes it is."""
    disk, content = filled_disk(segment_bytes=1 << 20)
    log = sim_log(disk, clean=True, segment_bytes=1 << 20)
    log.close(clean=True)
    disk.flip_bit(FIRST + ".log", 520)
    log = sim_log(disk, clean=True, segment_bytes=1 << 20)
    with pytest.raises(CorruptMessage):
        log.read(0, 1 << 20, end_offset=24)
    assert log.damage is not None
    bad = log.damage.offset
    sound = b"".join(content[at : at + h.length] for at, h in iter_headers(content) if h.end_offset <= bad)
    assert log.read(0, 1 << 20, end_offset=24) == sound
    with pytest.raises(KafkaStorageError):
        log.read(bad, 1 << 20, end_offset=24)
    with pytest.raises(KafkaStorageError):
        append(log, b"x")
    log.truncate_damage()
    assert (log.log_end_offset, read_all(log)) == (bad, sound)
    log.append_as_follower(content[len(sound) :], now_ms=NOW_MS)
    assert (read_all(log), log.damage) == (content, None)


def test_a_hole_of_unwritten_sectors_is_a_torn_tail() -> None:
    """Blocks may reach the disk out of order: zeros before sound batches were never flushed, so they are cut."""
    disk = SimDisk(0)
    log = sim_log(disk, segment_bytes=1 << 20)
    for number in range(6):
        append(log, b"v" * 600, producer=(9, 0, number))
    log.flush()
    content = read_all(log)
    disk.release()
    second = next(at for at, header in iter_headers(content) if header.base_offset == 2)
    sector = (second // 512 + 1) * 512
    overwrite(disk, FIRST + ".log", sector, bytes(512))
    log = sim_log(disk, segment_bytes=1 << 20)
    assert (read_all(log), log.damage) == (content[:second], None)


def test_only_what_lies_from_the_recovery_point_on_is_checked() -> None:
    """Segments before the recovery point are trusted at the start, so a restart does not read the whole disk."""
    disk, _ = filled_disk()
    last = max(name for name in disk.listdir(FOLDER) if name.endswith(".log"))
    disk.flip_bit(FIRST + ".log", 200)
    assert sim_log(disk, recovery_point=int(last[:20])).damage is None


@pytest.mark.parametrize("clean", [False, True])
def test_a_length_that_rots_before_the_recovery_point_is_damage_not_a_failed_start(clean: bool) -> None:
    """The walk that brings the producers back meets it; no CRC covers a batch's length."""
    disk, _ = filled_disk(segment_bytes=1 << 20)
    disk.flip_bit(FIRST + ".log", 122 + 9)
    log = sim_log(disk, recovery_point=24, clean=clean, segment_bytes=1 << 20)
    assert log.damage == Damage(2, 24)
    assert log.log_end_offset == 2


def test_flushed_records_that_are_missing_are_damage() -> None:
    """A sound log that ends before its recovery point has lost what a sync had promised."""
    disk, content = filled_disk()
    last = max(name for name in disk.listdir(FOLDER) if name.endswith(".log"))
    disk.open(f"{FOLDER}/{last}").truncate(0)
    log = sim_log(disk, recovery_point=24)
    cut_at = int(last[:20])
    assert log.damage == Damage(cut_at, 24)
    assert content.startswith(read_all(log))
    log.append_as_follower(content[len(read_all(log)) :], now_ms=NOW_MS)
    disk.release()
    again = sim_log(disk, recovery_point=24)
    assert (again.log_end_offset, again.recovery_point) == (24, cut_at)


def _shorten(disk: SimDisk, size: int) -> None:
    disk.open(FIRST + ".log").truncate(size - 30)


def _zero_the_end(disk: SimDisk, size: int) -> None:
    overwrite(disk, FIRST + ".log", size - 200, bytes(200))


def _zero_a_sector(disk: SimDisk, size: int) -> None:
    overwrite(disk, FIRST + ".log", 512, bytes(512))


@pytest.mark.parametrize("lose", [_shorten, _zero_the_end, _zero_a_sector])
@pytest.mark.parametrize("clean", [False, True])
def test_flushed_records_that_look_like_a_torn_tail_are_damage(
    lose: Callable[[SimDisk, int], None], clean: bool
) -> None:
    """A torn tail was never flushed. The recovery point says that these records were, so the disk lost them."""
    disk, content = filled_disk(segment_bytes=1 << 20)
    sim_log(disk, segment_bytes=1 << 20).close(clean=True)
    lose(disk, len(content))
    log = sim_log(disk, recovery_point=24, clean=clean, segment_bytes=1 << 20)
    assert log.log_end_offset < 24 and content.startswith(read_all(log))
    assert log.damage == Damage(log.log_end_offset, 24)


def test_a_log_that_ends_before_its_recovery_point_after_a_clean_stop_is_damaged() -> None:
    """The stop flushed all of it, so what is missing was on the disk."""
    disk, content = filled_disk(segment_bytes=1 << 20)
    sim_log(disk, segment_bytes=1 << 20).close(clean=True)
    *_, (position, header) = iter_headers(content)
    with disk.undisturbed():
        disk.open(FIRST + ".log").truncate(position)
        disk.remove(FIRST + ".timeindex")
    log = sim_log(disk, recovery_point=24, clean=True, segment_bytes=1 << 20)
    assert log.damage == Damage(header.base_offset, 24)


SEQUENCE = 56
"""The last byte of a batch's base sequence."""


def test_producers_are_not_replayed_from_a_batch_that_rotted() -> None:
    """A clean start checks no batch, but the snapshots are gone, and sequences from the records are believed."""
    disk, _ = filled_disk()
    for name in disk.listdir(FOLDER):
        if name.endswith(".snapshot"):
            disk.remove(f"{FOLDER}/{name}")
    overwrite(disk, f"{FOLDER}/00000000000000000008.log", 122 + SEQUENCE, b"\x63")
    log = sim_log(disk, clean=True)
    assert log.damage is not None
    assert log.damage.offset == 10


def test_batch_that_rotted_is_no_retry() -> None:
    """The batches before a producer's last are read from the log's end: not this one, whose sequence changed."""
    disk, _ = filled_disk()
    overwrite(disk, f"{FOLDER}/00000000000000000008.log", 3 * 122 + SEQUENCE, b"\x63")
    log = sim_log(disk, clean=True)
    assert append(log, b"a", b"b", leader_epoch=2, producer=(9, 0, 18)).duplicate
    for sequence in (14, 0x63):
        with pytest.raises(OutOfOrderSequenceNumber):
            append(log, b"a", b"b", leader_epoch=2, producer=(9, 0, sequence))


def test_a_truncation_is_not_taken_for_lost_records() -> None:
    """After truncate_to below the recovery point the directory's checkpoint may still have the old value."""
    disk, _ = filled_disk()
    log = sim_log(disk, recovery_point=24)
    log.truncate_to(10)
    disk.crash()
    log = sim_log(disk, recovery_point=24)
    assert (log.log_end_offset, log.damage) == (10, None)
    log.checkpoint()
    log.recovery_point_written(24)  # drawn up before the cut
    log.checkpoint()
    assert any(name.startswith("raftlog-") for name in disk.listdir(FOLDER))
    log.recovery_point_written(10)
    log.high_watermark_written()
    log.checkpoint()
    assert not any(name.startswith("raftlog-") for name in disk.listdir(FOLDER))


@pytest.mark.parametrize(
    "cut", [lambda log: log.truncate_to(11), lambda log: log.truncate_fully_and_start_at(3)]
)
def test_a_power_loss_in_the_midst_of_a_truncation_is_not_taken_for_lost_records(
    cut: Callable[[Log], object],
) -> None:
    """Only a part of a cut may have reached the disk: the next start does not miss what it was about to take."""
    for changes in range(MAX_CHANGES):
        disk, _ = filled_disk()
        log = sim_log(disk, recovery_point=24)
        disk.set_trap(changes, lambda: None)
        try:
            cut(log)
        except OSError:
            pass
        else:
            assert changes, "the power never went"
            return
        disk.crash()
        disk.power_up()
        assert sim_log(disk, recovery_point=24).damage is None, f"the power went after {changes} changes"
    raise AssertionError("a cut is a few changes only")


@pytest.mark.parametrize(
    "cut", [lambda log: log.truncate_to(20, committed=True), lambda log: log.truncate_fully_and_start_at(40)]
)
def test_a_second_cut_further_on_does_not_take_the_first_one_back(cut: Callable[[Log], object]) -> None:
    """The recovery point on the disk is from before both, and what was written between them is not flushed."""
    for changes in range(MAX_CHANGES):
        disk, _ = filled_disk()
        log = sim_log(disk, recovery_point=24)
        log.truncate_to(10)
        while log.log_end_offset < 30:
            append(log, b"x", leader_epoch=3)
        disk.set_trap(changes, lambda: None)
        try:
            cut(log)
        except OSError:
            pass
        else:
            assert changes, "the power never went"
            return
        disk.crash()
        disk.power_up()
        assert sim_log(disk, recovery_point=24).damage is None, f"the power went after {changes} changes"
    raise AssertionError("a cut is a few changes only")


def test_a_log_that_began_anew_knows_no_producer_of_before() -> None:
    """Also where it begins at the offset of a snapshot, and whenever the power goes meanwhile."""
    for changes in range(MAX_CHANGES):
        disk, _ = filled_disk()
        log = sim_log(disk, recovery_point=24)
        disk.set_trap(changes, lambda: None)
        try:
            log.truncate_fully_and_start_at(24)
        except OSError:
            pass
        else:
            assert changes, "the power never went"
            assert len(log.producers) == 0
            return
        disk.crash()
        disk.power_up()
        log = sim_log(disk, recovery_point=24)
        is_new = log.log_start_offset == 24
        assert len(log.producers) == (0 if is_new else 1) or not read_all(log), f"after {changes} changes"
    raise AssertionError("a cut is a few changes only")


def test_a_log_that_began_anew_is_not_held_to_its_old_epochs() -> None:
    """A crash before the next checkpoint: the old epochs on disk would condemn the leader's older epochs as damage."""
    disk, _ = filled_disk()
    log = sim_log(disk, recovery_point=24)
    log.checkpoint()
    assert log.latest_epoch == 2
    log.truncate_fully_and_start_at(100)
    assert log.latest_epoch == -1
    append(log, b"x", leader_epoch=1)
    append(log, b"y", leader_epoch=1)
    log.flush()
    for _ in range(2):
        disk.crash()
        log = sim_log(disk, recovery_point=24)
        assert (log.log_start_offset, log.log_end_offset, log.latest_epoch, log.damage) == (100, 102, 1, None)


SIDE_FILES = ["index", "timeindex", "snapshot", "leader-epoch-checkpoint"]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(SIDE_FILES), fate=st.none() | st.binary(max_size=60), clean=st.booleans())
def test_side_files_that_are_lost_or_garbled_are_made_anew(
    kind: str, fate: bytes | None, clean: bool
) -> None:
    """Indexes, snapshots and the epoch checkpoint follow from the log: without them everything reads the same."""
    disk, content = filled_disk()
    for name in disk.listdir(FOLDER):
        if name.endswith(kind) and fate is None:
            disk.remove(f"{FOLDER}/{name}")
        elif name.endswith(kind) and fate is not None:
            disk.write_file(f"{FOLDER}/{name}", fate)
    log = sim_log(disk, clean=clean, recovery_point=24)
    assert read_all(log, max_bytes=300) == content
    for _, header in iter_headers(content):
        read = log.read(header.base_offset, 1, end_offset=24, cached=False)
        assert read is not None and read.startswith(header.base_offset.to_bytes(8, "big"))
    if kind != "leader-epoch-checkpoint" or fate is None or not fate.startswith(b"0\n"):
        assert [log.epoch_end(epoch).end_offset for epoch in range(3)] == [8, 16, 24]
    if clean or kind != "timeindex":
        assert log.damage is None
    assert append(log, b"value 11", b"v" * 40, producer=(9, 0, 22)).duplicate
    assert append(log, b"x", producer=(9, 0, 24), leader_epoch=3).base_offset == 24


def test_a_segment_of_another_log_in_the_middle_is_cut() -> None:
    """Segments must follow each other: a missing segment in the middle ends the log there, marked as damage."""
    disk, content = filled_disk()
    names = [name for name in disk.listdir(FOLDER) if name.endswith(".log")]
    disk.remove(f"{FOLDER}/{names[1]}")
    log = sim_log(disk)
    assert content.startswith(read_all(log))
    assert log.log_end_offset == int(names[1][:20])


@pytest.mark.parametrize("operation", ["read", "write", "sync", "open"])
def test_an_io_error_is_never_swallowed(operation: str) -> None:
    """EIO surfaces as OSError, so that the log directory goes offline (a retried fsync lies)."""
    disk, _ = filled_disk()
    log = sim_log(disk, clean=True)
    disk.fail(operation, error=errno.EIO)
    with raises_errno(errno.EIO):
        if operation == "open":
            sim_log(disk)
        log.read(0, 100, end_offset=24, cached=False)
        append(log, b"x")
        log.flush()


def test_leftovers_of_an_interrupted_deletion_are_removed(open_log: OpenLog, tmp_path: Path) -> None:
    """`.deleted`, `.cleaned`, `.swap` and `.tmp` files of a stopped process go at the next start."""
    log = open_log()
    append(log, b"x")
    log.close(clean=True)
    for suffix in (".deleted", ".cleaned", ".swap", ".tmp"):
        (tmp_path / "t-0" / f"{0:020d}.log{suffix}").write_bytes(b"old")
    assert read_all(open_log(clean=True))
    assert not [each for each in (tmp_path / "t-0").iterdir() if each.suffix in (".deleted", ".swap", ".tmp")]


def test_garbage_in_the_folder_is_left_alone(open_log: OpenLog, tmp_path: Path) -> None:
    """Files that are none of the log's do not disturb a start."""
    append(open_log(), b"x")
    for name in ("notes.txt", "12.log", "x" * 20 + ".log", ".lock"):
        (tmp_path / "t-0" / name).write_bytes(b"?")
    log = open_log()
    assert log.log_end_offset == 1 and (tmp_path / "t-0" / "notes.txt").exists()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(garbage=st.binary(min_size=1, max_size=300))
def test_a_segment_of_garbage_opens_as_an_empty_log(garbage: bytes) -> None:
    """Opening and reading a `.log` file raise only Kafka errors, whatever it holds."""
    disk = SimDisk(0)
    disk.mkdir(FOLDER)
    disk.write_file(FIRST + ".log", garbage)
    try:
        assert read_all(sim_log(disk)) == b""
    except KafkaError:
        pass


def test_rot_under_a_running_process_is_found_by_the_first_read_that_waits_for_the_device() -> None:
    """Bytes that the process wrote itself are trusted in memory only: once they come from the device, they are
    checked again.
    """
    disk = SimDisk(0)
    log = sim_log(disk, segment_bytes=1 << 20)
    for number in range(6):
        append(log, b"value %d" % number)
    log.flush()
    content = read_all(log)
    assert disk.rot(FIRST + ".log", len(content) // 2)
    assert log.read(0, 1 << 20, end_offset=6, cached=True) == content
    disk.cold_read_rate = 1.0
    assert log.read(0, 1 << 20, end_offset=6, cached=True) is None
    with pytest.raises(CorruptMessage):
        log.read(0, 1 << 20, end_offset=6, cached=False)
    assert log.damage is not None


def test_the_mark_of_a_cut_outlives_a_recovery_point_that_no_checkpoint_preceded() -> None:
    """A file that was drawn up before the cut may be written after it: only the next one follows the cut for sure."""
    disk, _ = filled_disk()
    mark = TruncationMark(disk, FOLDER)
    mark.cut(3)
    mark.note_written_high_watermark()
    mark.note_written_point()
    mark.note_checkpoint()
    assert mark.until == 3, "the file may be from before the cut"
    mark.note_written_point()
    assert TruncationMark.read(disk, FOLDER, unchecked_ok=False).until == 3
    mark.note_checkpoint()
    assert mark.until is None
    assert TruncationMark.read(disk, FOLDER, unchecked_ok=False).until is None


def test_the_mark_of_a_cut_outlives_a_high_watermark_from_before_it() -> None:
    """Recovery points follow each second, and the high watermark's file is written more rarely."""
    disk, _ = filled_disk()
    mark = TruncationMark(disk, FOLDER)
    mark.note_written_high_watermark()
    mark.cut(3)
    for _ in range(3):
        mark.note_checkpoint()
        mark.note_written_point()
    assert TruncationMark.read(disk, FOLDER, unchecked_ok=False).until == 3
    mark.note_written_high_watermark()
    mark.note_checkpoint()
    assert mark.until is None
