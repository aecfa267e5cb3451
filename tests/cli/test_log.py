"""raftlog log: dump and verify read files that no node serves, and name what is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raftlog.cli.app import app
from raftlog.records.batch import EndTransactionMarker, build_batch, build_end_marker, new_record
from raftlog.records.compression import ZSTD


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log directory with two partitions, one of which has two segments, a deleted file, and a marker."""
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
        ("nothing", "there is no such file or folder"),
        ("orders-0/notes.log", "a segment is named by its first offset"),
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
