"""A broker leaves a running cluster with all its replicas, by `raftlog broker decommission`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event, Thread
from typing import Self

import pytest

from raftlog.cli import exits
from raftlog.cli.broker import progress_line
from raftlog.testing.cluster import AdminCluster
from tests.cli.live import invoke
from tests.kit.waits import PATIENCE_S, poll_until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

SHARE = 6
"""The replicas of each of four brokers."""


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[AdminCluster]:
    """Four brokers, the fourth of which does not vote."""
    with AdminCluster(4, voters=3) as found:
        found.create_topic("rides", partitions=8, replication_factor=3)
        found.wait_until_healthy()
        yield found


def replicas_of_4(cluster: AdminCluster) -> int:
    return sum(4 in each.replicas for each in cluster.partitions("rides").values())


def send_away(cluster: AdminCluster) -> None:
    """Have broker 4 leave, unless it has left."""
    if 4 in cluster.running_ids():
        code, _, err = invoke("broker", "decommission", "4", "--wait", "--http", cluster.admin_url(1))
        assert code == exits.OK, err
        cluster.stop(4)


def bring_back(cluster: AdminCluster) -> None:
    """Have broker 4 run, with less than its share of replicas."""
    if replicas_of_4(cluster) >= SHARE:
        send_away(cluster)
    if 4 not in cluster.running_ids():
        cluster.restart(4)
    cluster.wait_until_healthy()


def fill(cluster: AdminCluster) -> None:
    """Have broker 4 run, with its share of replicas."""
    if replicas_of_4(cluster) < SHARE:
        bring_back(cluster)
        where = ("-b", cluster.bootstrap_servers)
        code, _, err = invoke("cluster", "rebalance", "--execute", "--throttle", "100MB", *where)
        assert code == exits.OK, err


class Writer:
    """Produces, each record once, until it is ended, and counts the acknowledged records."""

    def __init__(self, cluster: AdminCluster) -> None:
        from confluent_kafka import Producer

        self.acked: list[bytes] = []
        self._ended = Event()
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        self._thread = Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(0.005):
            number += 1
            self._producer.produce(
                "rides",
                str(number),
                partition=number % 8,
                on_delivery=lambda error, record: None if error else self.acked.append(record.value()),
            )
            self._producer.poll(0)
        self._producer.flush(PATIENCE_S)

    def end(self) -> list[bytes]:
        self._ended.set()
        self._thread.join()
        return self.acked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()


def read_all(cluster: AdminCluster, count: int) -> list[bytes]:
    """Return the values of all partitions, at least so many."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("rides", each, 0) for each in range(8)])
    values: list[bytes] = []

    def all_read() -> bool:
        values.extend(each.value() for each in consumer.consume(500, 0.2))
        return len(values) >= count

    poll_until(all_read, f"{count} records are read", seen=lambda: len(values))
    consumer.close()
    return values


def test_broker_leaves_with_all_its_replicas_and_no_record_is_lost(own_cluster: AdminCluster) -> None:
    """All that was acknowledged meanwhile is read from the others once it is stopped."""
    fill(own_cluster)
    url = own_cluster.admin_url(1)
    writer = Writer(own_cluster)
    code, out, err = invoke("broker", "decommission", "4", "--wait", "--http", url)
    assert code == exits.OK, err
    assert out.splitlines()[-1] == "broker 4 has no replicas and is unregistered: stop its process"
    assert "replicas left" in err
    for state in own_cluster.partitions("rides").values():
        assert sorted(state.replicas) == [1, 2, 3]
    own_cluster.stop(4)
    acked = writer.end()
    assert len(acked) > 0
    assert sorted(read_all(own_cluster, len(acked))) == sorted(acked)
    code, out, err = invoke("broker", "decommission-status", "4", "--json", "--http", url)
    assert (code, json.loads(out)) == (exits.OK, []) and "broker 4 has left" in err
    code, _, err = invoke("broker", "recommission", "4", "--http", url)
    assert code == exits.NOT_FOUND and "broker 4 has left" in err
    code, _, err = invoke("broker", "decommission-status", "99", "--http", url)
    assert code == exits.NOT_FOUND and "there is no broker 99" in err


