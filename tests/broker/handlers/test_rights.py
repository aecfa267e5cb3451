"""raftlog.broker.rights and the handlers that ask it: the right error, which does not reveal what exists.

Each row is a request and the rights that it needs on its resources. Coordinators and the controller behind the handlers
answer with a marker, so their answer means that the rights sufficed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import (
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    DelegationTokenAuthorizationFailed,
    FetchSessionIdNotFound,
    GroupAuthorizationFailed,
    InvalidRequest,
    NotController,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.broker.audit import MOST_NAMED
from raftlog.broker.context import RequestContext
from raftlog.broker.handlers import OF_CONTROLLERS, metadata
from raftlog.broker.links import peer_auth
from raftlog.broker.network.admission import _OPEN_APIS
from raftlog.broker.rights import among, follow_rules, operations
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership, MemberMetadata
from raftlog.coordinator.group import Group, Membership
from raftlog.coordinator.group_requests import DeleteOffsets
from raftlog.coordinator.share.share_offsets import AlterShareOffsets, DeleteShareOffsets, ShareStateChange
from raftlog.coordinator.transactions.transaction import TransactionState
from raftlog.metadata.features import SHARE_VERSION
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.security.acls import (
    CLUSTER_NAME,
    IMPLIED_BY,
    OPERATIONS,
    Acl,
    BeforeLogin,
    Demanded,
    DemandedPerPart,
    Filtered,
    Needs,
    NoRights,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Right,
)
from raftlog.security.authorizer import Authorizer
from tests.broker.fakes import TOPIC as KNOWN
from tests.broker.fakes import TOPIC_ID, FakeClient, FakePartitionServer, batch, fetch, produce, request
from tests.broker.network.test_admission import BROKER, prove
from tests.broker.rows import all_rows, row_of
from tests.kit.waits import PATIENCE_S

MISSING: Final = "wards"
assert len(MISSING) == len(KNOWN), "so that answers about both are of the same length"
ALICE: Final = "User:alice"
GROUP_ID: Final = "readers"
TRANSACTIONAL_ID: Final = "transfer"

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
USER: Final = ResourceType.USER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
DELETE, ALTER, CREATE = Operation.DELETE, Operation.ALTER, Operation.CREATE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

CODES: Final = {
    TOPIC: TopicAuthorizationFailed.code,
    GROUP: GroupAuthorizationFailed.code,
    CLUSTER: ClusterAuthorizationFailed.code,
    TRANSACTION: TransactionalIdAuthorizationFailed.code,
    USER: DelegationTokenAuthorizationFailed.code,
}

Need = tuple[Operation, ResourceType]


class Row(NamedTuple):
    """A request about one topic, which may be there or not, and all that its sender must be allowed."""

    api_key: int
    version: int
    needs: tuple[Need, ...]
    fields: Callable[[Any, str], dict[str, Any]]


def _in_topic(name: str, kind: str, of: str, field: str = "name", **partition: Any) -> Any:
    """Return fields that name a topic and its partition 0: `kind` is the topic's class, `of` the partition's."""

    def fields(make: Any, topic: str) -> dict[str, Any]:
        part = getattr(make, of)(**partition)
        return {name: (getattr(make, kind)(**{field: topic}, partitions=(part,)),)}

    return fields


def _config(kind: int, name: str | None = None, **resource: Any) -> Any:
    def fields(make: Any, topic: str) -> dict[str, Any]:
        made = getattr(make, resource["of"])(
            resource_type=kind, resource_name=topic if name is None else name
        )
        return {"resources": (made,)}

    return fields


_PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0}
_MEMBER: Final = {"group_id": GROUP_ID, "generation_id": 1, "member_id": "m"}
_COMMITTED: Final = {"partition_index": 0, "committed_offset": 1}

ROWS: Final = {
    "list_offsets": Row(
        ApiKey.LIST_OFFSETS,
        7,
        ((DESCRIBE, TOPIC),),
        _in_topic("topics", "ListOffsetsTopic", "ListOffsetsPartition", partition_index=0, timestamp=-1),
    ),
    "metadata": Row(
        ApiKey.METADATA,
        12,
        ((DESCRIBE, TOPIC),),
        lambda make, topic: {
            "topics": (make.MetadataRequestTopic(name=topic, topic_id=None),),
            "allow_auto_topic_creation": False,
        },
    ),
    "offset_commit": Row(
        ApiKey.OFFSET_COMMIT,
        8,
        ((READ, GROUP), (READ, TOPIC)),
        lambda make, topic: {
            "group_id": GROUP_ID,
            **_in_topic("topics", "OffsetCommitRequestTopic", "OffsetCommitRequestPartition", **_COMMITTED)(
                make, topic
            ),
        },
    ),
    "offset_fetch": Row(
        ApiKey.OFFSET_FETCH,
        8,
        ((DESCRIBE, GROUP),),
        lambda make, topic: {"groups": (make.OffsetFetchRequestGroup(group_id=GROUP_ID, topics=None),)},
    ),
    "find_coordinator of a group": Row(
        ApiKey.FIND_COORDINATOR,
        4,
        ((DESCRIBE, GROUP),),
        lambda make, topic: {"key_type": 0, "coordinator_keys": (GROUP_ID,)},
    ),
    "find_coordinator of a transactional id": Row(
        ApiKey.FIND_COORDINATOR,
        4,
        ((DESCRIBE, TRANSACTION),),
        lambda make, topic: {"key_type": 1, "coordinator_keys": (TRANSACTIONAL_ID,)},
    ),
    "join_group": Row(
        ApiKey.JOIN_GROUP,
        7,
        ((READ, GROUP),),
        lambda make, topic: {"group_id": GROUP_ID, "session_timeout": 10_000, "protocol_type": "consumer"},
    ),
    "heartbeat": Row(ApiKey.HEARTBEAT, 4, ((READ, GROUP),), lambda make, topic: _MEMBER),
    "leave_group": Row(
        ApiKey.LEAVE_GROUP,
        4,
        ((READ, GROUP),),
        lambda make, topic: {"group_id": GROUP_ID, "members": (make.MemberIdentity(member_id="m"),)},
    ),
    "sync_group": Row(ApiKey.SYNC_GROUP, 5, ((READ, GROUP),), lambda make, topic: _MEMBER),
    "describe_groups": Row(
        ApiKey.DESCRIBE_GROUPS, 5, ((DESCRIBE, GROUP),), lambda make, topic: {"groups": (GROUP_ID,)}
    ),
    "create_topics": Row(
        ApiKey.CREATE_TOPICS,
        7,
        ((CREATE, TOPIC),),
        lambda make, topic: {
            "topics": (make.CreatableTopic(name=topic, num_partitions=1, replication_factor=1),)
        },
    ),
    "delete_topics": Row(
        ApiKey.DELETE_TOPICS,
        6,
        ((DELETE, TOPIC),),
        lambda make, topic: {"topics": (make.DeleteTopicState(name=topic, topic_id=None),)},
    ),
    "delete_records": Row(
        ApiKey.DELETE_RECORDS,
        2,
        ((DELETE, TOPIC),),
        _in_topic("topics", "DeleteRecordsTopic", "DeleteRecordsPartition", partition_index=0, offset=0),
    ),
    "init_producer_id of a transactional id": Row(
        ApiKey.INIT_PRODUCER_ID,
        4,
        ((WRITE, TRANSACTION),),
        lambda make, topic: {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout": 1000},
    ),
    "init_producer_id": Row(
        ApiKey.INIT_PRODUCER_ID,
        4,
        ((Operation.IDEMPOTENT_WRITE, CLUSTER),),
        lambda make, topic: {"transactional_id": None, "transaction_timeout": 1000},
    ),
    "offset_for_leader_epoch": Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        ((DESCRIBE, TOPIC),),
        _in_topic(
            "topics",
            "OffsetForLeaderTopic",
            "OffsetForLeaderPartition",
            "topic",
            partition=0,
            leader_epoch=0,
        ),
    ),
    "add_partitions_to_txn": Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        ((WRITE, TRANSACTION), (WRITE, TOPIC)),
        lambda make, topic: {
            "v3_and_below_transactional_id": TRANSACTIONAL_ID,
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": (make.AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
        },
    ),
    "add_offsets_to_txn": Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        ((WRITE, TRANSACTION), (READ, GROUP)),
        lambda make, topic: {"transactional_id": TRANSACTIONAL_ID, "group_id": GROUP_ID, **_PRODUCER},
    ),
    "end_txn": Row(
        ApiKey.END_TXN,
        3,
        ((WRITE, TRANSACTION),),
        lambda make, topic: {"transactional_id": TRANSACTIONAL_ID, "committed": True, **_PRODUCER},
    ),
    "txn_offset_commit": Row(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        ((WRITE, TRANSACTION), (READ, GROUP), (READ, TOPIC)),
        lambda make, topic: {
            "transactional_id": TRANSACTIONAL_ID,
            "group_id": GROUP_ID,
            **_PRODUCER,
            **_in_topic(
                "topics", "TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition", **_COMMITTED
            )(make, topic),
        },
    ),
    "describe_configs of a topic": Row(
        ApiKey.DESCRIBE_CONFIGS, 4, ((DESCRIBE_CONFIGS, TOPIC),), _config(2, of="DescribeConfigsResource")
    ),
    "describe_configs of a group": Row(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        ((DESCRIBE_CONFIGS, GROUP),),
        _config(32, GROUP_ID, of="DescribeConfigsResource"),
    ),
    "describe_configs of a broker": Row(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        ((DESCRIBE_CONFIGS, CLUSTER),),
        _config(4, "1", of="DescribeConfigsResource"),
    ),
    "alter_configs of a topic": Row(
        ApiKey.ALTER_CONFIGS, 2, ((ALTER_CONFIGS, TOPIC),), _config(2, of="AlterConfigsResource")
    ),
    "incremental_alter_configs of a topic": Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ((ALTER_CONFIGS, TOPIC),), _config(2, of="AlterConfigsResource")
    ),
    "incremental_alter_configs of a group": Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        ((ALTER_CONFIGS, GROUP),),
        _config(32, GROUP_ID, of="AlterConfigsResource"),
    ),
    "incremental_alter_configs of all brokers": Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        ((ALTER_CONFIGS, CLUSTER),),
        _config(4, "", of="AlterConfigsResource"),
    ),
    "create_partitions": Row(
        ApiKey.CREATE_PARTITIONS,
        3,
        ((ALTER, TOPIC),),
        lambda make, topic: {"topics": (make.CreatePartitionsTopic(name=topic, count=9, assignments=None),)},
    ),
    "delete_groups": Row(
        ApiKey.DELETE_GROUPS, 2, ((DELETE, GROUP),), lambda make, topic: {"groups_names": (GROUP_ID,)}
    ),
    "offset_delete": Row(
        ApiKey.OFFSET_DELETE,
        0,
        ((DELETE, GROUP), (READ, TOPIC)),
        lambda make, topic: {
            "group_id": GROUP_ID,
            **_in_topic(
                "topics", "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", partition_index=0
            )(make, topic),
        },
    ),
    "describe_producers": Row(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        ((READ, TOPIC),),
        lambda make, topic: {"topics": (make.TopicRequest(name=topic, partition_indexes=(0,)),)},
    ),
    "describe_transactions": Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        ((DESCRIBE, TRANSACTION),),
        lambda make, topic: {"transactional_ids": (TRANSACTIONAL_ID,)},
    ),
    "consumer_group_heartbeat": Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        lambda make, topic: {
            "group_id": GROUP_ID,
            "member_epoch": 0,
            "subscribed_topic_names": (topic,),
        },
    ),
    "consumer_group_heartbeat_by_expression": Row(  # which brings what may be described, and is never refused
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        ((READ, GROUP),),
        lambda make, topic: {
            "group_id": GROUP_ID,
            "member_id": "m",
            "member_epoch": 0,
            "subscribed_topic_regex": topic,
        },
    ),
    "consumer_group_describe": Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        ((DESCRIBE, GROUP),),
        lambda make, topic: {"group_ids": (GROUP_ID,)},
    ),
    "share_group_heartbeat": Row(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        lambda make, topic: {
            "group_id": GROUP_ID,
            "member_id": "m",
            "member_epoch": 0,
            "subscribed_topic_names": (topic,),
        },
    ),
    "share_group_describe": Row(
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        ((DESCRIBE, GROUP),),
        lambda make, topic: {"group_ids": (GROUP_ID,)},
    ),
    "describe_share_group_offsets": Row(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        lambda make, topic: {
            "groups": (
                make.DescribeShareGroupOffsetsRequestGroup(
                    group_id=GROUP_ID,
                    topics=(make.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=(0,)),),
                ),
            )
        },
    ),
    "alter_share_group_offsets": Row(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        ((READ, GROUP), (READ, TOPIC)),
        lambda make, topic: {
            "group_id": GROUP_ID,
            **_in_topic(
                "topics",
                "AlterShareGroupOffsetsRequestTopic",
                "AlterShareGroupOffsetsRequestPartition",
                field="topic_name",
                partition_index=0,
                start_offset=7,
            )(make, topic),
        },
    ),
    "delete_share_group_offsets": Row(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        ((DELETE, GROUP), (READ, TOPIC)),
        lambda make, topic: {
            "group_id": GROUP_ID,
            "topics": (make.DeleteShareGroupOffsetsRequestTopic(topic_name=topic),),
        },
    ),
    "create_delegation_token for another user": Row(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        ((Operation.CREATE_TOKENS, USER),),
        lambda make, topic: {
            "owner_principal_type": "User",
            "owner_principal_name": topic,
            "renewers": (),
            "max_lifetime": -1,
        },
    ),
    "describe_topic_partitions": Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        ((DESCRIBE, TOPIC),),
        lambda make, topic: {"topics": (make.TopicRequest(name=topic),), "cursor": None},
    ),
}


class _NobodyAnswers:
    """Coordinators that have not loaded anything. They change no offsets, if that is what they are asked for."""

    def check(self, group_id: str) -> None:
        """It coordinates every group."""

    def size_of(self, group_id: str) -> int:
        return 1

    async def _deleted(self) -> tuple[int, ...]:
        return ()

    async def _unchanged(self) -> ShareStateChange:
        return ShareStateChange(GROUP_ID, 0)

    def ask(self, call: Any, asked: Any, **_: Any) -> Any:
        if isinstance(asked, DeleteOffsets) and not asked.partitions:
            return self._deleted()
        if isinstance(asked, AlterShareOffsets) and not asked.topics:
            return self._unchanged()
        if isinstance(asked, DeleteShareOffsets) and not asked.topic_ids:
            return self._unchanged()
        raise CoordinatorNotAvailable

    def __getattr__(self, name: str) -> Any:
        raise CoordinatorNotAvailable


class GuardedBroker:
    """A broker with an authorizer; `connect` is as alice."""

    def __init__(self, *rules: Acl) -> None:
        self.fake = FakePartitionServer(auto_create_topics_enable=True)
        self.fake.image = msgspec.structs.replace(self.fake.image, features={SHARE_VERSION: 1})
        broker = self.fake.broker
        broker.authorizer = Authorizer()
        broker.groups = broker.transactions = broker.verifier = _NobodyAnswers()  # type: ignore[assignment]
        broker.made_share_states = broker.groups  # type: ignore[assignment]
        broker.submit = self._submit
        self.asked: list[Any] = []
        self.put_in_force(*rules)

    async def _submit(self, asked: Any, *, timeout: float | None = None) -> Any:
        self.asked.append(asked)
        raise NotController

    def put_in_force(self, *rules: Acl) -> None:
        """Have these rules, and no others, in the newest image."""
        old = self.fake.image
        self.fake.image = msgspec.structs.replace(old, offset=old.offset + 1, acls=dict.fromkeys(rules, True))
        follow_rules(self.fake.broker.authorizer, old, self.fake.image)

    def connect(self, principal: str = ALICE) -> FakeClient:
        pipe = self.fake.connect()
        pipe.connection.principal = principal
        return pipe

    async def ask(self, row: Row, topic: str, *, to_controller: bool = False) -> Any:
        make = request_builders(row.api_key, row.version)
        kind = message_type(row.api_key, row.version, "request").__name__
        pipe = self.connect()
        pipe.connection.to_controller = to_controller
        pipe.send(request(row.api_key, row.version, 1, getattr(make, kind)(**row.fields(make, topic))))
        async with asyncio.timeout(PATIENCE_S):
            while not pipe.transport.written:
                assert not pipe.transport.closed, "the request ended its connection"
                await asyncio.sleep(0)
        return pipe.answer(row.api_key, row.version)


def allow(operation: Operation, kind: ResourceType, name: str = "") -> Acl:
    names = {GROUP: GROUP_ID, CLUSTER: CLUSTER_NAME, TRANSACTION: TRANSACTIONAL_ID}
    name = name or names.get(kind, "*")
    return Acl(kind, name, PatternType.LITERAL, ALICE, "*", operation, Permission.ALLOW)


def all_but(operation: Operation, kind: ResourceType) -> Iterator[Acl]:
    """Yield the rules that allow everything that does not include an operation."""
    for other in OPERATIONS[kind]:
        if other is not operation and other not in IMPLIED_BY.get(operation, ()):
            yield allow(other, kind)


def codes_in(answer: Any) -> set[int]:
    """Return all error codes of an answer."""
    return {int(code) for code in re.findall(r"error_code=<?[A-Za-z_.]*:? ?(-?\d+)", repr(answer))}


DENIALS: Final = [
    pytest.param(row, need, id=f"{name}-{need[0].name}-{need[1].name}")
    for name, row in ROWS.items()
    for need in row.needs
]


@pytest.mark.parametrize(("row", "missing"), DENIALS)
async def test_a_missing_right_is_an_error_that_reveals_no_more(row: Row, missing: Need) -> None:
    """The error is the resource's, the same whether the topic exists, and no component behind the handler is asked."""
    rules = [allow(*need) for need in row.needs if need != missing] + [*all_but(*missing)]
    answers = []
    for topic in (KNOWN, MISSING):
        broker = GuardedBroker(*rules)
        with capture_logs() as logs:
            answer = await broker.ask(row, topic)
        assert codes_in(answer) - {0} == {CODES[missing[1]]}, answer
        assert not broker.asked
        told = next(line for line in logs if line["event"] == "authorization_denied")
        assert (told["principal"], told["resource_type"]) == (ALICE, missing[1].name)
        assert broker.fake.broker.audit.denials[row.api_key] > 0
        answers.append(repr(answer).replace(topic, "TOPIC"))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_the_rights_of_the_table_suffice(row: Row) -> None:
    """With exactly these, an answer is never about rights."""
    for topic in (KNOWN, MISSING):
        answer = await GuardedBroker(*(allow(*need) for need in row.needs)).ask(row, topic)
        assert not codes_in(answer) & set(CODES.values()), answer


