"""A long run of all libraries together: nodes die all the while, no record is lost, and no node logs an error.

RAFTLOG_SOAK_SECONDS says how long (a minute by default); `make nightly` gives it an hour.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.members import GroupMembers, group_members, python_kind
from tests.clients.nodes import run_checked
from tests.clients.with_confluent import Confluent
from tests.interop.conftest import SETTINGS, has_kafkajs
from tests.interop.led_clients import Writer, go_writer, writers
from tests.interop.member_kinds import GO_LIBRARIES, go_kind, kafkajs_kind
from tests.interop.transactions import values

pytestmark = [pytest.mark.go, pytest.mark.slow]

SECONDS = float(os.environ.get("RAFTLOG_SOAK_SECONDS", "60"))
PARTITIONS = 12
RATE = 10
"""Records in a second of each library: what is looked for takes time, not load."""

BREATH_S = 5.0
"""Between two faults, once the cluster is whole."""

PYTHON = ("confluent", "kafka-python", "aiokafka")
NOT_IDEMPOTENT = {"kafka-go", "sarama-1.43"}


def python_writer(library: str, cluster: Cluster, topic: str) -> tuple[str, ...]:
    where = (cluster.bootstrap_servers, topic, library, str(PARTITIONS), str(RATE))
    return (sys.executable, str(Path(__file__).with_name("writer.py")), library, *where)


def trouble(cluster: Cluster, number: int, writing: list[Writer], reading: list[GroupMembers]) -> None:
    """Kill a node, and a member of one group, which comes back; then everything goes on."""
    victim = number % len(cluster.nodes) + 1
    group = reading[number % len(reading)]
    dead = group.kill(0)
    cluster.kill(victim)
    for each in writing:
        each.wait_more(2 * RATE)
    cluster.restart(victim)
    group.join(dead.kind)
    cluster.wait_ready()


@pytest.mark.timeout(SECONDS + 900)
def test_all_libraries_write_and_read_for_long_while_nodes_die() -> None:
    """Each record that was acknowledged is stored, and read by a group of each kind; no node logs an error."""
    with run_checked(3, settings=SETTINGS) as cluster:
        client = Confluent(cluster.bootstrap_servers)
        client.create_topic("soak", PARTITIONS, 3)
        client.close()
        commands = [
            go_writer(each, cluster, "soak", partitions=PARTITIONS, rate=RATE) for each in GO_LIBRARIES
        ]
        commands += [python_writer(each, cluster, "soak") for each in PYTHON]
        kinds = [python_kind(each) for each in PYTHON]
        kinds += [go_kind(each) for each in GO_LIBRARIES if each != "kafka-go"]
        kinds += [kafkajs_kind()] if has_kafkajs() else []
        own = [go_kind("kafka-go")] * 2  # it cannot share a group with other libraries
        modern = [go_kind("franz-go", "consumer"), python_kind("confluent", "consumer")]
        where = (cluster.bootstrap_servers, "soak")
        with (
            writers(*commands) as writing,
            group_members(*where, "all", *kinds, partitions=PARTITIONS) as mixed,
            group_members(*where, "own", *own, partitions=PARTITIONS) as alone,
            group_members(*where, "modern", *modern, partitions=PARTITIONS) as newer,
        ):
            reading = [mixed, alone, newer]
            end, number = time.monotonic() + SECONDS, 0
            while time.monotonic() < end:
                trouble(cluster, number, writing, reading)
                number += 1
                time.sleep(BREATH_S)
            for each in writing:
                each.close()
            judge(cluster, writing, reading)


def judge(cluster: Cluster, writing: list[Writer], reading: list[GroupMembers]) -> None:
    """Compare what was acknowledged with what is stored, and with what each group read."""
    found = values(cluster, "soak", PARTITIONS, committed=True)
    for each in writing:
        mine = [value for value in found if value.rpartition("-")[0] == each.name]
        assert not each.lost, each
        assert set(each.acknowledged) <= set(mine), each
        assert each.name in NOT_IDEMPOTENT or len(mine) == len(set(mine)), f"{each.name} wrote a record twice"
    wanted = {value.encode() for value in found}
    for group in reading:
        group.wait_read(wanted)
