"""ACLs, and what each API answers without rights.

The asker is ANONYMOUS, which has all rights that no ACL takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields, group
from raftlog_chaos.conformance.session import Session

AUTHORIZED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ME: Final = "User:ANONYMOUS"
ALICE: Final = "User:alice"
UNKNOWN, ANY = 0, 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS = 10, 11, 12, 13, 14
DENY, ALLOW = 2, 3
THE_CLUSTER: Final = "kafka-cluster"
NO_FILTER: Final[Fields] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}

Acl = Fields


def acl(name: str, operation: int = READ, **fields: Any) -> Acl:
    """Return an ACL that lets Alice read a topic; `fields` are CreateAcls'."""
    given: Fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
    }
    return given | fields


def tidy(s: Session) -> None:
    """Have all ACLs deleted when the history ends."""
    s.at_end(lambda: s.look("DeleteAcls", 3, filters=[NO_FILTER]))


def create(s: Session, *acls: Acl, version: int = 3) -> None:
    """Create ACLs, and wait until the broker has them."""
    tidy(s)
    s.ask("CreateAcls", version, creations=list(acls))


def described(s: Session, **filters: Any) -> int:
    """Look at how many ACLs there are."""
    found = s.look("DescribeAcls", 3, **(NO_FILTER | filters))["resources"]
    return sum(len(each["acls"]) for each in found)


CREATED: Final[dict[str, Fields]] = {
    "a topic": {},
    "a prefix": {"resource_pattern_type": PREFIXED},
    "all topics": {"resource_name": "*"},
    "a prefix of *": {"resource_name": "*", "resource_pattern_type": PREFIXED},
    "a group": {"resource_type": GROUP},
    "a transactional id": {"resource_type": TRANSACTIONAL_ID, "operation": WRITE},
    "a token": {"resource_type": DELEGATION_TOKEN, "operation": DESCRIBE},
    "a user": {"resource_type": USER, "operation": CREATE_TOKENS},
    "the cluster": {
        "resource_type": CLUSTER,
        "resource_name": THE_CLUSTER,
        "operation": ALL,
        "principal": ME,  # or the history could not take it back
    },
    "another cluster": {"resource_type": CLUSTER, "resource_name": "cluster", "operation": ALTER_CONFIGS},
    "a prefix of the cluster": {
        "resource_type": CLUSTER,
        "resource_name": "kafka-",
        "resource_pattern_type": PREFIXED,
        "operation": ALTER_CONFIGS,
    },
    "a name that is empty": {"resource_name": ""},
    "a name that no topic can have": {"resource_name": "a topic/"},
    "a long name": {"resource_name": "n" * 300},
    "resource type 0": {"resource_type": UNKNOWN},
    "resource type 1": {"resource_type": ANY},
    "resource type 99": {"resource_type": 99},
    "pattern type 0": {"resource_pattern_type": UNKNOWN},
    "pattern type 1": {"resource_pattern_type": ANY},
    "pattern type 2": {"resource_pattern_type": MATCH},
    "pattern type 99": {"resource_pattern_type": 99},
    "operation 0": {"operation": UNKNOWN},
    "operation 1": {"operation": ANY},
    "operation 99": {"operation": 99},
    "an operation of the cluster for a topic": {"operation": CLUSTER_ACTION},
    "an operation of tokens for a topic": {"operation": DESCRIBE_TOKENS},
    "IdempotentWrite for a topic": {"operation": IDEMPOTENT_WRITE},
    "Write for a group": {"resource_type": GROUP, "operation": WRITE},
    "all operations": {"operation": ALL},
    "permission 0": {"permission_type": UNKNOWN},
    "permission 1": {"permission_type": ANY},
    "permission 99": {"permission_type": 99},
    "a denial": {"permission_type": DENY},
    "everybody": {"principal": "User:*"},
    "a principal without a type": {"principal": "alice"},
    "a principal without a name": {"principal": "User:"},
    "an empty principal": {"principal": ""},
    "a principal of another type": {"principal": "Group:staff"},
    "a principal in small letters": {"principal": "user:alice"},
    "a principal with a colon": {"principal": "User:CN=a:b,O=c"},
    "an empty host": {"host": ""},
    "a host's name": {"host": "host.example"},
    "an address": {"host": "192.0.2.7"},
    "a network": {"host": "192.0.2.0/24"},
}
"""What is special in an ACL that is created, by its name."""