@pytest.mark.parametrize(
    ("row", "operation"),
    [("delete_topics", DELETE), ("offset_for_leader_epoch", Operation.CLUSTER_ACTION)],
)
async def test_a_right_of_the_cluster_stands_for_that_of_every_topic(row: str, operation: Operation) -> None:
    """As in Kafka, where the sender lacks the right to the topic. No other right of the cluster does."""
    for topic in (KNOWN, MISSING):
        answer = await GuardedBroker(allow(operation, CLUSTER)).ask(ROWS[row], topic)
        assert not codes_in(answer) & set(CODES.values()), answer
    for other in {*Operation} - {operation, Operation.UNKNOWN, Operation.ANY, Operation.ALL}:
        answer = await GuardedBroker(allow(other, CLUSTER)).ask(ROWS[row], KNOWN)
        assert codes_in(answer) & set(CODES.values()), (other, answer)


# --- what the cluster as a whole is asked for

OF_THE_CLUSTER: Final = sorted(
    key
    for key, row in all_rows().items()
    if isinstance(row.needs, Demanded) and any(each.resource_type is CLUSTER for each in row.needs.rights)
)


@pytest.mark.parametrize("api_key", OF_THE_CLUSTER)
async def test_a_right_of_the_cluster_is_demanded_before_anything_is_done(api_key: int) -> None:
    """The response is the API's own, in each version, and the controller gets no request."""
    needs = row_of(api_key).needs
    assert isinstance(needs, Demanded)
    (right,) = needs.rights
    for version in (APIS[api_key].min_version, APIS[api_key].max_version):
        broker = GuardedBroker(*all_but(right.operation, CLUSTER))
        row = Row(api_key, version, (), lambda make, topic: {})
        answer = await broker.ask(row, KNOWN, to_controller=api_key in OF_CONTROLLERS)
        assert codes_in(answer) <= {ClusterAuthorizationFailed.code}, answer
        assert not broker.asked


