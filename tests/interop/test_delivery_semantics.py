"""The examples of deploy/examples, as a reader runs them: one dies, is started again, and the receipts are counted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent
from tests.kit import waits

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"

OUTCOMES = {
    "at_most_once.py": ("neither", "[1-4] missing"),
    "at_least_once.py": ("[1-4] doubled", "neither"),
    "exactly_once.py": ("neither", "neither"),
}
"""A crash before and after the commit leaves this behind; batches have four orders, or fewer at an end."""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return waits.run([sys.executable, str(EXAMPLES / program), *words], text=True)


def test_a_crash_leaves_duplicates_losses_or_neither_as_the_semantics_says(
    cluster: Cluster, client: Confluent, topic: str
) -> None:
    """Work first: done twice. Commit first: never done. Both in one transaction: done once. See the guide's table."""
    client.create_topic(topic, 3, 3)
    told = run("crashes.py", "-b", cluster.bootstrap_servers, "--orders", topic)
    assert told.returncode == 0, told
    rows = [re.split(r"\s{2,}", line) for line in told.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == list(OUTCOMES)
    for program, *found in rows:
        wanted = OUTCOMES[program]
        assert all(map(re.fullmatch, wanted, found)), f"{program}: {found}, not {wanted}"


@pytest.mark.parametrize("program", OUTCOMES)
def test_each_example_runs_by_itself(cluster: Cluster, client: Confluent, topic: str, program: str) -> None:
    """One command, no kills: a receipt for each order, and it ends by itself."""
    client.create_topic(topic, 1, 3)
    where = ("-b", cluster.bootstrap_servers, "--orders", topic)
    assert run("orders.py", *where).returncode == 0
    ended = run(program, *where, "--receipts", f"{topic}-receipts", "--group", topic)
    assert ended.returncode == 0, ended
    told = run("compare.py", f"{topic}-receipts", *where).stdout
    assert told.startswith("20 orders, 20 receipts: 0 missing, 0 doubled"), told


@pytest.mark.parametrize("program", ["orders.py", "crashes.py", "compare.py", *OUTCOMES])
def test_without_a_cluster_there_is_one_line_and_code_6(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Most likely `raftlog dev` does not run, or elsewhere: RAFTLOG_BOOTSTRAP counts as it does for raftlog."""
    monkeypatch.setenv("RAFTLOG_BOOTSTRAP", "127.0.0.1:1")
    ended = run(program, *(["receipts"] if program == "compare.py" else []))
    assert (ended.returncode, ended.stdout) == (6, "")
    assert ended.stderr == "no cluster at 127.0.0.1:1: is `raftlog dev` running?\n"


def test_topics_that_are_not_there_are_an_error_and_not_made(cluster: Cluster, topic: str) -> None:
    """A comparison of two empty topics finds no missing record."""
    ended = run("compare.py", f"{topic}-r", "-b", cluster.bootstrap_servers, "--orders", f"{topic}-o")
    assert (ended.returncode, ended.stderr) == (1, f"there is no topic {topic}-o, {topic}-r\n")
    ended = run("at_least_once.py", "-b", cluster.bootstrap_servers, "--orders", f"{topic}-o")
    assert (ended.returncode, ended.stderr) == (1, f"there is no topic {topic}-o: orders.py makes it\n")
