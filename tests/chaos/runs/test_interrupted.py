"""Claim about an interruption: the harness takes every process of its cluster down, whichever signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.cli import exits
from tests.kit.marks import taste
from tests.kit.waits import ended, until

CASE = """
title = "Interrupted"
suites = ["none"]

[faults]
seconds = 60
steps = [{ fault = "kill", for_s = 0.5, rest_s = 0.5 }]
"""
ROOT = Path(__file__).parents[3]


def processes_of(folder: Path) -> list[int]:
    """Return the ids of processes that were started with a file of that folder."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and str(folder).encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    assert any(word in line for line in process.stderr), f"it ended without {word!r}"


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    taste([signal.SIGKILL], [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]),
    ids=lambda each: each.name,
)
def test_no_process_is_left_when_the_harness_is_ended_in_the_middle(number, tmp_path):
    """Nodes end with their parent process; on a signal that can be caught the harness itself returns in order."""
    folder = tmp_path / "chaos"
    (folder / "suites").mkdir(parents=True)
    (folder / "suites" / "interrupted.toml").write_text(CASE)
    command = [sys.executable, "-m", "raftlog", "chaos", "interrupted", "--chaos-dir", str(folder)]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "runs"), "--testbed", "processes"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        wait_for(process, "kill node")
        os.kill(process.pid, number)
        code = ended(process)
    finally:
        process.kill()
        process.wait()
    until(
        lambda: not processes_of(tmp_path / "runs"),
        "no node is left",
        seen=lambda: processes_of(tmp_path / "runs"),
    )
    assert code == (-number if number == signal.SIGKILL else exits.INTERRUPTED)
