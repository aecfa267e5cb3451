"""WriteTxnMarkers, TxnOffsetCommit and stable OffsetFetch in every version, through the bytes of the wire."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from raftlog.base.config import TopicConfig
from raftlog.base.errors import RequestTimedOut
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers import offset_fetch, txn_offset_commit, write_txn_markers
from raftlog.broker.long_work.turns import completed
from raftlog.coordinator.java_hash import partition_for
from raftlog.metadata.image import TopicState
from raftlog.protocol.message_builders import build_response, request_builders, response_builders
from raftlog.replication.replica_host import TxnMarker
from tests.broker.coordination.group_broker import PARTITIONS, TOPIC, TOPIC_ID, GroupBroker
from tests.broker.handlers.test_groups import run_scenario, versions
from tests.broker.loop_turns import count_loop_turns
from tests.storage.compacted_logs import clean, flush_and_checkpoint

PRODUCER = 7
INDEX = partition_for("g", PARTITIONS)


class Coordinator:
    """Confirms, or answers with a code, what the group coordinator asks of the transaction's."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked: list[Any] = []

    async def ask(self, broker_id: int, api_key: int, version: int, message: Any, **_: Any) -> Any:
        (transaction,) = message.transactions
        self.asked.append(transaction)
        make = response_builders(api_key, version)
        (topic,) = transaction.topics
        (index,) = topic.partitions
        code = self.codes.pop(0) if self.codes else 0
        partition = make.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        topics = (make.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=(partition,)),)
        result = make.AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=topics
        )
        return build_response(api_key, version, results_by_transaction=(result,))


def transactional(node: GroupBroker, *codes: int) -> Coordinator:
    coordinator = Coordinator(*codes)
    node.broker.links = coordinator
    return coordinator


async def pend(
    node: GroupBroker,
    version: int,
    offset: int,
    *,
    epoch: int = 0,
    topic: str = "t",
    topic_id: UUID = TOPIC_ID,
    group: str = "g",
    **fields: Any,
) -> list[int]:
    """Commit an offset in the transaction; the error codes."""
    partition = {
        "_": "TxnOffsetCommitRequestPartition",
        "partition_index": 0,
        "committed_offset": offset,
        "committed_metadata": "text",
    }
    answer = await node.call(
        txn_offset_commit,
        version,
        transactional_id="tx",
        group_id=group,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        topics=[
            {
                "_": "TxnOffsetCommitRequestTopic",
                "name": topic,
                "topic_id": topic_id,
                "partitions": [partition],
            }
        ],
        **fields,
    )
    assert getattr(answer.topics[0], "topic_id", topic_id) == topic_id
    return [each.error_code for each in answer.topics[0].partitions]


async def end(node: GroupBroker, version: int, *, commit: bool = True, epoch: int = 0, **changes: Any) -> int:
    """Have the group's partition end the transaction; the error code."""
    topic = {
        "_": "WritableTxnMarkerTopic",
        "name": changes.pop("topic", CONSUMER_OFFSETS_TOPIC),
        "partition_indexes": (changes.pop("index", INDEX),),
    }
    marker = {
        "_": "WritableTxnMarker",
        "producer_id": PRODUCER,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "coordinator_epoch": 0,
        "topics": [topic],
        **changes,
    }
    seen = {each: marker.pop(each, -1) for each in ("open_since", "last_sequence", "last_timestamp")}
    node.asker = 2
    answer = await node.call(write_txn_markers, version, markers=[marker], **seen)
    node.asker = None
    (result,) = answer.markers
    assert result.producer_id == PRODUCER
    return int(result.topics[0].partitions[0].error_code)


async def fetch(node: GroupBroker, version: int, *, stable: bool = True) -> tuple[int, int]:
    """(offset, error code) of the partition."""
    fields: dict[str, Any] = {"require_stable": stable} if version >= 7 else {}
    if version < 8:
        topics: list[Any] = [{"_": "OffsetFetchRequestTopic", "name": "t", "partition_indexes": (0,)}]
        answer = await node.call(offset_fetch, version, group_id="g", topics=topics, **fields)
        (partition,) = answer.topics[0].partitions
    else:
        topics = [
            {
                "_": "OffsetFetchRequestTopics",
                "name": "t",
                "topic_id": TOPIC_ID,
                "partition_indexes": (0,),
            }
        ]
        group = {"_": "OffsetFetchRequestGroup", "group_id": "g", "topics": topics}
        answer = await node.call(offset_fetch, version, groups=[group], **fields)
        (partition,) = answer.groups[0].topics[0].partitions
    return partition.committed_offset, partition.error_code


