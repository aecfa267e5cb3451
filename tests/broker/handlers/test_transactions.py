"""The APIs of the transaction coordinator in every version, through the bytes of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import pytest

from raftlog.base.regex import LONGEST, STEPS_AT_ONCE, steps
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.transactions.transaction import (
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from tests.broker.coordination.transaction_broker import FIRST_ID, TransactionBroker, run_scenario
from tests.broker.handlers.test_groups import versions
from tests.broker.loop_turns import count_loop_turns

FENCED, INVALID_EPOCH = 90, 47


async def init(node: TransactionBroker, version: int = 4, name: str | None = "x", **fields: Any) -> Any:
    return await node.call(
        init_producer_id, version, **{"transactional_id": name, "transaction_timeout": 60_000, **fields}
    )


async def add(
    node: TransactionBroker, version: int, *indexes: int, epoch: int = 0, **fields: Any
) -> dict[int, int]:
    """Add partitions of topic t as a client does; the error codes."""
    topic = {"_": "AddPartitionsToTxnTopic", "name": "t", "partitions": indexes}
    given = {"transactional_id": "x", "producer_id": FIRST_ID, "producer_epoch": epoch, "topics": [topic]}
    answer = await node.call(
        add_partitions_to_txn,
        version,
        **{f"v3_and_below_{name}": value for name, value in (given | fields).items()},
    )
    (result,) = answer.results_by_topic_v3_and_below
    return {each.partition_index: int(each.partition_error_code) for each in result.results_by_partition}


async def serve(node: TransactionBroker, version: int, *transactions: dict[str, Any]) -> Any:
    """Ask as another broker does."""
    return await node.call(
        add_partitions_to_txn,
        version,
        transactions=[
            {
                "_": "AddPartitionsToTxnTransaction",
                "transactional_id": "x",
                "producer_id": FIRST_ID,
                "producer_epoch": 0,
                "topics": [{"_": "AddPartitionsToTxnTopic", "name": "t", "partitions": (0, 1)}],
                **each,
            }
            for each in transactions
        ],
    )


def codes_of(answer: Any) -> list[dict[int, int]]:
    return [
        {
            each.partition_index: int(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    ]


async def end(
    node: TransactionBroker, version: int, *, epoch: int = 0, commit: bool = True, name: str = "x"
) -> Any:
    return await node.call(
        end_txn,
        version,
        transactional_id=name,
        producer_id=FIRST_ID,
        producer_epoch=epoch,
        committed=commit,
    )


@versions(find_coordinator)
def test_a_transactional_id_has_a_coordinator(version: int) -> None:
    """Type 1; an empty id is INVALID_REQUEST. The first request creates the topic."""

    async def find(node: TransactionBroker, key: str) -> Any:
        batched = version >= 4
        keys = {"coordinator_keys": (key,)} if batched else {"key": key}
        kind = {"key_type": 1} if version >= 1 else {}
        answer = await node.call(find_coordinator, version, **keys, **kind)
        return answer.coordinators[0] if batched else answer

    async def scenario(node: TransactionBroker) -> None:
        if version == 0:  # knows groups only
            return
        found = await find(node, "x")
        assert (int(found.error_code), found.node_id, found.port) == (0, 1, 9092)
        (made,) = node.submitted[0].topics
        assert (made.name, made.num_partitions, made.replication_factor) == (TRANSACTION_STATE_TOPIC, 50, 1)
        assert made.configs["min.insync.replicas"] == "1", "no more than there are replicas"
        assert (made.configs["cleanup.policy"], made.configs["unclean.leader.election.enable"]) == (
            "compact",
            "false",
        )
        assert int((await find(node, "")).error_code) == 42

    run_scenario(scenario, with_topic=False)


@versions(init_producer_id)
def test_each_init_producer_id_begins_the_next_epoch(version: int) -> None:
    """Each call begins with the next epoch; without a transactional id every producer id is new."""

    async def scenario(node: TransactionBroker) -> None:
        for epoch in range(2):
            answer = await init(node, version)
            assert (int(answer.error_code), answer.producer_id, answer.producer_epoch) == (0, FIRST_ID, epoch)
        answer = await init(node, version, None)
        assert (int(answer.error_code), answer.producer_id, answer.producer_epoch) == (0, FIRST_ID + 1, 0)
        refused = await init(node, version, transaction_timeout=900_001)
        assert (int(refused.error_code), refused.producer_id, refused.producer_epoch) == (50, -1, -1)
        assert int((await init(node, version, "")).error_code) == 42
        if version >= 3:
            half = await init(node, version, producer_id=FIRST_ID)
            assert int(half.error_code) == 42
            stale = await init(node, version, producer_id=FIRST_ID, producer_epoch=0)
            assert int(stale.error_code) == (FENCED if version >= 4 else INVALID_EPOCH)
            goes_on = await init(node, version, producer_id=FIRST_ID, producer_epoch=1)
            assert (int(goes_on.error_code), goes_on.producer_epoch) == (0, 2)

    run_scenario(scenario)


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_to_txn_of_clients(version: int) -> None:
    """All or none; a fenced producer gets the error of its version."""

    async def scenario(node: TransactionBroker) -> None:
        assert await add(node, version, 0) == {0: 49}, "nobody knows the id"
        await init(node)
        assert await add(node, version, 0, 1) == {0: 0, 1: 0}
        assert await add(node, version, 0, 77) == {0: 55, 77: 3}
        assert await add(node, version, 0, epoch=1) == {0: FENCED if version >= 2 else INVALID_EPOCH}
        assert await add(node, version, 0, producer_id=7) == {0: 49}
        assert await add(node, version, 0, transactional_id="") == {0: 42}

    run_scenario(scenario)


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
def test_clients_add_no_partition_of_an_internal_topic(name: str) -> None:
    """A marker there would end what brokers write; Kafka too answers TOPIC_AUTHORIZATION_FAILED, rights or not."""

    async def scenario(node: TransactionBroker) -> None:
        await init(node)
        topic = {"_": "AddPartitionsToTxnTopic", "name": name, "partitions": [0]}
        assert await add(node, 3, topics=[topic]) == {0: 29}

    run_scenario(scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_to_txn_of_brokers(version: int) -> None:
    """Several transactions at once, verified or added to; clients are refused (CLUSTER_AUTHORIZATION_FAILED)."""

    async def scenario(node: TransactionBroker) -> None:
        refused = await serve(node, version, {})
        assert int(refused.error_code) == 31
        node.asker = 2
        await init(node)
        await add(node, 3, 0)
        abortable = 120 if version >= 5 else 48
        answer = await serve(node, version, {"verify_only": True}, {"verify_only": True, "producer_epoch": 1})
        assert codes_of(answer) == [{0: 0, 1: abortable}, {0: FENCED, 1: FENCED}]
        assert codes_of(await serve(node, version, {}, {"transactional_id": "y"})) == [
            {0: 0, 1: 0},
            {0: 49, 1: 49},
        ]
        assert codes_of(await serve(node, version, {"verify_only": True})) == [{0: 0, 1: 0}]

    run_scenario(scenario)


@versions(add_offsets_to_txn)
def test_the_groups_offsets_become_part_of_the_transaction(version: int) -> None:
    """The group's partition of the offsets topic becomes part of the transaction."""

    async def scenario(node: TransactionBroker) -> None:
        async def ask(group_id: str, epoch: int) -> int:
            answer = await node.call(
                add_offsets_to_txn,
                version,
                transactional_id="x",
                producer_id=FIRST_ID,
                producer_epoch=epoch,
                group_id=group_id,
            )
            return int(answer.error_code)

        await init(node)
        assert await ask("g", 0) == 0
        assert await ask("g", 1) == (FENCED if version >= 2 else INVALID_EPOCH)
        assert await ask("", 0) == 24
        found = await node.transactions.read("x")
        assert found.partitions == {(CONSUMER_OFFSETS_TOPIC, partition_for("g", 3))}

    run_scenario(scenario)


