"""raftlog check: the exit codes, the page, JSON, standard input, and files that can't be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raftlog.cli import check
from raftlog.cli.app import app
from raftlog_chaos.history import Header, HistoryFile
from tests.chaos.checkers.model import history
from tests.chaos.checkers.told_history import ToldHistory


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    """A run without failures."""
    return write(tmp_path / "valid.jsonl", list(history(1)))


@pytest.fixture
def invalid(tmp_path: Path) -> Path:
    """A lost write."""
    return write(
        tmp_path / "invalid.jsonl", ToldHistory().send(1, "a", 0).send(1, "b", 1).poll(2, (1, "b")).ops
    )


def write(path: Path, ops: list) -> Path:
    file = HistoryFile(path, Header(workload="tale"))
    for op in ops:
        file.keep(op)
    file.close()
    return path


def run(*arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
    """Return exit code, output and complaints."""
    result = CliRunner().invoke(app, ["check", *arguments], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def test_a_valid_history_is_a_page_and_exit_code_0(valid):
    """The last line is the last word."""
    code, out, err = run(str(valid))
    assert (code, err) == (0, "")
    assert out.startswith("checked ") and out.endswith("VALID: no anomaly\n")


def test_anomalies_are_exit_code_1(invalid):
    """With what was found, by name."""
    code, out, _ = run(str(invalid))
    assert code == 1
    assert out.endswith("INVALID: lost-write, unseen\n")


def test_json_is_one_document_with_the_same_exit_code(invalid):
    """For scripts."""
    code, out, _ = run(str(invalid), "--json")
    document = json.loads(out)
    assert code == 1
    assert document["valid"] is False and document["cut_short"] is False
    assert set(document["anomalies"]) == {"lost-write", "unseen"}


def test_a_dash_reads_standard_input(invalid):
    """A history may come through a pipe."""
    code, out, _ = run("-", stdin=invalid.read_bytes())
    assert code == 1 and "lost-write" in out


def test_what_is_no_history_is_one_line_and_exit_code_2(tmp_path, valid):
    """It names the file, the line and the fault."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(valid.read_bytes() + b'{"index": "x"}\n')
    lines = path.read_bytes().count(b"\n")
    code, out, err = run(str(path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"raftlog: {path}: line {lines}: Expected `int`, got `str`")
    code, _, err = run("-", stdin=b"nonsense")
    assert code == 2 and err.startswith("raftlog: standard input: line 1: ")


def test_a_file_that_is_not_there_is_one_line_and_exit_code_2(tmp_path):
    """As the system says it."""
    assert run(str(tmp_path / "none")) == (2, "", f"raftlog: {tmp_path}/none: No such file or directory\n")
    assert run(str(tmp_path)) == (2, "", f"raftlog: {tmp_path}: Is a directory\n")


def test_a_history_that_contradicts_itself_is_exit_code_2(tmp_path):
    """A value that was sent twice: the recorder is wrong, not the cluster."""
    path = write(tmp_path / "twice.jsonl", ToldHistory().send(1, "a", 0).send(2, "a", 1).ops)
    code, _, err = run(str(path))
    assert code == 2 and "'a' was sent to t-0 before" in err


def test_the_history_of_a_killed_run_is_judged_with_a_note(valid):
    """An existing folder counts."""
    valid.write_bytes(valid.read_bytes()[:-20])
    _, out, _ = run(str(valid), "--json")
    assert json.loads(out)["cut_short"] is True
    _, out, _ = run(str(valid))
    assert out.startswith("note      the last line is cut short")


def test_long_files_show_how_far_it_is(valid, monkeypatch):
    """On standard error, and only there."""
    monkeypatch.setattr(check, "LONG_BYTES", 1)
    monkeypatch.setattr(check, "TELL_BYTES", 1)
    monkeypatch.setattr("raftlog.cli.demo.screen.PLAIN_EVERY_S", -1.0)
    code, out, err = run(str(valid))
    assert code == 0 and "MB checked" in err and "MB checked" not in out


def test_help_says_what_a_history_is_and_loads_no_checker():
    """It answers at once."""
    program = """
import sys
sys.argv = ["raftlog", "check", "--help"]
from raftlog.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
assert "raftlog_chaos" not in sys.modules and "msgspec" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert '"f": "poll", "value": [["poll", {"t0-0": [[12, 7]]}]]' in result.stdout
    assert "seek_to_beginning" in result.stdout
