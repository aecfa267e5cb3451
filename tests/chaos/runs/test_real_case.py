"""Claim of the harness: a case against real processes, from the command line to the page. .ci/run runs three cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog_chaos.runs import folder as run_folder

ROOT = Path(__file__).parents[3]
CASES = {
    "short": """
title = "A leader is killed and comes back"
suites = ["own"]

[faults]
quiet_s = 0.5
seconds = 4
steps = [{ fault = "kill-leader", for_s = 1.0, rest_s = 1.0 }]

[expect]
acked = 5
injections = 1
""",
    "nowhere": """
title = "Cuts, where nothing can be cut"
suites = ["own"]

[faults]
seconds = 4
mix = ["cut-pair"]
""",
}


@pytest.mark.clients
@pytest.mark.nightly
def test_a_short_case_on_processes_is_judged_and_leaves_its_folder(tmp_path):
    """Passed; what this place cannot inject is said, and --strict takes it for a failure. Data is gone, logs stay."""
    (tmp_path / "chaos" / "suites").mkdir(parents=True)
    for name, text in CASES.items():
        (tmp_path / "chaos" / "suites" / f"{name}.toml").write_text(text)
    command = [
        sys.executable,
        "-m",
        "raftlog",
        "chaos",
        "--suite",
        "own",
        "--testbed",
        "processes",
        "--seed",
        "1",
        "--strict",
    ]
    folders = ["--chaos-dir", str(tmp_path / "chaos"), "--out", str(tmp_path / "runs")]
    done = subprocess.run([*command, *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == exits.NOT_RUN, done.stdout + done.stderr
    assert "was not run" in done.stderr
    (left,) = (tmp_path / "runs").glob("*-short")
    verdict = json.loads((left / run_folder.VERDICT).read_text())
    assert verdict["status"] == "passed"
    assert verdict["stalls"][0]["moments"].keys() >= {"fenced", "acknowledged"}
    assert verdict["unavailability"][0]["fault"] == "kill-leader"
    for name in (
        run_folder.HISTORY,
        run_folder.TIMELINE,
        run_folder.REPORT,
        run_folder.WORDS,
        run_folder.FIGURES,
    ):
        assert (left / name).stat().st_size > 0
    assert sorted(each.name for each in (left / run_folder.NODES / "node-1").iterdir() if each.is_dir()) == []
    assert (left / run_folder.NODES / "node-1" / "node.log").exists()
