"""Claims about /metrics of a real cluster: dashboards for Kafka find their names, and the numbers add up."""

from __future__ import annotations

import gzip
import http.client
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families as parse

from raftlog.testing.cluster import AdminCluster
from tests.admin.test_exposition import NAMES_OF_OTHERS
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S

TOPIC = "rides"
RECORDS = 30
PARTITIONS = 6

DASHBOARD_NAMES = {
    "kafka_brokers",
    "kafka_topic_partitions",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_server_brokertopicmetrics_messagesin",
    "kafka_server_brokertopicmetrics_bytesin",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "kafka_server_raftmetrics_current_epoch",
    "process_open_fds",
}
"""The series that the dashboards 7589, 721, 11285 and Strimzi's query, named as the parser does (counters without
_total).
"""


@pytest.fixture(scope="module")
def filled_cluster() -> Iterator[AdminCluster]:
    """Three nodes that took some records."""
    settings = {"num.partitions": str(PARTITIONS), **SMALL}
    with AdminCluster(3, settings=settings) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "acks": "all"})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"x" * 100, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        yield running


def scrape(cluster: AdminCluster, node_id: int, query: str = "") -> dict[str, dict[tuple[str, ...], float]]:
    """Return metrics by name and by the values of their labels."""
    host, _, port = cluster.admin_url(node_id).removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request("GET", f"/metrics{query}")
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    finally:
        connection.close()
    return {
        family.name: {tuple(each.labels.values()): each.value for each in family.samples}
        for family in parse(text)
    }


def total(cluster: AdminCluster, name: str, label: str = "") -> float:
    """Return the sum over all nodes of the samples with that label; empty: of all samples."""
    found = [scrape(cluster, each).get(name, {}) for each in (1, 2, 3)]
    return sum(value for each in found for labels, value in each.items() if not label or label in labels)


def test_dashboards_for_kafka_find_their_names(filled_cluster: AdminCluster) -> None:
    """All nodes together export every name that stock dashboards query."""
    names = set().union(*(scrape(filled_cluster, each).keys() for each in (1, 2, 3)))
    assert names >= DASHBOARD_NAMES, DASHBOARD_NAMES - names


