"""Claims about the nightly run: what it says of its parts, and that it knows the Makefile."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.nightly import PARTS, ROOT, Ledger, Part, Result, as_said, as_summary, as_table, head, run


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


def _commit(folder: Path, name: str, text: str) -> str:
    """Write a file into a repository, commit it, and return the commit."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    for arguments in (["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return head(folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a Makefile and no commit."""
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "Makefile").write_text(
        "works:\n\t@echo '=== 12 passed in 3 s ==='; echo well\nfails:\n\t@exit 3\n"
    )
    return folder


def test_a_later_night_runs_what_has_not_passed_on_its_commit(repository: Path, tmp_path: Path) -> None:
    """What failed, was not run, ran otherwise, on another commit or on changed files is run again, oldest first."""
    works, fails, never = Part("works"), Part("fails"), Part("works", slice=2)
    parts = [never, fails, works]
    ledger = Ledger(tmp_path / "ledger.jsonl")
    first = _commit(repository, "raftlog/a.py", "1")
    for part in (works, fails, Part("fails", needs=("no-such-program",))):
        ledger.add(run(part, tmp_path, repository))
    assert ledger.newest()["fails"].outcome == "FAILED (exit code 2)", (
        "a part that is not run leaves the last outcome"
    )
    assert ledger.newest()["works"][3:5] == ("12 passed in 3 s", first)
    assert ledger.rest(parts, first) == [never, fails]
    assert ledger.rest([works._replace(variables=("A=1",))], first)
    second = _commit(repository, "raftlog/a.py", "2")
    assert ledger.rest(parts, second) == [never, works, fails]
    (repository / "raftlog" / "a.py").write_text("3")
    assert not head(repository)
    ledger.add(run(works, tmp_path, repository))
    assert ledger.rest(parts, second) == [never, fails, works]
    assert ledger.rest(parts, "") == [never, fails, works], "changed files are no commit"


def test_the_summary_says_how_old_the_newest_outcome_of_each_part_is(
    repository: Path, tmp_path: Path
) -> None:
    """By the files of the program that changed since its commit; other files do not count."""
    works, fails = Part("works"), Part("fails")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    first = _commit(repository, "raftlog/a.py", "1")
    ledger.add(run(works, tmp_path, repository))
    _commit(repository, "chaos/b.py", "1")
    _commit(repository, "tests/c.py", "1")
    second = _commit(repository, "raftlog/a.py", "2")
    ledger.add(run(fails, tmp_path, repository))
    parts = [works, fails, Part("works", slice=2), Part("tool", needs=("no-such-program",))]
    lines = as_summary(parts, ledger.newest(), repository)
    assert lines[0].startswith("works ")
    assert f"{first[:8]}  2 files changed" in lines[0]
    assert lines[0].endswith("12 passed in 3 s")
    assert lines[1].endswith(second[:8])
    assert "never run" in lines[2]
    assert "no-such-program" in lines[3]
    assert "1 of 2 failed" in lines[4]
    assert lines[4].endswith(f"0 of 4 passed on {second[:8]}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\x1b[32m===== \x1b[1m5 passed\x1b[0m in 2.10s =====\x1b[0m\n", "5 passed in 2.10s"),
        (b"443 of 444 found in 4311 s\n", "443 of 444 found in 4311 s"),
        (b"make: *** [Makefile:10: test] Error 1\n", ""),
        (b"-----\n", ""),
        (b"done\n", ""),
    ],
)
def test_a_part_says_the_last_line_with_a_number_and_a_word(line: bytes, said: str) -> None:
    """Colours, rules and make's own line are left out."""
    assert as_said(line) == said


def test_slices_of_a_target_have_names_of_their_own_and_overlap_nowhere() -> None:
    """The ledger knows a part by its name, so a name that is used twice would hide what did not run."""
    assert len({each.name for each in PARTS}) == len(PARTS)
    for variables in ([each.variables for each in PARTS], [each.long or each.variables for each in PARTS]):
        assert len(set(zip([each.target for each in PARTS], variables, strict=True))) == len(PARTS)
    fuzz = [each for each in PARTS if each.target == "fuzz"]
    assert [each.long for each in fuzz[:2]] == [
        ("FRAMES=2000000", "FUZZ=--first 0"),
        ("FRAMES=2000000", "FUZZ=--first 100"),
    ]
    assert fuzz[1].variables == ("FRAMES=200000", "FUZZ=--first 100")
    sim = [each for each in PARTS if each.target == "sim"]
    assert [each.long for each in sim[:2]] == [
        ("SIM=--seeds 1..200 --keep-going",),
        ("SIM=--seeds 201..400 --keep-going",),
    ]
    assert len(fuzz) == 10


@pytest.mark.parametrize("part", PARTS, ids=lambda each: each.name)
def test_every_part_is_a_target(part: Part) -> None:
    """A part that is gone from the Makefile would be reported as not run, night after night."""
    command = ["make", "--dry-run", part.target, *part.variables]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
