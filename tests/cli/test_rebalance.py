"""What `raftlog cluster rebalance` shows and elects, without a cluster; the moves are in test_balance_plan.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.base.errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from raftlog.cli import exits
from raftlog.cli.balance_plan import BrokerRoom
from raftlog.cli.partition_view import Partition
from raftlog.cli.rebalance import Balance, Rebalance, balance_of, print_verdict
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey

ROOMS = [BrokerRoom(1), BrokerRoom(2), BrokerRoom(3)]


def partition(number: int, leader: int, *replicas: int, isr: tuple[int, ...] = ()) -> Partition:
    return Partition("t", number, leader, replicas, isr or replicas)


LED_BY_OTHERS = [partition(0, 1, 1, 2, 3), partition(1, 3, 2, 3, 1), partition(2, 3, 3, 1, 2)]
"""Broker 2 was drained: it is the preferred leader of t-1, and in sync."""


class Electing:
    """A cluster that returns these errors of an election, by partition of topic t."""

    timeout_s = 1.0

    def __init__(self, **codes: int) -> None:
        self.asked: list[ApiKey] = []
        parts = [
            SimpleNamespace(partition_id=int(name[1:]), error_code=code, error_message=None)
            for name, code in codes.items()
        ]
        self._results = [SimpleNamespace(topic="t", partition_result=parts)]

    def ask(self, key: ApiKey, _build: Any, **_more: Any) -> Any:
        self.asked.append(key)
        return SimpleNamespace(replica_election_results=self._results)


def run(cluster: Electing, balance: Balance) -> int:
    return Rebalance(cast(Target, cluster), 20, 0).run(balance)


def test_a_broker_that_leads_nothing_is_no_balance(capsys: pytest.CaptureFixture[str]) -> None:
    """No replica moves, and the preferred leader is shown, then elected."""
    balance = balance_of(ROOMS, LED_BY_OTHERS, {})
    (row,) = balance.rows()
    assert row["action"] == "elect" and (row["partition"], row["leader"], row["to"]) == (1, 3, [2, 3, 1])
    assert print_verdict(balance) == exits.OK
    cluster = Electing(p0=ElectionNotNeeded.code, p1=0)
    assert run(cluster, balance) == exits.OK
    assert cluster.asked == [ApiKey.ELECT_LEADERS]
    assert capsys.readouterr().err == "preferred leaders elected: 1\n"


def test_a_balanced_cluster_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    """In the dry run, too; no leader is elected."""
    balance = balance_of(ROOMS, [partition(number, each, each) for number, each in enumerate((1, 2, 3))], {})
    cluster = Electing()
    assert run(cluster, balance) == print_verdict(balance) == exits.OK
    assert cluster.asked == []
    assert capsys.readouterr().err == "the cluster is balanced\n" * 2


def test_a_broker_that_is_down_is_named_with_what_it_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 7, whether or not other partitions move."""
    dead = [partition(0, 1, 1, 2, isr=(1,)), partition(1, 1, 2, 1, isr=(1,)), partition(2, 3, 3, 1)]
    balance = balance_of([BrokerRoom(1), BrokerRoom(3)], dead, {})
    assert balance.elections == [], "broker 2 is not there to lead t-1"
    assert run(Electing(), balance) == exits.UNHEALTHY
    said = "broker 2 is down, so the partitions with a replica there cannot move: 2"
    assert said in capsys.readouterr().err


def test_a_replica_that_is_not_in_sync_is_not_elected() -> None:
    """It becomes the leader once it is, by another run or by itself."""
    assert balance_of(ROOMS, [partition(0, 3, 2, 3, 1, isr=(3, 1))], {}).elections == []


def test_an_election_that_is_refused_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """As of a broker that is being drained; the exit code is not 0."""
    cluster = Electing(p0=0, p1=PreferredLeaderNotAvailable.code)
    assert run(cluster, balance_of(ROOMS, LED_BY_OTHERS, {})) != exits.OK
    assert "raftlog: t 1: preferred leader not available" in capsys.readouterr().err
