"""A bit of a log's files flips while the node is down: records served afterwards are as before, or refused."""

from __future__ import annotations

from random import Random

import pytest
from structlog.testing import capture_logs

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.errors import CorruptMessage
from raftlog.storage.damage import Damage, write_damage_mark
from raftlog.storage.partition_files import DAMAGE_MARK, EPOCH_CHECKPOINT, PARTITION_METADATA, TRUNCATION_MARK
from raftlog.storage.recovery import TruncationMark
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.marks import nightly
from tests.storage.rotten_logs import (
    FOLDER,
    Opened,
    Readings,
    disk_of,
    fill,
    flipped,
    flips,
    is_beyond_proof,
    is_never_used,
    open_log,
    wrong_answers,
)

TASTE, ALL = 110, 1000
HOWS = (
    Opened(clean=True, recovery_point=0),
    Opened(clean=False, recovery_point=0),
    Opened(clean=False, recovery_point=40),
)


@pytest.mark.parametrize(
    ("seed", "count"), [(1, TASTE), *(nightly(seed, ALL, id=f"{seed}-all") for seed in range(1, 11))]
)
def test_a_flipped_bit_is_found_or_misleads_no_reader(seed: int, count: int) -> None:
    """In segments, all indexes, producer snapshots, small files, and checksums: 10,000 flips at night.

    A log line names it, unless neither the start nor a reader uses it.
    """
    chance = Random(seed)
    files = fill(chance)
    sound = {how: Readings.of(open_log(disk_of(files), how)) for how in HOWS}
    for name, position, bit in flips(chance, files, count):
        how = chance.choice(HOWS)
        if is_beyond_proof(files, name, position, how):
            continue
        where = f"seed {seed}: bit {bit} of byte {position} of {name}, opened {how}"
        with capture_logs() as lines:
            log = open_log(disk_of(flipped(files, name, position, bit)), how)
            wrong = wrong_answers(sound[how], log)
        assert not wrong, f"{where}: {wrong[:3]}"
        if not is_never_used(files, name, position, bit, how):
            assert lines or log.damage is not None, f"{where}: nothing says so"
        assert len(lines) == len(set(map(str, lines))), f"{where}: {lines}"


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_whichever_byte_of_an_index_rots_no_search_is_misled(kind: str) -> None:
    """No checksum covers an entry, but its batch does: retention by age asks the newest time of each segment."""
    files = fill(Random(1))
    sound = Readings.of(open_log(disk_of(files), HOWS[0]))
    names = [name for name in sorted(files) if name.endswith(f".{kind}")]
    for name in (names[1], names[-1]):
        for position in range(len(files[name])):
            log = open_log(disk_of(flipped(files, name, position, position % 8)), HOWS[0])
            assert not wrong_answers(sound, log), (name, position)


def test_a_start_names_the_index_that_does_not_lead_to_the_recovery_point() -> None:
    """The last entry before it points to another batch, or its time is wrong. A short index is that of a crash."""
    files = fill(Random(1))
    sound = open_log(disk_of(files), HOWS[0])
    segment = sound.segments[1]
    segment.load_time_index()
    offset, at = segment.index.entries()[2][0] + 1, 2
    times = [each[1] for each in segment.time_index.entries()]
    first_of_batch = segment.index.entries()[1][0] + 1
    of_time = max(number for number, each in enumerate(times) if each < first_of_batch)
    name = f"{segment.base_offset:020d}"
    how = Opened(clean=False, recovery_point=offset)
    for rotten in (
        flipped(files, f"{name}.index", 8 * at + 7, 0),
        flipped(files, f"{name}.timeindex", 12 * of_time + 7, 0),
    ):
        with capture_logs() as lines:
            open_log(disk_of(rotten), how).close(clean=False)
        assert [line["event"] for line in lines] == ["index_rebuilt"]
    behind = {**files, f"{name}.index": files[f"{name}.index"][: 8 * at]}
    with capture_logs() as lines:
        open_log(disk_of(behind), how).close(clean=False)
    assert lines == []


def test_an_index_entry_that_leads_beyond_its_offset_is_no_way_there() -> None:
    """Sorted as ever, it would have a search skip the batches before its target."""
    files = fill(Random(1))
    name = sorted(name for name in files if name.endswith(".index"))[1]
    entries = [int.from_bytes(files[name][at : at + 4], "big") for at in range(0, len(files[name]), 8)]
    lowered = entries[0] + 1
    assert lowered < entries[1]
    content = files[name][:8] + lowered.to_bytes(4, "big") + files[name][12:]
    log = open_log(disk_of({**files, name: content}), HOWS[0])
    segment = log.segments[1]
    offset = segment.base_offset + lowered + 1
    with pytest.raises(CorruptMessage):
        segment.locate(offset, cached=False)
    segment.rebuild_indexes()
    found = segment.locate(offset, cached=False)
    assert found is not None and found[1] <= offset


def rot_with_its_copy(disk: SimDisk, path: str) -> None:
    """Flip a bit of a file, and a bit of its copy."""
    disk.flip_bit(path, 2)
    disk.flip_bit(path + CHECKSUMS, len(disk.read_file(path + CHECKSUMS)) - 2)


