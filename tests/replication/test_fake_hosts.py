"""The hosts that tests put in the broker's place keep the law of `ReplicaHost`, as the broker's own does."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from raftlog.broker.replicas.replicas import Replicas
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import ReplicaHost
from tests.broker.broker_cluster import BrokerCluster
from tests.broker.broker_cluster import run_scenario as run_brokers
from tests.broker.coordination.group_broker import GroupBroker, LoopHost
from tests.broker.handlers.test_groups import run_scenario
from tests.replication.replica_cluster import NOW_MS, FakeHost, ReplicaNode, batch, registrations

HOSTS = (Replicas, FakeHost, LoopHost)


@pytest.mark.parametrize("host", HOSTS, ids=lambda each: each.__name__)
def test_a_host_answers_every_question(host: type[Any]) -> None:
    """With the protocol's parameters: a replica cannot distinguish a fake from the broker."""
    asked = {
        name: each for name, each in vars(ReplicaHost).items() if inspect.isfunction(each) and name[0] != "_"
    }
    given = {"now", "latest_ms", "broker_epoch", "brokers", "was_deleted"}
    assert len(asked) == 14
    for name, method in asked.items():
        if host is Replicas and name in given:
            continue  # the functions that it was given
        assert [*inspect.signature(getattr(host, name)).parameters] == [*inspect.signature(method).parameters]


class CallsBack:
    """Counts what a host calls in a partition, and whether it does so before the question returns."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        for name in ("note_flushed", "wake_parked"):
            patch.setattr(Partition, name, self._noting(name, getattr(Partition, name)))

    def _noting(self, name: str, call: Any) -> Any:
        def note(partition: Partition, *arguments: Any) -> Any:
            self.names.append(name)
            return call(partition, *arguments)

        return note

    def ask(self, host: Any, partition: Partition) -> None:
        self.names.clear()
        host.request_flush(partition)
        host.wake_waiters(partition)
        assert self.names == [], "a host called back before it returned"

    def check(self) -> None:
        assert {*self.names} == {"note_flushed", "wake_parked"}


def test_the_fake_host_calls_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call enters a partition before it returns; both calls come later."""
    node, calls = ReplicaNode(1, registrations([1])), CallsBack(monkeypatch)
    calls.ask(node.host, node.partition)
    node.host.flush()
    node.host.wake()
    calls.check()


def test_the_loop_host_calls_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above."""
    calls = CallsBack(monkeypatch)

    async def scenario(node: GroupBroker) -> None:
        partition = node.replicas.partitions[0]
        calls.ask(node.partition_host, partition)
        await node.pass_time(0.1)
        calls.check()

    run_scenario(scenario)


def test_the_brokers_own_host_calls_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above: the law is the broker's, and the fakes stand for it."""
    calls = CallsBack(monkeypatch)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)

        async def ask() -> None:
            partition = cluster[1].partition()
            partition.append_produced(batch("a"), acks=1, now_ms=NOW_MS)
            calls.ask(cluster[1].replicas, partition)

        await cluster[1].host.start(ask())
        await cluster.pass_time(0.1)
        calls.check()

    run_brokers(scenario)
