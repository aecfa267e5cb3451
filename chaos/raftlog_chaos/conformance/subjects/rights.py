"""Answers of each API without rights, which ACLs take from the asker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields, group
from raftlog_chaos.conformance.session import Session
from raftlog_chaos.conformance.subjects.acls import (
    ALICE,
    ALL,
    ALTER,
    ALTER_CONFIGS,
    AUTHORIZED,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    ME,
    NO_FILTER,
    PREFIXED,
    READ,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    acl,
    described,
    tidy,
)

Ask = Callable[[Session, str], object]


def leave(s: Session, resource_type: int, name: str, operations: Sequence[int]) -> None:
    """Leave the asker some operations on a resource, and take all others away."""
    acls = [acl(name, READ if resource_type != TRANSACTIONAL_ID else WRITE, resource_type=resource_type)]
    acls += [acl(name, each, resource_type=resource_type, principal=ME) for each in operations]
    tidy(s)
    s.query("CreateAcls", 3, creations=acls)
    s.wait("the broker has them", lambda: described(s) == len(acls))


def in_topic(s: Session, name: str, **partition: Any) -> Sequence[Fields]:
    """Return what most requests say of a topic's first partition."""
    return [{"name": name, "partitions": [{"partition_index": 0, **partition}]}]


def config(kind: int, name: str, key: str, value: str) -> Sequence[Fields]:
    """Return a change of one config."""
    configs = [{"name": key, "config_operation": 0, "value": value}]
    return [{"resource_type": kind, "resource_name": name, "configs": configs}]


TOPICS: Final[dict[str, Ask]] = {
    "Produce": lambda s, topic: s.produce(topic, s.batch(b"a"), version=9),
    "Fetch": lambda s, topic: s.fetch(topic, version=12),
    "Fetch by id": lambda s, topic: s.fetch(topic, version=16),
    "ListOffsets": lambda s, topic: s.list_offsets(topic, -1, version=5),
    "Metadata": lambda s, topic: s.ask("Metadata", 9, topics=[{"name": topic}]),
    "Metadata with rights": lambda s, topic: s.ask(
        "Metadata", 9, topics=[{"name": topic}], include_topic_authorized_operations=True
    ),
    "Metadata by id": lambda s, topic: s.ask(
        "Metadata", 12, topics=[{"name": None, "topic_id": s.topic_id(topic)}]
    ),
    "DescribeTopicPartitions": lambda s, topic: s.ask("DescribeTopicPartitions", 0, topics=[{"name": topic}]),
    "OffsetCommit": lambda s, topic: s.ask(
        "OffsetCommit", 8, group_id=group(s), topics=in_topic(s, topic, committed_offset=1)
    ),
    "OffsetFetch": lambda s, topic: s.ask(
        "OffsetFetch", 7, group_id=group(s), topics=[{"name": topic, "partition_indexes": [0]}]
    ),
    "OffsetDelete": lambda s, topic: s.ask("OffsetDelete", 0, group_id=group(s), topics=in_topic(s, topic)),
    "OffsetForLeaderEpoch": lambda s, topic: s.ask(
        "OffsetForLeaderEpoch", 4, topics=[{"topic": topic, "partitions": [{"partition": 0}]}]
    ),
    "DescribeProducers": lambda s, topic: s.ask(
        "DescribeProducers", 0, topics=[{"name": topic, "partition_indexes": [0]}]
    ),
    "DeleteRecords": lambda s, topic: s.ask("DeleteRecords", 2, topics=in_topic(s, topic, offset=0)),
    "DeleteTopics": lambda s, topic: s.ask("DeleteTopics", 5, topic_names=[topic], timeout=5000),
    "DeleteTopics by id": lambda s, topic: s.ask(
        "DeleteTopics", 6, topics=[{"name": None, "topic_id": s.topic_id(topic)}], timeout=5000
    ),
    "CreateTopics": lambda s, topic: s.ask(
        "CreateTopics",
        7,
        topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}],
        timeout=5000,
    ),
    "CreatePartitions": lambda s, topic: s.ask(
        "CreatePartitions", 3, topics=[{"name": topic, "count": 2}], timeout=5000
    ),
    "DescribeConfigs": lambda s, topic: s.ask(
        "DescribeConfigs",
        4,
        resources=[{"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}],
    ),
    "IncrementalAlterConfigs": lambda s, topic: s.ask(
        "IncrementalAlterConfigs", 1, resources=config(2, topic, "retention.ms", "1000")
    ),
    "ConsumerGroupHeartbeat": lambda s, topic: s.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id=group(s),
        member_id="a",
        rebalance_timeout=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    ),
}


