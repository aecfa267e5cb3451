"""How many parts a request of each API has at most: the elements of all its arrays together, topics and partitions too.

The dispatcher refuses a request of more parts before it is decoded further. Every API that is served has its row:
a request goes through its parts either at once, since they are few, or in turns of the event loop (`broker.turns`).
Other brokers' requests are bounded where they are made.
"""

from __future__ import annotations

from typing import Final

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.primitives import MAX_PRODUCE_ELEMENTS as HOT_PARTS_MAX

AT_ONCE: Final = 1_000
"""Parts of a request that is dealt with in one turn of the loop, some 20 µs each."""

IN_TURNS: Final = 100_000
"""Parts of a request that is dealt with in turns."""

NAMES: Final = 20_000
"""Groups or transactional ids that one request names, or parts of topics that it creates: the answer takes several
hundred bytes for each."""

MAX_PARTS: Final[dict[int, int]] = {
    ApiKey.PRODUCE: HOT_PARTS_MAX,  # in turns of `produce.BATCHES_AT_ONCE`
    ApiKey.FETCH: HOT_PARTS_MAX,  # in turns of `fetch.PARTITIONS_AT_ONCE`
    ApiKey.LIST_OFFSETS: IN_TURNS,
    ApiKey.METADATA: IN_TURNS,
    ApiKey.OFFSET_COMMIT: IN_TURNS,
    ApiKey.OFFSET_FETCH: IN_TURNS,
    ApiKey.FIND_COORDINATOR: NAMES,
    ApiKey.JOIN_GROUP: AT_ONCE,
    ApiKey.HEARTBEAT: AT_ONCE,
    ApiKey.LEAVE_GROUP: IN_TURNS,
    ApiKey.SYNC_GROUP: 20_000,  # members, at once; the record of a generation has no room for as many
    ApiKey.DESCRIBE_GROUPS: NAMES,
    ApiKey.LIST_GROUPS: AT_ONCE,
    ApiKey.SASL_HANDSHAKE: AT_ONCE,
    ApiKey.API_VERSIONS: AT_ONCE,
    ApiKey.CREATE_TOPICS: NAMES,
    ApiKey.DELETE_TOPICS: IN_TURNS,
    ApiKey.DELETE_RECORDS: IN_TURNS,
    ApiKey.INIT_PRODUCER_ID: AT_ONCE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: IN_TURNS,
    ApiKey.ADD_PARTITIONS_TO_TXN: IN_TURNS,
    ApiKey.ADD_OFFSETS_TO_TXN: AT_ONCE,
    ApiKey.END_TXN: AT_ONCE,
    ApiKey.WRITE_TXN_MARKERS: IN_TURNS,
    ApiKey.TXN_OFFSET_COMMIT: IN_TURNS,
    ApiKey.DESCRIBE_ACLS: AT_ONCE,
    ApiKey.CREATE_ACLS: AT_ONCE,
    ApiKey.DELETE_ACLS: 100,  # each of which looks at all rules, in a request of its own
    ApiKey.DESCRIBE_CONFIGS: IN_TURNS,
    ApiKey.ALTER_CONFIGS: IN_TURNS,
    ApiKey.DESCRIBE_LOG_DIRS: IN_TURNS,
    ApiKey.SASL_AUTHENTICATE: AT_ONCE,
    ApiKey.CREATE_PARTITIONS: IN_TURNS,
    ApiKey.CREATE_DELEGATION_TOKEN: AT_ONCE,
    ApiKey.RENEW_DELEGATION_TOKEN: AT_ONCE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: AT_ONCE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 100,  # owners, each of which is compared with all tokens, in turns
    ApiKey.DELETE_GROUPS: NAMES,
    ApiKey.ELECT_LEADERS: IN_TURNS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: IN_TURNS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: IN_TURNS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: IN_TURNS,
    ApiKey.OFFSET_DELETE: IN_TURNS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: AT_ONCE,
    ApiKey.ALTER_CLIENT_QUOTAS: AT_ONCE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: AT_ONCE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AT_ONCE,
    ApiKey.DESCRIBE_QUORUM: IN_TURNS,
    ApiKey.UPDATE_FEATURES: AT_ONCE,
    ApiKey.DESCRIBE_CLUSTER: AT_ONCE,
    ApiKey.DESCRIBE_PRODUCERS: IN_TURNS,
    ApiKey.UNREGISTER_BROKER: AT_ONCE,
    ApiKey.DESCRIBE_TRANSACTIONS: NAMES,
    ApiKey.LIST_TRANSACTIONS: AT_ONCE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: IN_TURNS,  # at once; the topics among them have a limit of their own
    ApiKey.CONSUMER_GROUP_DESCRIBE: NAMES,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: AT_ONCE,
    ApiKey.PUSH_TELEMETRY: AT_ONCE,
    ApiKey.LIST_CONFIG_RESOURCES: AT_ONCE,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 20_000,  # names, sorted at once; the answer has a limit of its own
}
"""By API key."""