@versions(txn_offset_commit)
def test_offsets_of_a_transaction_wait_for_its_marker(version: int) -> None:
    """Pending until the marker, with the text that belongs to it; from version 5 on it adds its partition itself."""

    async def scenario(node: GroupBroker) -> None:
        coordinator = transactional(node)
        assert await pend(node, version, 42) == [0]
        assert await pend(node, version, 43) == [0]
        (asked,) = coordinator.asked
        assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx", PRODUCER, 0)
        assert asked.verify_only is (version < 5)
        assert [(each.name, each.partitions) for each in asked.topics] == [(CONSUMER_OFFSETS_TOPIC, (INDEX,))]
        assert await fetch(node, 7) == (-1, 88)
        assert await end(node, 1) == 0
        assert await fetch(node, 7) == (43, 0)

    run_scenario(scenario)


@versions(txn_offset_commit)
def test_errors_about_topics_and_groups_are_of_the_version(version: int) -> None:
    """Since version 6, which names topics by ids: UNKNOWN_TOPIC_ID, and GROUP_ID_NOT_FOUND for a group that is not
    there (KIP-1319). Before it these are UNKNOWN_TOPIC_OR_PARTITION and ILLEGAL_GENERATION.
    """

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        has_ids = version >= 6
        assert await pend(node, version, 42, topic="nowhere", topic_id=UUID(int=99)) == [
            100 if has_ids else 3
        ]
        if version >= 3:
            assert await pend(node, version, 42, group="gone", generation_id=3) == [69 if has_ids else 22]

    run_scenario(scenario)


@versions(write_txn_markers)
def test_markers_are_answered_at_commit(version: int) -> None:
    """Answered at commit, again with the same when it is repeated; other partitions are not here."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        await pend(node, 3, 42)
        assert await end(node, version, commit=False) == 0
        assert await end(node, version, commit=False) == 0
        assert await fetch(node, 7) == (-1, 0)
        assert node.replicas.partitions[INDEX].log_end_offset == 2
        assert await end(node, version, topic="nowhere") == 3
        assert await end(node, version, index=77) == 3

    run_scenario(scenario)


@versions(write_txn_markers)
def test_a_marker_for_one_transaction_does_not_end_another(version: int) -> None:
    """INVALID_TXN_STATE where none is open since the offset that is named, or it was written to since: brokers say
    that in fields of their own.
    """

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        await pend(node, 3, 42)
        (found,) = node.replicas.partitions[INDEX].active_producers()
        seen = {"last_sequence": found.last_sequence, "last_timestamp": found.last_timestamp}
        for other in ({"open_since": 1}, {"open_since": 7}, {"last_sequence": 3}, {"last_timestamp": 4}):
            assert await end(node, version, commit=False, **{"open_since": 0, **seen, **other}) == 48
        assert await fetch(node, 7) == (-1, 88)
        assert await end(node, version, commit=True, open_since=0, **seen) == 0
        assert await end(node, version, commit=False, open_since=0, **seen) == 48
        assert await fetch(node, 7) == (42, 0)

    run_scenario(scenario)


@versions(offset_fetch)
def test_a_fetch_that_requires_stable_offsets_gets_unstable_offset_commit(version: int) -> None:
    """UNSTABLE_OFFSET_COMMIT since version 7 (KIP-447); everybody else reads what is committed."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        await pend(node, 3, 3)
        await end(node, 1)
        await pend(node, 3, 42)
        assert await fetch(node, version, stable=False) == (3, 0)
        assert await fetch(node, version) == ((-1, 88) if version >= 7 else (3, 0))
        await end(node, 1)
        assert await fetch(node, version) == (42, 0)

    run_scenario(scenario)