def test_a_damage_mark_that_rotted_is_no_sound_log() -> None:
    """It comes back from its copy; if both are wrong the log counts as damaged, up to whatever end."""
    files = fill(Random(1))
    disk = disk_of(files)
    write_damage_mark(disk, FOLDER, Damage(40, 50))
    disk.flip_bit(f"{FOLDER}/{DAMAGE_MARK}", 2)
    assert open_log(disk, HOWS[1]).damage == Damage(40, 50)
    rot_with_its_copy(disk, f"{FOLDER}/{DAMAGE_MARK}")
    damage = open_log(disk, HOWS[1]).damage
    assert damage is not None and damage.offset == 0 and damage.until_offset > 2**60


def test_a_truncation_mark_that_rotted_is_no_missing_record() -> None:
    """It comes back from its copy; if both are wrong no recovery point is trusted: no record counts as lost."""
    files = fill(Random(1))
    disk = disk_of(files)
    log = open_log(disk, HOWS[0])
    end = log.log_end_offset
    log.close(clean=True)
    for is_rotten in (False, True):
        TruncationMark(disk, FOLDER).cut(end)
        if is_rotten:
            rot_with_its_copy(disk, f"{FOLDER}/{TRUNCATION_MARK}")
        log = open_log(disk, Opened(clean=False, recovery_point=end + 10))
        assert (log.damage, log.log_end_offset) == (None, end)


def test_aborted_transactions_are_found_again_in_the_records() -> None:
    """A rotten .txnindex is made anew, for good, without any of the others."""
    files = fill(Random(1))
    log = open_log(disk_of(files), HOWS[0])
    aborted = log.aborted_before(log.log_end_offset)
    indexes = [name for name in files if name.endswith(".txnindex")]
    assert len(aborted) > 3 and len(indexes) > 2
    disk = disk_of(files)
    for name in indexes:
        disk.flip_bit(f"{FOLDER}/{name}", 20)
    for _ in range(2):
        with capture_logs() as lines:
            log = open_log(disk, HOWS[0])
        assert log.aborted_before(log.log_end_offset) == aborted
        log.close(clean=True)
    assert not [line for line in lines if line["event"].startswith("rotten")], "the second start"


def test_a_folder_of_raftlog_0_3_is_believed_once() -> None:
    """Its files have no checksums. After the first start no such file is believed, wherever it came from."""
    files = {name: content for name, content in fill(Random(1)).items() if not name.endswith(CHECKSUMS)}
    disk = disk_of(files)
    with capture_logs() as lines:
        log = open_log(disk, HOWS[0])
    assert lines == []
    epochs = [log.epoch_end(epoch) for epoch in range(5)]
    log.close(clean=True)
    path = f"{FOLDER}/leader-epoch-checkpoint"
    disk.write_file(path, disk.read_file(path).replace(b"\n3 ", b"\n4 "))
    with capture_logs() as lines:
        again = open_log(disk, HOWS[0])
    assert [line["event"] for line in lines] == ["corrupt_file_ignored"]
    assert [again.epoch_end(epoch) for epoch in range(5)] == epochs


@pytest.mark.parametrize("flushed", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_a_second_power_cut_leaves_what_was_durable_at_the_first(seed: int, flushed: int) -> None:
    """A folder whose checksums were lost looks like one of an older release: no file is rewritten for its checksums."""
    files = fill(Random(1))
    del files[PARTITION_METADATA + CHECKSUMS]
    disk = disk_of(files, seed)
    open_log(disk, Opened(clean=False, recovery_point=flushed))
    disk.crash()
    for name in (EPOCH_CHECKPOINT, PARTITION_METADATA):
        assert disk.read_file(f"{FOLDER}/{name}") == files[name]
    with capture_logs() as lines:
        open_log(disk, Opened(clean=False, recovery_point=flushed))
    named = {line["event"] for line in lines if line["event"].startswith("corrupt")}
    assert named <= ({"corrupt_copy_restored"} if not flushed else set()), (
        "a copy may be torn until it is synced"
    )
    assert not disk.risked


def test_wrong_epochs_of_an_empty_log_are_named_once() -> None:
    """Such a log has no epoch with which to replace them, and would name them at each start."""
    files = fill(Random(1))
    sound = {name: files[name] for name in (PARTITION_METADATA, PARTITION_METADATA + CHECKSUMS)}
    disk = disk_of({**sound, EPOCH_CHECKPOINT: b""})
    named = []
    for _ in range(2):
        with capture_logs() as lines:
            open_log(disk, HOWS[0])
        named.append([line["event"] for line in lines])
    assert named == [["corrupt_file_ignored"], []]


@pytest.mark.parametrize(("flushed", "level"), [(0, "warning"), (1, "error")])
def test_metadata_that_was_never_synced_is_no_error_after_a_power_cut(flushed: int, level: str) -> None:
    """No record of such a log was acknowledged. A flush of records syncs the file too, so rot is an error then."""
    disk = disk_of(fill(Random(1)))
    rot_with_its_copy(disk, f"{FOLDER}/{PARTITION_METADATA}")
    with capture_logs() as lines:
        open_log(disk, Opened(clean=False, recovery_point=flushed)).close(clean=True)
    found = [line["log_level"] for line in lines if line["event"] == "corrupt_file_ignored"]
    assert found == [level]