# --- the two APIs of the hot path


def _produced(pipe: FakeClient, version: int = 9) -> Any:
    (topic,) = pipe.answer(0, version).responses
    return topic.name, topic.partition_responses[0].error_code


async def test_a_topic_that_may_not_be_written_is_refused_whether_it_exists() -> None:
    """No record is appended to it, and the permitted topics are written."""
    broker = GuardedBroker(*all_but(WRITE, TOPIC))
    pipe = broker.connect()
    for topic in (KNOWN, MISSING):
        pipe.send(produce(1, (0, batch()), topic=topic))
        assert _produced(pipe) == (topic, TopicAuthorizationFailed.code)
    assert not broker.fake.partition.batches
    broker.put_in_force(allow(WRITE, TOPIC, KNOWN))
    pipe.send(produce(2, (0, batch())))
    assert _produced(pipe) == (KNOWN, 0)
    pipe.send(produce(3, (0, batch()), topic=MISSING))
    assert _produced(pipe) == (MISSING, TopicAuthorizationFailed.code)


async def test_a_denied_produce_with_acks_0_ends_the_connection() -> None:
    """With acks=0 a closed connection is all that a client sees of an error."""
    broker = GuardedBroker()
    pipe = broker.connect()
    pipe.send(produce(1, (0, batch()), acks=0))
    assert pipe.transport.closed
    assert not broker.fake.partition.batches