def test_all_offsets_of_a_group_are_stable_or_not_each_for_itself() -> None:
    """Also when no topic is named."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        await pend(node, 3, 3)
        await end(node, 1)
        await pend(node, 3, 42)
        answer = await node.call(offset_fetch, 7, group_id="g", topics=None, require_stable=True)
        assert [each.error_code for each in answer.topics[0].partitions] == [88]

    run_scenario(scenario)


def test_only_brokers_write_markers() -> None:
    """CLUSTER_AUTHORIZATION_FAILED for every partition: a client that can end transactions can break exactly-once."""

    async def scenario(node: GroupBroker) -> None:
        topic = {"_": "WritableTxnMarkerTopic", "name": "t", "partition_indexes": (0, 1)}
        marker = {"_": "WritableTxnMarker", "producer_id": 1, "topics": [topic], "transaction_result": True}
        answer = await node.call(write_txn_markers, 1, markers=[marker])
        assert [each.error_code for each in answer.markers[0].topics[0].partitions] == [31, 31]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (3, 120, 48),
        (4, 120, 120),
        (5, 120, 120),
        (3, 90, 47),
        (3, 51, 14),
        (3, 16, 14),
        (3, 49, 49),
    ],
)
def test_what_the_transactions_coordinator_refuses(version: int, code: int, told: int) -> None:
    """An error that may be tried again is COORDINATOR_LOAD_IN_PROGRESS: no client looks for another coordinator
    then.
    """

    async def scenario(node: GroupBroker) -> None:
        transactional(node, code)
        assert await pend(node, version, 42) == [told]
        assert await fetch(node, 7) == (-1, 0)
        assert await pend(node, version, 42) == [0]

    run_scenario(scenario)


def test_a_fenced_producer_commits_no_offset_and_unknown_topics_are_errors() -> None:
    """INVALID_PRODUCER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        assert await pend(node, 3, 42, epoch=1) == [0]
        assert await end(node, 1, commit=False, epoch=2) == 0
        assert await pend(node, 3, 43, epoch=1) == [47]
        assert await pend(node, 3, 43, epoch=2, topic="nowhere") == [3]

    run_scenario(scenario)


def test_a_new_coordinator_knows_what_pends_and_ends_it() -> None:
    """The records are in the transaction in the log; what is not read back yet is COORDINATOR_LOAD_IN_PROGRESS."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        await pend(node, 3, 42)
        node.publish(leader=2)
        assert await pend(node, 3, 43) == [16]
        assert await end(node, 1) == 6
        node.publish(leader=1)
        assert await end(node, 1) == 14
        await node.pass_time(0.1)
        assert await fetch(node, 7) == (-1, 88)
        assert await end(node, 1) == 0
        assert await fetch(node, 7) == (42, 0)

    run_scenario(scenario)


def test_without_a_transaction_coordinator_nothing_is_committed() -> None:
    """And the client tries again."""

    async def scenario(node: GroupBroker) -> None:
        known = {name: each for name, each in node.image.topics.items() if name != TRANSACTION_STATE_TOPIC}
        node.image = replace(node.image, topics=known)
        assert await pend(node, 3, 42) == [14]

    run_scenario(scenario)


def test_offsets_in_transactions_are_read_back_from_a_log_with_holes() -> None:
    """Hundreds of transactions leave a few records, and the next coordinator knows the last word and what pends."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        log = node.replicas.partitions[INDEX].log
        log.config = TopicConfig(cleanup_policy=("compact",), segment_bytes=4_000, delete_retention_ms=0)
        sizes = []
        for number in range(1, 301):
            assert await pend(node, 3, number) == [0]
            assert await end(node, 1, commit=number % 3 > 0) == 0
            if number % 50 == 0:
                flush_and_checkpoint(log)
                while clean(log) is not None:
                    pass
                sizes.append(log.size_bytes)
        assert max(sizes) < 12_000
        assert await pend(node, 3, 999) == [0]
        node.publish(leader=2)
        node.publish(leader=1)
        await node.pass_time(0.5)
        assert await fetch(node, 7, stable=False) == (299, 0)
        assert await fetch(node, 7) == (-1, 88)
        assert await end(node, 1) == 0
        assert await fetch(node, 7) == (999, 0)

    run_scenario(scenario)


@pytest.mark.parametrize(("what", "told"), [("marker", 14), ("elections", 16)])
def test_what_happens_while_the_transactions_coordinator_is_asked_voids_its_answer(
    what: str, told: int
) -> None:
    """The offsets would be in a transaction that is never ended."""

    async def scenario(node: GroupBroker) -> None:
        coordinator = transactional(node)
        ask = coordinator.ask

        async def slow_ask(*args: Any, **kwargs: Any) -> Any:
            answer = await ask(*args, **kwargs)
            if what == "marker":
                assert await end(node, 1, commit=False) == 0
            else:
                node.publish(leader=2)
                node.publish(leader=1)
                await node.pass_time(0.1)
            return answer

        coordinator.ask = slow_ask  # type: ignore[method-assign]
        assert await pend(node, 3, 42) == [told]
        assert await fetch(node, 7) == (-1, 0)

    run_scenario(scenario)


