"""Small files with their checksums beside them: what is believed after rot, a power cut, or an older raftlog."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from raftlog.base.checked_files import (
    CHECKSUMS,
    has_checksums,
    read_checked,
    read_checked_lines,
    remove_checked,
    write_checked,
)
from raftlog_chaos.simulator.disk import SimDisk

PATH = "/data/file"
OLD, NEW = b"0\n1\nt 0 5\n", b"0\n2\nt 0 7\nt 1 9\n"


def every_bit(disk: SimDisk, path: str) -> list[tuple[int, int]]:
    return [(at, bit) for at in range(len(disk.read_file(path))) for bit in range(8)]


@pytest.mark.parametrize("by_line", [False, True])
def test_a_file_stays_as_it_is_given(by_line: bool) -> None:
    """Apache Kafka's tools read it: the checksums are in a file of their own."""
    disk = SimDisk()
    write_checked(disk, PATH, NEW, by_line=by_line)
    assert disk.read_file(PATH) == NEW == read_checked(disk, PATH)


def test_no_flipped_bit_is_believed() -> None:
    """Neither in the file nor in its checksums, whichever bit it is."""
    disk = SimDisk()
    write_checked(disk, PATH, NEW)
    for path in (PATH, PATH + CHECKSUMS):
        for at, bit in every_bit(disk, path):
            disk.flip_bit(path, at, bit)
            assert read_checked(disk, PATH) in ((None,) if path == PATH else (None, NEW))
            disk.flip_bit(path, at, bit)


def test_lines_that_are_sound_are_believed_though_others_rotted() -> None:
    """A bit costs the line that it is in, or two if it joins them; whatever comes back was written so."""
    disk = SimDisk()
    write_checked(disk, PATH, NEW, by_line=True)
    lines = NEW.split(b"\n")
    for at, bit in every_bit(disk, PATH):
        disk.flip_bit(PATH, at, bit)
        found = read_checked_lines(disk, PATH)
        assert set(found) < set(lines) or sorted(found) < sorted(lines)
        assert len(found) >= len(lines) - 2
        disk.flip_bit(PATH, at, bit)
    assert read_checked_lines(disk, PATH) == lines


def test_a_file_with_a_copy_comes_back_whichever_bit_rots() -> None:
    """In the file or beside it; and then both are whole again, so that the next bit is no worse."""
    disk = SimDisk()
    write_checked(disk, PATH, OLD, copy=True)
    for path in (PATH, PATH + CHECKSUMS):
        for at, bit in every_bit(disk, path):
            disk.flip_bit(path, at, bit)
            assert read_checked(disk, PATH) == OLD
            assert disk.read_file(PATH) == OLD
            for next_path in (PATH, PATH + CHECKSUMS):
                disk.flip_bit(next_path, len(disk.read_file(next_path)) - 2, 1)
                assert read_checked(disk, PATH) == OLD, f"{path}, byte {at}, bit {bit}; then {next_path}"
            write_checked(disk, PATH, OLD, copy=True)


def test_checksums_that_are_whole_are_not_written_anew() -> None:
    """Whether they have a copy or not: a start reads thousands of files."""
    for copy in (False, True):
        disk = SimDisk()
        write_checked(disk, PATH, OLD)
        write_checked(disk, PATH, NEW, copy=copy)
        syncs = disk.syncs
        assert read_checked(disk, PATH) == NEW
        assert disk.syncs == syncs


def test_a_copy_that_cannot_be_restored_keeps_no_file_from_being_read() -> None:
    """The disk is full, say: the file itself is sound, and the next read tries again."""
    disk = SimDisk()
    write_checked(disk, PATH, OLD, copy=True)
    disk.flip_bit(PATH + CHECKSUMS, len(disk.read_file(PATH + CHECKSUMS)) - 2)
    disk.fail("write")
    assert read_checked(disk, PATH) == OLD
    disk.mend()
    assert read_checked(disk, PATH) == OLD
    disk.flip_bit(PATH, 0)
    assert read_checked(disk, PATH) == OLD


@pytest.mark.parametrize("by_line", [False, True])
def test_a_power_cut_between_the_two_leaves_the_old_file_or_the_new_one(by_line: bool) -> None:
    """At whichever change of the disk, torn or not: either is believed, though the checksums may be of the other."""
    for seed in range(5):
        for changes in range(12):
            disk = SimDisk(seed)
            write_checked(disk, PATH, OLD, by_line=by_line)
            disk.set_trap(changes, lambda: None)
            try:
                write_checked(disk, PATH, NEW, by_line=by_line)
                done = True
            except OSError:
                done = False
            disk.crash()
            disk.power_up()
            with capture_logs() as lines:
                found = read_checked(disk, PATH)
            assert lines == []
            assert found == disk.read_file(PATH) and found in ((NEW,) if done else (OLD, NEW))
            assert read_checked_lines(disk, PATH) == found.split(b"\n")


