"""The APIs of Apache Kafka: keys, names, version ranges, and which of them raftlog serves.

Versions are Kafka 4.3's, as kio 0.6.5 has them, and `NEWER_VERSIONS`.

A key that is not in `APIS` is unknown to the schema. `broker.handlers` says which APIs raftlog serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

NEVER_FLEXIBLE: Final = 32767
"""`flexible_from` of an API without flexible versions."""


class ApiKey(IntEnum):
    """APIs by their number on the wire, as far as code of raftlog names them."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api(NamedTuple):
    """One API. Versions are inclusive; from `flexible_from` on fields are compact and tagged (KIP-482)."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int

    def handles(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


_TABLE = """
0 produce 3 13 9
1 fetch 4 18 12
2 list_offsets 1 11 6
3 metadata 0 13 9
8 offset_commit 2 10 8
9 offset_fetch 1 10 6
10 find_coordinator 0 6 3
11 join_group 0 9 6
12 heartbeat 0 4 4
13 leave_group 0 5 4
14 sync_group 0 5 4
15 describe_groups 0 6 5
16 list_groups 0 5 3
17 sasl_handshake 0 1 32767
18 api_versions 0 5 3
19 create_topics 2 7 5
20 delete_topics 1 6 4
21 delete_records 0 2 2
22 init_producer_id 0 5 2
23 offset_for_leader_epoch 2 4 4
24 add_partitions_to_txn 0 5 3
25 add_offsets_to_txn 0 4 3
26 end_txn 0 5 3
27 write_txn_markers 1 2 1
28 txn_offset_commit 0 6 3
29 describe_acls 1 3 2
30 create_acls 1 3 2
31 delete_acls 1 3 2
32 describe_configs 1 4 4
33 alter_configs 0 2 2
34 alter_replica_log_dirs 1 2 2
35 describe_log_dirs 1 5 2
36 sasl_authenticate 0 2 2
37 create_partitions 0 3 2
38 create_delegation_token 1 3 2
39 renew_delegation_token 1 2 2
40 expire_delegation_token 1 2 2
41 describe_delegation_token 1 3 2
42 delete_groups 0 3 2
43 elect_leaders 0 2 2
44 incremental_alter_configs 0 1 1
45 alter_partition_reassignments 0 1 0
46 list_partition_reassignments 0 0 0
47 offset_delete 0 0 32767
48 describe_client_quotas 0 1 1
49 alter_client_quotas 0 1 1
50 describe_user_scram_credentials 0 0 0
51 alter_user_scram_credentials 0 0 0
52 vote 0 2 0
53 begin_quorum_epoch 0 1 1
54 end_quorum_epoch 0 1 1
55 describe_quorum 0 2 0
56 alter_partition 2 3 2
57 update_features 0 2 0
58 envelope 0 0 0
59 fetch_snapshot 0 1 0
60 describe_cluster 0 2 0
61 describe_producers 0 0 0
62 broker_registration 0 4 0
63 broker_heartbeat 0 2 0
64 unregister_broker 0 0 0
65 describe_transactions 0 0 0
66 list_transactions 0 2 0
67 allocate_producer_ids 0 0 0
68 consumer_group_heartbeat 0 1 0
69 consumer_group_describe 0 1 0
70 controller_registration 0 0 0
71 get_telemetry_subscriptions 0 0 0
72 push_telemetry 0 0 0
73 assign_replicas_to_dirs 0 0 0
74 list_config_resources 0 1 0
75 describe_topic_partitions 0 0 0
76 share_group_heartbeat 1 1 1
77 share_group_describe 1 1 1
78 share_fetch 1 2 1
79 share_acknowledge 1 2 1
80 add_raft_voter 0 1 0
81 remove_raft_voter 0 0 0
82 update_raft_voter 0 0 0
83 initialize_share_group_state 0 0 0
84 read_share_group_state 0 0 0
85 write_share_group_state 0 1 0
86 delete_share_group_state 0 0 0
87 read_share_group_state_summary 0 1 0
88 streams_group_heartbeat 0 0 0
89 streams_group_describe 0 0 0
90 describe_share_group_offsets 0 1 0
91 alter_share_group_offsets 0 0 0
92 delete_share_group_offsets 0 0 0
"""


def _parse(line: str) -> Api:
    key, name, low, high, flexible = line.split()
    return Api(int(key), name, int(low), int(high), int(flexible))


APIS: Final[dict[int, Api]] = {api.key: api for api in map(_parse, _TABLE.strip().splitlines())}
"""Every API that the schema knows, by key, with the versions that raftlog can express.

InitProducerId ends at 5: Kafka calls 6 unstable, and serves it only with `unstable.api.versions.enable`.
"""

NEWER_VERSIONS: Final = frozenset({(18, 5), (28, 6), (42, 3)})
"""The versions of Kafka 4.4 that kio lacks, by API key."""

FLEXIBLE_FROM: Final[dict[int, int]] = {api.key: api.flexible_from for api in APIS.values()}
"""The same column alone, for every request's header."""

API_VERSIONS: Final = 18

PRODUCE_ADVERTISED_FROM: Final = 0
"""Older librdkafka drops compression and record batches unless Produce v0 is listed (KAFKA-18659)."""


class VersionRange(NamedTuple):
    """One API in a response of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


def advertised_versions(keys: Iterable[int]) -> tuple[VersionRange, ...]:
    """Return the version ranges to advertise for the served APIs, by key."""
    return tuple(
        VersionRange(
            key,
            PRODUCE_ADVERTISED_FROM if key == ApiKey.PRODUCE else APIS[key].min_version,
            APIS[key].max_version,
        )
        for key in sorted(keys)
    )


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a version uses compact and tagged fields; False for an unknown API."""
    api = APIS.get(api_key)
    return api is not None and version >= api.flexible_from
