"""Transaction coordinators on real logs: found, read back, stood down; and outcomes that reach every partition."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    PolicyViolation,
    ProducerFenced,
    RequestTimedOut,
    TransactionCoordinatorFenced,
)
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, NO_BROKER, TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.coordination.shards import transaction_coordinator
from raftlog.broker.coordination.transaction_markers import MAX_PARTITIONS_PER_REQUEST
from raftlog.coordinator.transactions.transaction import (
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_coordinator import IDS_PER_SWEEP
from raftlog.coordinator.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    VerifyPartitions,
)
from raftlog.metadata.image import PartitionState, TopicState
from raftlog.storage.log import Log
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.coordination.group_broker import TOPIC_ID
from tests.broker.coordination.transaction_broker import (
    OFFSETS,
    TOPICS,
    TransactionBroker,
    run_scenario,
)
from tests.storage.compacted_logs import clean, flush_and_checkpoint

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
G0 = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)


async def begin(
    node: TransactionBroker, *topic_partitions: TopicPartition, name: str = "x"
) -> ProducerIdAndEpoch:
    """Begin a producer and its transaction."""
    producer = await node.transactions.init_producer(InitProducerId(name, 60_000))
    await node.transactions.add_partitions(AddPartitions(name, producer, frozenset(topic_partitions)))
    return producer


async def end(
    node: TransactionBroker, producer: ProducerIdAndEpoch, *, commit: bool = True, name: str = "x"
) -> ProducerIdAndEpoch:
    return await node.transactions.end(EndTransaction(name, producer, commit))


def led_by(leader: int) -> dict[str, TopicState]:
    """The topics with another leader of topic t."""
    return {**TOPICS, "t": TopicState("t", TOPIC_ID, (PartitionState((1, 2), (1, 2), leader),) * 3)}


def test_each_leader_gets_one_request_for_all_its_partitions_and_the_transaction_is_complete() -> None:
    """One request to each leader; `__consumer_offsets` is a partition like others."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0, T1, G0)
        await end(node, producer)
        await node.pass_time(0.1)
        assert sorted(broker for broker, _ in node.leaders.asked) == [1, 2]
        assert sorted(node.leaders.told()) == [(1, True, *T0), (1, True, *T1), (2, True, *G0)]
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT
        assert len(node.transactions.markers) == 0

    run_scenario(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        NotLeaderOrFollower.code,
        NotEnoughReplicas.code,
        TransactionCoordinatorFenced.code,
        CoordinatorLoadInProgress.code,
        -1,
        RequestTimedOut(),
    ],
)
def test_a_marker_that_was_not_written_is_sent_again(answer: int | KafkaError) -> None:
    """The leader's error does not matter; until the marker is written the transaction is not complete."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.answers = [answer] * 3
        await end(node, producer)
        await node.pass_time(0.03)
        assert (await node.transactions.read("x")).state is TransactionState.PREPARE_COMMIT
        await node.pass_time(1)
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT
        assert len(node.leaders.asked) == 4

    run_scenario(scenario)


def test_the_markers_of_very_many_partitions_are_sent_piece_by_piece() -> None:
    """One request holds so many, whether they are of one transaction or of several."""
    count = 2 * MAX_PARTITIONS_PER_REQUEST + 100
    wide = TopicState("t", TOPIC_ID, (PartitionState((1,), (1,), 1),) * count)

    async def scenario(node: TransactionBroker) -> None:
        node.publish(topics={**TOPICS, "t": wide})
        topic_partitions = [TopicPartition("t", index) for index in range(count)]
        producers = {name: await begin(node, *topic_partitions, name=name) for name in "xy"}
        for name, producer in producers.items():
            await end(node, producer, name=name)
        await node.pass_time(1)
        sizes = [
            sum(len(topic.partition_indexes) for marker in message.markers for topic in marker.topics)
            for _, message in node.leaders.asked
        ]
        assert max(sizes) == MAX_PARTITIONS_PER_REQUEST and sum(sizes) == 2 * count
        assert len(set(node.leaders.told())) == count
        for name in producers:
            assert (await node.transactions.read(name)).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_marker_that_was_not_answered_is_sent_again_on_the_same_connection() -> None:
    """It may be on its way yet: what comes on that connection next ends it, before the next transaction has begun."""

    async def scenario(node: TransactionBroker) -> None:
        producers = {name: await begin(node, T0, name=name) for name in "xy"}
        node.leaders.answers = [RequestTimedOut(), RequestTimedOut.code, RequestTimedOut()]
        for name, producer in producers.items():
            await end(node, producer, name=name)
            await node.pass_time(0.001)
        assert len(node.leaders.asked) == 2
        await node.pass_time(1)
        were_slow: dict[int, list[bool]] = {each.producer_id: [] for each in producers.values()}
        for (_, message), is_slow in zip(node.leaders.asked, node.leaders.slow, strict=True):
            were_slow[message.markers[0].producer_id].append(is_slow)
        assert list(were_slow.values()) == [[False] * 3, [False, True]]
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_partition_that_is_beyond_the_transaction_has_heard() -> None:
    """INVALID_PRODUCER_EPOCH: a newer epoch is in its log, so no marker can be missing."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.answers = [InvalidProducerEpoch.code]
        await end(node, producer)
        await node.pass_time(0.1)
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_marker_follows_the_leader_and_a_deleted_partition_needs_none() -> None:
    """The leader of a partition is looked up before each try."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0, G0)
        node.leaders.down = {1}
        node.publish(topics={"t": TOPICS["t"], CONSUMER_OFFSETS_TOPIC: OFFSETS})
        await end(node, producer)
        await node.pass_time(0.1)
        node.publish(topics=led_by(NO_BROKER))
        await node.pass_time(1)
        node.publish(topics=led_by(2))
        await node.pass_time(2)
        assert (2, True, *T0) in node.leaders.told()
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT
        await node.transactions.add_partitions(AddPartitions("x", producer, frozenset({T0})))
        node.leaders.down = {1, 2}
        await end(node, producer)
        await node.pass_time(1)
        node.publish(topics={CONSUMER_OFFSETS_TOPIC: OFFSETS})
        await node.pass_time(3)
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_partition_that_the_metadata_does_not_have_yet_is_not_taken_for_deleted() -> None:
    """A new coordinator may know of its leadership before it knows a topic, and its marker must not be lost."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.publish(topics={CONSUMER_OFFSETS_TOPIC: OFFSETS})
        await end(node, producer)
        await node.pass_time(0.5)
        assert not node.leaders.asked
        node.publish()
        await node.pass_time(2)
        assert node.leaders.told() == [(1, True, *T0)]
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_partition_that_gets_a_leader_hears_at_once_however_many_had_none_before() -> None:
    """Producers wait in exactly these moments between two leaders."""

    async def scenario(node: TransactionBroker) -> None:
        for _ in range(2):
            names = [f"n{number}" for number in range(20)]
            producers = [await begin(node, T0, name=name) for name in names]
            node.publish(topics=led_by(NO_BROKER))
            for name, producer in zip(names, producers, strict=True):
                await end(node, producer, name=name)
            await node.pass_time(0.7)
            node.publish(topics=led_by(1))
            await node.pass_time(0.05)
            for name in names:
                assert (await node.transactions.read(name)).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_a_leader_that_is_away_holds_up_only_its_own_partitions() -> None:
    """Others hear at once; the markers of many transactions leave in one request when it is back."""

    async def scenario(node: TransactionBroker) -> None:
        producers = {name: await begin(node, T0, G0, name=name) for name in ("x", "y", "z")}
        node.leaders.down = {1}
        for name, producer in producers.items():
            await end(node, producer, name=name)
        await node.pass_time(0.1)
        assert len({each for each in node.leaders.told() if each[0] == 2}) == 1
        assert all(
            [
                (await node.transactions.read(name)).state is TransactionState.PREPARE_COMMIT
                for name in producers
            ]
        )
        await node.pass_time(5)
        node.leaders.asked.clear()
        node.leaders.down = set()
        await node.pass_time(3)
        assert all(
            [
                (await node.transactions.read(name)).state is TransactionState.COMPLETE_COMMIT
                for name in producers
            ]
        )
        assert sum(len(message.markers) for _, message in node.leaders.asked) == 3

    run_scenario(scenario)