@pytest.mark.parametrize(("by_line", "copy"), [(False, False), (True, False), (False, True)])
def test_rotten_checksums_are_named_though_the_file_is_sound(by_line: bool, copy: bool) -> None:
    """Whichever bit it is: one line, of the file or its checksums. The checksum of the file before stays unknown."""
    disk = SimDisk()
    read = read_checked_lines if by_line else read_checked
    for content in (OLD, NEW):
        write_checked(disk, PATH, content, by_line=by_line, copy=copy)
        whole = disk.read_file(PATH + CHECKSUMS)
        for at, bit in every_bit(disk, PATH + CHECKSUMS):
            disk.flip_bit(PATH + CHECKSUMS, at, bit)
            is_of_before = content is NEW and 9 <= at < 17
            is_digit = disk.read_file(PATH + CHECKSUMS)[at] in b"0123456789abcdef"
            with capture_logs() as lines:
                read(disk, PATH)
            expected = 0 if is_of_before and is_digit else 1
            assert len(lines) == expected, (content, at, bit, lines)
            disk.write_file(PATH + CHECKSUMS, whole)
            disk.write_file(PATH, content)


@pytest.mark.parametrize(
    "torn",
    [lambda whole: bytes(len(whole)), lambda whole: whole[:20], lambda whole: whole[:20].ljust(99, b"\0")],
)
def test_checksums_of_a_power_cut_are_not_rotten(torn: Callable[[bytes], bytes]) -> None:
    """They are shorter, or zeros stand for what was not written."""
    disk = SimDisk()
    for content in (OLD, NEW):
        write_checked(disk, PATH, content, by_line=True)
    disk.write_file(PATH + CHECKSUMS, torn(disk.read_file(PATH + CHECKSUMS)))
    with capture_logs() as lines:
        read_checked(disk, PATH, unchecked_ok=True)
    assert lines == []


def test_a_file_that_rotted_is_not_believed_because_a_new_one_was_being_written() -> None:
    """The checksum kept with the new file covers the verified content, not the content found on disk."""
    disk = SimDisk()
    write_checked(disk, PATH, OLD)
    disk.flip_bit(PATH, 6)
    rotten = disk.read_file(PATH)
    write_checked(disk, PATH, NEW)
    disk.write_file(PATH, rotten)
    assert read_checked(disk, PATH) is None


def test_a_file_without_checksums_is_believed_only_where_the_reader_says_so() -> None:
    """Raftlog 0.3 left it so: once the file has checksums, it is not believed without them."""
    disk = SimDisk()
    disk.write_file(PATH, OLD)
    assert (read_checked(disk, PATH), read_checked(disk, PATH, unchecked_ok=True)) == (None, OLD)
    assert read_checked_lines(disk, PATH) == []
    write_checked(disk, PATH, OLD)
    disk.write_file(PATH, NEW)
    assert read_checked(disk, PATH, unchecked_ok=True) is None


def test_checksums_that_were_never_synced_count_as_none() -> None:
    """A power cut leaves an empty file: then the file counts as written by raftlog 0.3, before checksums."""
    disk = SimDisk()
    write_checked(disk, PATH, OLD)
    for lost in (b"", bytes(30)):
        disk.write_file(PATH + CHECKSUMS, lost)
        assert not has_checksums(disk, PATH)
        assert read_checked(disk, PATH, unchecked_ok=True) == OLD


def test_no_power_cut_takes_the_checksums_of_a_file_before_it() -> None:
    """A mark without its checksums counts as wrong, so as the worst: it is removed first, durably."""
    for seed in range(40):
        disk = SimDisk(seed)
        write_checked(disk, PATH, OLD)
        disk.set_trap(seed % 5, lambda: None)
        with suppress(OSError):
            remove_checked(disk, PATH)
        disk.crash()
        disk.power_up()
        assert not disk.exists(PATH) or read_checked(disk, PATH) == OLD


def test_removing_a_file_takes_its_checksums_along() -> None:
    """And says whether there was a file."""
    disk = SimDisk()
    write_checked(disk, PATH, OLD)
    assert remove_checked(disk, PATH) and not remove_checked(disk, PATH)
    assert disk.listdir("/data") == []
    assert read_checked(disk, PATH) is None and read_checked_lines(disk, PATH) == []
