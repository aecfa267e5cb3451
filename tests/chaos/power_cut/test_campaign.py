"""Cuts on one disk in sequence, with a simulated guest: counted cuts, findings, and kept files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from raftlog_chaos.power_cut import moments
from raftlog_chaos.power_cut.__main__ import main
from raftlog_chaos.power_cut.campaign import GUEST_STALL_S, Cut
from raftlog_chaos.power_cut.kernel import PROGRAM
from raftlog_chaos.power_cut.loads import SETTINGS

pytestmark = pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="there is no mkfs.ext4 here")

KERNEL = """\
#!{python}
import json, os, sys, time
from pathlib import Path

line = int(sys.argv[-1].rpartition(":")[2])
script = next(each for each in sys.argv if each.startswith("init=")).removeprefix("init=")
plan = json.loads((Path(script).parent / "boot.json").read_text())
state = plan["loads"]["plain"]
index, process = state.get("lines", 0), state.get("processes", 0) + 1

def say(kind, **fields):
    os.write(line, json.dumps({{"type": kind, **fields}}).encode() + b"\\n")

def says(kind, f, value):
    global index
    op = dict(index=index, time_ns=plan["first_ns"] + index, process=process, type=kind, f=f, value=value)
    say("Said", load="plain", op=op)
    index += 1

def reached(*phases):
    for phase in phases:
        say("Reached", phase=phase, seconds=1.0)

kept = state.get("acked", {{}}).get("plain0-0", -1) + 1
reached("booted", "started", "ready")
{trouble}
if plan["boot"]:
    says("invoke", "poll", [["poll"]])
    says("ok", "poll", [["poll", {{"plain0-0": [[each, each + 1] for each in range(kept)]}}]])
    reached("whole", "read")
reached("loading")
for value in range(state.get("written", {{}}).get("plain0-0", 0) + 1, 1_000_000):
    says("invoke", "send", [["send", "plain0-0", value]])
    says("ok", "send", [["send", "plain0-0", [value - 1, value]]])
    time.sleep(0.001)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Cut a guest three times; its kernel has a `trouble`. Returns the exit code and the cuts."""
    monkeypatch.setattr(moments, "LOAD_S", (0.0, 0.05))

    def run_with(trouble: str) -> tuple[int, list[Cut]]:
        path = tmp_path / "bin" / PROGRAM
        path.parent.mkdir()
        path.write_text(KERNEL.format(python=sys.executable, trouble=trouble))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
        arguments = ["--cuts", "3", "--file-system", "ext4", "--seed", "1", "--kind", "load"]
        code = main([*arguments, "--out", str(tmp_path / "runs")])
        (summary,) = (tmp_path / "runs").glob("*-summary.json")
        return code, msgspec.json.decode(summary.read_bytes(), type=list[Cut])

    return run_with


def kept(tmp_path: Path) -> list[str]:
    (folder,) = (each for each in (tmp_path / "runs").iterdir() if each.is_dir())
    return [each.name for each in folder.iterdir()]


def test_cuts_without_a_finding_are_all_judged_and_their_disk_goes(run, tmp_path, capsys):
    """The last cut by a boot of its own."""
    code, cuts = run("")
    assert code == 0 and [each.judged_with for each in cuts] == [1, 2, 3]
    assert all(each.acked for each in cuts) and not any(each.found for each in cuts)
    assert "disk.img" not in kept(tmp_path) and {"plain.jsonl", "cuts.json"} <= set(kept(tmp_path))
    assert capsys.readouterr().out.count("all there") == 3


def test_a_lost_record_ends_the_campaign_and_its_disk_is_kept(run, tmp_path, capsys):
    """With the cut that lost it, by the number of the boot that missed it."""
    code, cuts = run('kept -= plan["boot"] == 2')
    assert code == 1 and [bool(each.found) for each in cuts] == [False, True]
    assert "plain: unseen" in cuts[-1].found[0] and "disk.img" in kept(tmp_path)
    assert "seed 1" in capsys.readouterr().out


def test_a_guest_that_ends_by_itself_is_a_finding(run, capsys):
    """A kernel that panics is no evidence about raftlog, and must not pass."""
    code, cuts = run('sys.exit() if plan["boot"] else None')
    assert code == 1 and "ended by itself" in cuts[-1].found[0]


def test_a_cluster_that_does_not_start_again_is_a_finding(run):
    """The guest has no more work, and says so."""
    trouble = 'if plan["boot"]: say("Found", text="the cluster does not start again"); reached("gave up")'
    code, cuts = run(trouble + "; time.sleep(1000)")
    assert code == 1 and cuts[-1].found == ["the cluster does not start again"]


def test_members_that_a_cut_killed_expire_before_their_readers_are_given_up():
    """A share group may leave a partition to such a member alone: its records are not lost, but wait for it."""
    assert int(SETTINGS["group.share.session.timeout.ms"]) / 1000 < GUEST_STALL_S / 2