@versions(end_txn)
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_sends_markers_to_all_leaders(version: int, commit: bool) -> None:
    """The leaders of all partitions get markers; version 5 returns the next epoch (KIP-890)."""

    async def scenario(node: TransactionBroker) -> None:
        await init(node)
        if version < 5 or commit:
            assert int((await end(node, version, commit=commit)).error_code) == 48, "nothing was begun"
        await add(node, 3, 0, 2)
        assert int((await end(node, version, commit=commit, epoch=3)).error_code) == (
            FENCED if version >= 2 else INVALID_EPOCH
        )
        ended = await end(node, version, commit=commit)
        assert int(ended.error_code) == 0
        if version >= 5:
            assert (ended.producer_id, ended.producer_epoch) == (FIRST_ID, 1)
        await node.pass_time(0.1)
        assert sorted(node.leaders.told()) == [(1, commit, "t", 0), (1, commit, "t", 2)]
        (marker,) = node.leaders.asked[0][1].markers
        assert marker.producer_epoch == (1 if version >= 5 else 0)
        assert marker.transaction_version == (2 if version >= 5 else 0)
        assert marker.coordinator_epoch == 0
        again = await end(node, version, commit=commit)
        assert int(again.error_code) == 0, "it asks again"
        assert int((await end(node, version, name="")).error_code) == 42

    run_scenario(scenario)