def test_progress_gives_reasons_only_if_nothing_moved_since() -> None:
    """Between two lots of moves, none moves at the moment of a look."""
    waiting = [{"reason": "its turn has not come"}]
    before = {"replicas": 44, "moving": [], "waiting": waiting}
    now = {"replicas": 29, "moving": [], "waiting": waiting}
    assert progress_line(now | {"moving": [1, 2]}, before) == "29 replicas left, 2 of them move"
    assert progress_line(now, before) == "29 replicas left"
    assert progress_line(now, now) == "29 replicas left; its turn has not come"


def test_no_broker_leaves_whose_replicas_have_no_other_place(own_cluster: AdminCluster) -> None:
    """Broker 4 is gone, so the others are needed."""
    send_away(own_cluster)
    url = own_cluster.admin_url(1)
    code, _, err = invoke("broker", "decommission", "3", "--http", url)
    assert code != exits.OK
    assert "replication factor 3, and without broker 3 only 2 brokers are left" in err
    code, _, err = invoke("broker", "decommission", "3", "--replace-with", "9", "--http", url)
    assert code != exits.OK and "broker 9 cannot replace broker 3" in err
    assert invoke("broker", "recommission", "3", "--http", url)[0] != exits.OK
    assert invoke("broker", "decommission", "99", "--http", url)[0] == exits.NOT_FOUND


def test_broker_that_comes_back_takes_the_place_of_another(own_cluster: AdminCluster) -> None:
    """Its progress is shown; recommissioned, a broker keeps what it has."""
    bring_back(own_cluster)
    url = own_cluster.admin_url(2)
    code, _, err = invoke("broker", "decommission", "3", "--replace-with", "4", "--http", url)
    assert code == exits.OK, err
    code, out, err = invoke("broker", "decommission-status", "3", "--json", "--http", url)
    assert code == exits.OK, err
    assert {each["topic"] for each in json.loads(out)} >= {"rides"}
    code, out, _ = invoke("broker", "recommission", "3", "--http", url)
    assert (code, out) == (exits.OK, "broker 3 stays\n")
    assert invoke("broker", "decommission-status", "3", "--http", url)[0] == exits.NOT_FOUND


def test_rebalance_gives_the_broker_that_came_back_its_share(own_cluster: AdminCluster) -> None:
    """The plan changes nothing; carried out, a second plan finds nothing to move."""
    bring_back(own_cluster)
    where = ("-b", own_cluster.bootstrap_servers)
    before = {key: each.replicas for key, each in own_cluster.partitions("rides").items()}
    code, out, err = invoke("cluster", "rebalance", "--json", *where)
    assert code == exits.OK, err
    planned = json.loads(out)
    assert [each for each in planned if 4 in each["to"] and 4 not in each["replicas"]]
    assert {key: each.replicas for key, each in own_cluster.partitions("rides").items()} == before
    code, _, err = invoke("cluster", "rebalance", "--execute", "--throttle", "100MB", *where)
    assert code == exits.OK, err
    moves = sum(each["action"] != "elect" for each in planned)
    assert f"{moves} of {moves} partitions moved" in err
    own_cluster.wait_until_healthy()
    again = json.loads(invoke("cluster", "rebalance", "--json", *where)[1])
    assert [each for each in again if set(each["to"]) != set(each["replicas"])] == []
    configs = invoke("broker", "configs", "4", "--changed", "--json", *where)[1]
    assert "throttled.rate" not in configs


def test_broker_that_will_not_come_back_is_unregistered(own_cluster: AdminCluster) -> None:
    """Its replicas are waited for no more; a broker of that number registers anew."""
    bring_back(own_cluster)
    where = ("-b", own_cluster.bootstrap_servers)
    own_cluster.kill(4)
    assert invoke("broker", "unregister", "4", *where) == (exits.OK, "broker 4 is unregistered\n", "")
    listed = json.loads(invoke("broker", "list", "--json", *where)[1])
    assert [each["broker"] for each in listed] == [1, 2, 3]