@history(TOPICS, settings=AUTHORIZED)
def topic_without_rights(s: Session, ask: Ask) -> None:
    """Without any right a topic is refused; some APIs do not say whether it exists."""
    topic = s.topic()
    leave(s, TOPIC, topic, ())
    ask(s, topic)


@history(TOPICS, settings=AUTHORIZED)
def topic_that_may_be_described(s: Session, ask: Ask) -> None:
    """With the right to describe a topic others are refused as before."""
    topic = s.topic()
    leave(s, TOPIC, topic, (DESCRIBE,))
    ask(s, topic)


MISSING: Final = {
    each: TOPICS[each] for each in ("Metadata", "DescribeTopicPartitions", "OffsetFetch", "CreateTopics")
} | {
    "DeleteTopics": TOPICS["DeleteTopics"],
    "Produce": lambda s, topic: s.ask(
        "Produce",
        9,
        acks=-1,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": s.batch(b"a")}]}],
    ),
}


@history(MISSING, settings=AUTHORIZED)
def missing_topic_without_rights(s: Session, ask: Ask) -> None:
    """A missing topic is refused like an existing topic."""
    topic = s.name("missing")
    leave(s, TOPIC, topic, ())
    ask(s, topic)


def members(member_id: str = "a") -> Sequence[Fields]:
    """Return the members of a LeaveGroup."""
    return [{"member_id": member_id}]


GROUPS: Final[dict[str, Ask]] = {
    "JoinGroup": lambda s, name: s.ask(
        "JoinGroup",
        9,
        group_id=name,
        session_timeout=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"\0\0"}],
    ),
    "SyncGroup": lambda s, name: s.ask(
        "SyncGroup", 5, group_id=name, member_id="a", protocol_type="consumer", protocol_name="range"
    ),
    "Heartbeat": lambda s, name: s.ask("Heartbeat", 4, group_id=name, member_id="a"),
    "LeaveGroup": lambda s, name: s.ask("LeaveGroup", 5, group_id=name, members=members()),
    "LeaveGroup v2": lambda s, name: s.ask("LeaveGroup", 2, group_id=name, member_id="a"),
    "OffsetCommit": lambda s, name: s.ask(
        "OffsetCommit", 8, group_id=name, topics=in_topic(s, s.name("topic"), committed_offset=1)
    ),
    "OffsetFetch": lambda s, name: s.ask("OffsetFetch", 7, group_id=name, topics=None),
    "OffsetFetch v1": lambda s, name: s.ask(
        "OffsetFetch", 1, group_id=name, topics=[{"name": s.name("topic"), "partition_indexes": [0]}]
    ),
    "OffsetFetch of groups": lambda s, name: s.ask(
        "OffsetFetch", 9, groups=[{"group_id": name, "topics": None}]
    ),
    "OffsetDelete": lambda s, name: s.ask(
        "OffsetDelete", 0, group_id=name, topics=in_topic(s, s.name("topic"))
    ),
    "DescribeGroups": lambda s, name: s.ask("DescribeGroups", 6, groups=[name]),
    "DeleteGroups": lambda s, name: s.ask("DeleteGroups", 2, groups_names=[name]),
    "FindCoordinator": lambda s, name: s.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[name]),
    "FindCoordinator v3": lambda s, name: s.ask("FindCoordinator", 3, key_type=0, key=name),
    "ConsumerGroupHeartbeat": lambda s, name: s.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id=name,
        member_id="a",
        rebalance_timeout=1000,
        subscribed_topic_names=[],
        topic_partitions=[],
    ),
    "ConsumerGroupDescribe": lambda s, name: s.ask("ConsumerGroupDescribe", 1, group_ids=[name]),
    "AddOffsetsToTxn": lambda s, name: s.ask(
        "AddOffsetsToTxn", 3, transactional_id=s.name("id"), producer_id=1, producer_epoch=0, group_id=name
    ),
    "DescribeConfigs": lambda s, name: s.ask(
        "DescribeConfigs",
        4,
        resources=[
            {
                "resource_type": 32,
                "resource_name": name,
                "configuration_keys": ["consumer.session.timeout.ms"],
            }
        ],
    ),
    "IncrementalAlterConfigs": lambda s, name: s.ask(
        "IncrementalAlterConfigs", 1, resources=config(32, name, "consumer.session.timeout.ms", "50000")
    ),
}