async def test_a_transactional_batch_needs_the_right_to_its_transactional_id() -> None:
    """CVE-2018-17196: the topic's right alone lets no client write in another client's transaction."""
    broker = GuardedBroker(allow(WRITE, TOPIC), *all_but(WRITE, TRANSACTION))
    pipe = broker.connect()
    pipe.send(produce(1, (0, batch()), acks=-1, transactional_id=TRANSACTIONAL_ID))
    assert _produced(pipe) == (KNOWN, TransactionalIdAuthorizationFailed.code)
    assert not broker.fake.partition.batches


def _fetched(pipe: FakeClient, version: int = 12) -> Any:
    answer = pipe.answer(1, version)
    if not answer.responses:
        return answer.session_id, None, b""
    partition = answer.responses[0].partitions[0]
    return answer.session_id, partition.error_code, bytes(partition.records or b"")


async def test_a_topic_that_may_not_be_read_is_refused_whether_it_exists() -> None:
    """No record leaves, and neither do offsets."""
    broker = GuardedBroker(*all_but(READ, TOPIC))
    broker.fake.partition.append_produced(memoryview(batch()), acks=1, now_ms=0)
    pipe = broker.connect()
    answers = []
    for topic in (KNOWN, MISSING):
        pipe.send(fetch(1, (0, 0), topic=topic))
        answer = pipe.answer(1, 12)
        assert codes_in(answer) - {0} == {TopicAuthorizationFailed.code}
        assert answer.responses[0].partitions[0].aborted_transactions == ()
        answers.append(repr(answer).replace(topic, "TOPIC"))
    assert answers[0] == answers[1]
    broker.put_in_force(allow(READ, TOPIC, KNOWN))
    pipe.send(fetch(2, (0, 0)))
    assert _fetched(pipe) == (0, 0, batch())


