"""The names that Grafana dashboards for Kafka query: kafka_exporter's and the JMX exporter's, from raftlog's numbers.

Exactly one node exports each of kafka_exporter's series, so sums over all nodes are right. The leader exports a
partition's, the coordinator a group's, the active controller the cluster's. The JMX names are each broker's own, as
with Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from raftlog.admin.exposition import SKIPPED, Family, labelled, labels, single
from raftlog.admin.metrics_own import lags
from raftlog.admin.scrape import Row, Scrape
from raftlog.metadata.image import PartitionState

JMX_TOPIC_COUNTERS = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "replicationbytesout": "replica_bytes_out",
    "totalproducerequests": "produces",
    "failedproducerequests": "failed_produces",
    "totalfetchrequests": "fetches",
    "failedfetchrequests": "failed_fetches",
}
"""kafka_server_brokertopicmetrics_<this>_total{topic}, and where the number is."""


def families(scrape: Scrape) -> Iterator[Family]:
    """Yield all of them."""
    yield from _exporter(scrape)
    yield from _exporter_partitions(scrape)
    yield from _exporter_groups(scrape)
    yield from _jmx_topics(scrape)
    yield from _jmx_replicas(scrape)
    yield from _jmx_controller(scrape)
    yield from _jmx_process(scrape)
    yield from _jmx_raft(scrape)


def _exporter(scrape: Scrape) -> Iterator[Family]:
    if not scrape.tells:
        return
    found = scrape.survey
    yield single("kafka_brokers", "gauge", "Brokers in service.", len(found.active))
    listener = scrape.node.config.inter_broker_listener_name
    addresses = []
    for broker_id in found.active:
        each = found.image.brokers[broker_id].endpoint(listener)
        address = "" if each is None else f"{each.host}:{each.port}"
        addresses.append((labels(id=broker_id, address=address), 1))
    yield labelled("kafka_broker_info", "gauge", "A broker in service; always 1.", addresses)
    topics = ((labels(topic=name), len(topic.partitions)) for name, topic in found.image.topics.items())
    yield labelled("kafka_topic_partitions", "gauge", "Partitions of a topic.", topics)


def _exporter_partitions(scrape: Scrape) -> Iterator[Family]:
    led = scrape.led

    def gauge(name: str, text: str, value: Callable[[Row], int]) -> Family:
        values = ((row.labels, value(row)) for row in led)
        return labelled(f"kafka_topic_partition_{name}", "gauge", f"{text}, reported by its leader.", values)

    def of_state(name: str, text: str, value: Callable[[PartitionState], int]) -> Family:
        values = ((row.labels, None if row.state is None else value(row.state)) for row in led)
        return labelled(f"kafka_topic_partition_{name}", "gauge", f"{text}, reported by its leader.", values)

    yield gauge("current_offset", "Next offset for consumers", lambda row: row.facts.high_watermark)
    yield gauge("oldest_offset", "First offset", lambda row: row.facts.log_start_offset)
    yield of_state("in_sync_replica", "In-sync replicas", lambda state: len(state.isr))
    yield of_state("leader", "The leader", lambda state: state.leader)
    yield of_state(
        "leader_is_preferred",
        "Whether the preferred replica leads",
        lambda state: state.leader == state.replicas[0],
    )
    yield of_state("replicas", "Replicas", lambda state: len(state.replicas))
    yield gauge(
        "under_replicated_partition",
        "Whether a replica is out of sync",
        lambda row: row.health is not None and row.health.under_replicated,
    )


def _exporter_groups(scrape: Scrape) -> Iterator[Family]:
    groups = scrape.groups
    members = ((labels(consumergroup=each.group_id), each.members) for each in groups)
    yield labelled("kafka_consumergroup_members", "gauge", "Members, reported by the coordinator.", members)
    offsets = (
        (labels(consumergroup=each.group_id, topic=topic, partition=partition), offset)
        for each in groups
        for (topic, partition), offset in each.offsets.items()
    )
    name = "kafka_consumergroup_current_offset"
    yield labelled(name, "gauge", "Committed offset, reported by the coordinator.", offsets)
    positions = (
        (each.group_id, topic, offset) for each in groups for (topic, _), offset in each.offsets.items()
    )
    name = "kafka_consumergroup_current_offset_sum"
    yield labelled(name, "gauge", "Committed positions of a topic, summed.", _sums(positions))
    name = "kafka_consumergroup_lag"
    text = "Committed records not read yet, of partitions with a replica at the coordinator."
    yield labelled(name, "gauge", text, lags(scrape, "consumergroup"))
    name = "kafka_consumergroup_lag_sum"
    behind = ((group, topic, lag) for group, topic, _, lag in scrape.lags())
    yield labelled(name, "gauge", "The same of a topic, summed.", _sums(behind))


def _sums(parts: Iterable[tuple[str, str, int | None]]) -> Iterator[tuple[str, int | None]]:
    """Yield (labels, sum) for each group and topic, after a step without a sample for each part."""
    sums: dict[tuple[str, str], int] = {}
    for group, topic, value in parts:
        if value is not None:
            sums[group, topic] = sums.get((group, topic), 0) + value
        yield SKIPPED, None  # so that a group of many partitions does not hold up the loop
    for (group, topic), value in sums.items():
        yield labels(consumergroup=group, topic=topic), value


def _jmx_topics(scrape: Scrape) -> Iterator[Family]:
    topics = list(scrape.facts.traffic().items())
    for name, field in JMX_TOPIC_COUNTERS.items():
        values = ((labels(topic=topic), getattr(each, field)) for topic, each in topics)
        full = f"kafka_server_brokertopicmetrics_{name}_total"
        yield labelled(full, "counter", "As Kafka's BrokerTopicMetrics.", values)


def _jmx_replicas(scrape: Scrape) -> Iterator[Family]:
    led = scrape.led
    healths = [row.health for row in led if row.health is not None]

    def gauge(name: str, value: int) -> Family:
        full = f"kafka_server_replicamanager_{name}"
        return single(full, "gauge", "As Kafka's ReplicaManager, of this broker.", value)

    def flags(name: str, value: Callable[[Row], int | None]) -> Family:
        full = f"kafka_cluster_partition_{name}"
        return labelled(full, "gauge", "As Kafka's Partition, of those led here.", _values(led, value))

    yield gauge("leadercount", len(led))
    yield gauge("partitioncount", len(scrape.rows))
    yield gauge("underreplicatedpartitions", sum(each.under_replicated for each in healths))
    yield gauge("underminisrpartitioncount", sum(each.under_min_isr for each in healths))
    yield gauge("atminisrpartitioncount", sum(each.at_min_isr for each in healths))
    yield flags("underminisr", lambda row: row.health and row.health.under_min_isr)
    yield flags("atminisr", lambda row: row.health and row.health.at_min_isr)
    yield flags("replicascount", lambda row: len(row.state.replicas) if row.state else None)
    sizes = ((row.labels, row.facts.size_bytes) for row in scrape.rows)
    yield labelled("kafka_log_log_size", "gauge", "Bytes of a replica on this broker.", sizes)
    yield from _jmx_changes(scrape)
    offline = sum(not each.online for each in scrape.facts.directories())
    name = "kafka_log_logmanager_offlinelogdirectorycount"
    yield single(name, "gauge", "Log directories that failed.", offline)
    uncleanable = sum(each.chore == "compaction" for each in scrape.facts.failures())
    name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    yield single(name, "gauge", "Compacted logs whose last cleaning failed.", uncleanable)


def _jmx_changes(scrape: Scrape) -> Iterator[Family]:
    if scrape.node.history is None:
        return
    counts = scrape.node.history.counts(scrape.node.config.node_id)
    for name, value in (
        ("kafka_server_replicamanager_isrshrinks_total", counts.isr_shrinks),
        ("kafka_server_replicamanager_isrexpands_total", counts.isr_expands),
        ("kafka_controller_controllerstats_uncleanleaderelections_total", counts.unclean_elections),
    ):
        yield single(name, "counter", "Of the partitions that this broker leads.", value)


def _values(rows: Iterable[Row], value: Callable[[Row], int | None]) -> Iterator[tuple[str, int | None]]:
    return ((row.labels, value(row)) for row in rows)


def _jmx_controller(scrape: Scrape) -> Iterator[Family]:
    found, tells = scrape.survey, scrape.tells

    def gauge(name: str, value: int) -> Family:
        full = f"kafka_controller_kafkacontroller_{name}"
        text = "As Kafka's KafkaController: 0 but at the active one."
        return single(full, "gauge", text, value if tells else 0)

    yield gauge("activecontrollercount", 1)
    yield gauge("offlinepartitionscount", found.leaderless.count)
    yield gauge("preferredreplicaimbalancecount", found.not_preferred.count)
    yield gauge("globaltopiccount", found.topics)
    yield gauge("globalpartitioncount", found.partitions)
    yield gauge("activebrokercount", len(found.active))
    yield gauge("fencedbrokercount", len(found.fenced))


def _jmx_process(scrape: Scrape) -> Iterator[Family]:
    for name in (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    ):
        yield single(name, "gauge", "Share of idle time, 0 to 1: one loop does both.", scrape.lag.idle)
    counted = scrape.facts.connections()
    if counted is not None:
        name = "kafka_server_socket_server_metrics_connection_count"
        yield single(name, "gauge", "Open connections.", counted.open_connections)


def _jmx_raft(scrape: Scrape) -> Iterator[Family]:
    raft = scrape.facts.raft()
    if raft is None:
        return

    def gauge(name: str, value: int) -> Family:
        return single(f"kafka_server_raftmetrics_{name}", "gauge", "As Kafka's raft-metrics.", value)

    yield gauge("current_leader", raft.leader_id)
    yield gauge("current_epoch", raft.term)
    yield gauge("high_watermark", raft.commit_index)
    if raft.end_index >= 0:
        yield gauge("log_end_offset", raft.end_index)
    state = "leader" if raft.leads else "follower" if raft.votes else "observer"
    own = [(labels(state=state), 1)]
    yield labelled("kafka_server_raftmetrics_current_state", "gauge", "Its role; always 1.", own)