def test_the_next_coordinator_sends_an_outcome() -> None:
    """The former one stops when its shard is over, and what it had decided goes on with the new epoch."""

    async def scenario(node: TransactionBroker) -> None:
        node.leaders.down = {1}
        producer = await begin(node, T0)
        await end(node, producer)
        await node.pass_time(0.5)
        node.publish(leader=2)
        with pytest.raises(NotCoordinator):
            await node.transactions.read("x")
        await node.pass_time(3)
        assert len(node.transactions.markers) == 0
        asked = len(node.leaders.asked)
        await node.pass_time(3)
        assert len(node.leaders.asked) == asked
        node.leaders.down = set()
        node.publish(leader=1)
        with pytest.raises(CoordinatorLoadInProgress):
            await node.transactions.read("x")
        await node.pass_time(0.5)
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT
        (marker,) = node.leaders.asked[-1][1].markers
        assert (marker.coordinator_epoch, marker.producer_epoch, marker.transaction_result) == (2, 0, True)

    run_scenario(scenario)


def test_a_transaction_whose_time_is_up_is_aborted_at_its_partitions() -> None:
    """With an epoch above its producer's, so the producer is fenced."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await node.transactions.init_producer(InitProducerId("x", 2_000))
        await node.transactions.add_partitions(AddPartitions("x", producer, frozenset({T0})))
        await node.pass_time(1.5)
        assert not node.leaders.asked
        await node.pass_time(1.5)
        assert node.leaders.told() == [(1, False, *T0)]
        (marker,) = node.leaders.asked[0][1].markers
        assert marker.producer_epoch == producer.epoch + 1
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_ABORT
        with pytest.raises(ProducerFenced):
            await end(node, producer)

    run_scenario(scenario)


def test_what_is_not_committed_in_time_is_answered_and_not_forgotten() -> None:
    """COORDINATOR_NOT_AVAILABLE sends clients around; the outcome stands once the replicas have it."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.partition_host.flushes = False
        with pytest.raises(CoordinatorNotAvailable):
            await end(node, producer)
        with pytest.raises(CoordinatorNotAvailable):
            await node.transactions.verify(VerifyPartitions("x", producer, frozenset({T0})))
        assert not node.leaders.asked
        node.partition_host.flushes = True
        for partition in node.replicas.partitions.values():
            node.partition_host.flush(partition)
        await node.pass_time(0.1)
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_the_coordinator_of_a_transactional_id_is_found_without_waiting() -> None:
    """Produce asks that for every new transaction."""

    async def scenario(node: TransactionBroker) -> None:
        with pytest.raises(CoordinatorNotAvailable):
            transaction_coordinator(node.broker.image(), "x")
        assert await node.transactions.find("x") == 1
        assert transaction_coordinator(node.broker.image(), "x") == 1
        node.publish(leader=NO_BROKER)
        with pytest.raises(CoordinatorNotAvailable):
            transaction_coordinator(node.broker.image(), "x")

    run_scenario(scenario, with_topic=False)