async def test_a_rule_that_goes_while_a_fetch_waits_refuses_its_records() -> None:
    """A verdict holds for one image: records appended after the next image are not read with it."""
    broker = GuardedBroker(allow(READ, TOPIC))
    pipe = broker.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000, session=(0, 0)))
    assert not pipe.transport.written
    broker.put_in_force()
    broker.fake.partition.append_produced(memoryview(batch()), acks=1, now_ms=0)
    await pipe.wait()
    session_id, code, records = _fetched(pipe)
    assert (code, records) == (TopicAuthorizationFailed.code, b"")
    pipe.send(fetch(2, session=(session_id, 1)))
    assert _fetched(pipe)[1:] == (TopicAuthorizationFailed.code, b"")


async def test_a_fetch_that_waits_in_vain_is_refused_where_its_right_has_gone() -> None:
    """Without new records, the end of the wait is an error for a user without the right, with a session or not."""
    for session in ((0, 0), (0, -1)):
        broker = GuardedBroker(allow(READ, TOPIC))
        pipe = broker.connect()
        pipe.send(fetch(1, (0, 0), max_wait_ms=20, session=session))
        assert not pipe.transport.written
        broker.put_in_force()
        await pipe.wait()
        assert _fetched(pipe)[1] == TopicAuthorizationFailed.code


async def test_a_session_without_news_is_refused_where_its_right_has_gone() -> None:
    """An idle partition is not read again, but its rights are checked again; it is returned once they are back."""
    broker = GuardedBroker(allow(READ, TOPIC))
    pipe = broker.connect()
    pipe.send(fetch(1, (0, 0), session=(0, 0)))
    session_id, code, _ = _fetched(pipe)
    assert code == 0
    broker.put_in_force()
    pipe.send(fetch(2, session=(session_id, 1)))
    assert _fetched(pipe)[1] == TopicAuthorizationFailed.code
    broker.put_in_force(allow(READ, TOPIC))
    broker.fake.partition.append_produced(memoryview(batch()), acks=1, now_ms=0)
    pipe.send(fetch(3, session=(session_id, 2)))
    assert _fetched(pipe)[1:] == (0, batch())


