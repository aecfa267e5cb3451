"""Claims about the nightly run: what it says of its parts, and that it knows the Makefile."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.nightly import PARTS, ROOT, Part, Result, as_table, run


def test_the_table_names_each_part_its_outcome_and_its_time() -> None:
    """And how many failed; what was not run is no failure."""
    table = as_table(
        [
            Result("lint", "passed", 61.2),
            Result("sim", "FAILED (exit code 2)", 7322.0),
            Result("test-spark", "not run: there is no java here", 0.0),
        ]
    )
    assert [line.split() for line in table] == [
        ["lint", "passed", "0:01:01"],
        ["sim", "FAILED", "(exit", "code", "2)", "2:02:02"],
        ["test-spark", "not", "run:", "there", "is", "no", "java", "here", "0:00:00"],
        ["all", "1", "of", "2", "failed", "2:03:03"],
    ]


def test_a_part_that_fails_is_reported_and_kept_and_a_part_that_cannot_run_is_not_begun(
    tmp_path: Path,
) -> None:
    """The run goes on after it."""
    (tmp_path / "Makefile").write_text("fails:\n\t@echo $(WORD); exit 3\nworks:\n\t@echo well\n")
    missing = run(Part("works", needs=("no-such-program",)), tmp_path, tmp_path)
    assert missing.outcome == "not run: there is no no-such-program here"
    assert run(Part("no-such"), tmp_path, tmp_path).outcome == "not run: there is no such target"
    assert run(Part("fails", variables=("WORD=sorry",)), tmp_path, tmp_path).outcome == "FAILED (exit code 2)"
    assert "sorry" in (tmp_path / "fails.log").read_text()
    assert run(Part("works"), tmp_path, tmp_path).outcome == "passed"


@pytest.mark.parametrize("part", PARTS, ids=lambda each: each.target)
def test_every_part_is_a_target(part: Part) -> None:
    """A part that is gone from the Makefile would be reported as not run, night after night."""
    command = ["make", "--dry-run", part.target, *part.variables]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
