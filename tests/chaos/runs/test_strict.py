"""Claims about failures that the harness never excuses: undetected rot, nodes without a log, empty runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.cli.chaos import code_of, not_run
from raftlog.faults.harm import Rot, flip_bit
from raftlog_chaos.runs.landmarks import silent
from raftlog_chaos.runs.outcome import Outcome, unrun
from raftlog_chaos.runs.rot import RotWatch
from tests.chaos.runs.runs import case, line
from tests.storage import conftest
from tests.storage.batches import append
from tests.storage.conftest import OpenLog

open_log = conftest.open_log  # the fixture of the tests of storage


def outcome(status: str, *not_run: str) -> Outcome:
    lacking = dict.fromkeys(not_run, "lacks it")
    return Outcome(case="c", title="", place="p", seed=1, status=status, not_run=lacking)  # type: ignore[arg-type]


def test_a_run_of_which_no_case_ran_in_full_is_a_failure() -> None:
    """A fault that this machine lacks is said, and is no failure of raftlog's; with --strict it is exit code 5."""
    whole, partly, none = outcome("passed"), outcome("passed", "cut-pair"), outcome("not run")
    for strict, lacking in ((False, exits.OK), (True, exits.NOT_RUN)):
        assert code_of([whole], strict=strict) == exits.OK
        assert code_of([whole, none], strict=strict) == code_of([whole, partly], strict=strict) == lacking
        assert code_of([none, none], strict=strict) == code_of([partly, none], strict=strict) == exits.FAILED
        assert code_of([whole, outcome("failed"), none], strict=strict) == exits.FAILED


def test_what_could_not_be_run_is_said_with_its_reason() -> None:
    """A run that succeeds shows no more than it ran."""
    nowhere = unrun(case(), {"namespaces": "there is no nft"}, seed=1)
    assert not_run([outcome("passed")]) == []
    assert not_run([outcome("passed", "cut-pair"), nowhere]) == [
        "fault cut-pair of case c was not run: lacks it",
        "case by-hand was not run: namespaces: there is no nft",
    ]


def test_a_node_without_a_log_is_a_scandal() -> None:
    """Its behaviour cannot be checked."""
    assert list(silent((1, 2, 3), {1: ["a line"], 2: []})) == ["node 2: left no log", "node 3: left no log"]


@pytest.fixture
def rotten(tmp_path: Path, open_log: OpenLog) -> tuple[Rot, Path]:
    """A log of a few batches in which a bit was flipped, and the log of the node that it belongs to."""
    log = open_log()
    for number in range(4):
        append(log, b"value %d" % number)
    log.flush()
    node_log = tmp_path / "node.log"
    node_log.write_text(line("log_damaged", 0, topic="t", partition=0))
    rot = flip_bit([str(tmp_path)], ["t"], 0.5)
    assert rot is not None
    return rot, node_log


def test_rot_that_a_start_must_meet_and_no_log_names_is_a_scandal(rotten: tuple[Rot, Path]) -> None:
    """A log line before it was planted, or about another partition, does not count."""
    rot, node_log = rotten
    watch = RotWatch()
    watch.note(2, rot, node_log)
    with node_log.open("a") as log:
        log.write("\n" + line("log_damaged", 1, topic="t", partition=1) + "\n")
    assert list(watch.unnoticed()) == ["node 2: a bit flipped in t-0 was never noticed"]
    with node_log.open("a") as log:
        log.write(line("log_damaged", 1, topic="t", partition=0) + "\n")
    assert list(watch.unnoticed()) == []


@pytest.mark.parametrize("event", ["wiped", "gone", "not due"])
def test_rot_that_no_read_needs_to_meet_is_no_scandal(event: str, rotten: tuple[Rot, Path]) -> None:
    """The disk was replaced, the partition is deleted, or the start trusts what lies there."""
    rot, node_log = rotten
    watch = RotWatch()
    watch.note(2, rot._replace(is_due=event != "not due"), node_log)
    if event == "wiped":
        watch.forget(2)
    elif event == "gone":
        folder = Path(rot.path).parent
        folder.rename(folder.with_name("t-0.0-delete"))
    assert list(watch.unnoticed()) == []


def test_rot_is_due_from_the_recovery_point_on_and_not_after_a_clean_stop(
    tmp_path: Path, rotten: tuple[Rot, Path]
) -> None:
    """Recovery reads no further back, and after a clean stop it reads only the end."""
    assert rotten[0].is_due
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    behind = flip_bit([str(tmp_path)], ["t"], 0.5)
    assert behind is not None and not behind.is_due
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    (tmp_path / ".kafka_cleanshutdown").write_text("{}")
    clean = flip_bit([str(tmp_path)], ["t"], 0.5)
    assert clean is not None and not clean.is_due