async def test_the_response_time_does_not_reveal_that_a_topic_exists() -> None:
    """A question about a topic that has just lost its leader waits for the next, unless the sender may not see it."""
    for rules, waits in (((allow(DESCRIBE, TOPIC),), True), ((), False)):
        broker = GuardedBroker(*rules)
        waited: list[Any] = []

        async def note(_: Any, asked: Any, waited: list[Any] = waited) -> None:
            waited += asked

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata, "_news_of", note)
            brokers = dict.fromkeys((1, 2), next(iter(broker.fake.image.brokers.values()), None))
            broker.fake.image = msgspec.structs.replace(broker.fake.image, brokers=brokers)
            await metadata.handle(*_question(broker))
        assert waited == ([KNOWN] if waits else [])


def _question(broker: GuardedBroker) -> tuple[Any, Any, Any]:
    row = ROWS["metadata"]
    make = request_builders(row.api_key, row.version)
    sender = SimpleNamespace(
        api_key=row.api_key,
        api_version=row.version,
        principal=ALICE,
        peer_host="127.0.0.1",
        has_all_rights=False,
        to_controller=False,
        listener="PLAINTEXT",
        sender={},
    )
    return broker.fake.broker, sender, make.MetadataRequest(**row.fields(make, KNOWN))


async def test_a_rule_for_an_operation_that_there_is_not_is_refused_by_name() -> None:
    """The error names the field and what it may be; rules beside it are not concerned (KIP-140)."""
    broker = GuardedBroker(allow(ALTER, CLUSTER))
    make = request_builders(ApiKey.CREATE_ACLS, 3)
    creation = make.AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=99,
        permission_type=3,
    )
    pipe = broker.connect()
    pipe.send(request(ApiKey.CREATE_ACLS, 3, 1, make.CreateAclsRequest(creations=(creation,))))
    await pipe.wait()
    (result,) = pipe.answer(ApiKey.CREATE_ACLS, 3).results
    assert result.error_code == InvalidRequest.code
    assert result.error_message.startswith("operation: must be one of UNKNOWN, ANY, ALL, READ")
    assert not broker.asked


async def test_a_fetch_session_belongs_to_the_user_that_opened_it() -> None:
    """Another user can neither continue nor end it by guessing its number (KIP-227 has numbers only)."""
    broker = GuardedBroker(allow(READ, TOPIC))
    pipe, other = broker.connect(), broker.connect("User:mallory")
    pipe.send(fetch(1, (0, 0), session=(0, 0)))
    session_id = _fetched(pipe)[0]
    assert session_id
    other.send(fetch(2, session=(session_id, 1)))
    assert other.answer(1, 12).error_code == FetchSessionIdNotFound.code
    other.send(fetch(3, session=(session_id, -1)))
    other.frames()
    pipe.send(fetch(4, session=(session_id, 1)))
    assert pipe.answer(1, 12).error_code == 0


# --- what is listed rather than named


async def test_metadata_of_all_topics_leaves_out_hidden_topics() -> None:
    """KIP-11: a list reveals no other topics."""
    row = Row(ApiKey.METADATA, 12, (), lambda make, topic: {"topics": None})
    assert (await GuardedBroker(*all_but(DESCRIBE, TOPIC)).ask(row, "")).topics == ()
    (topic,) = (await GuardedBroker(allow(DESCRIBE, TOPIC, KNOWN)).ask(row, "")).topics
    assert (topic.name, topic.error_code) == (KNOWN, 0)


@pytest.mark.parametrize(
    ("rights", "is_made", "code"),
    [
        ((CREATE,), False, TopicAuthorizationFailed.code),
        ((DESCRIBE,), False, TopicAuthorizationFailed.code),
        ((DESCRIBE, CREATE), True, None),
    ],
)
async def test_a_topic_is_made_by_asking_for_it_only_with_both_rights(
    rights: tuple[Operation, ...], is_made: bool, code: int | None
) -> None:
    """CREATE includes no DESCRIBE. Source: Kafka, "Operations and resources on protocols", METADATA."""
    broker = GuardedBroker(*(allow(each, TOPIC) for each in rights))
    row = Row(
        ApiKey.METADATA,
        12,
        (),
        lambda make, topic: {"topics": (make.MetadataRequestTopic(name=topic, topic_id=None),)},
    )
    (topic,) = (await broker.ask(row, MISSING)).topics
    assert bool(broker.asked) == is_made
    assert code is None or topic.error_code == code


async def test_a_topic_by_id_is_not_named_without_the_right_to_see_it() -> None:
    """Ids are no secrets, names are. Source: KIP-516."""
    row = Row(
        ApiKey.METADATA,
        12,
        (),
        lambda make, topic: {"topics": (make.MetadataRequestTopic(name=None, topic_id=TOPIC_ID),)},
    )
    (topic,) = (await GuardedBroker().ask(row, "")).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (TopicAuthorizationFailed.code, None, TOPIC_ID)


@pytest.mark.parametrize(
    ("rules", "listed"),
    [((), []), ((allow(DESCRIBE, GROUP),), [GROUP_ID]), ((allow(DESCRIBE, CLUSTER),), [GROUP_ID, "writers"])],
)
async def test_groups_are_listed_with_the_right_to_see_them(
    rules: tuple[Acl, ...], listed: list[str]
) -> None:
    """DESCRIBE of the cluster shows all. Source: Kafka, LIST_GROUPS."""
    broker = GuardedBroker(*rules)
    groups = [Group(name, Membership("consumer"), has_metadata=True) for name in (GROUP_ID, "writers")]
    broker.fake.broker.groups = _Lists(groups)  # type: ignore[assignment]
    answer = await broker.ask(Row(ApiKey.LIST_GROUPS, 4, (), lambda make, topic: {}), "")
    assert [each.group_id for each in answer.groups] == listed


