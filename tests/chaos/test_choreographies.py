"""The choreographies are true of raftlog as it is, and bring about what they are named for."""

from __future__ import annotations

import pytest

from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.simulator import simulate
from tests.kit.marks import taste

WITHOUT_ELECTIONS = ("believed-time", "corruption", "late-damage", "new-topics")
"""Their faults, if they have some, need not cost a leader its lead."""

CHOREOGRAPHIES = (
    "believed-time",
    "blackouts",
    "clean-stop",
    "clock-jumps",
    "commits",
    "compaction",
    "consumer-churn",
    "corruption",
    "cut-off",
    "disk-errors",
    "double-failover",
    "eligible-leaders",
    "exactly-once",
    "exactly-once-alone",
    "fetch-sessions",
    "first-batches",
    "follower-reads",
    "group-churn",
    "group-ends",
    "group-migration",
    "kip-101",
    "last-replica",
    "late-damage",
    "log-starts",
    "log-trouble",
    "lying-disk",
    "made-up-producers",
    "names-of-one-log",
    "names-out-of-order",
    "new-topics",
    "odd-headers",
    "offsets-cleaned",
    "out-of-files",
    "pause-kill",
    "relay",
    "retry",
    "rights",
    "rolling-upgrade",
    "rotten-files",
    "schemas",
    "schemas-truncated",
    "share-groups",
    "share-offsets",
    "stored-configs",
    "transactions",
    "transactions-cleaned",
    "wiped",
    "zombie",
)
QUICK = (
    "believed-time",
    "blackouts",
    "commits",
    "group-churn",
    "kip-101",
    "transactions",
)
"""The others run in .ci/run, by `raftlog sim --scenario all`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", taste(QUICK, CHOREOGRAPHIES))
def test_a_choreography_breaks_no_promise(name: str) -> None:
    """Acknowledged records are there, on replicas that are equal and in sync again."""
    seconds = 1.0 if name in QUICK else 2.0
    report = simulate(lambda loop: SCENARIOS[name](loop, seconds), seed=1).result
    assert report.acked > 0
    assert name in WITHOUT_ELECTIONS or report.elections > 0, "nothing happened"
