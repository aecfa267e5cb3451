"""Claims about nodes that are restarted in turn: by raftlog's own command, which the case fails without."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog_chaos.runs import folder as run_folder
from raftlog_chaos.testbeds.find import SUITES
from raftlog_chaos.testbeds.restart_in_turn import restart_in_turn

ROOT = Path(__file__).parents[3]
HASTY = """
from raftlog_chaos.testbeds import processes

ABILITIES = processes.ABILITIES

async def hasty(testbed):
    for node_id in testbed.nodes:
        await testbed.restart(node_id)

async def open_testbed(*args, **options):
    processes.ProcessTestbed.restart_in_turn = hasty
    return await processes.open_testbed(*args, **options)
"""


def test_a_command_that_fails_is_reported_with_its_words() -> None:
    """Nobody listens at that address: no node is restarted."""
    restarted: list[int] = []

    async def restart(node_id: int) -> None:
        restarted.append(node_id)

    with pytest.raises(RuntimeError, match=r"raftlog cluster restart: .*127\.0\.0\.1:1"):
        asyncio.run(restart_in_turn("http://127.0.0.1:1", restart))
    assert not restarted


@pytest.mark.clients
@pytest.mark.nightly
def test_nodes_that_are_restarted_without_waiting_fail_the_case(tmp_path: Path) -> None:
    """The case judges the command: without its waits, records are refused or partitions have no leader."""
    (tmp_path / "chaos" / "suites").mkdir(parents=True)
    (tmp_path / "chaos" / "testbeds").mkdir()
    (tmp_path / "chaos" / "testbeds" / "hasty.py").write_text(HASTY)
    case = (SUITES / "safe-restarts.toml").read_text()
    (tmp_path / "chaos" / "suites" / "safe-restarts.toml").write_text(case)
    command = [sys.executable, "-m", "raftlog", "chaos", "safe-restarts", "--testbed", "hasty", "--seed", "1"]
    folders = ["--chaos-dir", str(tmp_path / "chaos"), "--out", str(tmp_path / "runs")]
    done = subprocess.run(
        [*command, *folders, "--minutes", "0.5"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == exits.FAILED, done.stdout + done.stderr
    (left,) = (tmp_path / "runs").glob("*-safe-restarts")
    reasons = json.loads((left / run_folder.VERDICT).read_text())["reasons"]
    assert any("failed with NOT_ENOUGH_REPLICAS" in each for each in reasons), reasons
