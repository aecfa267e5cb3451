"""A node applies faults to its own disk, clock and links by lines of text, and reports the faults in force."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from raftlog.base.faults import CutOff
from raftlog.faults.node_faults import (
    FailingDisk,
    FullDisk,
    NodeFaults,
    SlowDisk,
    faults_of,
    read_fault,
)
from raftlog.faults.troubled_disk import DiskTrouble
from tests.kit.waits import until


@pytest.fixture
def faults(tmp_path: Path) -> NodeFaults:
    (tmp_path / "data").mkdir()
    return NodeFaults([str(tmp_path / "data")])


def tell(faults: NodeFaults, **command: Any) -> dict[str, Any]:
    """Send a command and return what is answered."""
    answer: dict[str, Any] = json.loads(faults.obey(json.dumps(command).encode()))
    return answer


def test_each_fault_of_the_disk_is_in_force_until_it_is_healed(faults: NodeFaults) -> None:
    """Several at once; healing one leaves the others, healing all leaves none."""
    tell(faults, inject={"fault": "slow-disk", "seconds": 0.5})
    tell(faults, inject={"fault": "full-disk"})
    answer = tell(faults, id=7, inject={"fault": "failing-disk", "operation": "sync"})
    assert answer["id"] == 7
    assert [each["fault"] for each in answer["active"]] == ["slow-disk", "full-disk", "failing-disk"]
    assert faults.disk.trouble == DiskTrouble(slow_s=0.5, full=True, failing="sync")
    tell(faults, heal="full-disk")
    assert faults.disk.trouble == DiskTrouble(slow_s=0.5, failing="sync")
    assert tell(faults, heal="all")["active"] == []
    assert faults.disk.trouble == DiskTrouble()


def test_the_wall_clock_jumps_and_comes_back(faults: NodeFaults) -> None:
    """By the given offset, forwards or backwards; a new jump replaces the old."""

    def off_by_ms() -> float:
        return faults.wall_clock_ms() - time.time() * 1_000

    for offset_ms in (60_000, -3_600_000):
        tell(faults, inject={"fault": "clock-jump", "offset_ms": offset_ms})
        assert abs(off_by_ms() - offset_ms) < 1_000
    tell(faults, heal="clock-jump")
    assert abs(off_by_ms()) < 1_000


def test_a_cut_ends_after_its_seconds(faults: NodeFaults) -> None:
    """By itself, and not before; a cut that replaces it has its own end, or none."""
    cut = {"fault": "cut-off", "seconds": 0.2}
    (active,) = tell(faults, inject=cut)["active"]
    assert active == {"fault": "cut-off", "seconds": 1}  # rounded up
    until(lambda: not faults.active(), "the cut has ended")
    tell(faults, inject=cut)
    tell(faults, inject={"fault": "cut-off"})
    first = faults._end
    assert first is None
    assert tell(faults, inject={"fault": "slow-disk", "seconds": 1})["active"][0] == {"fault": "cut-off"}


def test_a_healed_cut_ends_no_later_cut(faults: NodeFaults) -> None:
    """Its timer may fire at the same moment."""
    old, new = CutOff(0.2), CutOff(60)
    faults.inject(old)
    faults.heal("cut-off")
    faults.inject(new)
    faults._heal_cut(old)
    assert [type(each) for each in faults.active()] == [CutOff]
    faults.heal()


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"inject": {"fault": "slow-disc", "seconds": 1}}',
        b'{"inject": {"fault": "slow-disk"}}',
        b'{"inject": {"fault": "slow-disk", "seconds": 1, "minutes": 2}}',
        b'{"inject": {"fault": "failing-disk", "operation": "seek"}}',
        b'{"hurt": "all"}',
        b'{"inject": {"fault": "cut-off", "seconds": -1}}',
        b'{"inject": {"fault": "cut-off", "seconds": 3601}}',
    ],
)
def test_what_is_no_command_is_answered_with_an_error_and_changes_nothing(
    faults: NodeFaults, line: bytes
) -> None:
    """A fault that is misspelt must not look as if it had been injected."""
    assert json.loads(faults.obey(line))["error"]
    assert faults.active() == []


def test_a_disks_trouble_is_made_of_faults_by_name() -> None:
    """The harness speaks of the state of a disk, the node of faults."""
    assert set(faults_of(DiskTrouble()).values()) == {None}
    assert faults_of(DiskTrouble(slow_s=1, full=True, failing="read")) == {
        "slow-disk": SlowDisk(1),
        "full-disk": FullDisk(),
        "failing-disk": FailingDisk("read"),
    }
    assert read_fault('{"fault": "slow-disk", "seconds": 1}') == SlowDisk(1)


def test_a_node_that_is_not_to_be_hurt_loads_nothing_of_this() -> None:
    """Without --enable-faults a node's disk is the real disk, and its start costs no more."""
    code = "import sys, raftlog.cli.server, raftlog.process; print([m for m in sys.modules if 'raftlog_chaos' in m])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