def test_ids_are_listed_only_when_all_partitions_are_read_back() -> None:
    """A list that lacks some without saying so would be a lie."""

    async def scenario(node: TransactionBroker) -> None:
        await begin(node, T0)
        await node.transactions.init_producer(InitProducerId("y", 1_000, ProducerIdAndEpoch()))
        found: list[Any] = await node.transactions.read_all()
        assert sorted(each.transactional_id for each in found) == ["x", "y"]
        assert len(node.transactions) == 2
        node.publish(leader=1)
        with pytest.raises(CoordinatorLoadInProgress):
            await node.transactions.read_all()

    run_scenario(scenario)


def test_version_2_goes_through_the_log_as_well() -> None:
    """A response to a client of version 2 survives a failover."""

    async def scenario(node: TransactionBroker) -> None:
        version = ClientTransactionVersion.TV_2
        producer = await node.transactions.init_producer(InitProducerId("x", 60_000))
        await node.transactions.add_partitions(AddPartitions("x", producer, frozenset({T0}), version))
        after = await node.transactions.end(EndTransaction("x", producer, True, version))
        await node.pass_time(0.1)
        node.publish(leader=1)
        await node.pass_time(0.5)
        assert await node.transactions.end(EndTransaction("x", producer, True, version)) == after
        assert node.image.topics[TRANSACTION_STATE_TOPIC]

    run_scenario(scenario)


def test_the_topic_of_transactions_stays_small_and_is_read_back_with_its_holes() -> None:
    """Hundreds of transactions of a few ids leave their last states, including an open transaction, for any next
    coordinator.
    """

    async def scenario(node: TransactionBroker) -> None:
        for partition in node.replicas.partitions.values():
            partition.log.config = TopicConfig(
                cleanup_policy=("compact",), segment_bytes=4_000, delete_retention_ms=0
            )
        sizes = []
        for number in range(200):
            name = f"x{number % 4}"
            await end(node, await begin(node, T0, name=name), commit=bool(number % 3), name=name)
            await node.pass_time(0.1)
            if number % 50 == 49:
                sizes.append(sum(_cleaned(each.log) for each in node.replicas.partitions.values()))
        assert max(sizes) < 10_000
        await begin(node, T1, name="open")
        before = await node.transactions.read_all()
        node.disk.cold_read_rate = 1.0  # it is read away from the loop
        node.publish(leader=1)
        await node.pass_time(0.5)
        found = await node.transactions.read_all()
        assert {each.transactional_id: each for each in found} == {
            each.transactional_id: each for each in before
        }
        states = {each.transactional_id: each.state for each in found}
        assert states.pop("open") is TransactionState.ONGOING
        assert sorted(states) == ["x0", "x1", "x2", "x3"]

    run_scenario(scenario)


