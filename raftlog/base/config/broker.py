"""The node's settings: Kafka's broker configs that raftlog has, and its own. Only the table.

Own settings are `cluster.id`, `log.flush.policy` and all that start with `raftlog.`. Defaults are Kafka's, except for
shorter liveness times. `raftlog.base.config.load_config` makes a NodeConfig from files and other layers. A NodeConfig
made directly holds bare defaults, and derived settings (advertised listeners, secret) are empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from raftlog.base.config import network
from raftlog.base.config.connections import ConnectionSettings, ListenerLimits
from raftlog.base.config.defaults import TopicDefaults
from raftlog.base.config.group import ConsumerGroupSettings
from raftlog.base.config.limits import MemorySettings, MetadataBounds, QuorumSettings
from raftlog.base.config.network import HttpSettings, Listener
from raftlog.base.config.oauth import ListenerOauth, OauthSettings
from raftlog.base.config.security import ListenerLogins, SecuritySettings, read_cluster_secret
from raftlog.base.config.setting import INT_MAX, LONG_MAX, Kind, setting
from raftlog.base.config.share import ShareGroupSettings
from raftlog.base.config.tls import ListenerTls, TlsSettings
from raftlog.base.config.topic import HOUR_MS, MINUTE_MS
from raftlog.base.config.transactions import TransactionSettings

MIB = 1 << 20
ROLES = ("broker", "controller")
FLUSH_POLICIES = ("commit", "os")
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ConfigWarning(NamedTuple):
    """A warning about the config for operators: a log event and its fields."""

    event: str
    fields: Mapping[str, object]


def _node(name: str, kind: Kind, default: Any, doc: str, **columns: Any) -> Any:
    return setting(name, kind, default, doc, scope="node", **columns)


def _controller(name: str, kind: Kind, default: Any, doc: str, **columns: Any) -> Any:
    return setting(name, kind, default, doc, scope="controller", **columns)


def _read_roles(text: str) -> frozenset[str]:
    roles = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not roles or roles - set(ROLES):
        raise ValueError("must be broker, controller, or broker,controller")
    return roles


@dataclass(frozen=True, eq=False)
class NodeConfig(
    MemorySettings,
    ConsumerGroupSettings,
    ShareGroupSettings,
    TransactionSettings,
    TopicDefaults,
    MetadataBounds,
    QuorumSettings,
    ConnectionSettings,
    SecuritySettings,
    OauthSettings,
    TlsSettings,
    HttpSettings,
):
    """The config of one node. Compared by identity. `given`: the set values as text, by dotted name."""

    # Identity
    roles: frozenset[str] = _node(
        "process.roles",
        "list",
        frozenset(ROLES),
        "What this process is: broker, controller, or both",
        read=_read_roles,
        show=lambda roles: ",".join(sorted(roles)),
    )
    node_id: int = _node("node.id", "int", 1, "Number of this node, unique in the cluster", at_least=0)
    broker_rack: str | None = _node(
        "broker.rack", "string", None, "The node's rack; replicas of a partition are spread over racks"
    )
    cluster_id: str | None = _node(
        "cluster.id",
        "string",
        None,
        "The cluster this node belongs to; unset, the first start of the voters makes one",
    )
    cluster_secret: bytes = _node(
        "raftlog.cluster.secret",
        "password",
        b"",
        "Proves to other nodes that this one belongs to the cluster; unset, it is derived from the voters",
        read=read_cluster_secret,
        show=lambda secret: "[hidden]" if secret else "",
    )

    # Addresses
    listeners: tuple[Listener, ...] = setting(
        "listeners",
        "list",
        (Listener("PLAINTEXT", "", 9092), Listener("CONTROLLER", "", 9093)),
        "Where the node listens, as NAME://host:port; without host on every interface",
        scope="node",
        read=network.parse_listeners,
        show=network.format_listeners,
    )
    advertised_listeners: tuple[Listener, ...] = setting(
        "advertised.listeners",
        "list",
        (),
        "The addresses for clients and other brokers; unset, the listeners",
        read=network.parse_listeners,
        show=network.format_listeners,
    )
    listener_security_protocol_map: Mapping[str, str] = _node(
        "listener.security.protocol.map",
        "string",
        MappingProxyType({name: name for name in network.SECURITY_PROTOCOLS}),
        "Security protocol of each listener name, as NAME:PROTOCOL",
        read=network.parse_protocol_map,
        show=network.format_protocol_map,
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        "string",
        None,
        "Listener over which brokers talk; unset, the first of the broker's",
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "Chooses the listener over which brokers talk when inter.broker.listener.name is unset",
        choices=network.SECURITY_PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = _node(
        "controller.listener.names",
        "list",
        ("CONTROLLER",),
        "Listeners for the metadata quorum; the first one is used",
    )
    voters: Mapping[int, tuple[str, int]] = _node(
        "controller.quorum.voters",
        "list",
        MappingProxyType({1: ("localhost", 9093)}),
        "The nodes that vote in the metadata quorum, as id@host:port; the same on every node",
        read=network.parse_voters,
        show=network.format_voters,
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = _node(
        "controller.quorum.bootstrap.servers",
        "list",
        (),
        "Kafka's other way to name the quorum; enough for a node alone, several need voters",
        read=network.parse_servers,
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", "int", 30_000, "Longest wait for a node's answer", at_least=1, applied=False
    )

    # Folders
    log_dirs: tuple[str, ...] = _node(
        "log.dirs", "list", ("raftlog-data",), "Folders for the partitions' logs, to spread them over disks"
    )
    cordoned_log_dirs: tuple[str, ...] = _node(
        "cordoned.log.dirs",
        "list",
        (),
        "Those that get no new replicas (KIP-1066); *: all",
        update="per-broker",
    )
    metadata_log_dir: str = _node(
        "metadata.log.dir", "string", "", "Folder for the metadata log; unset, the first of log.dirs"
    )

    # Liveness
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        "int",
        500,
        "The interval of a broker's heartbeats to the controller",
        at_least=1,
    )
    broker_session_timeout_ms: int = _controller(
        "broker.session.timeout.ms", "int", 3_000, "A broker silent for this long is fenced", at_least=1
    )
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        "int",
        60_000,
        "A broker stops if it cannot register within this time",
        at_least=1,
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        "long",
        5_000,
        "A follower not caught up for this long leaves the ISR",
        at_least=1,
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", "boolean", True, "Move leaderships away before stopping"
    )

    # Metadata quorum
    metadata_log_max_record_bytes_between_snapshots: int = _controller(
        "metadata.log.max.record.bytes.between.snapshots",
        "long",
        20 * MIB,
        "A snapshot of the metadata is made after so many bytes of records, or 5,000 batches",
        at_least=1,
    )
    metadata_log_max_snapshot_interval_ms: int = _controller(
        "metadata.log.max.snapshot.interval.ms",
        "long",
        HOUR_MS,
        "A snapshot of the metadata is made at least this often when there are new records; 0 never by time",
        at_least=0,
    )

    # Defaults of new topics
    num_partitions: int = setting(
        "num.partitions", "int", 1, "Partitions of a topic that was created without a number", at_least=1
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        "int",
        1,
        "Replicas of partitions of a topic that is created without a number",
        at_least=1,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        "boolean",
        True,
        "Create a missing topic when a client asks for it",
    )
    delete_topic_enable: bool = _controller(
        "delete.topic.enable", "boolean", True, "Whether topics can be deleted"
    )

    # Logs on disk
    log_flush_policy: str = setting(
        "log.flush.policy",
        "string",
        "commit",
        "commit: what acks=all acknowledges is on disk on every in-sync replica; os: in page caches",
        choices=FLUSH_POLICIES,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        MINUTE_MS,
        "How often each log's indexes, epochs and producers are saved at least; recovery points move each second",
        at_least=0,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        MINUTE_MS,
        "How often log start offsets are noted",
        at_least=0,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        "long",
        300_000,
        "How often segments past their retention are looked for",
        at_least=1,
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", "boolean", True, "Whether topics with cleanup.policy=compact are compacted"
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        "long",
        15_000,
        "How often logs that are worth compacting are looked for",
        at_least=1,
        update="cluster-wide",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        134_217_728,
        "Memory for the keys of one log that is compacted; what does not fit waits for the next round",
        unit="bytes",
        at_least=1024,
        update="cluster-wide",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        "int",
        86_400_000,
        "An idempotent producer that was silent for this long is forgotten",
        at_least=1,
        update="cluster-wide",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        "int",
        600_000,
        "The interval of a broker's expiry of producers",
        at_least=1,
    )

    raftlog_clock_leap_max_ms: int = _node(
        "raftlog.clock.leap.max.ms",
        "long",
        10 * MINUTE_MS,
        "A starting node trusts its clock at most so far from the time that it trusted last",
        at_least=MINUTE_MS,
    )
    raftlog_producer_ids_max: int = setting(
        "raftlog.producer.ids.max",
        "int",
        200_000,
        "Idempotent producers that all partitions of a broker remember together; beyond it the longest silent go",
        at_least=1,
        update="cluster-wide",
    )

    # Replication
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", "int", 1, "A leader answers a follower once it has so many bytes"
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        "int",
        500,
        "A leader answers a follower after this long at the latest",
        at_least=0,
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", "int", MIB, "Most bytes of one partition in a follower's fetch", at_least=0
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        "int",
        10 * MIB,
        "Most bytes in all of a follower's fetch",
        at_least=0,
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        "int",
        1_000,
        "Longest pause of a follower after a failed fetch",
        at_least=0,
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", "int", 30_000, "The timeout of a follower's fetch", at_least=1
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        "string",
        None,
        "Where consumers read (KIP-392): with RackAwareReplicaSelector at a replica in their rack; unset, at leaders",
        choices=(RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector"),
        nullable=True,
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        1_000,
        "How often high watermarks are written: a restarted follower refuses a leader that lacks what was below them",
        at_least=1,
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        "long",
        LONG_MAX,
        "Bytes a second that go to throttled replicas as long as they catch up (KIP-73)",
        at_least=1,
        update="cluster-wide",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        "long",
        LONG_MAX,
        "Bytes a second that throttled replicas here fetch as long as they catch up (KIP-73)",
        at_least=1,
        update="cluster-wide",
    )
    auto_leader_rebalance_enable: bool = _controller(
        "auto.leader.rebalance.enable", "boolean", True, "Give leaderships back to the preferred replicas"
    )
    leader_imbalance_check_interval_seconds: int = _controller(
        "leader.imbalance.check.interval.seconds",
        "long",
        300,
        "How often leaderships are given back",
        at_least=1,
    )
    leader_imbalance_per_broker_percentage: int = _controller(
        "leader.imbalance.per.broker.percentage",
        "int",
        10,
        "They are given back to brokers that miss more than this share of theirs",
        at_least=0,
    )

    # Fetching
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", "int", 57_671_680, "Most bytes one fetch can ask for", at_least=1024
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1_000,
        "Most fetch sessions kept (KIP-227)",
        at_least=0,
    )

    # Consumer groups
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", "int", 50, "Partitions of __consumer_offsets", at_least=1
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        "short",
        3,
        "Replicas of __consumer_offsets; fewer when there are fewer brokers",
        at_least=1,
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        "int",
        4 * MIB,
        "Segment size of __consumer_offsets; a new coordinator reads the newest segment whole",
        at_least=1,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        "int",
        10_080,
        "A group without members keeps its offsets this long",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        "long",
        600_000,
        "How often expired offsets are looked for",
        at_least=1,
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        "int",
        5_000,
        "A commit not replicated by then is answered with an error",
        at_least=1,
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        "int",
        4096,
        "Longest text that may go with a committed offset, in UTF-16 code units as in Kafka",
        at_least=0,
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        "int",
        3_000,
        "How long a new group waits for further members before its first rebalance",
        at_least=0,
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        "int",
        6_000,
        "Shortest session timeout a consumer may ask for",
        at_least=1,
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        "int",
        1_800_000,
        "Longest session timeout a consumer may ask for",
        at_least=1,
    )
    raftlog_group_max_groups: int = setting(
        "raftlog.group.max.groups",
        "int",
        100_000,
        "Most groups that one broker coordinates; further ones are refused with POLICY_VIOLATION",
        at_least=1,
    )
    raftlog_group_max_bytes: int = setting(
        "raftlog.group.max.bytes",
        "long",
        96 * MIB,
        "Memory of all groups of a broker, 400 bytes per offset. Beyond it, new groups and offsets are rejected with "
        "POLICY_VIOLATION; beyond twice that, groups do not grow",
        at_least=1,
    )
    group_max_size: int = setting("group.max.size", "int", INT_MAX, "Most members of a group", at_least=1)

    # Client metrics
    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes",
        "int",
        MIB,
        "Most bytes of metrics in one push of a client (KIP-714), compressed or not",
        at_least=1,
    )

    # The process
    log_level: str = _node(
        "raftlog.log.level",
        "string",
        "info",
        "Least severe log event that is written",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = _node(
        "raftlog.log.format",
        "string",
        "auto",
        "How log events are written; auto: readable on a terminal, JSON elsewhere",
        choices=("auto", "console", "json"),
    )
    audit_file: str = _node(
        "raftlog.audit.file",
        "string",
        "",
        "File for the audit log, opened anew when it was moved away; unset, its lines are in the node's log",
    )
    event_loop: str = _node(
        "raftlog.event.loop",
        "string",
        "auto",
        "Which event loop runs the node; auto: uvloop where it is installed",
        choices=("auto", "uvloop", "asyncio"),
    )

    given: Mapping[str, str] = field(default_factory=dict)
    logins: Mapping[str, ListenerLogins] = field(default_factory=dict)
    """The logins of each SASL listener, by its name."""
    oauth: Mapping[str, ListenerOauth] = field(default_factory=dict)
    """The keys and tokens of each listener with OAUTHBEARER, by its name."""
    admin_tls: ListenerTls | None = None
    """The certificates of the HTTP admin API; None: it uses plain HTTP."""
    tls: Mapping[str, ListenerTls] = field(default_factory=dict)
    """The certificates of each TLS listener, by its name, including controllers' listeners on other nodes."""
    listener_limits: Mapping[str, ListenerLimits] = field(default_factory=dict)
    """The limits of listeners with limits of their own, by name."""
    warnings: tuple[ConfigWarning, ...] = ()
