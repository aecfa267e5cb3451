"""`raftlog quota` at a cluster that runs, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.cli import exits
from tests.cli.live import CommandLine, invoke
from tests.kit.waits import until

NOBODY = ("-b", "localhost:1", "-m", "0.2")


def row(user: str | None, client_id: str | None, ip: str | None, quota: str, value: float) -> dict[str, Any]:
    return {"user": user, "client-id": client_id, "ip": ip, "quota": quota, "value": value}


@pytest.mark.slow
def test_quotas_are_set_listed_and_removed(raftlog: CommandLine, name: str) -> None:
    """For a user, for a client of the user, for an address; each step sees the previous step."""
    assert raftlog("quota", "set", "--user", name, "producer_byte_rate=1000000").returncode == 0
    both = ("--user", name, "--client-defaults")
    assert raftlog("quota", "set", *both, "request_percentage=12.5", "consumer_byte_rate=1e6").returncode == 0
    of_user = row(name, None, None, "producer_byte_rate", 1e6)
    raftlog.rows_once(
        lambda rows: (
            rows
            == [
                of_user,
                row(name, "<default>", None, "consumer_byte_rate", 1e6),
                row(name, "<default>", None, "request_percentage", 12.5),
            ]
        ),
        *("quota", "list", "--user", name),
    )
    assert raftlog("quota", "remove", *both).returncode == 0
    raftlog.rows_once(lambda rows: rows == [of_user], "quota", "list", "--user", name)
    assert raftlog("quota", "remove", "--user", name, "producer_byte_rate").returncode == 0
    raftlog.rows_once(lambda rows: rows == [], "quota", "list", "--user", name)
    assert raftlog("quota", "set", "--ip", "10.9.8.7", "connection_creation_rate=5").returncode == 0
    limited = row(None, None, "10.9.8.7", "connection_creation_rate", 5.0)
    raftlog.rows_once(lambda rows: limited in rows, "quota", "list")
    assert raftlog("quota", "remove", "--ip", "10.9.8.7").returncode == 0
    until(lambda: limited not in raftlog.rows("quota", "list"), "it is removed")


@pytest.mark.slow
def test_what_a_cluster_refuses_is_said(raftlog: CommandLine, name: str) -> None:
    """The field and its limit; what is not there is not found."""
    refused = raftlog("quota", "set", "--user", name, "producer_byte_rate=-1")
    assert refused.returncode == exits.FAILED
    assert refused.stderr == "raftlog: value: producer_byte_rate must be more than 0, not -1.0\n"
    refused = raftlog("quota", "set", "--ip", "example.org", "connection_creation_rate=1")
    assert "'example.org' is not an IP address" in refused.stderr
    missing = raftlog("quota", "remove", "--user", name)
    assert (missing.returncode, missing.stderr) == (
        exits.NOT_FOUND,
        f"raftlog: there is no quota of user={name}\n",
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set", "producer_byte_rate=1"), "name the entity"),
        (("set", "--user", "al", "--user-defaults", "producer_byte_rate=1"), "not both"),
        (("set", "--user", "al", "producer_byte_rate=fast"), "must be a number, not 'fast'"),
        (("set", "--user", "al", "producer_byte_rate"), "must be name=value"),
        (("remove",), "name the entity"),
    ],
)
def test_a_line_that_makes_no_sense_asks_no_cluster(arguments: tuple[str, ...], says: str) -> None:
    """Exit code 2, and what was meant."""
    code, _, errors = invoke("quota", *arguments, *NOBODY)
    assert code == exits.USAGE
    assert says in errors
