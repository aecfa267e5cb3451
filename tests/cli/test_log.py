"""raftlog log: dump and verify read files that no node serves, and name what is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raftlog.cli.app import app
from raftlog.cli.log import Segment
from raftlog.records.batch import EndTransactionMarker, build_batch, build_end_marker, new_record
from raftlog.records.compression import ZSTD
from raftlog.storage.segment_check import CheckedBatch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log directory with two partitions: the first has two segments, a deleted file, and a marker."""
    records = [
        new_record(b"k", "vä".encode(), timestamp=7, headers=(("h", b"\xff"),)),
        new_record(None, None, timestamp=8),
    ]
    write(tmp_path / "orders-0", 0, build_batch(records, base_offset=0, leader_epoch=1, codec=ZSTD))
    write(tmp_path / "orders-0", 2, build_batch(records, base_offset=2, leader_epoch=1))
    marker = build_end_marker(9, 1, marker=EndTransactionMarker(False, 3), now_ms=7)
    write(tmp_path / "orders-1", 0, marker)
    (tmp_path / "orders-0" / "notes.log").write_text("not a segment")
    return tmp_path


def write(folder: Path, base_offset: int, contents: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(contents)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    """Return exit code, output and complaints."""
    result = CliRunner().invoke(app, ["log", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_verify_counts_what_is_sound(folder):
    """A row for each partition, and exit code 0."""
    code, out, err = run("verify", folder, "-J")
    assert (code, err) == (0, "")
    rows = {row["partition"]: row for row in json.loads(out)}
    assert rows["orders-0"]["segments"] == 2
    assert rows["orders-0"]["records"] == 4
    assert (rows["orders-0"]["start_offset"], rows["orders-0"]["end_offset"]) == (0, 4)
    assert {row["state"] for row in rows.values()} == {"sound"}


def test_verify_names_damage_and_fails(folder):
    """A flipped bit: file, position and reason, and exit code 8."""
    path = folder / "orders-0" / f"{0:020}.log"
    bad = bytearray(path.read_bytes())
    bad[70] ^= 1
    path.write_bytes(bad)
    code, out, err = run("verify", folder)
    assert code == 8
    assert f"{path}, position 0: damaged: CRC" in err
    assert "damaged" in out


def test_a_torn_end_is_no_damage_unless_segments_follow(folder):
    """A node cuts the end of its last segment when it starts; in an earlier one acknowledged records would be gone."""
    last, first = folder / "orders-0" / f"{2:020}.log", folder / "orders-0" / f"{0:020}.log"
    last.write_bytes(last.read_bytes()[:-1])
    code, out, err = run("verify", folder)
    assert (code, "torn at the end" in out, "torn at the end" in err) == (0, True, True)
    first.write_bytes(first.read_bytes()[:-1])
    assert run("verify", folder)[0] == 8


def test_dump_prints_batches(folder):
    """A JSON object for each, of one segment too."""
    _, out, _ = run("dump", folder / "orders-0" / f"{0:020}.log", "-o", "jsonl")
    (row,) = map(json.loads, out.splitlines())
    assert row["partition"] == "orders-0"
    assert (row["base_offset"], row["last_offset"], row["records"], row["codec"]) == (0, 1, 2, "zstd")
    assert not row["control"]


def test_dump_prints_records(folder):
    """Keys, values and headers as text, bytes that are none as escapes, null as null; a marker with its outcome."""
    _, out, _ = run("dump", "--print-data-log", folder, "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row.get("value") for row in rows if row["partition"] == "orders-0"] == ["vä", None, "vä", None]
    assert rows[0]["headers"] == [["h", "\\xff"]]
    assert [row["marker"] for row in rows if row["partition"] == "orders-1"] == ["abort"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no such file or directory"),
        ("orders-0/notes.log", "a segment's name is its base offset"),
        ("empty", "no segments (.log) below"),
    ],
)
def test_what_is_no_segment_is_said(folder, name, message):
    """One line, and no traceback."""
    (folder / "empty").mkdir()
    code, _, err = run("verify", folder / name)
    assert code != 0
    assert message in err
    assert len(err.splitlines()) == 1


def test_verify_goes_on_after_a_file_that_it_cannot_open(folder):
    """It names that file, and damage elsewhere decides the exit code."""
    gone = folder / "orders-0" / f"{0:020}.log"
    gone.unlink()
    gone.symlink_to(folder / "nowhere")
    code, out, err = run("verify", folder, "-J")
    assert (code, err) == (1, f"raftlog: {gone}: No such file or directory\n")
    rows = {row["partition"]: row for row in json.loads(out)}
    assert (rows["orders-0"]["state"], rows["orders-0"]["records"]) == ("unreadable", 2)
    assert rows["orders-1"]["state"] == "sound"
    assert run("dump", folder)[0] == 1
    write(folder / "orders-1", 0, b"x" * 100)
    code, out, err = run("verify", folder)
    assert (code, str(gone) in err) == (8, True)


def test_skipped_folders_are_reported(folder, tmp_path_factory):
    """A node follows links, so a partition that is silently left out would be called sound."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere, 0, b"x" * 100)
    link = folder / "payments-0"
    link.symlink_to(elsewhere)
    code, _, err = run("verify", folder)
    assert (code, err) == (1, f"raftlog: {link}: a link, which is not followed: name the folder itself\n")
    assert run("verify", link)[0] == 8


def test_a_segment_that_is_missing_between_others_is_damage(folder):
    """The last batch of a segment always stays, so each ends where the next begins, compacted or not."""
    last = folder / "orders-0" / f"{2:020}.log"
    moved = last.rename(last.with_name(f"{9:020}.log"))
    code, out, err = run("verify", folder, "-J")
    assert code == 8
    assert f"{moved}: damaged: the segment before it ends at offset 2" in err
    assert [row["state"] for row in json.loads(out) if row["partition"] == "orders-0"] == ["damaged"]


def test_a_torn_end_hides_no_damage_before_it(folder):
    """The state of a partition is the worst of its segments."""
    for number in (0, 2):
        path = folder / "orders-0" / f"{number:020}.log"
        path.write_bytes(path.read_bytes()[:-1])
    _, out, _ = run("verify", folder, "-J")
    assert [row["state"] for row in json.loads(out) if row["partition"] == "orders-0"] == ["damaged"]


def test_a_length_that_has_rotted_is_no_torn_end(folder):
    """The checksum does not cover it; the batches behind it were acknowledged."""
    path = folder / "orders-0" / f"{2:020}.log"
    bad = path.read_bytes()
    records = [new_record(b"k", b"v", timestamp=7)]
    path.write_bytes(bad[:8] + b"\x10" + bad[9:] + build_batch(records, base_offset=4, leader_epoch=1))
    code, _, err = run("verify", folder)
    assert (code, f"sound batches follow at position {len(bad)}" in err) == (8, True)


def test_a_file_that_is_truncated_while_it_is_read_is_reported(tmp_path):
    """As a follower does. Of a mapped file, a read behind its end would kill the process."""
    big = [new_record(b"k", bytes(2 << 20), timestamp=7)]
    batches = [build_batch(big, base_offset=offset, leader_epoch=1) for offset in range(3)]
    path = write(tmp_path / "orders-0", 0, b"".join(batches))
    checked = Segment(path).check()
    assert isinstance(next(checked), CheckedBatch)
    path.write_bytes(b"")
    (fault,) = checked
    assert (fault.position, fault.is_torn) == (len(batches[0]), True)


def test_names_of_files_command_no_terminal(folder):
    """A folder may be called anything."""
    write(folder / "orders\n\x1b[2J-0", 0, b"x" * 100)
    _, _, err = run("verify", folder)
    assert "\x1b" not in err
    assert "orders\\n\\x1b[2J-0" in err