@pytest.mark.parametrize(
    ("rules", "listed"), [((), []), ((allow(DESCRIBE, TRANSACTION),), [TRANSACTIONAL_ID])]
)
async def test_transactions_are_listed_with_the_right_to_see_them(
    rules: tuple[Acl, ...], listed: list[str]
) -> None:
    """There is no right to see them all. Source: KIP-664."""
    broker = GuardedBroker(*rules)
    transactions = [
        SimpleNamespace(
            transactional_id=name,
            producer=SimpleNamespace(producer_id=1),
            state=TransactionState.ONGOING,
        )
        for name in (TRANSACTIONAL_ID, "another")
    ]
    broker.fake.broker.transactions = _Lists(transactions)  # type: ignore[assignment]
    answer = await broker.ask(Row(ApiKey.LIST_TRANSACTIONS, 0, (), lambda make, topic: {}), "")
    assert [each.transactional_id for each in answer.transaction_states] == listed


@pytest.mark.parametrize("topic", [None, KNOWN])
async def test_a_group_is_described_with_the_right_to_see_the_topics_of_its_members(
    topic: str | None,
) -> None:
    """Assignments name topics. Source: Kafka, CONSUMER_GROUP_DESCRIBE."""
    broker = GuardedBroker(
        allow(DESCRIBE, GROUP), *([] if topic is None else [allow(DESCRIBE, TOPIC, topic)])
    )
    membership = ConsumerMembership(
        members={"m": MemberMetadata()}, target_assignments={"m": {TOPIC_ID: frozenset({0})}}
    )
    group = SimpleNamespace(consumer=membership, state="Stable")
    broker.fake.broker.groups = _Lists([group])  # type: ignore[assignment]
    answer = await broker.ask(ROWS["consumer_group_describe"], "")
    (group,) = answer.groups
    assert group.error_code == (TopicAuthorizationFailed.code if topic is None else 0)


