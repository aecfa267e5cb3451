"""Claims about `raftlog sim`: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from typer.testing import CliRunner, Result

from raftlog.cli import exits
from raftlog.cli import sim as body
from raftlog.cli.app import app
from raftlog.cli.sim import seeds_of
from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator import SimLoop


async def fails_at_three(loop: SimLoop, seconds: float) -> Report:
    """Fail at seed 3. Raises AssertionError."""
    loop.host("node2").note("paused")
    await asyncio.sleep(seconds)
    assert loop.seed != 3, "three is wrong"
    return Report(acked=1000, faults={"pause": 4, "cut": 0})


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario of our own; and the log of this process, which a command sets once for good, stays as it was."""
    monkeypatch.setitem(SCENARIOS, "three", fails_at_three)
    monkeypatch.setattr(body, "silence", lambda: None)


def sim(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", "--scenario", "three", "--seconds", "2", *arguments])


def test_a_seed_is_replayed_with_its_digest() -> None:
    """The same seed prints the same digest."""
    first, again = sim("--seed", "1"), sim("--seed", "1")
    assert first.exit_code == 0
    digests = [next(line for line in each.output.splitlines() if "digest" in line) for each in (first, again)]
    assert digests[0] == digests[1]
    assert "1,000 records" in first.output and "pause 4" in first.output


def test_a_failed_seed_exits_1_and_says_how_to_replay_it_and_what_happened() -> None:
    """One line to type, a table of events, what was violated."""
    result = sim("--seed", "3")
    assert result.exit_code == 1
    assert "raftlog sim --scenario three --seconds 2 --seed 3 --log" in result.output
    assert "node2    paused" in result.output and "three is wrong" in result.output


def test_all_stories_have_their_turn_seed_by_seed() -> None:
    """As many seeds as there are scenarios run each scenario once, and a seed is replayed as the same scenario."""
    request = body.Request(
        None,
        f"5..{4 + len(SCENARIOS)}",
        body.ALL,
        2.0,
        jobs=1,
        budget=None,
        keep_going=False,
        log=False,
        regressions=False,
        scenarios=False,
    )
    tales = request.tales()
    assert sorted(each.scenario for each in tales) == sorted(SCENARIOS)
    assert all(request.scenario_of(each.seed) == each.scenario for each in tales)


def test_a_sweep_ends_with_a_summary() -> None:
    """Seeds, time, records, faults, faults that never struck, each failure once more; no terminal: plain lines."""
    result = sim("--seeds", "1..4", "--keep-going")
    assert result.exit_code == 1
    assert "4 of 4 seeds, 1 failed" in result.output
    assert "pause 12" in result.output and "never      cut" in result.output
    assert result.output.count("--seed 3 --log") == 2
    assert sim("--seeds", "4..6").exit_code == 0


def test_a_long_sweep_in_which_a_fault_never_struck_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be no evidence about that fault; a short sweep only reports it, as does a sweep of another scenario."""
    monkeypatch.setattr("raftlog_chaos.sweep.STRICT_SEEDS", 3)
    assert sim("--seeds", "4..9").exit_code == 0
    monkeypatch.setattr("raftlog_chaos.sweep.STRICT_SCENARIO", "three")
    assert sim("--seeds", "4..5").exit_code == 0
    result = sim("--seeds", "4..6")
    assert result.exit_code == exits.FAILED
    assert "these faults never struck: cut" in result.output


def test_a_sweep_without_a_finished_seed_is_not_run() -> None:
    """A budget that is spent before the first seed is no success."""
    assert sim("--seeds", "1..2", "--budget", "0").exit_code == exits.NOT_RUN


def test_impossible_sweeps_are_refused() -> None:
    """Exit code 2, as for every usage error."""
    assert CliRunner().invoke(app, ["sim", "--scenario", "nonsense"]).exit_code == 2
    assert sim("--seeds", "9..1").exit_code == 2
    assert seeds_of("5") == (5, 5) and seeds_of("2..7") == (2, 7)


def test_the_stories_are_listed() -> None:
    """With the first line of what they say of themselves."""
    result = CliRunner().invoke(app, ["sim", "--scenarios"])
    assert "three          Fail at seed 3." in result.output and "endurance" in result.output


def test_an_interrupted_sweep_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM ends it as Ctrl-C does: its processes would go on without it."""

    async def ends_us(loop: SimLoop, seconds: float) -> Report:
        if loop.seed == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return Report(acked=1000)

    monkeypatch.setitem(SCENARIOS, "three", ends_us)
    result = sim("--seeds", "1..9", "--jobs", "1")
    assert result.exit_code == exits.INTERRUPTED
    assert "1 of 9" in result.stdout