@versions(describe_transactions)
def test_transactions_are_described_with_their_partitions(version: int) -> None:
    """State, producer, timeout, start and partitions; TRANSACTIONAL_ID_NOT_FOUND for others."""

    async def scenario(node: TransactionBroker) -> None:
        await init(node)
        await add(node, 3, 2, 0)
        answer = await node.call(describe_transactions, version, transactional_ids=("x", "y", ""))
        found, unknown, empty = answer.transaction_states
        assert (int(found.error_code), found.transactional_id, found.transaction_state) == (0, "x", "Ongoing")
        assert (found.producer_id, found.producer_epoch, int(found.transaction_timeout)) == (
            FIRST_ID,
            0,
            60_000,
        )
        assert [(each.topic, each.partitions) for each in found.topics] == [("t", (0, 2))]
        assert int(unknown.error_code) == 105
        assert int(empty.error_code) == 42

    run_scenario(scenario)


@versions(list_transactions)
def test_transactions_are_listed_by_state_producer_and_age(version: int) -> None:
    """By state, producer id, running time and pattern; unknown states are named (KIP-664, 994, 1152)."""

    async def scenario(node: TransactionBroker) -> None:
        await init(node)
        await init(node, name="xy")
        await add(node, 3, 0)

        async def names(**filters: Any) -> Any:
            fields = {"state_filters": (), "producer_id_filters": (), **filters}
            answer = await node.call(list_transactions, version, **fields)
            assert int(answer.error_code) == 0
            return sorted(each.transactional_id for each in answer.transaction_states), tuple(
                answer.unknown_state_filters
            )

        assert await names() == (["x", "xy"], ())
        assert await names(state_filters=("Ongoing", "Nonsense")) == (["x"], ("Nonsense",))
        assert await names(producer_id_filters=(FIRST_ID + 1,)) == (["xy"], ())
        if version >= 1:
            await node.pass_time(2)
            assert await names(duration_filter=1_000) == (["x"], ())
            assert await names(duration_filter=5_000) == ([], ())
        if version >= 2:
            assert await names(transactional_id_pattern="x.") == (["xy"], ())
            assert await names(transactional_id_pattern="x") == (["x"], ())
            fields = {"state_filters": (), "producer_id_filters": ()}
            bad = await node.call(list_transactions, version, transactional_id_pattern="(", **fields)
            assert int(bad.error_code) == 128

    run_scenario(scenario)