@history(CREATED, settings=AUTHORIZED)
def created(s: Session, odd: Fields) -> None:
    """An ACL is stored as it is, or refused for what is unknown or fits no resource."""
    create(s, acl(s.name("topic"), **odd))
    s.wait("the broker has it, or not", lambda: described(s) >= 0)
    s.wait("it is settled", lambda: described(s) == 1, within_s=0.3)
    s.ask("DescribeAcls", 3, **NO_FILTER)


@history({f"v{version}": version for version in (1, 2, 3)}, settings=AUTHORIZED)
def versions(s: Session, version: int) -> None:
    """All versions are served."""
    name = s.name("topic")
    create(s, acl(name), acl(name, WRITE), acl(name, READ), version=version)
    s.wait("the broker has them", lambda: described(s) == 2)
    s.ask("DescribeAcls", version, **NO_FILTER)
    s.ask("DeleteAcls", version, filters=[NO_FILTER])
    s.wait("they are gone", lambda: described(s) == 0)
    s.ask("DeleteAcls", version, filters=[NO_FILTER])


@history(settings=AUTHORIZED)
def some_that_are_refused(s: Session) -> None:
    """Each ACL of a request is stored or refused for itself."""
    name = s.name("topic")
    create(s, acl(name), acl(""), acl(name, WRITE))
    s.wait("the broker has them", lambda: described(s) == 2)


@history(settings=AUTHORIZED)
def created_twice(s: Session) -> None:
    """An ACL that is there is no error."""
    name = s.name("topic")
    create(s, acl(name))
    create(s, acl(name))
    s.wait("the broker has it", lambda: described(s) == 1)
    s.ask("CreateAcls", 3, creations=[])
    s.ask("DeleteAcls", 3, filters=[])


FILTERS: Final[dict[str, Fields]] = {
    "all": {},
    "topics": {"resource_type_filter": TOPIC},
    "groups": {"resource_type_filter": GROUP},
    "a name": {"resource_name_filter": "abc"},
    "a name that matches": {"resource_name_filter": "abc", "pattern_type_filter": MATCH},
    "a topic that matches": {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "abcd",
        "pattern_type_filter": MATCH,
    },
    "a prefix": {"resource_name_filter": "abc", "pattern_type_filter": PREFIXED},
    "a literal": {"resource_name_filter": "abc", "pattern_type_filter": LITERAL},
    "all literals": {"pattern_type_filter": LITERAL},
    "all prefixes": {"pattern_type_filter": PREFIXED},
    "the wildcard": {"resource_name_filter": "*"},
    "the wildcard that matches": {"resource_name_filter": "*", "pattern_type_filter": MATCH},
    "an empty name": {"resource_name_filter": ""},
    "a principal": {"principal_filter": ALICE},
    "a principal without a type": {"principal_filter": "alice"},
    "an empty principal": {"principal_filter": ""},
    "everybody": {"principal_filter": "User:*"},
    "a host": {"host_filter": "192.0.2.7"},
    "any host's ACLs": {"host_filter": "*"},
    "an empty host": {"host_filter": ""},
    "an operation": {"operation": WRITE},
    "all operations": {"operation": ALL},
    "denials": {"permission_type": DENY},
    "resource type 0": {"resource_type_filter": UNKNOWN},
    "resource type 99": {"resource_type_filter": 99},
    "pattern type 0": {"pattern_type_filter": UNKNOWN},
    "pattern type 99": {"pattern_type_filter": 99},
    "operation 0": {"operation": UNKNOWN},
    "operation 99": {"operation": 99},
    "permission 0": {"permission_type": UNKNOWN},
    "permission 99": {"permission_type": 99},
}
"""Filters of the seven ACLs of `filtered`."""