class _Lists:
    """A coordinator that has read everything."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    async def read_all(self, **_: Any) -> list[Any]:
        return self._found

    async def read(self, group_id: str) -> Any:
        return self._found[0]


# --- callers with all rights


async def test_a_broker_that_proved_itself_has_all_rights() -> None:
    """Followers fetch and coordinators ask, whatever the rules deny."""
    broker = GuardedBroker()
    pipe = broker.connect()
    await prove(pipe, BROKER)
    pipe.send(produce(1, (0, batch())))
    assert _produced(pipe) == (KNOWN, 0)


async def test_the_controllers_listener_asks_for_the_same_rights() -> None:
    """Clients reach it without a login (KIP-919), so it must not be a way around the rules."""
    row = ROWS["incremental_alter_configs of all brokers"]
    broker = GuardedBroker(*all_but(ALTER_CONFIGS, CLUSTER))
    answer = await broker.ask(row, KNOWN, to_controller=True)
    assert codes_in(answer) == {ClusterAuthorizationFailed.code}
    assert not broker.asked
    await GuardedBroker(allow(ALTER_CONFIGS, CLUSTER)).ask(row, KNOWN, to_controller=True)


async def test_allow_everyone_does_not_count_at_the_controllers_listener() -> None:
    """A stranger could make himself a user there; rules count, and at brokers the setting does."""
    row = ROWS["incremental_alter_configs of all brokers"]
    for rules, to_controller, asks in (
        ((), True, 0),
        ((), False, 1),
        ((allow(ALTER_CONFIGS, CLUSTER),), True, 1),
    ):
        broker = GuardedBroker()
        broker.fake.broker.authorizer = Authorizer(rules, allow_if_no_rule=True)
        answer = await broker.ask(row, KNOWN, to_controller=to_controller)
        assert (ClusterAuthorizationFailed.code in codes_in(answer)) == (asks == 0)
        assert len(broker.asked) == asks


def test_authorized_operations_are_bits_by_number() -> None:
    """An implied operation counts too, and none does without the right to describe. Source: KIP-430."""
    creates = msgspec.structs.replace(allow(Operation.CREATE, TOPIC, KNOWN), principal="User:carol")
    context: Any = SimpleNamespace(authorizer=Authorizer([allow(READ, TOPIC, KNOWN), creates]))
    sender = SimpleNamespace(peer_host="127.0.0.1", has_all_rights=False, to_controller=False)
    for principal, bits in ((ALICE, 1 << 3 | 1 << 8), ("User:bob", 0), ("User:carol", 0)):
        sender.principal = principal
        assert operations(context, cast(Any, sender), TOPIC, KNOWN) == bits


async def test_without_an_authorizer_everyone_may_do_everything() -> None:
    """As in Kafka, where `authorizer.class.name` is empty by default."""
    broker = GuardedBroker()
    broker.fake.broker.authorizer = None
    for name in ("list_offsets", "describe_configs of a broker"):
        assert not codes_in(await broker.ask(ROWS[name], KNOWN)) & set(CODES.values())


# --- the tables are whole

IN_TESTS_OF_THEIR_OWN: Final = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.SHARE_FETCH,  # in tests/node/test_share_fetch, as the next
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.RENEW_DELEGATION_TOKEN,  # in test_delegation_tokens, as the next two
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


OPEN: Final = {
    ApiKey.SASL_HANDSHAKE: BeforeLogin(),
    ApiKey.API_VERSIONS: BeforeLogin(),
    ApiKey.SASL_AUTHENTICATE: BeforeLogin(),
    ApiKey.DESCRIBE_CLUSTER: NoRights(),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: NoRights(),
    ApiKey.PUSH_TELEMETRY: NoRights(),
}
"""The APIs that need no rights. They return no secret and change no state."""


def test_only_these_apis_need_no_rights() -> None:
    """An API that is added with such a row would be open to everybody."""
    rows = all_rows().items()
    assert {key: row.needs for key, row in rows if isinstance(row.needs, BeforeLogin | NoRights)} == OPEN


def test_the_apis_that_a_connection_without_a_login_may_ask_say_so_in_their_rows() -> None:
    """The connection knows them by their keys, before any row is imported."""
    keys = {key for key, needs in OPEN.items() if isinstance(needs, BeforeLogin)}
    assert keys | {peer_auth.API_KEY} == _OPEN_APIS


def _asked_by_handler(needs: Needs) -> tuple[Right, ...]:
    if isinstance(needs, Demanded):
        return tuple(right for right in needs.rights if right.field) + needs.by_part
    return needs.rights if isinstance(needs, DemandedPerPart | Filtered) else ()


def test_every_right_of_the_rows_is_tested() -> None:
    """Each API that needs rights for single resources has a row here, or tests of its own."""
    of_single = {key for key, row in all_rows().items() if _asked_by_handler(row.needs)}
    own = IN_TESTS_OF_THEIR_OWN | {key for key, row in all_rows().items() if not hasattr(row.needs, "rights")}
    assert {row.api_key for row in ROWS.values()} == of_single - own


@pytest.mark.parametrize("api_key", sorted({row.api_key for row in ROWS.values()}))
def test_the_rights_that_a_handler_asks_for_are_those_of_its_row(api_key: int) -> None:
    """The row is what a reader believes, the table above is what a request fails without."""
    stated = {(right.operation, right.resource_type) for right in _asked_by_handler(row_of(api_key).needs)}
    tested = {need[:2] for row in ROWS.values() if row.api_key == api_key for need in row.needs}
    assert tested <= stated


async def test_a_question_about_thousands_of_names_gives_the_loop_its_turns() -> None:
    """Metadata, DescribeTopicPartitions and others ask so for all topics at once."""
    broker = GuardedBroker(allow(Operation.READ, TOPIC, "t-1"), allow(Operation.READ, TOPIC, "t-2999"))
    turns = 0

    class Counted:
        async def next(self) -> None:
            nonlocal turns
            turns += 1

    broker.fake.broker.env.turns = Counted()  # type: ignore[assignment]
    names = [f"t-{number}" for number in range(3_000)]
    connection = broker.connect().connection
    context = RequestContext(
        ApiKey.METADATA, 12, 1, None, "PLAINTEXT", "127.0.0.1", connection=connection, principal=ALICE
    )
    found = await among(broker.fake.broker, context, Operation.DESCRIBE, TOPIC, names)
    assert found == {"t-1", "t-2999"}
    assert turns == len(names) // PARTS_AT_ONCE


class Asked(Authorizer):
    """Counts the questions between two turns of the loop."""

    now = most = 0

    def allows(self, *question: Any) -> bool:
        self.now += 1
        self.most = max(self.most, self.now)
        return super().allows(*question)


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.PRODUCE])
async def test_very_many_denials_of_a_request_are_one_line(api_key: ApiKey) -> None:
    """Separate lines for all denials of a request, all at once, held the loop for seconds."""
    broker, many, version = GuardedBroker(), 4_000, 9
    asked = broker.fake.broker.authorizer = Asked()
    states = broker.fake.image.brokers
    broker.fake.image = msgspec.structs.replace(broker.fake.image, brokers={1: states[1], 2: states[1]})
    names = [f"t{number}" for number in range(many)]
    make = request_builders(api_key, version)
    if api_key is ApiKey.METADATA:
        topics = tuple(make.MetadataRequestTopic(name=name) for name in names)
        message = make.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    else:
        partition = (make.PartitionProduceData(index=0, records=None),)
        topics = tuple(make.TopicProduceData(name=name, partition_data=partition) for name in names)
        message = make.ProduceRequest(transactional_id=None, acks=1, timeout=1, topic_data=topics)
    pipe = broker.connect()
    with capture_logs() as logs:
        pipe.send(request(api_key, version, 1, message))
        while not pipe.transport.written:
            await asyncio.sleep(0)
            asked.now = 0
    assert codes_in(pipe.answer(api_key, version)) - {0} == {TopicAuthorizationFailed.code}
    (line,) = [each for each in logs if each["event"] == "authorization_denied"]
    assert line["resources"] == [*sorted(names)[:MOST_NAMED], f"and {many - MOST_NAMED} more"]
    if api_key is ApiKey.METADATA:
        assert 0 < asked.most <= many // 2
