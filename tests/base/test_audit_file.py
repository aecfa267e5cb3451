"""raftlog.base.audit_file: lines in a file of their own, which may be moved away or fail."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from raftlog.base import audit_file
from raftlog.base.audit_file import RETRY_S, AuditFile
from raftlog.base.log import configure_log, get_logger
from tests.kit.clock import Clock
from tests.kit.waits import until


class Kept:
    """The lines that the node's log got instead of the file."""

    def __init__(self, path: Path, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.lines: list[str] = []
        self.reasons: list[str] = []
        self.file = AuditFile(str(path), fall_back=self.lines.append, say=self.reasons.append, clock=clock)


def test_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    """Programs that rotate logs rename the file without a signal to the node."""
    path, old = tmp_path / "audit", tmp_path / "audit.1"
    kept = Kept(path)
    assert kept.file.write("one")
    until(lambda: path.exists() and path.read_text() == "one\n", "the first line is there")
    path.rename(old)
    assert kept.file.write("two")
    kept.file.close()
    assert (old.read_text(), path.read_text()) == ("one\n", "two\n")
    assert (kept.lines, kept.reasons) == ([], [])
    assert path.stat().st_mode & 0o777 == 0o640


def test_file_that_fails_loses_no_line_and_is_tried_again(tmp_path: Path) -> None:
    """The node's log has the lines meanwhile, and says once why."""
    clock = Clock()
    path = tmp_path / "missing" / "audit"
    kept = Kept(path, clock)
    assert kept.file.write("one")
    until(lambda: bool(kept.lines), "the line came back")
    assert not kept.file.write("two")
    assert (kept.lines, kept.reasons) == (["one"], ["No such file or directory"])
    clock.advance(RETRY_S)
    assert kept.file.write("three")
    until(lambda: len(kept.lines) > 1, "it was tried again")
    path.parent.mkdir()
    clock.advance(RETRY_S)
    assert kept.file.write("four")
    kept.file.close()
    assert (path.read_text(), kept.lines, len(kept.reasons)) == ("four\n", ["one", "three"], 1)


def test_line_that_a_full_disk_took_in_part_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's log has it whole; the next one begins on a line of its own."""
    clock, room = Clock(), [5]
    write = os.write

    def write_some(descriptor: int, content: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, content[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(audit_file.os, "write", write_some)
    kept = Kept(tmp_path / "audit", clock)
    assert kept.file.write("first line")
    until(lambda: bool(kept.reasons), "there is no room")
    assert (kept.lines, kept.file.reason) == (["first line"], "No space left on device")
    room[0] = 1000
    clock.advance(RETRY_S)
    assert kept.file.write("second line")
    kept.file.close()
    assert (tmp_path / "audit").read_text() == "first\nsecond line\n"
    assert kept.file.reason == ""


def test_only_lines_of_the_audit_log_are_in_the_file(tmp_path: Path) -> None:
    """As JSON, with time and node; all others stay in the node's log."""
    path, log = tmp_path / "audit", io.StringIO()
    try:
        configure_log(format="console", node_id=7, stream=log, audit_file=str(path))
        get_logger("audit").info("admin_change", caller="alice")
        get_logger("node").info("node_ready")
        until(lambda: path.exists() and path.read_text().endswith("\n"), "the line is there")
    finally:
        structlog.reset_defaults()
    line = json.loads(path.read_text())
    assert {"event": "admin_change", "caller": "alice", "node_id": 7, "level": "info"}.items() <= line.items()
    assert "timestamp" in line
    assert "node_ready" in log.getvalue() and "admin_change" not in log.getvalue()