def test_the_successor_of_a_topic_that_was_deleted_meanwhile_gets_no_offset() -> None:
    """The transaction's coordinator is slow; the position belongs to a log that is gone by then."""

    async def scenario(node: GroupBroker) -> None:
        coordinator = transactional(node)
        ask = coordinator.ask

        async def slow_ask(*args: Any, **kwargs: Any) -> Any:
            node.publish(topics={"t": TopicState("t", UUID(int=99), TOPIC.partitions)})
            return await ask(*args, **kwargs)

        coordinator.ask = slow_ask  # type: ignore[method-assign]
        assert await pend(node, 3, 42) == [3]
        coordinator.ask = ask  # type: ignore[method-assign]
        assert await end(node, 1) == 0
        assert await fetch(node, 7) == (-1, 0)

    run_scenario(scenario)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_group_without_a_name_is_refused_before_anybody_is_asked(leader: int) -> None:
    """INVALID_GROUP_ID from every broker; version 5 would have made its partition part of the transaction."""

    async def scenario(node: GroupBroker) -> None:
        coordinator = transactional(node)
        node.publish(leader=leader)
        await node.pass_time(0.1)
        assert await pend(node, 5, 42, group="") == [24]
        assert not coordinator.asked

    run_scenario(scenario)


class ClosingConnection:
    """A connection that ends when the loop has had some turns."""

    def __init__(self, turns: int) -> None:
        self.is_open = True
        self._after(turns)

    def _after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._after, turns - 1)
        else:
            self.is_open = False


def test_no_marker_is_written_for_a_coordinator_that_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends them again on another connection; a marker written after that could end the next transaction."""
    written: list[TopicPartition] = []

    def write(broker: BrokerContext, marker: TxnMarker, tp: TopicPartition) -> asyncio.Future[int]:
        written.append(tp)
        future = asyncio.get_running_loop().create_future()
        future.set_result(0)
        return future

    monkeypatch.setattr(write_txn_markers, "_write", write)

    async def scenario(node: GroupBroker) -> None:
        make = request_builders(write_txn_markers.API_KEY, 1)
        topic = make.WritableTxnMarkerTopic(name="t", partition_indexes=tuple(range(5 * PARTS_AT_ONCE)))
        marker = make.WritableTxnMarker(
            producer_id=7, producer_epoch=0, transaction_result=True, topics=(topic,), coordinator_epoch=0
        )
        request = RequestContext(27, 1, 1, "b", "PLAINTEXT", "h", 2, ClosingConnection(2))
        handled = write_txn_markers.handle(
            node.broker, request, make.WriteTxnMarkersRequest(markers=(marker,))
        )
        answer = await completed(node.broker.env, handled)
        codes = [each.error_code for each in answer.markers[0].topics[0].partitions]
        assert codes == [RequestTimedOut.code] * len(topic.partition_indexes)
        assert PARTS_AT_ONCE <= len(written) <= 3 * PARTS_AT_ONCE

    run_scenario(scenario)


@pytest.mark.parametrize("asker", [2, None])
def test_very_many_markers_are_written_and_answered_in_turns(asker: int | None) -> None:
    """Also the refusal of a client that sends so many: 40 transactions of 150 partitions are 6,000 parts."""

    async def scenario(node: GroupBroker) -> None:
        topic = {"_": "WritableTxnMarkerTopic", "name": "nowhere", "partition_indexes": tuple(range(150))}
        marker = {"_": "WritableTxnMarker", "producer_id": 1, "topics": [topic], "transaction_result": True}
        node.asker = asker
        answer, turns = await count_loop_turns(node.call(write_txn_markers, 2, markers=[marker] * 40))
        codes = [each.error_code for result in answer.markers for each in result.topics[0].partitions]
        assert codes == [3 if asker else 31] * 6000
        assert turns >= (2 if asker else 1) * 6000 // (150 + PARTS_AT_ONCE)

    run_scenario(scenario)