@history(FILTERS, settings=AUTHORIZED)
def filtered(s: Session, odd: Fields) -> None:
    """The same filters choose what is described and what is deleted."""
    create(
        s,
        acl("abc"),
        acl("abc", WRITE, principal="User:*"),
        acl("abc", resource_pattern_type=PREFIXED),
        acl("ab", ALL, resource_pattern_type=PREFIXED, permission_type=DENY),
        acl("*", host="192.0.2.7"),
        acl("abc", resource_type=GROUP),
        acl("zz", principal="User:bob"),
    )
    s.wait("the broker has them", lambda: described(s) == 7)
    s.ask("DescribeAcls", 3, **(NO_FILTER | odd))
    answer = s.ask("DeleteAcls", 3, filters=[NO_FILTER | odd])
    gone = sum(len(each["matching_acls"]) for each in answer.get("filter_results", ()))
    s.wait("what was chosen is gone", lambda: described(s) == 7 - gone)


@history(settings=AUTHORIZED)
def several_filters(s: Session) -> None:
    """Each filter answers for itself, also if two choose the same ACL."""
    create(s, acl("abc"), acl("abd"))
    s.wait("the broker has them", lambda: described(s) == 2)
    names = ("abc", "abc", "missing")
    filters = [{**NO_FILTER, "resource_name_filter": each} for each in names]
    s.ask("DeleteAcls", 3, filters=[*filters, {**NO_FILTER, "operation": 99}])
    s.wait("one is gone", lambda: described(s) == 1)


# --- without rights

Ask = Callable[[Session, str], object]


def leave(s: Session, resource_type: int, name: str, operations: Sequence[int]) -> None:
    """Leave the asker some operations on a resource, and take all others away."""
    acls = [acl(name, READ if resource_type != TRANSACTIONAL_ID else WRITE, resource_type=resource_type)]
    acls += [acl(name, each, resource_type=resource_type, principal=ME) for each in operations]
    tidy(s)
    s.look("CreateAcls", 3, creations=acls)
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
    """A topic that does not exist is refused as one that does."""
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
    s.look("CreateAcls", 3, creations=[*acls, *topics])

    def is_refused() -> bool:
        found = s.look("DescribeAcls", 3, **NO_FILTER)
        return bool(found["error_code"] == "CLUSTER_AUTHORIZATION_FAILED")

    s.wait("the broker has them", is_refused)
    ask(s, s.name("name"))


@history(settings=AUTHORIZED)
def listed_groups_without_rights(s: Session) -> None:
    """Groups that may not be described are not listed, unless the cluster may be."""
    name, topic = group(s), s.topic()
    s.look("OffsetCommit", 8, group_id=name, topics=in_topic(s, topic, committed_offset=1))
    leave(s, GROUP, name, ())
    found = [each for each in s.look("ListGroups", 5)["groups"] if each["group_id"] == name]
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
"""ACLs for reading a topic, mine if nothing else is said."""


@history(PATTERNS, settings=AUTHORIZED)
def rights(s: Session, rows: Sequence[tuple[str, Fields]]) -> None:
    """A denial that matches goes before any that allows; without an ACL for a topic everybody may do anything."""
    topic = s.topic()
    mark = topic.removeprefix("topic")
    tidy(s)
    mine: Fields = {"principal": ME}
    acls = [acl(f"topic{mark}" if name == "topic" else name, **(mine | fields)) for name, fields in rows]
    s.look("CreateAcls", 3, creations=acls)
    s.wait("the broker has them", lambda: described(s) == len(acls))
    s.fetch(topic, version=12)
    s.produce(topic, s.batch(b"a"), version=9)
    s.ask("Metadata", 9, topics=[{"name": topic}], include_topic_authorized_operations=True)
