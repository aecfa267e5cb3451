"""Real cuts, and that they can fail: a bug that only a power cut shows is found on a real file system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raftlog_chaos.power_cut import image, kernel
from raftlog_chaos.power_cut.__main__ import as_table, main
from raftlog_chaos.power_cut.campaign import Cut
from raftlog_chaos.power_cut.loads import BETWEEN_SNAPSHOTS
from raftlog_chaos.runs.rig import Unavailable
from tests.planted import power_cuts
from tests.planted.power_cuts import PLANTED

CUTS = "4"
needs_a_guest = pytest.mark.skipif(bool(kernel.lacks()), reason=kernel.lacks() or "can boot a guest")


def cut(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "raftlog_chaos.power_cut", "--seed", "1", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )


@needs_a_guest
@pytest.mark.nightly
@pytest.mark.parametrize("file_system", image.JOURNALED)
def test_nothing_acknowledged_is_lost(file_system: str, tmp_path: Path) -> None:
    """Two cuts of a cluster under load; `make power-cut` makes more."""
    ran = cut("--cuts", "2", "--file-system", file_system, "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_a_guest
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("bug", "file_system"),
    [
        ("--override=log.flush.policy=os", "ext4"),
        ("--plant=tests.planted.power_cuts:sync_no_segments", "ext4"),
        ("--plant=tests.planted.power_cuts:sync_no_journal", "ext4"),
        ("--plant=tests.planted.power_cuts:sync_no_folders", "ext2"),
    ],
)
def test_a_sync_that_is_left_out_is_found(bug: str, file_system: str, tmp_path: Path) -> None:
    """A folder's is missed where a file's sync does not bring its name along: on ext2 always, on btrfs now and then."""
    # with a snapshot after each few records, the journal is written anew, and synced with it, before it can be missed
    long_journal = f"--override={BETWEEN_SNAPSHOTS}=20971520"
    ran = cut("--cuts", CUTS, "--file-system", file_system, "--out", str(tmp_path), bug, long_journal)
    assert ran.returncode == 1 and "FOUND" in ran.stdout, ran.stdout + ran.stderr
    assert list(tmp_path.glob("*/disk.img")), "the disk is kept"


@pytest.mark.parametrize("plant", PLANTED)
def test_a_plant_fits_the_code(plant: object) -> None:
    """The replaced name must be there: without the name in the code, no guest would notice the plant."""
    with pytest.MonkeyPatch.context() as patch:
        getattr(power_cuts, plant.__name__)(patch)  # type: ignore[attr-defined]


def test_a_machine_without_a_guest_kernel_says_so_and_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh clone must pass where the package cannot be had."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--out", str(tmp_path / "runs")]) == 0
    assert (
        "SKIP power cuts: there is no linux.uml here: apt-get install user-mode-linux"
        in capsys.readouterr().out
    )
    assert not (tmp_path / "runs").exists()


def test_the_guest_covers_a_folder_in_which_nothing_needed_lies() -> None:
    """Its interpreter and its own files are the host's."""
    base = kernel.free_base(["/usr/bin/python3"])
    assert kernel.free_base([f"{base}/checkout"]) != base
    with pytest.raises(Unavailable, match=", ".join(kernel.BASES)):
        kernel.free_base([f"{each}/x" for each in kernel.BASES])


def test_the_table_counts_cuts_by_file_system_and_kind() -> None:
    """And cuts without their mark, and cuts with findings."""
    cuts = [
        Cut(number=1, file_system="ext4", kind="load", moment=""),
        Cut(number=2, file_system="ext4", kind="roll", moment="", missed=True),
        Cut(number=3, file_system="xfs", kind="recovery", moment="", found=["lost"]),
    ]
    head, *lines = (line.split() for line in as_table(cuts))
    assert head == [
        "cuts",
        "load",
        "recovery",
        "roll",
        "snapshot",
        "compaction",
        "checkpoint",
        "missed",
        "found",
    ]
    assert lines[0] == ["ext4", "2", "1", "0", "1", "0", "0", "0", "1", "0"]
    assert lines[1] == ["xfs", "1", "0", "1", "0", "0", "0", "0", "0", "1"]
    assert lines[2] == ["all", "3", "1", "1", "1", "0", "0", "0", "1", "1"]