@history(GROUPS, settings=AUTHORIZED)
def group_without_rights(s: Session, ask: Ask) -> None:
    """Without any right a group is refused, whether it exists or not."""
    name = s.name("group")
    leave(s, GROUP, name, ())
    ask(s, name)


@history(GROUPS, settings=AUTHORIZED)
def group_that_may_be_described(s: Session, ask: Ask) -> None:
    """With the right to describe a group its members' requests are refused still."""
    name = s.name("group")
    leave(s, GROUP, name, (DESCRIBE,))
    ask(s, name)


IDS: Final[dict[str, Ask]] = {
    "InitProducerId": lambda s, name: s.ask(
        "InitProducerId", 4, transactional_id=name, transaction_timeout=10_000
    ),
    "FindCoordinator": lambda s, name: s.ask("FindCoordinator", 4, key_type=1, coordinator_keys=[name]),
    "AddPartitionsToTxn": lambda s, name: s.ask(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[{"name": s.topic(), "partitions": [0]}],
    ),
    "AddOffsetsToTxn": lambda s, name: s.ask(
        "AddOffsetsToTxn", 3, transactional_id=name, producer_id=1, producer_epoch=0, group_id=s.name("group")
    ),
    "EndTxn": lambda s, name: s.ask(
        "EndTxn", 3, transactional_id=name, producer_id=1, producer_epoch=0, committed=True
    ),
    "DescribeTransactions": lambda s, name: s.ask("DescribeTransactions", 0, transactional_ids=[name]),
    "Produce": lambda s, name: s.produce(
        s.topic(),
        s.batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, attributes=16),
        version=9,
        transactional_id=name,
    ),
}


@history(IDS, settings=AUTHORIZED)
def transactional_id_without_rights(s: Session, ask: Ask) -> None:
    """Without any right a transactional id is refused, whether it exists or not."""
    name = s.name("id")
    leave(s, TRANSACTIONAL_ID, name, ())
    ask(s, name)


@history(IDS, settings=AUTHORIZED)
def transactional_id_that_may_be_described(s: Session, ask: Ask) -> None:
    """With the right to describe a transactional id its producer's requests are refused still."""
    name = s.name("id")
    leave(s, TRANSACTIONAL_ID, name, (DESCRIBE,))
    ask(s, name)


THE_BROKER: Final = "1"
CLUSTERS: Final[dict[str, Ask]] = {
    "CreateTopics": lambda s, name: s.ask(
        "CreateTopics", 7, topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}], timeout=5000
    ),
    "InitProducerId": lambda s, name: s.ask(
        "InitProducerId", 4, transactional_id=None, transaction_timeout=10_000
    ),
    "DescribeCluster with rights": lambda s, name: s.ask(
        "DescribeCluster", 0, include_cluster_authorized_operations=True
    ),
    "Metadata with rights": lambda s, name: s.ask(
        "Metadata", 9, topics=[], include_cluster_authorized_operations=True
    ),
    "DescribeConfigs": lambda s, name: s.ask(
        "DescribeConfigs",
        4,
        resources=[{"resource_type": 4, "resource_name": THE_BROKER, "configuration_keys": ["node.id"]}],
    ),
    "IncrementalAlterConfigs": lambda s, name: s.ask(
        "IncrementalAlterConfigs", 1, resources=config(4, THE_BROKER, "num.io.threads", "9")
    ),
    "DescribeClientQuotas": lambda s, name: s.ask("DescribeClientQuotas", 1, components=[]),
    "AlterClientQuotas": lambda s, name: s.ask(
        "AlterClientQuotas",
        1,
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": name}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
        ],
    ),
    "DescribeLogDirs": lambda s, name: s.ask("DescribeLogDirs", 4, topics=[]),
    "ListPartitionReassignments": lambda s, name: s.ask(
        "ListPartitionReassignments", 0, topics=None, timeout=5000
    ),
    "DescribeAcls": lambda s, name: s.ask("DescribeAcls", 3, **NO_FILTER),
    "DescribeQuorum": lambda s, name: s.ask(
        "DescribeQuorum",
        2,
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    ),
    "ListConfigResources": lambda s, name: s.ask("ListConfigResources", 1, resource_types=[]),
    "WriteTxnMarkers": lambda s, name: s.ask("WriteTxnMarkers", 1, markers=[]),
}
TAKEN: Final = (CREATE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)