def _cleaned(log: Log) -> int:
    """Clean a log as often as that brings anything; returns the bytes that it has left."""
    flush_and_checkpoint(log)
    while clean(log) is not None:
        pass
    return log.size_bytes


def test_all_partitions_together_abort_so_many_in_one_turn() -> None:
    """A broker that leads fifty of them must not hold up its clients fifty times as long."""

    async def scenario(node: TransactionBroker) -> None:
        count = IDS_PER_SWEEP + 100
        for number in range(count):
            producer = await node.transactions.init_producer(InitProducerId(f"id{number}", 60_000))
            request = AddPartitions(f"id{number}", producer, frozenset({T0}))
            await node.transactions.add_partitions(request)
        logs = [partition.log for partition in node.replicas.partitions.values()]
        await node.pass_time(55)
        sizes = [sum(log.log_end_offset for log in logs)]
        node.leaders.down.add(1)  # markers are not answered: what is written are the fences
        began_at = node.loop.time()
        while node.loop.time() < began_at + 8:
            await node.pass_time(0.01)
            sizes.append(sum(log.log_end_offset for log in logs))
        written = [after - before for before, after in pairwise(sizes) if after != before]
        assert sum(written) == count
        assert max(written) <= IDS_PER_SWEEP

    run_scenario(scenario)


def test_a_broker_coordinates_so_many_ids_in_all_its_partitions() -> None:
    """raftlog.transaction.max.ids: POLICY_VIOLATION for one more id, while known ids are served."""

    async def scenario(node: TransactionBroker) -> None:
        for name in ("a", "b"):  # in both partitions
            await node.transactions.init_producer(InitProducerId(name, 60_000))
        with pytest.raises(PolicyViolation):
            await node.transactions.init_producer(InitProducerId("c", 60_000))
        assert (await node.transactions.init_producer(InitProducerId("a", 60_000))).epoch == 1

    run_scenario(scenario, raftlog_transaction_max_ids=2)


def test_open_transactions_have_so_many_partitions_on_a_broker() -> None:
    """raftlog.transaction.max.partitions: POLICY_VIOLATION for more in all its ids together, also read back."""

    async def scenario(node: TransactionBroker) -> None:
        first = await begin(node, T0, T1)
        other = await node.transactions.init_producer(InitProducerId("y", 60_000))
        for _ in range(2):
            with pytest.raises(PolicyViolation):
                await node.transactions.add_partitions(AddPartitions("y", other, frozenset({T0})))
            node.publish(leader=2)
            node.publish(leader=1)
            await node.pass_time(1)
        await end(node, first)
        await node.pass_time(1)
        await node.transactions.add_partitions(AddPartitions("y", other, frozenset({T0})))

    run_scenario(scenario, raftlog_transaction_max_partitions=2)


def test_a_broker_starts_with_as_many_ids_as_it_may_coordinate() -> None:
    """Read back whole, also beyond a limit that was lowered since; known ids go on, and new ids are refused."""

    async def program(loop: SimLoop) -> None:
        host = loop.host("b1")

        async def life(limit: int, epoch: int) -> None:
            node = TransactionBroker(host, raftlog_transaction_max_ids=limit)
            await asyncio.sleep(0.1)
            for name in ("a", "b", "c"):
                assert (await node.transactions.init_producer(InitProducerId(name, 60_000))).epoch == epoch
            with pytest.raises(PolicyViolation):
                await node.transactions.init_producer(InitProducerId("d", 60_000))

        for epoch, limit in enumerate((3, 3, 1)):
            await host.start(life(limit, epoch))
            loop.crash(host)

    simulate(program)


def test_outcomes_of_a_lost_leadership_are_not_sent_any_more() -> None:
    """The next coordinator announces them, and its epoch has fenced this coordinator."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.answers = [NotLeaderOrFollower.code]
        await end(node, producer)
        await node.pass_time(0.01)
        asked = len(node.leaders.asked)
        node.publish(leader=2)
        await node.pass_time(2)
        assert (len(node.leaders.asked), len(node.transactions.markers)) == (asked, 0)

    run_scenario(scenario)


def test_a_leader_that_is_back_gets_markers_without_a_long_pause_when_it_goes_again() -> None:
    """The pause between attempts grows while it is away, and begins anew."""

    async def scenario(node: TransactionBroker) -> None:
        for _ in range(2):
            producer = await begin(node, T0)
            node.leaders.down.add(1)
            await end(node, producer)
            await node.pass_time(0.01 if producer.epoch else 5)
            node.leaders.down.clear()
            await node.pass_time(0.1 if producer.epoch else 2)
            assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)
