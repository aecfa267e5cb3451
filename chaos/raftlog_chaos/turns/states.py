"""The state of the node while it is asked: as much as its limits allow, and as there is time to make.

A broker that exists in the metadata only leads most topics, so that 200,000 partitions need no files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import KafkaError
from raftlog.base.types import SCHEMAS_TOPIC, encode_uuid
from raftlog.metadata.broker_requests import BrokerHeartbeat, RegisterBroker
from raftlog.metadata.controller_api import (
    AlterClientQuotas,
    AlterConfigs,
    AlterScramCredentials,
    ConfigAlteration,
    ConfigOp,
    CreateAcls,
    CreateToken,
    CreateTopics,
    ErrorReply,
    NewTopic,
    QuotaAlteration,
    Request,
    ScramAlteration,
)
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.image import Endpoint
from raftlog.node import Node
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import decode_response
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.compression import ZSTD
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import ScramCredential
from raftlog.testing.in_process import InProcessCluster, NodeThread
from raftlog_chaos.attacks.target import Line
from raftlog_chaos.turns import frames
from raftlog_chaos.turns.largest import NOW_MS, Known
from raftlog_chaos.turns.schemas import batches

SETTINGS: Final = {
    "broker.session.timeout.ms": "3600000",  # the broker that is not there stays
    "group.initial.rebalance.delay.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.consumer.session.timeout.ms": "3600000",
    "group.consumer.max.session.timeout.ms": "3600000",
    "raftlog.controller.anonymous.clients": "true",
    "delegation.token.secret.key": "of this cluster alone",
    "connections.max.idle.ms": "3600000",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.share.max.partition.max.record.locks": "10000",
    "group.share.partition.max.record.locks": "10000",
}
GHOST: Final = 2
WIDE: Final = "wide-topic-with-a-name-of-fifty-letters-or-more-000001"
GROUP: Final = "group-with-offsets"
CONSUMER_GROUP: Final = "consumer-group-with-members"
CLASSIC_GROUP: Final = "classic-group-with-members"
SHARE_GROUP: Final = "share-group-with-locks"
COMMITTED_GROUP: Final = "share-group-of-committed-records"
GROUP_OF_MANY_TOPICS: Final = "group-of-many-topics"
MOST_LOCKS: Final = 10_000
WITH_ABORTED: Final = 8
"""Partitions of the wide topic with aborted batches."""
ANSWER_S: Final = 120.0
AT_ONCE: Final = 500
"""Requests that are under way on a connection."""


class Sizes(NamedTuple):
    """The amount of each kind of data that the node holds."""

    brokers: int = 99
    """See `rows.ONE_DECISION` about more."""
    topics: int = 49_000
    partitions_each: int = 4
    narrow: int = 300
    """Topics of one partition that the node leads."""
    wide: int = 1_000
    """Partitions of one topic that the node leads."""
    groups: int = 5_000
    offsets: int = 20_000
    """The committed offsets of one group."""
    members: int = 1_000
    batch_records: int = 300_000
    """The records of one batch, which is small when it is compressed."""
    aborted: int = 2_000
    """Batches of a partition, every other of them aborted."""
    producers: int = 20_000
    """The producers of one partition."""
    transactional_ids: int = 3_000
    rules: int = 3_300
    quotas: int = 3_300
    users: int = 3_300
    tokens: int = 2_000
    configs: int = 9_000
    """Configs of topics, and as many groups with a config."""
    versions: int = 1_000
    """The versions of one subject of the schema registry."""


SMALL: Final = Sizes(
    20,
    500,
    narrow=20,
    wide=100,
    groups=500,
    offsets=2_000,
    members=50,
    aborted=200,
    producers=500,
    transactional_ids=100,
    rules=200,
    quotas=200,
    users=200,
    tokens=200,
    configs=200,
    versions=50,
)
"""For a sample."""

Fill = tuple[str, Callable[[], str]]
"""A name, and the function that makes the node hold something and returns how much."""


class Filling:
    """Makes a node hold what `sizes` says, through its ports and its controller."""

    def __init__(self, cluster: InProcessCluster, sizes: Sizes) -> None:
        self._cluster = cluster
        self.sizes = sizes
        self.narrow = [
            f"narrow-topic-with-a-name-of-fifty-letters-or-more-{n:06}" for n in range(sizes.narrow)
        ]
        self.elsewhere = [
            f"ghost-topic-with-a-name-of-fifty-letters-or-more-{n:06}" for n in range(sizes.topics)
        ]
        self.groups = [f"group-with-a-name-of-fifty-letters-or-even-more-{n:06}" for n in range(sizes.groups)]
        self.transactional_ids = [
            f"transaction-with-a-name-of-fifty-letters-and-more-{n:06}"
            for n in range(sizes.transactional_ids)
        ]

    def fills(self) -> Iterator[Fill]:
        """Yield what has to be made, in its order."""
        yield "filling: topics of this broker", self._own_topics
        yield "filling: brokers", self._brokers
        yield "filling: topics of another broker", self._topics_elsewhere
        yield "filling: configs", self._configs
        yield "filling: rules, quotas, users and tokens", self._security
        yield "filling: a batch of many records", self._large_batch
        yield "filling: aborted batches", self._aborted
        yield "filling: producers", self._producers
        yield "filling: groups", self._groups
        yield "filling: members", self._members
        yield "filling: transactional ids", self._transactions
        yield "filling: schemas", self._schemas

    def known(self) -> Known:
        """Return what requests can name."""
        image = self._node.metadata.published_image
        topics = [WIDE, *self.narrow, *self.elsewhere]
        groups = [GROUP, CONSUMER_GROUP, CLASSIC_GROUP, *self.groups]
        users = [f"user-{number}" for number in range(self.sizes.users)] or ["user"]
        return Known(
            topics,
            [image.topics[each].topic_id for each in topics if each in image.topics],
            {
                **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names"), groups),
                "coordinator_keys": [*groups, *self.transactional_ids],
                **dict.fromkeys(
                    ("transactional_id", "v3_and_below_transactional_id", "transactional_ids"),
                    self.transactional_ids,
                ),
                "user": users,
                "member_id": [f"member-{number}" for number in range(max(1, self.sizes.members))],
            },
        )

    @property
    def _thread(self) -> NodeThread:
        thread = self._cluster.nodes[1]
        assert isinstance(thread, NodeThread)
        return thread

    @property
    def _node(self) -> Node:
        node = self._thread.node
        assert isinstance(node, Node), "the node is not ready"
        return node

    def _submit(self, wanted: Request) -> Any:
        return self._thread.run(self._ask_controller(wanted))

    async def _ask_controller(self, wanted: Request) -> Any:
        controller, loop = self._node.control.controller, asyncio.get_running_loop()
        assert controller is not None, "the only node is a controller"
        answered: asyncio.Future[Any] = loop.create_future()
        controller.submit(wanted, answered.set_result, loop.time())  # for no peer, so for any
        reply = await answered
        assert not isinstance(reply, ErrorReply | KafkaError), reply
        return reply

    # --- the metadata

    def _own_topics(self) -> str:
        topics = [NewTopic(each, 1, 1) for each in self.narrow]
        self._create([NewTopic(WIDE, self.sizes.wide, 1), *topics], at_once=100)
        keys = ("any", "any", f"any:{encode_uuid(UUID(int=1))}:0")
        asked = [frames.find_coordinator(key, kind) for kind, key in enumerate(keys)]
        self._pipeline(asked)  # makes their topics
        self._open_registry()
        self._cluster.wait_until_healthy()
        return f"{1 + len(topics)} topics, {self.sizes.wide + len(topics)} partitions"

    def _open_registry(self) -> None:
        """Have the schema registry create its topic, which it does at its first use."""
        addresses = self._cluster.addresses[1]
        connection = HTTPConnection(addresses.host, addresses.schema_port, timeout=ANSWER_S)
        with closing(connection):
            connection.request("GET", "/subjects")
            answer = connection.getresponse()
            assert answer.status == HTTPStatus.OK, answer.read()

    def _brokers(self) -> str:
        cluster_id = self._node.metadata.published_image.cluster_id
        for broker_id in range(GHOST, GHOST + self.sizes.brokers):
            registered = self._submit(
                RegisterBroker(
                    broker_id,
                    UUID(int=broker_id),
                    cluster_id,
                    (Endpoint("PLAINTEXT", f"broker-{broker_id}.example", 9092),),
                    directory_ids=(UUID(int=100_000 + broker_id),),
                    features=SUPPORTED_FEATURES,
                )
            )
            if broker_id == GHOST:
                offset = self._node.metadata.published_image.offset
                self._submit(BrokerHeartbeat(GHOST, registered.broker_epoch, offset + 1_000))
        return f"{self.sizes.brokers} brokers"

    def _topics_elsewhere(self) -> str:
        placed: dict[int, tuple[int, ...]] = dict.fromkeys(range(self.sizes.partitions_each), (GHOST,))
        self._create([NewTopic(each, assignments=placed) for each in self.elsewhere], at_once=50)
        return f"{len(self.elsewhere)} topics of {len(placed)} partitions"

    def _create(self, topics: Sequence[NewTopic], *, at_once: int) -> None:
        for first in range(0, len(topics), at_once):
            reply = self._submit(CreateTopics(tuple(topics[first : first + at_once])))
            refused = next((each for each in reply.results if each.error_code), None)
            assert refused is None, f"a topic was refused: {refused}"

    def _configs(self) -> str:
        names = [("topic", each) for each in self.elsewhere[: self.sizes.configs]]
        names += [("group", each) for each in self.groups[: self.sizes.configs]]
        for some in _portions(names, 100):
            ops = {
                "topic": (ConfigOp("retention.ms", "86400000"), ConfigOp("segment.bytes", "1048576")),
                "group": (ConfigOp("consumer.session.timeout.ms", "3600000"),),
            }
            reply = self._submit(
                AlterConfigs(tuple(ConfigAlteration(kind, name, ops[kind]) for kind, name in some))
            )
            refused = next((each for each in reply.results if each.error_code), None)
            assert refused is None, f"a config was refused: {refused}"
        return f"{len(names)} resources with configs"

    def _security(self) -> str:
        sizes = self.sizes
        rules = [
            Acl(
                ResourceType.TOPIC,
                f"prefix-{number}",
                PatternType.PREFIXED,
                f"User:user-{number}",
                "*",
                Operation.READ,
                Permission.ALLOW,
            )
            for number in range(sizes.rules)
        ]
        for some in _portions(rules, 100):
            self._submit(CreateAcls(tuple(some)))
        quotas = [
            QuotaAlteration((("user", f"user-{number}"),), (("producer_byte_rate", 1e9),))
            for number in range(sizes.quotas)
        ]
        for quota in _portions(quotas, 100):
            self._submit(AlterClientQuotas(tuple(quota)))
        proof = ScramCredential(b"s" * 16, 8192, b"k" * 32, b"k" * 32)
        users = [ScramAlteration(f"user-{number}", "SCRAM-SHA-256", proof) for number in range(sizes.users)]
        for user in _portions(users, 100):
            self._submit(AlterScramCredentials(tuple(user)))
        for number in range(sizes.tokens):
            self._submit(CreateToken(f"token-{number}", f"User:user-{number}", f"User:user-{number}", (), -1))
        return f"{sizes.rules} rules, {sizes.quotas} quotas, {sizes.users} users, {sizes.tokens} tokens"

    # --- logs and groups

    def _line(self) -> Line:
        addresses = self._cluster.addresses[1]
        return Line((addresses.host, addresses.port))

    def _pipeline(self, sent: Sequence[bytes]) -> int:
        """Send frames on one connection, many at a time; return how many were answered."""
        answered = 0
        with self._line() as line:
            for some in _portions(sent, AT_ONCE):
                line.send(b"".join(some), ANSWER_S)
                answered += sum(line.receive(ANSWER_S) is not None for _ in some)
        assert answered == len(sent), f"{len(sent) - answered} requests were not answered"
        return answered

    def _large_batch(self) -> str:
        batch = build_batch([new_record(None, b"v", timestamp=NOW_MS)] * self.sizes.batch_records, codec=ZSTD)
        self._pipeline([frames.produce(self.narrow[0], 0, batch)])
        every = build_batch([new_record(None, b"v" * 100, timestamp=NOW_MS)])
        self._pipeline([frames.produce(WIDE, index, every) for index in range(self.sizes.wide)])
        return f"{self.sizes.batch_records} records"

    def _aborted(self) -> str:
        """Write batches of which every other one is aborted, and have a share group withhold these."""
        ops = (
            ConfigOp("share.isolation.level", "read_committed"),
            ConfigOp("share.auto.offset.reset", "earliest"),
        )
        self._submit(AlterConfigs((ConfigAlteration("group", COMMITTED_GROUP, ops),)))
        name, indexes = "aborting", tuple(range(min(WITH_ABORTED, self.sizes.wide)))
        record = [new_record(None, b"v", timestamp=NOW_MS)]
        with self._line() as line:
            begun = line.ask(frames.begin_transactions(name), ANSWER_S)
            assert begun is not None
            producer = decode_response(ApiKey.INIT_PRODUCER_ID, 4, memoryview(begun))[1]
            epoch = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
            topic = request_builders(ApiKey.ADD_PARTITIONS_TO_TXN, 3).AddPartitionsToTxnTopic(
                name=WIDE, partitions=indexes
            )
            fields = {"transactional_id": name, **epoch}
            line.request(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                "AddPartitionsToTxnRequest",
                ANSWER_S,
                **{f"v3_and_below_{each}": value for each, value in fields.items()},
                v3_and_below_topics=(topic,),
            )
            for number in range(self.sizes.aborted // 2):
                stamp = ProducerIdAndSequence(producer.producer_id, producer.producer_epoch, number)
                aborted = build_batch(record, producer=stamp, attributes=TRANSACTIONAL_BIT)
                self._pipeline([frames.produce(WIDE, each, aborted, name) for each in indexes])
                self._pipeline([frames.produce(WIDE, each, build_batch(record)) for each in indexes])
            ended = line.request(ApiKey.END_TXN, 3, "EndTxnRequest", ANSWER_S, committed=False, **fields)
            assert ended.error_code == 0, ended
        return f"{self.sizes.aborted} batches in {len(indexes)} partitions"

    def _producers(self) -> str:
        record = [new_record(None, b"v", timestamp=NOW_MS)]
        batches = (
            build_batch(record, producer=ProducerIdAndSequence(1_000_000 + number, 0, 0))
            for number in range(self.sizes.producers)
        )
        written = [frames.produce(self.narrow[-1], 0, batch) for batch in batches]
        return f"{self._pipeline(written)} producers"

    def _groups(self) -> str:
        indexes = range(self.sizes.wide)
        topics = [(each, indexes) for each in (WIDE,)]
        topics += [(each, range(1)) for each in self.narrow]
        more = self.sizes.offsets - self.sizes.wide - len(self.narrow)
        per_topic = self.sizes.partitions_each
        topics += [(each, range(per_topic)) for each in self.elsewhere[: max(0, more) // per_topic]]
        self._pipeline([frames.commit(GROUP, some) for some in _portions(topics, 200)])
        return f"{self._pipeline([frames.commit(each, [(WIDE, [0])]) for each in self.groups])} groups"

    def _members(self) -> str:
        joining = [
            frames.heartbeat(CONSUMER_GROUP, f"member-{number}", WIDE) for number in range(self.sizes.members)
        ]
        self._pipeline(joining)
        self._classic_members()
        return f"{len(joining)} members, and as many of a classic group"

    def _classic_members(self) -> None:
        lines = [self._line() for _ in range(self.sizes.members)]
        try:
            for line in lines:
                line.send(frames.join(CLASSIC_GROUP), ANSWER_S)
            for line in lines:
                line.receive(ANSWER_S)
        finally:
            for line in lines:
                line.close()

    def _transactions(self) -> str:
        asked = [frames.begin_transactions(each) for each in self.transactional_ids]
        return f"{self._pipeline(asked)} transactional ids"

    def _schemas(self) -> str:
        written = [frames.produce(SCHEMAS_TOPIC, 0, batch) for batch in batches(self.sizes.versions)]
        return f"{self._pipeline(written)} batches, {self.sizes.versions} versions of a subject"


def _portions(parts: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(parts), size):
        yield parts[first : first + size]
