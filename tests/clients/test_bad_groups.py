"""Bad input to the coordinators of live nodes by raw requests: each gets the protocol's own error, without side
effects.

Meanwhile three clients run: a member of a classic group, a member of a consumer group (KIP-848) and a transactional
producer. No mistake disturbs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.testing.cluster import Cluster
from tests.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient, codes_of
from tests.clients.with_confluent import Confluent

TOPIC, CLASSIC, MODERN, OWNER = "bad-groups", "classic-group", "modern-group", "owner-of-transactions"
IDLE = "owner-of-no-transaction"
JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
COMMIT, MODERN_BEAT = ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT
INIT, ADD, ADD_GROUP = ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN
END, COMMIT_IN = ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT


def joining(group: str, **fields: Any) -> dict[str, Any]:
    """Return a JoinGroup v5 that makes sense."""
    protocol = request_builders(ApiKey.JOIN_GROUP, 5).JoinGroupRequestProtocol(name="range", metadata=b"sub")
    return {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
        "protocols": (protocol,),
        **fields,
    }


def committing(api: ApiKey, version: int, *, metadata: str = "", **fields: Any) -> dict[str, Any]:
    """Return an OffsetCommit or TxnOffsetCommit of one partition."""
    make, name = request_builders(api, version), message_type(api, version, "request").__name__
    tp = getattr(make, f"{name}Partition")(partition_index=0, committed_offset=1, committed_metadata=metadata)
    return {"topics": (getattr(make, f"{name}Topic")(name=TOPIC, partitions=(tp,)),), **fields}


def beating(member_id: str, epoch: int, **fields: Any) -> dict[str, Any]:
    """Return a ConsumerGroupHeartbeat that makes sense."""
    return {
        "group_id": MODERN,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout": 60_000 if epoch == 0 else -1,
        "subscribed_topic_names": (TOPIC,) if epoch == 0 else None,
        "topic_partitions": () if epoch == 0 else None,
        **fields,
    }


def protocols(*names: str) -> tuple[Any, ...]:
    make = request_builders(JOIN, 5).JoinGroupRequestProtocol
    return tuple(make(name=name, metadata=b"") for name in names)


def initialising(**fields: Any) -> dict[str, Any]:
    """Return an InitProducerId that makes sense."""
    who = {"transactional_id": OWNER, "producer_id": -1, "producer_epoch": -1}
    return {**who, "transaction_timeout": 60_000, **fields}


class UndisturbedClients(NamedTuple):
    """Clients that are there, and must not be disturbed."""

    coordinators: CoordinatorClient
    member_id: str
    generation: int
    epoch: int
    producer_id: int
    producer_epoch: int

    def in_group(self, **fields: Any) -> dict[str, Any]:
        """Return a function that sends requests for the classic group."""
        who = {"group_id": CLASSIC, "member_id": self.member_id, "generation_id": self.generation}
        return {**who, **fields}

    def commit(self, metadata: str = "", **fields: Any) -> dict[str, Any]:
        """Return an OffsetCommit in the classic group."""
        who = self.in_group(**fields)
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        return committing(COMMIT, 8, metadata=metadata, **who)

    def in_transaction(self, **fields: Any) -> dict[str, Any]:
        """Return a function that sends requests for the transaction."""
        who = {
            "transactional_id": OWNER,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }
        return {**who, **fields}

    def of_idle_producer(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of a producer that has begun no transaction."""
        made = self.coordinators.ask(IDLE, INIT, 4, kind=TRANSACTION, **initialising(transactional_id=IDLE))
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        return {"transactional_id": IDLE, **who, **fields}

    def commit_in(self, metadata: str = "", **fields: Any) -> dict[str, Any]:
        """Return a TxnOffsetCommit in the classic group; it adds its partition by itself."""
        return committing(
            COMMIT_IN, 5, metadata=metadata, **self.in_group(), **self.in_transaction(), **fields
        )

    def are_well(self) -> bool:
        beat = self.coordinators.ask(CLASSIC, BEAT, 3, **self.in_group())
        modern = self.coordinators.ask(MODERN, MODERN_BEAT, 1, **beating("resident", self.epoch))
        return not codes_of((beat, modern))


@pytest.fixture(scope="module")
def residents(cluster: Cluster) -> UndisturbedClients:
    writer = Confluent(cluster.bootstrap_servers)
    writer.create_topic(TOPIC, 1, 3)
    writer.close()
    found = CoordinatorClient(cluster)
    member_id = found.ask(CLASSIC, JOIN, 5, **joining(CLASSIC)).member_id
    joined = found.ask(CLASSIC, JOIN, 5, **joining(CLASSIC, member_id=member_id))
    share = request_builders(SYNC, 3).SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
    member = {"group_id": CLASSIC, "member_id": member_id, "generation_id": joined.generation_id}
    synced = found.ask(CLASSIC, SYNC, 3, **member, assignments=(share,))
    modern = found.ask(MODERN, MODERN_BEAT, 1, **beating("resident", 0))
    made = found.ask(OWNER, INIT, 4, kind=TRANSACTION, **initialising())
    assert not codes_of((joined, synced, modern, made))
    return UndisturbedClients(
        found, member_id, joined.generation_id, modern.member_epoch, made.producer_id, made.producer_epoch
    )