@pytest.mark.parametrize("spread", ["many partitions", "many topics"])
@pytest.mark.parametrize("api", ["add", "serve", "describe"])
def test_requests_of_very_many_partitions_are_answered_in_turns(api: str, spread: str) -> None:
    """One client's frame must not hold up all others."""
    count, turns = 4000, 0
    names = ["t"] * 1 if spread == "many partitions" else [f"t{number}" for number in range(count)]
    indexes = tuple(range(count // len(names)))

    async def scenario(node: TransactionBroker) -> None:
        async def watch() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        if api == "describe":
            topics = [{"_": "TopicRequest", "name": name, "partition_indexes": indexes} for name in names]
            answer = (await node.call(describe_producers, 0, topics=topics)).topics
        else:
            topics = [{"_": "AddPartitionsToTxnTopic", "name": name, "partitions": indexes} for name in names]
            if api == "add":
                given = {
                    "transactional_id": "x",
                    "producer_id": FIRST_ID,
                    "producer_epoch": 0,
                    "topics": topics,
                }
                fields = {f"v3_and_below_{name}": value for name, value in given.items()}
                answer = (await node.call(add_partitions_to_txn, 3, **fields)).results_by_topic_v3_and_below
            else:
                node.asker = 2
                (result,) = (await serve(node, 5, {"topics": topics})).results_by_transaction
                answer = result.topic_results
        watching.cancel()
        assert len(answer) == len(names)

    run_scenario(scenario)
    assert turns >= (1 if api == "describe" else 3) * count // 200


class FakeCoordinator:
    """A coordinator of so many ids, each with an open transaction."""

    def __init__(self, names: Iterable[str], partitions: int = 1) -> None:
        topic_partitions = frozenset(TopicPartition("t", index) for index in range(partitions))
        self.found = {
            each: Transaction(
                each, ProducerIdAndEpoch(7, 0), TransactionState.ONGOING, partitions=topic_partitions
            )
            for each in names
        }

    async def read(self, transactional_id: str) -> Transaction:
        return self.found[transactional_id]

    async def read_all(self, *, wholly: bool = False) -> list[Transaction]:
        return list(self.found.values())


def listed(node: TransactionBroker, pattern: str) -> Awaitable[Any]:
    fields = {"state_filters": (), "producer_id_filters": (), "transactional_id_pattern": pattern}
    return node.call(list_transactions, 2, **fields)


def test_what_a_pattern_costs_is_spread_over_turns() -> None:
    """In what the ids' characters may take, some ten milliseconds to a turn, not in ids."""
    regex, names = "((a|b|c.?){20}){7}|abc", [f"{number:03}" + 237 * "a" for number in range(100)]
    most = sum(steps(regex, each) for each in names)
    assert most > 10 * STEPS_AT_ONCE

    async def scenario(node: TransactionBroker) -> None:
        node.broker.transactions = FakeCoordinator([*names, "abc"])
        answer, turns = await count_loop_turns(listed(node, regex))
        assert [each.transactional_id for each in answer.transaction_states] == ["abc"]
        assert turns > most // STEPS_AT_ONCE

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("regex", "characters"),
    [("(((x|a|o|r)*.?){30}){30}q.*", 1), ("x" * (LONGEST + 1), 1), ("((a|b|c.?){20}){7}", 3_000)],
)
def test_a_pattern_that_is_too_much_is_refused(regex: str, characters: int) -> None:
    """INVALID_REGULAR_EXPRESSION: it is too large, too long, or too expensive for an id."""

    async def scenario(node: TransactionBroker) -> None:
        node.broker.transactions = FakeCoordinator(["a" * characters])
        assert int((await listed(node, regex)).error_code) == 128

    run_scenario(scenario)


def test_an_id_that_is_named_again_and_again_is_described_once() -> None:
    """And turns are counted in partitions: each id has 150, fewer than may be described between two turns."""
    names = [f"x{number}" for number in range(100)]

    async def scenario(node: TransactionBroker) -> None:
        node.broker.transactions = FakeCoordinator(names, partitions=150)
        asked = node.call(describe_transactions, 0, transactional_ids=names * 20)
        answer, turns = await count_loop_turns(asked)
        assert [each.transactional_id for each in answer.transaction_states] == names
        assert {len(topic.partitions) for each in answer.transaction_states for topic in each.topics} == {150}
        assert turns >= 50

    run_scenario(scenario)


def test_a_description_that_is_full_says_so_of_the_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS, upon which clients ask again. Ids and their partitions are counted."""
    monkeypatch.setattr(describe_transactions, "MAX_PARTITIONS", 6)

    async def scenario(node: TransactionBroker) -> None:
        node.broker.transactions = FakeCoordinator("abcd", partitions=2)
        for asked, codes in (("abcd", [0, 0, 14, 14]), ("cd", [0, 0])):
            answer = await node.call(describe_transactions, 0, transactional_ids=tuple(asked))
            assert [int(each.error_code) for each in answer.transaction_states] == codes
            assert [each.transactional_id for each in answer.transaction_states] == list(asked)

    run_scenario(scenario)
