"""The examples of deploy/examples, as a reader runs them: one dies, is started again, and the receipts are counted."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.stock import PATIENCE_S
from tests.clients.with_confluent import Confluent
from tests.interop.features import needs_transactions

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"
ORDERS, BATCH = 20, 4


class Told(NamedTuple):
    """What compare.py counted: receipts that are missing, and that are there once more than they should be."""

    missing: bool
    doubled: bool


OUTCOMES = {
    ("at_most_once", "before-commit"): Told(missing=False, doubled=False),
    ("at_most_once", "after-commit"): Told(missing=True, doubled=False),
    ("at_least_once", "before-commit"): Told(missing=False, doubled=True),
    ("at_least_once", "after-commit"): Told(missing=False, doubled=False),
    ("exactly_once", "before-commit"): Told(missing=False, doubled=False),
    ("exactly_once", "after-commit"): Told(missing=False, doubled=False),
}
"""What a crash between a commit and the work leaves behind."""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{program}.py"), *words],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


def outcome(cluster: Cluster, orders: str, semantics: str, crash: str) -> Told:
    """Let a program die at a moment, run it again to its end, and count."""
    receipts = f"{orders}-{semantics}-{crash}"
    where = ("-b", cluster.bootstrap_servers, "--orders", orders)
    words = (*where, "--receipts", receipts, "--group", receipts)
    died = run(semantics, *words, "--crash", crash)
    assert died.returncode == -signal.SIGKILL, died
    ended = run(semantics, *words)
    assert ended.returncode == 0, ended
    told = run("compare", receipts, *where)
    assert told.stdout.startswith(f"{ORDERS} orders, "), told
    missing, doubled = (int(part.split()[0]) for part in told.stdout.split(": ")[1].split(", "))
    assert max(missing, doubled) <= BATCH
    return Told(missing > 0, doubled > 0)


@pytest.mark.parametrize(
    "semantics",
    [
        "at_most_once",
        "at_least_once",
        pytest.param("exactly_once", marks=needs_transactions),
    ],
)
def test_a_crash_leaves_duplicates_losses_or_neither_as_the_semantics_says(
    cluster: Cluster, client: Confluent, topic: str, semantics: str
) -> None:
    """Work first: done twice. Commit first: never done. Both in one transaction: done once."""
    client.create_topic(topic, 3, 3)
    sent = run("orders", "-b", cluster.bootstrap_servers, "--orders", topic, "--count", str(ORDERS))
    assert sent.returncode == 0, sent
    with ThreadPoolExecutor(2) as both:
        cases = {
            (name, crash): both.submit(outcome, cluster, topic, name, crash)
            for name, crash in product([semantics], ["before-commit", "after-commit"])
        }
        found = {case: each.result(4 * PATIENCE_S) for case, each in cases.items()}
    assert found == {case: OUTCOMES[case] for case in cases}