@pytest.fixture(autouse=True)
def undisturbed(residents: UndisturbedClients) -> Iterator[None]:
    """Clients that are there go on."""
    yield
    assert residents.are_well()


class BadRequest(NamedTuple):
    """A request to the coordinator of `name`, and the code that it is answered with."""

    code: int
    api: ApiKey
    version: int
    says: Callable[[UndisturbedClients], dict[str, Any]]
    name: str = CLASSIC


IN_GROUPS = {
    "joins as an unknown member": BadRequest(25, JOIN, 5, lambda _: joining(CLASSIC, member_id="stranger")),
    "joins with another protocol type": BadRequest(
        23, JOIN, 5, lambda _: joining(CLASSIC, protocol_type="connect")
    ),
    "joins with an assignor of its own": BadRequest(
        23, JOIN, 5, lambda _: joining(CLASSIC, protocols=protocols("mine"))
    ),
    "joins without any protocol": BadRequest(23, JOIN, 5, lambda _: joining(CLASSIC, protocols=())),
    "joins for too short a session": BadRequest(26, JOIN, 5, lambda _: joining(CLASSIC, session_timeout=1)),
    "joins a group without a name": BadRequest(24, JOIN, 5, lambda _: joining("")),
    "joins a consumer group as Connect": BadRequest(
        23, JOIN, 5, lambda _: joining(MODERN, protocol_type="connect"), MODERN
    ),
    "syncs as an unknown member": BadRequest(25, SYNC, 3, lambda me: me.in_group(member_id="stranger")),
    "syncs a generation that is over": BadRequest(22, SYNC, 3, lambda me: me.in_group(generation_id=0)),
    "syncs another protocol": BadRequest(
        23, SYNC, 5, lambda me: me.in_group(protocol_type="consumer", protocol_name="mine")
    ),
    "syncs a group without a name": BadRequest(24, SYNC, 3, lambda me: me.in_group(group_id="")),
    "beats as an unknown member": BadRequest(25, BEAT, 3, lambda me: me.in_group(member_id="stranger")),
    "beats in a generation that is over": BadRequest(22, BEAT, 3, lambda me: me.in_group(generation_id=0)),
    "beats in a generation to come": BadRequest(22, BEAT, 3, lambda me: me.in_group(generation_id=1_000)),
    "beats in a group without a name": BadRequest(24, BEAT, 3, lambda me: me.in_group(group_id="")),
    "leaves as an unknown member": BadRequest(
        25, LEAVE, 2, lambda _: {"group_id": CLASSIC, "member_id": "stranger"}
    ),
    "leaves a group without a name": BadRequest(
        24, LEAVE, 2, lambda me: {"group_id": "", "member_id": me.member_id}
    ),
    "commits as an unknown member": BadRequest(25, COMMIT, 8, lambda me: me.commit(member_id="stranger")),
    "commits without being a member": BadRequest(
        25, COMMIT, 8, lambda me: me.commit(member_id="", generation_id=-1)
    ),
    "commits in a generation that is over": BadRequest(22, COMMIT, 8, lambda me: me.commit(generation_id=0)),
    "commits with a text too long": BadRequest(12, COMMIT, 8, lambda me: me.commit("x" * 4_097)),
    "deletes a group with members": BadRequest(
        68, ApiKey.DELETE_GROUPS, 2, lambda _: {"groups_names": (CLASSIC,)}
    ),
    "deletes a group without a name": BadRequest(
        24, ApiKey.DELETE_GROUPS, 2, lambda _: {"groups_names": ("",)}
    ),
    "deletes offsets of a group without a name": BadRequest(
        24, ApiKey.OFFSET_DELETE, 0, lambda _: {"group_id": ""}
    ),
    "takes a classic group for a consumer group": BadRequest(
        69, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda _: {"group_ids": (CLASSIC,)}
    ),
    "looks for a group without a name": BadRequest(
        24, ApiKey.FIND_COORDINATOR, 2, lambda _: {"key": "", "key_type": GROUP}
    ),
    "looks for an unknown kind of coordinator": BadRequest(
        42, ApiKey.FIND_COORDINATOR, 2, lambda _: {"key": "x", "key_type": 9}
    ),
}

IN_CONSUMER_GROUPS = {
    "beats as an unknown member": BadRequest(25, MODERN_BEAT, 1, lambda _: beating("stranger", 1), MODERN),
    "beats in an epoch to come": BadRequest(
        110, MODERN_BEAT, 1, lambda _: beating("resident", 1_000), MODERN
    ),
    "wants an assignor that is not there": BadRequest(
        112, MODERN_BEAT, 1, lambda _: beating("other", 0, server_assignor="mine"), MODERN
    ),
    "subscribes to what is no expression": BadRequest(
        128, MODERN_BEAT, 1, lambda _: beating("other", 0, subscribed_topic_regex="(a"), MODERN
    ),
    "beats in a group without a name": BadRequest(
        42, MODERN_BEAT, 1, lambda _: beating("other", 0, group_id=""), MODERN
    ),
    "commits as if it were a classic group": BadRequest(
        35,
        COMMIT,
        8,
        lambda me: me.commit(group_id=MODERN, member_id="resident", generation_id=me.epoch),
        MODERN,
    ),
    "commits in an epoch that is over": BadRequest(
        113,
        COMMIT,
        9,
        lambda me: me.commit(group_id=MODERN, member_id="resident", generation_id=0),
        MODERN,
    ),
    "takes it for a classic group": BadRequest(
        69, ApiKey.DESCRIBE_GROUPS, 6, lambda _: {"groups": (MODERN,)}, MODERN
    ),
}


