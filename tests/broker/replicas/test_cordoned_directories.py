"""A cordoned log directory gets no new replicas, and keeps those it has (KIP-1066)."""

from __future__ import annotations

import pytest

from raftlog.base.config import ConfigFaults, load_config
from tests.broker.broker_cluster import BrokerCluster, run_scenario, until

TWO = "/data/one,/data/two"


def set_cordoned(cluster: BrokerCluster, text: str) -> None:
    cluster.publish(configs={("broker", "1"): {"cordoned.log.dirs": text}})


def test_cordoned_directory_is_passed_over_until_it_is_not_any_more() -> None:
    """At run time, by the broker's dynamic config; though it has fewer logs, and the other is full."""

    async def scenario(cluster: BrokerCluster) -> None:
        logs = cluster[1].replicas.logs
        first, second = logs.volumes
        set_cordoned(cluster, first.path)
        await until(lambda: logs.cordoned == {first.path})
        second.note_full(0.0)
        cluster.create("t", partitions=3)
        await until(lambda: len(second.logs) == 3)
        assert not first.logs and not logs.all_cordoned
        set_cordoned(cluster, "")
        cluster.create("u", partitions=3)
        await until(lambda: len(first.logs) == 3)

    run_scenario(scenario, size=1, log_dirs=TWO)


@pytest.mark.parametrize("text", ["*", TWO])
def test_broker_is_cordoned_once_all_directories_are(text: str) -> None:
    """A replica that the controller placed before it knew of that is made all the same."""

    async def scenario(cluster: BrokerCluster) -> None:
        logs = cluster[1].replicas.logs
        assert not logs.all_cordoned
        set_cordoned(cluster, text)
        await until(lambda: logs.all_cordoned)
        cluster.create("t", partitions=2)
        await until(lambda: len(cluster[1].replicas.partitions) == 2)

    run_scenario(scenario, size=1, log_dirs=TWO)


def test_directories_are_cordoned_from_the_start_by_the_file() -> None:
    """The dynamic config is over it."""

    async def scenario(cluster: BrokerCluster) -> None:
        logs = cluster[1].replicas.logs
        first, second = logs.volumes
        assert logs.cordoned == {second.path}
        set_cordoned(cluster, first.path)
        await until(lambda: logs.cordoned == {first.path})

    run_scenario(scenario, size=1, log_dirs=TWO, cordoned_log_dirs="/data/two")


def test_file_names_cordoned_directories_as_it_names_log_directories() -> None:
    """Relative paths too, which Kafka 4.3 accepts without effect; and no other folder."""
    config = load_config({"log.dirs": "a,b", "cordoned.log.dirs": "b"}, working_dir="/srv")
    assert config.cordoned_log_dirs == ("/srv/b",)
    with pytest.raises(ConfigFaults, match="names '/srv/c'"):
        load_config({"log.dirs": "a,b", "cordoned.log.dirs": "c"}, working_dir="/srv")
