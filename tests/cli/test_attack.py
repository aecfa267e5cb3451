"""`raftlog attack` and `raftlog fuzz` from the outside, as far as no cluster is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftlog.cli.attack import last_words
from raftlog.cli.attack_report import AttackReport, as_json, as_markdown, figures
from raftlog.cli.exits import FAILED, OK, USAGE
from raftlog_chaos.attacks.registry import load_attacks
from raftlog_chaos.attacks.verdict import MIB, conclude
from tests.chaos.attacks.kit import LIMITS, an_attack, calm, with_node
from tests.cli.live import invoke


def test_attacks_are_listed_with_what_they_claim():
    """All of them, or the attacks that run in CI."""
    code, listed, _ = invoke("attack", "--list")
    assert code == OK
    assert all(each.claim in listed for each in load_attacks().values())
    _, chosen, _ = invoke("attack", "--list", "--only-ci")
    assert len(chosen.splitlines()) == 1 + sum(each.ci for each in load_attacks().values())


def test_an_attack_that_is_none_is_wrong_usage():
    """Before anything is started."""
    code, _, errors = invoke("attack", "--only", "no-such", "--report", "attacks.txt")
    assert code == USAGE
    assert "no such attack: no-such" in errors
    assert "attacks.txt: a report ends in .json or .md" in errors


def test_single_attacks_are_chosen_by_name():
    """--only may be repeated; the book's order stays."""
    _, listed, _ = invoke("attack", "--list", "--only", "smuggled-requests", "--only", "zstd-bombs")
    assert [line.split()[0] for line in listed.splitlines()] == ["attack", "zstd-bombs", "smuggled-requests"]


def test_an_attack_that_was_not_run_is_no_success():
    """For lack of time, or because no cluster could be started: the report names it."""
    outcomes = {"one": conclude(an_attack(), calm(), LIMITS)}
    assert AttackReport.of([an_attack()], outcomes, 60.0).passed
    report = AttackReport.of([an_attack(), an_attack("two")], outcomes, 60.0)
    assert not report.passed
    assert report.closing() == "1 attacks, 0 failed, in 1.0 minutes; not run: two"


def test_reports_have_the_table_and_the_faults():
    """As JSON for programs, as Markdown for people."""
    seen = with_node(2, ended="struct.error")
    report = AttackReport.of([an_attack()], {"one": conclude(an_attack(), seen, LIMITS)}, 60.0)
    told = json.loads(as_json(report))
    assert told["failed"] == ["one"] and told["attacks"][0]["faults"] == ["node 2 ended: struct.error"]
    page = as_markdown(report).splitlines()
    (row,) = [line for line in page if line.startswith("| one |")]
    assert row.startswith("| one | kafka | failed | 0.020 |") and row.count("|") == page[4].count("|")
    assert page[-1] == "- `one`: node 2 ended: struct.error"


def test_a_run_without_time_runs_nothing():
    """Not even a cluster is started."""
    code, out, _ = invoke("attack", "--only", "zstd-bombs", "--minutes", "0")
    assert code == FAILED
    assert out.splitlines()[-1] == "0 attacks, 0 failed, in 0.0 minutes; not run: zstd-bombs"


def test_the_figures_of_an_outcome_fit_into_a_line():
    """The highest memory of all nodes, and memory that never came back."""
    seen = with_node(2, peak_bytes=390 * MIB, stall_s=None)
    line = figures(conclude(an_attack(), seen, LIMITS))
    assert "+300 MiB" in line and "loop silent" in line and "settled never" in line
    assert "loop 10 ms" in figures(conclude(an_attack(), calm(), LIMITS))


def test_the_last_words_of_a_node_are_its_error():
    """Later lines only describe the shutdown."""
    assert last_words("started\nOSError: too many files\nstopped\n") == "OSError: too many files"
    assert last_words("started\nstopped\n") == "stopped"
    assert last_words("") == "its log is empty"


@pytest.mark.nightly
def test_a_run_of_the_fuzzer_prints_its_figures(tmp_path: Path):
    """As JSON; its findings are kept as files. .ci/run runs it, too."""
    options = ("--frames", "400", "--seed", "3", "--jobs", "1", "--json", "--out", str(tmp_path))
    code, out, _ = invoke("fuzz", *options)
    told = json.loads(out)
    assert code == (FAILED if told["findings"] else OK)
    assert told["frames"] >= 400 and told["handled"] >= 40
    assert sum(told["outcomes"].values()) == 360
    assert len(list(tmp_path.glob("*.hex"))) == len(told["findings"])