@pytest.mark.parametrize("mistake", IN_GROUPS.values(), ids=IN_GROUPS)
def test_each_mistake_in_a_group_request_has_its_error_code(
    residents: UndisturbedClients, mistake: BadRequest
) -> None:
    """Unknown member, stale generation, oversized text, wrong protocol, no name: each has its code."""
    fields = mistake.says(residents)
    answer = residents.coordinators.ask(mistake.name, mistake.api, mistake.version, **fields)
    assert codes_of(answer) == {mistake.code}, answer


IN_TRANSACTIONS = {
    "wants more time than there is": BadRequest(
        50, INIT, 4, lambda _: initialising(transaction_timeout=900_001), OWNER
    ),
    "wants no time": BadRequest(50, INIT, 4, lambda _: initialising(transaction_timeout=0), OWNER),
    "has no name": BadRequest(42, INIT, 4, lambda _: initialising(transactional_id=""), OWNER),
    "ends as nobody": BadRequest(
        49, END, 3, lambda me: me.in_transaction(producer_id=77, committed=True), OWNER
    ),
    "ends what was not begun": BadRequest(48, END, 3, lambda me: me.of_idle_producer(committed=True), IDLE),
    "ends in an epoch to come": BadRequest(
        90, END, 3, lambda me: me.in_transaction(producer_epoch=me.producer_epoch + 9, committed=True), OWNER
    ),
    "adds a group without a name": BadRequest(
        24, ADD_GROUP, 3, lambda me: me.in_transaction(group_id=""), OWNER
    ),
    "adds a group as nobody": BadRequest(
        49, ADD_GROUP, 3, lambda me: me.in_transaction(producer_id=77, group_id=CLASSIC), OWNER
    ),
}


@pytest.mark.parametrize("mistake", IN_CONSUMER_GROUPS.values(), ids=IN_CONSUMER_GROUPS)
def test_each_mistake_in_a_consumer_group_request_has_its_error_code(
    residents: UndisturbedClients, mistake: BadRequest
) -> None:
    """The same in the words of KIP-848: epochs, assignors of the coordinator, expressions."""
    fields = mistake.says(residents)
    answer = residents.coordinators.ask(mistake.name, mistake.api, mistake.version, **fields)
    assert codes_of(answer) == {mistake.code}, answer


@pytest.mark.parametrize("mistake", IN_TRANSACTIONS.values(), ids=IN_TRANSACTIONS)
def test_each_mistake_in_a_transaction_request_has_its_error_code(
    residents: UndisturbedClients, mistake: BadRequest
) -> None:
    """A timeout over the maximum, an unknown producer, no open transaction: each has its code."""
    fields = mistake.says(residents)
    asked = residents.coordinators.ask
    answer = asked(mistake.name, mistake.api, mistake.version, kind=TRANSACTION, **fields)
    assert codes_of(answer) == {mistake.code}, answer


IN_BOTH = {
    "for a group without a name": BadRequest(24, COMMIT_IN, 5, lambda me: me.commit_in() | {"group_id": ""}),
    "without a transactional id": BadRequest(
        42, COMMIT_IN, 5, lambda me: me.commit_in() | {"transactional_id": ""}
    ),
    "as an unknown producer": BadRequest(49, COMMIT_IN, 5, lambda me: me.commit_in() | {"producer_id": 77}),
    "as an unknown member": BadRequest(
        25, COMMIT_IN, 5, lambda me: me.commit_in() | {"member_id": "stranger"}
    ),
    "in a generation that is over": BadRequest(
        22, COMMIT_IN, 5, lambda me: me.commit_in() | {"generation_id": 0}
    ),
    "with a text too long": BadRequest(12, COMMIT_IN, 5, lambda me: me.commit_in("x" * 4_097)),
}


@pytest.mark.parametrize("mistake", IN_BOTH.values(), ids=IN_BOTH)
def test_each_mistake_in_a_transactional_commit_has_its_error_code(
    residents: UndisturbedClients, mistake: BadRequest
) -> None:
    """KIP-447: only members of the group's generation commit, whatever the transaction; no offset is pending after."""
    fields = mistake.says(residents)
    answer = residents.coordinators.ask(mistake.name, mistake.api, mistake.version, **fields)
    assert codes_of(answer) == {mistake.code}, answer
    everything = {"group_id": CLASSIC, "topics": None, "require_stable": True}
    assert not codes_of(residents.coordinators.ask(CLASSIC, ApiKey.OFFSET_FETCH, 7, **everything))