@history(CLUSTERS, settings=AUTHORIZED)
def cluster_without_rights(s: Session, ask: Ask) -> None:
    """Without rights on the cluster its own APIs are refused."""
    fields: Fields = {"resource_type": CLUSTER, "principal": ME}
    acls = [acl(THE_CLUSTER, each, **fields) for each in (ALTER, CLUSTER_ACTION)]
    acls += [acl(THE_CLUSTER, each, **fields, permission_type=DENY) for each in TAKEN]
    topics = [acl("*", WRITE)]
    tidy(s)
    s.query("CreateAcls", 3, creations=[*acls, *topics])

    def is_refused() -> bool:
        found = s.query("DescribeAcls", 3, **NO_FILTER)
        return bool(found["error_code"] == "CLUSTER_AUTHORIZATION_FAILED")

    s.wait("the broker has them", is_refused)
    ask(s, s.name("name"))


@history(settings=AUTHORIZED)
def listed_groups_without_rights(s: Session) -> None:
    """Groups that may not be described are not listed, unless the cluster may be."""
    name, topic = group(s), s.topic()
    s.query("OffsetCommit", 8, group_id=name, topics=in_topic(s, topic, committed_offset=1))
    leave(s, GROUP, name, ())
    found = [each for each in s.query("ListGroups", 5)["groups"] if each["group_id"] == name]
    s.observe("ListGroups", {"groups": found})


PATTERNS: Final[dict[str, Sequence[tuple[str, Fields]]]] = {
    "a literal": [("topic", {})],
    "a prefix": [("top", {"resource_pattern_type": PREFIXED})],
    "the wildcard": [("*", {})],
    "everybody": [("topic", {"principal": "User:*"})],
    "a denial before": [("topic", {"permission_type": DENY}), ("*", {})],
    "a denial for a prefix": [
        ("topic", {}),
        ("top", {"resource_pattern_type": PREFIXED, "permission_type": DENY}),
    ],
    "a denial for another host": [("topic", {}), ("topic", {"permission_type": DENY, "host": "192.0.2.7"})],
    "from this host": [("topic", {"host": "127.0.0.1"})],
    "from another host": [("topic", {"host": "192.0.2.7"})],
    "all operations": [("topic", {"operation": ALL})],
    "a denial of describing": [("topic", {}), ("topic", {"permission_type": DENY, "operation": DESCRIBE})],
    "write, which implies describing": [("topic", {"operation": WRITE})],
    "another's": [("topic", {"principal": ALICE})],
    "a denial for another": [("topic", {"principal": ALICE, "permission_type": DENY})],
}
"""ACLs for reading a topic, mine unless stated otherwise."""


@history(PATTERNS, settings=AUTHORIZED)
def rights(s: Session, rows: Sequence[tuple[str, Fields]]) -> None:
    """A denial that matches goes before any that allows; without an ACL for a topic everybody may do anything."""
    topic = s.topic()
    mark = topic.removeprefix("topic")
    tidy(s)
    mine: Fields = {"principal": ME}
    acls = [acl(f"topic{mark}" if name == "topic" else name, **(mine | fields)) for name, fields in rows]
    s.query("CreateAcls", 3, creations=acls)
    s.wait("the broker has them", lambda: described(s) == len(acls))
    s.fetch(topic, version=12)
    s.produce(topic, s.batch(b"a"), version=9)
    s.ask("Metadata", 9, topics=[{"name": topic}], include_topic_authorized_operations=True)
