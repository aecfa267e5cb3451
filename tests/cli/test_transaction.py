"""`raftlog transactions …` against a cluster; tests/node/test_hanging.py shows that a hanging transaction is ended."""

from __future__ import annotations

import json
import re
import time

import pytest
from confluent_kafka import Producer

from raftlog.cli import exits
from raftlog.testing.cluster import Cluster
from tests.cli.live import invoke
from tests.kit.waits import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_live_transaction_is_listed_and_cannot_be_aborted_by_an_operator(cluster: Cluster) -> None:
    """Its coordinator knows of it: it does not hang, and is its producer's to end."""
    at = ("--http", cluster.admin_url(2))
    invoke("topic", "create", "written", "--partitions", "1", "--bootstrap", cluster.bootstrap_servers)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x/1"})
    began_ms = time.time() * 1000
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("written", b"value")
    assert producer.flush(PATIENCE_S) == 0
    code, listed, _ = invoke("transaction", "list", *at, "-o", "json")
    (found,) = [each for each in json.loads(listed) if each["transactional_id"] == "x/1"]
    assert (code, found["state"]) == (0, "Ongoing")
    assert began_ms - 1000 < found["start_ms"] < time.time() * 1000 + 1000
    assert found["timeout_ms"] == 60_000
    row = invoke("transaction", "list", *at)[1].partition("x/1")[2].splitlines()[0]
    assert re.fullmatch(r".*Ongoing +\d+ s +60 s", row), row
    described = invoke("transaction", "describe", "x/1", *at)[1]
    assert re.search(r"start +20\d\d-\S+\+00:00 \(\d+ s ago\)\n", described), described
    assert json.loads(invoke("transaction", "describe", "x/1", *at, "-J")[1])["start_ms"] == found["start_ms"]
    assert "written-0" in described and "Ongoing" in described
    hanging = invoke("transaction", "find-hanging", "--max-transaction-timeout", "0", *at, "-o", "json")
    assert (hanging[0], json.loads(hanging[1])) == (0, [])
    assert hanging[2] == "raftlog: none hangs that was not written to for 0 minutes\n"
    assert "(15 minutes unless set)" in invoke("transaction", "find-hanging", *at)[2]
    place = ("--topic", "written", "--partition", "0")
    code, _, said = invoke("transaction", "abort", *place, "--start-offset", "0", *at)
    assert code == exits.FAILED
    assert re.search(r"x/1 is Ongoing, and broker \d ends it in \d+ s, when its timeout is over", said)
    assert "forceTerminateTransaction" in said and said.count("\n") == 1
    producer.commit_transaction(PATIENCE_S)
    cluster.wait_until(
        lambda: invoke("transaction", "abort", *place, "--start-offset", "0", *at)[0] == exits.NOT_FOUND,
        "its marker is written, which the answer to a commit does not wait for",
    )
    assert invoke("transaction", "describe", "nobody", *at)[0] == exits.NOT_FOUND
    assert invoke("transaction", "describe", "", *at)[0] == exits.USAGE
