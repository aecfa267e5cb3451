"""raftlog.broker.handlers.produce: acks, timeouts, hints at the leader, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import (
    CorruptMessage,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
)
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.broker.handlers.produce import BATCHES_AT_ONCE
from tests.broker.fakes import (
    TOPIC_ID,
    FakeClient,
    FakePartition,
    FakePartitionServer,
    batch,
    produce,
)


def results(pipe: FakeClient, version: int = 9) -> list[Any]:
    return [each for topic in pipe.answer(0, version).responses for each in topic.partition_responses]


@pytest.mark.parametrize("version", range(3, 13))
async def test_acks_1_answers_the_base_offset_at_once(version: int) -> None:
    """Every handled version by name, flexible and not."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch(5)), version=version))
    assert [(each.error_code, each.base_offset) for each in results(pipe, version)] == [(0, 0)]
    pipe.send(produce(2, (0, batch(1)), version=version))
    assert [each.base_offset for each in results(pipe, version)] == [5]


async def test_version_13_names_topics_by_id() -> None:
    """KIP-516; an unknown id is UNKNOWN_TOPIC_ID, not a missing name."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), version=13, topic=TOPIC_ID))
    answer = pipe.answer(0, 13)
    assert answer.responses[0].topic_id == TOPIC_ID
    assert answer.responses[0].partition_responses[0].base_offset == 0
    other = type(TOPIC_ID)(int=99)
    pipe.send(produce(2, (0, batch()), version=13, topic=other))
    assert [each.error_code for each in results(pipe, 13)] == [100]
    pipe.send(produce(3, (2, batch()), (44, batch()), version=13, topic=TOPIC_ID))
    assert [each.error_code for each in results(pipe, 13)] == [6, 3]


async def test_acks_all_answers_when_all_its_partitions_are_committed() -> None:
    """acks=-1 means committed; partitions may commit in any order."""
    one, two = FakePartition(index=0), FakePartition(index=1)
    one.auto_commit = two.auto_commit = False
    fake = FakePartitionServer(one, two)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch(2)), (1, batch(3)), acks=-1))
    two.commit()
    assert not pipe.transport.written
    one.commit()
    assert [(each.index, each.error_code, each.base_offset) for each in results(pipe)] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert len(fake.server.deadlines) == 0


async def test_acks_all_past_its_timeout_is_request_timed_out() -> None:
    """The client sets timeout.ms; appended records may still commit later, and there is no second response."""
    one, two = FakePartition(index=0), FakePartition(index=1)
    one.auto_commit = False
    fake = FakePartitionServer(one, two)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), (1, batch()), acks=-1, timeout_ms=20))
    await pipe.wait()
    assert [each.error_code for each in results(pipe)] == [7, 0]
    one.commit()
    assert pipe.frames() == []


async def test_a_partition_that_fails_after_the_append_fails_alone() -> None:
    """The waiting client gets NOT_ENOUGH_REPLICAS_AFTER_APPEND, the other partition's result stands."""
    one, two = FakePartition(index=0), FakePartition(index=1)
    one.auto_commit = False
    fake = FakePartitionServer(one, two)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), (1, batch()), acks=-1))
    one.fail_waiters(NotEnoughReplicasAfterAppend())
    assert [(each.error_code, each.base_offset) for each in results(pipe)] == [(20, -1), (0, 0)]


async def test_acks_0_gets_no_response_and_its_error_closes_the_connection() -> None:
    """The client has no other way to notice. Source: Kafka protocol guide, Produce."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=0), produce(2, (0, batch()), acks=1))
    assert pipe.correlation_ids() == [2]
    fake.partition.error = NotLeaderOrFollower()
    with capture_logs() as logs:
        pipe.send(produce(3, (0, batch()), acks=0), produce(4, (0, batch()), acks=1))
    assert pipe.transport.closed
    assert pipe.correlation_ids() == []
    assert [line["event"] for line in logs] == ["unacknowledged_produce_failed"]


async def test_errors_are_returned_by_partition_with_their_message() -> None:
    """Invalid partitions of a request do not affect valid partitions; the client gets the reason from version 8 on."""
    one, two = FakePartition(index=0), FakePartition(index=1)
    two.error = CorruptMessage("CRC does not match")
    fake = FakePartitionServer(one, two)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), (1, batch()), (9, batch()), (0, None)))
    found = [(each.index, each.error_code, each.error_message) for each in results(pipe)]
    assert [each[:2] for each in found] == [(0, 0), (1, 2), (9, 3), (0, 87)]
    assert found[1][2] == "CRC does not match"


async def test_clients_may_not_write_to_internal_topics() -> None:
    """A record of theirs in __consumer_offsets could move any group's offsets (Kafka answers INVALID_TOPIC)."""
    offsets = FakePartition(CONSUMER_OFFSETS_TOPIC, 0)
    fake = FakePartitionServer(offsets)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=1, topic=CONSUMER_OFFSETS_TOPIC))
    assert [each.error_code for each in results(pipe)] == [17]
    assert offsets.log_end_offset == 0