def test_sums_over_all_nodes_count_everything_once(filled_cluster: AdminCluster) -> None:
    """A partition's leader exports the partition, and the controller exports the cluster: as a single exporter does."""
    assert total(filled_cluster, "kafka_brokers") == 3
    assert total(filled_cluster, "kafka_topic_partitions", TOPIC) == PARTITIONS
    assert total(filled_cluster, "kafka_topic_partition_current_offset", TOPIC) == RECORDS
    assert total(filled_cluster, "kafka_topic_partition_in_sync_replica", TOPIC) == 3 * PARTITIONS
    assert total(filled_cluster, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(filled_cluster, "kafka_server_brokertopicmetrics_messagesin", TOPIC) == RECORDS
    leaders = total(filled_cluster, "kafka_server_replicamanager_leadercount")
    assert leaders == total(filled_cluster, "kafka_topic_partitions")


def test_a_node_exports_its_requests_disks_quorum_and_process(filled_cluster: AdminCluster) -> None:
    """raftlog's own family: counts grow with what was done, latencies and syncs have buckets."""
    found = scrape(filled_cluster, 1)
    assert found["raftlog_requests"][("Produce",)] >= 1
    seconds = found["raftlog_request_seconds"]
    assert seconds[("Produce", "+Inf")] == found["raftlog_requests"][("Produce",)]
    assert sum(found["raftlog_log_sync_seconds"].values()) > 0
    assert found["raftlog_topic_replication_bytes_out"][(TOPIC,)] > 0
    assert found["raftlog_topic_messages_out"][(TOPIC,)] >= 0
    assert found["raftlog_long_turns"][("Produce",)] >= 0
    assert found["raftlog_raft_term"][()] >= 1
    assert found["raftlog_compactions"][()] == found["raftlog_compaction_removed_records"][()] == 0
    assert scrape(filled_cluster, 1)["raftlog_admin_answers"][("200",)] >= 1
    assert found["raftlog_cluster_partitions_under_replicated"][()] == 0
    assert found["raftlog_event_loop_lag_seconds"][("+Inf",)] > 0
    assert (
        found["raftlog_transactional_ids"][("Ongoing",)] == found["raftlog_transactions_committed"][()] == 0
    )
    lags = found["raftlog_partition_last_stable_offset_lag"]
    assert {lag for (topic, _), lag in lags.items() if topic == TOPIC} == {0}
    assert found["process_resident_memory_bytes"][()] > 10_000_000


def test_a_node_exports_what_others_make_it_hold(filled_cluster: AdminCluster) -> None:
    """The memory budget by purpose, and the connected clients."""
    found = scrape(filled_cluster, 1)
    accounts = {
        ("answers",),
        ("bodies",),
        ("connections",),
        ("contents",),
        ("objects",),
        ("requests",),
        ("sessions",),
        ("unappended",),
    }
    for name in ("used_bytes", "limit_bytes", "most_bytes", "exhausted"):
        assert set(found[f"raftlog_memory_{name}"]) == accounts
    limits, used = found["raftlog_memory_limit_bytes"], found["raftlog_memory_used_bytes"]
    assert all(0 <= used[each] < limits[each] for each in accounts)
    assert found["raftlog_connections_by_kind"][("broker",)] >= 1
    assert found["raftlog_connections_by_kind"][("unproven",)] == 0
    assert found["raftlog_connections_client_limit"][()] > 100
    assert found["raftlog_connections_waiting_for_memory"][()] == 0
    assert found["raftlog_fetch_sessions"][()] >= 1
    assert found["raftlog_cluster_metadata_bytes"][()] > 100
    assert found["process_open_fds"][()] > 10


def test_one_family_of_names_may_be_asked_for(filled_cluster: AdminCluster) -> None:
    """An operator without Kafka dashboards need not store their names."""
    own = scrape(filled_cluster, 1, "?family=raftlog")
    assert "raftlog_partitions" in own
    assert not [each for each in own if each.startswith("kafka_")]
    compatible = scrape(filled_cluster, 1, "?family=kafka")
    assert not [each for each in compatible if each.startswith("raftlog_")]


def test_a_scrape_is_compressed_for_clients_that_take_gzip(filled_cluster: AdminCluster) -> None:
    """Prometheus does. The text is the same, but for numbers that grew meanwhile, and a tenth of the size."""
    host, _, port = filled_cluster.admin_url(1).removeprefix("http://").rpartition(":")
    sizes = {}
    for coding in ("identity", "gzip"):
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        connection.request("GET", "/metrics", headers={"Accept-Encoding": coding})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert answer.headers.get("Content-Encoding", "identity") == coding
        text = gzip.decompress(body).decode() if coding == "gzip" else body.decode()
        names = {family.name for family in parse(text)}
        assert "raftlog_partition_high_watermark" in names and "process_start_time_seconds" in names
        sizes[coding] = len(body)
    assert sizes["gzip"] < sizes["identity"] / 5


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not there (Debian: prometheus)")
def test_promtool_objects_to_nothing_but_names_that_dashboards_query(filled_cluster: AdminCluster) -> None:
    """A second linter beside the linter of test_exposition.py."""
    for node_id in (1, 2, 3):
        with urllib.request.urlopen(
            f"{filled_cluster.admin_url(node_id)}/metrics", timeout=PATIENCE_S
        ) as answer:
            ran = subprocess.run(
                ["promtool", "check", "metrics"], input=answer.read(), capture_output=True, check=False
            )
        said = [line for line in (ran.stdout + ran.stderr).decode().splitlines() if line]
        assert {line.split()[0] for line in said} <= NAMES_OF_OTHERS, said


def test_the_memory_of_groups_is_exported(filled_cluster: AdminCluster) -> None:
    """The node that coordinates them exports it."""
    assert total(filled_cluster, "raftlog_group_memory_bytes") == 0
    consumer = Consumer({"bootstrap.servers": filled_cluster.bootstrap_servers, "group.id": "told"})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    finally:
        consumer.close()
    assert total(filled_cluster, "raftlog_group_memory_bytes") > 1_000