async def test_not_enough_replicas_appends_nothing() -> None:
    """acks=-1 below min.insync.replicas is refused by the partition and answered at once."""
    fake = FakePartitionServer()
    fake.partition.error = NotEnoughReplicas()
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=-1))
    assert [each.error_code for each in results(pipe)] == [19]


async def test_a_replica_that_leads_elsewhere_is_answered_with_a_hint_at_the_leader() -> None:
    """KIP-951: current leader and its address, from version 10 on."""
    fake = FakePartitionServer(elsewhere=[1])
    pipe = fake.connect()
    pipe.send(produce(1, (1, batch()), version=10))
    answer = pipe.answer(0, 10)
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == 6
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 3)
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
        (2, "b2", 9092, "r2")
    ]
    pipe.send(produce(2, (1, batch()), version=9))
    assert [each.error_code for each in results(pipe)] == [6]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_0_to_2_are_advertised_but_refused(version: int) -> None:
    """KAFKA-18659: on the wire they are answered with UNSUPPORTED_VERSION."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    records = batch()
    body = b"\0\x01" + (100).to_bytes(4, "big") + b"\0\0\0\x01\0\x05words\0\0\0\x01\0\0\0\0"
    body += len(records).to_bytes(4, "big") + records
    frame = b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\x05\xff\xff" + body
    pipe.send(len(frame).to_bytes(4, "big") + frame)
    (answer,) = pipe.frames()
    assert bytes(answer[:4]) == b"\0\0\0\x05"
    assert bytes(answer[4:]).startswith(b"\0\0\0\x01\0\x05words\0\0\0\x01\0\0\0\0\0\x23")
    assert fake.partition.log_end_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_other_acks_are_invalid_required_acks(acks: int) -> None:
    """Their records are not appended."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=acks))
    assert [each.error_code for each in results(pipe)] == [21]
    assert fake.partition.log_end_offset == 0


async def test_a_transactional_batch_needs_a_transactional_id() -> None:
    """Without it no coordinator could verify the transaction (Kafka: TRANSACTIONAL_ID_AUTHORIZATION_FAILED)."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    records = bytearray(batch())
    records[16], records[22] = 2, 0x10
    pipe.send(produce(2, (0, bytes(records))))
    assert [each.error_code for each in results(pipe)] == [53]
    assert fake.partition.log_end_offset == 0


async def test_zstd_needs_version_7() -> None:
    """KIP-110: an older client's consumers could not read it."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    records = bytearray(batch())
    records[16], records[22] = 2, 4
    pipe.send(produce(1, (0, bytes(records)), version=6))
    assert [each.error_code for each in results(pipe, 6)] == [76]
    pipe.send(produce(2, (0, bytes(records)), version=7))
    assert [each.error_code for each in results(pipe, 7)] == [0]


async def test_a_partition_named_twice_takes_one_batch() -> None:
    """One batch a partition is the law of produce requests since record batches v2."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), (0, batch()), acks=-1))
    fake.partition.commit()
    assert [each.error_code for each in results(pipe)] == [0, 87]


async def test_many_pipelined_requests_are_answered_in_one_write() -> None:
    """Responses of one read leave together."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    writes: list[int] = []
    pipe.transport.writelines = lambda buffers: writes.append(len(list(buffers)))  # type: ignore[method-assign]
    pipe.feed(b"".join(produce(each, (0, batch())) for each in range(10)))
    assert writes == [10]


async def test_batches_of_a_later_turn_are_those_that_were_sent() -> None:
    """Other frames are received into the same memory meanwhile."""
    count = BATCHES_AT_ONCE + 5
    fake = FakePartitionServer(*[FakePartition(index=index) for index in range(count)])
    pipe = fake.connect()
    pipe.send(produce(1, *((index, batch()) for index in range(count))))
    workspace = fake.server.requests.workspace
    workspace[:] = b"\xff" * len(workspace)
    while fake.server.tasks:
        await asyncio.sleep(0)
    (topic,) = pipe.answer(0, 9).responses
    assert [each.error_code for each in topic.partition_responses] == [0] * count


async def test_what_a_large_request_keeps_for_its_next_turns_is_counted_or_refused() -> None:
    """NOT_ENOUGH_REPLICAS for what there is no memory to keep; what was appended before stays."""
    count = BATCHES_AT_ONCE + 50
    fake = FakePartitionServer(*[FakePartition(index=index) for index in range(count)])
    unappended = fake.server.memory.unappended
    wanted = [(index, batch(1)) for index in range(count)]
    size = sum(len(records) for _, records in wanted)
    for expected in (0, 19):
        pipe = fake.connect()
        pipe.send(produce(1, *wanted))
        assert unappended.used == (size if expected == 0 else unappended.limit)
        while fake.server.tasks:
            await asyncio.sleep(0)
        (topic,) = pipe.answer(0, 9).responses
        codes = [each.error_code for each in topic.partition_responses]
        assert codes == [0] * BATCHES_AT_ONCE + [expected] * 50
        unappended.acquire(unappended.limit - unappended.used)
    assert unappended.used == unappended.limit
