"""raftlog.broker.handlers.fetch: limits, waiting, sessions, replicas, cold reads, hints at the leader."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import (
    CorruptMessage,
    InvalidFetchSessionEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from raftlog.base.types import NAME_MAX_CHARS, EpochEnd
from raftlog.broker.handlers import fetch as fetch_handler
from raftlog.broker.links.peer_auth import HELLO
from raftlog.broker.network.fetch_sessions import ENTRY_BYTES, HIGH_WATERMARKS_S
from raftlog.protocol.message_builders import request_builders
from raftlog.replication.replica_host import ReplicaId
from tests.broker.fakes import (
    TOPIC_ID,
    FakeClient,
    FakePartition,
    FakePartitionServer,
    batch,
    fetch,
    produce,
    request,
)


def told(pipe: FakeClient, version: int = 12) -> dict[int, Any]:
    """The content of the one response, by partition."""
    answer = pipe.answer(1, version)
    assert getattr(answer, "error_code", 0) == 0
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}


def filled(index: int = 0, batches: int = 3, size: int = 39) -> FakePartition:
    """A partition of 100-byte batches with one record each."""
    partition = FakePartition(index=index)
    for each in range(batches):
        partition.append_produced(memoryview(batch(1, size, 0x61 + each)), acks=1, now_ms=0)
    return partition


async def run_pending() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads_the_same_records(version: int) -> None:
    """By name to version 12, by id from 13 on (KIP-516)."""
    pipe = FakePartitionServer(filled()).connect()
    pipe.send(fetch(1, (0, 1), version=version, topic=TOPIC_ID if version >= 13 else "words"))
    result = told(pipe, version)[0]
    assert bytes(result.records) == batch(1, 39, 0x62) + batch(1, 39, 0x63)
    assert result.high_watermark == 3


async def test_an_unknown_topic_id_has_its_own_error() -> None:
    """KIP-516: UNKNOWN_TOPIC_ID makes clients refresh their ids."""
    pipe = FakePartitionServer(filled()).connect()
    pipe.send(fetch(1, (0, 0), version=13, topic=type(TOPIC_ID)(int=99)))
    assert told(pipe, 13)[0].error_code == 100


async def test_the_first_batch_comes_even_if_it_is_too_large_and_others_do_not() -> None:
    """KIP-74: progress with any limit, and the limit otherwise."""
    pipe = FakePartitionServer(filled(0), filled(1)).connect()
    pipe.send(fetch(1, (0, 0), (1, 0), max_bytes=50))
    found = told(pipe)
    assert [len(found[each].records) for each in (0, 1)] == [100, 0]
    pipe.send(fetch(2, (0, 0), (1, 0), max_bytes=350, partition_max_bytes=210))
    found = told(pipe)
    assert [len(found[each].records) for each in (0, 1)] == [200, 100]
    assert found[1].high_watermark == 3


async def test_the_brokers_own_limit_holds() -> None:
    """fetch.max.bytes caps what one response takes."""
    pipe = FakePartitionServer(filled(0), fetch_max_bytes=1024).connect()
    pipe.send(fetch(1, (0, 0), max_bytes=1 << 30))
    assert len(told(pipe)[0].records) == 300
    fake = FakePartitionServer(filled(0, batches=20), fetch_max_bytes=1024)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_bytes=1 << 30))
    assert len(told(pipe)[0].records) == 1000


async def test_too_little_waits_until_there_is_something() -> None:
    """Long poll: one response, made when the high watermark moved, with all that the iteration brought."""
    one, two = FakePartition(index=0), FakePartition(index=1)
    fake = FakePartitionServer(one, two)
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), max_wait_ms=60_000))
    assert not pipe.transport.written
    producer.send(produce(1, (0, batch()), (1, batch(2))))
    await run_pending()
    found = told(pipe)
    assert [len(found[each].records) for each in (0, 1)] == [61, 61]
    assert not one.parked and not two.parked
    assert len(fake.server.deadlines) == 0


async def test_an_uncommitted_record_wakes_no_fetch() -> None:
    """Between high watermark and log end the answer is empty, never OFFSET_OUT_OF_RANGE."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe, producer = fake.connect(), fake.connect()
    producer.send(produce(1, (0, batch())))
    for offset in (0, 1):
        pipe.send(fetch(1, (0, offset)))
        result = told(pipe)[0]
        assert (result.error_code, bytes(result.records)) == (0, b"")
    waiting = fake.connect()
    waiting.send(fetch(2, (0, 0), max_wait_ms=60_000))
    producer.send(produce(2, (0, batch())))
    await run_pending()
    assert not waiting.transport.written


async def test_a_fetch_that_is_woken_without_records_for_it_is_woken_again() -> None:
    """The high watermark may move within an open transaction; the commit must still wake a reader of committed data."""
    fake = FakePartitionServer(FakePartition())
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    for _ in range(2):
        for waiter in tuple(fake.partition.parked):
            waiter.wake(fake.partition)
        await run_pending()
    assert not pipe.transport.written
    producer.send(produce(1, (0, batch())))
    await run_pending()
    assert len(told(pipe)[0].records) == 61


async def test_max_wait_ends_with_an_empty_answer() -> None:
    """fetch.max.wait.ms; all partitions asked for are in the answer."""
    fake = FakePartitionServer(FakePartition(index=0), FakePartition(index=1))
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), max_wait_ms=20))
    await pipe.wait()
    assert {index: bytes(each.records) for index, each in told(pipe).items()} == {0: b"", 1: b""}


async def test_min_bytes_gathers_over_partitions_and_time() -> None:
    """fetch.min.bytes: small appends do not end the wait, their sum does; reads do not grow with every append."""
    fake = FakePartitionServer(FakePartition(index=0), FakePartition(index=1))
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), max_wait_ms=60_000, min_bytes=300))
    reads = fake.partition.reads
    for each in range(2):
        producer.send(produce(each, (0, batch(1, 39)), acks=0))
        await run_pending()
    assert not pipe.transport.written
    assert fake.partition.reads == reads
    producer.send(produce(3, (1, batch(1, 39)), acks=0))
    await run_pending()
    found = told(pipe)
    assert [len(found[each].records) for each in (0, 1)] == [200, 100]


async def test_min_bytes_below_what_there_is_is_met_at_the_deadline() -> None:
    """Records that are there are sent when the wait is over."""
    fake = FakePartitionServer(filled())
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=20, min_bytes=100_000))
    assert not pipe.transport.written
    await pipe.wait()
    assert len(told(pipe)[0].records) == 300


async def test_an_error_is_returned_at_once_with_a_hint_at_the_leader() -> None:
    """KIP-951: leader from version 12, its address from 16."""
    fake = FakePartitionServer(filled(), elsewhere=[1])
    pipe = fake.connect()
    pipe.send(fetch(1, (1, 0), max_wait_ms=60_000, version=16, topic=TOPIC_ID))
    answer = pipe.answer(1, 16)
    (result,) = answer.responses[0].partitions
    assert result.error_code == 6
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 3)
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [(2, "b2", 9092)]


async def test_a_leader_that_resigns_ends_the_wait() -> None:
    """A client that waits on it reads its error at once."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000, min_bytes=10))
    fake.partition.error = NotLeaderOrFollower()
    fake.partition.role = "follower in epoch 1"
    for waiter in tuple(fake.partition.parked):
        waiter.wake(fake.partition)
    await run_pending()
    assert told(pipe)[0].error_code == 6


async def test_a_bug_in_a_waiting_fetch_ends_the_connection() -> None:
    """A slot that is never answered would hang the client until its own timeout, and all requests behind it."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    fake.partition.bug = ZeroDivisionError()
    with capture_logs() as logs:
        fake.partition.append_produced(memoryview(batch()), acks=1, now_ms=0)
        await run_pending()
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["request_crashed"]


async def test_a_diverging_reader_learns_where_to_truncate() -> None:
    """KIP-595: diverging_epoch in version 12 and later, at once."""
    fake = FakePartitionServer(filled())
    fake.partition.diverging = EpochEnd(2, 1)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 2), max_wait_ms=60_000))
    diverging = told(pipe)[0].diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (2, 1)


# -- cold reads ---------------------------------------------------------------------------------------------------


async def test_a_cold_read_happens_elsewhere_and_holds_up_only_its_own_connection() -> None:
    """Order of the connection is kept, others go on meanwhile."""
    cold, warm = filled(0), filled(1)
    cold.cold = True
    fake = FakePartitionServer(cold, warm)
    pipe, other = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), max_bytes=2 << 20))
    pipe.send(fetch(2, (1, 0)))
    other.send(fetch(3, (1, 0)))
    assert other.correlation_ids() == [3]
    assert not pipe.transport.written
    fake.offload.run()
    await run_pending()
    (first, _second) = frames = pipe.frames()
    assert [int.from_bytes(each[:4], "big") for each in frames] == [1, 2]
    assert len(first) > 600


async def test_records_that_consumers_are_sent_are_counted_cold_ones_too() -> None:
    """By offsets, once they leave; what followers are sent is not among them, see `Traffic`."""
    cold, warm = filled(0), filled(1)
    cold.cold = True
    fake = FakePartitionServer(cold, warm)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 1), max_bytes=2 << 20))
    assert (cold.traffic.messages_out, warm.traffic.messages_out) == (0, 0)
    fake.offload.run()
    await run_pending()
    assert (cold.traffic.messages_out, warm.traffic.messages_out) == (3, 2)
    assert (cold.traffic.bytes_out, warm.traffic.bytes_out) == (300, 200)
    follower = as_broker(fake.connect())
    follower.send(fetch(2, (1, 0), version=15, replica=(2, 12), topic=TOPIC_ID))
    assert len(told(follower, 15)[1].records) == 300
    assert (warm.traffic.messages_out, warm.traffic.replica_bytes_out) == (2, 300)


async def test_what_wakes_a_session_during_a_cold_read_is_not_forgotten() -> None:
    """A partition found dry before the cold read began may have records when it ends."""
    cold, warm = filled(0), FakePartition(index=1)
    cold.cold = True
    fake = FakePartitionServer(cold, warm)
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), session=(0, 0)))
    producer.send(produce(1, (1, batch()), acks=0))
    fake.offload.run()
    await run_pending()
    session, _ = session_of(pipe)
    pipe.send(fetch(2, (0, 3), session=(session, 1)))
    assert len(session_of(pipe)[1][1].records) == 61


@pytest.mark.parametrize(("number", "reports"), [(errno.EIO, 1), (errno.ENOENT, 0)])
async def test_a_failed_cold_read_is_an_error_and_a_bad_disk_is_reported(number: int, reports: int) -> None:
    """KAFKA_STORAGE_ERROR makes clients look for another leader; EIO takes the log directory offline."""
    cold = filled(0)
    cold.cold = True
    cold.disk_error = OSError(number, "no")
    fake = FakePartitionServer(cold)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0)))
    fake.offload.run()
    await run_pending()
    assert told(pipe)[0].error_code == 56
    assert len(cold.reported) == reports


@pytest.mark.parametrize("refused", [None, CorruptMessage(), OffsetOutOfRange()])
@pytest.mark.parametrize("change", ["role", "truncation"])
async def test_records_read_while_the_role_or_the_log_changed_are_not_returned(
    change: str, refused: KafkaError | None
) -> None:
    """A replica that followed meanwhile may have cut and overwritten the bytes under the reader.

    What the reader took for rot or for the log's end proves nothing then.
    """
    cold = filled(0)
    cold.cold = True
    cold.disk_error = refused
    fake = FakePartitionServer(cold)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0)))
    if change == "role":
        cold.role = "leader in epoch 2"
    else:
        cold.log.truncation_count += 1
    fake.offload.run()
    await run_pending()
    answer = told(pipe)[0]
    assert (answer.error_code, answer.records) == (6, b"")


async def test_a_cold_read_of_a_lost_connection_is_dropped() -> None:
    """Its thread may finish, but there is no response."""
    cold = filled(0)
    cold.cold = True
    fake = FakePartitionServer(cold)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0)))
    pipe.connection.connection_lost(None)
    fake.offload.run()
    await run_pending()
    assert not pipe.transport.written


# -- sessions -----------------------------------------------------------------------------------------------------


def session_of(pipe: FakeClient) -> tuple[int, dict[int, Any]]:
    answer = pipe.answer(1, 12)
    assert answer.error_code == 0
    return answer.session_id, {
        each.partition_index: each for topic in answer.responses for each in topic.partitions
    }


async def test_a_session_has_what_was_committed_before_the_request() -> None:
    """A producer is answered before the session is woken, and its client may fetch before that (Kafka reads anew)."""
    one = filled(0)
    fake = FakePartitionServer(one)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 3), session=(0, 0)))
    session, _ = session_of(pipe)
    one.auto_commit = False
    one.append_produced(memoryview(batch()), acks=-1, now_ms=0)
    one.high_watermark = one.log_end_offset
    fake.broker.replicas.to_wake.append(one)  # type: ignore[arg-type]
    pipe.send(fetch(2, session=(session, 1)))
    assert len(session_of(pipe)[1][0].records) == 61


@pytest.mark.parametrize("epoch", [-2, 5])
async def test_an_epoch_that_is_not_the_next_one_leaves_the_session_as_it_is(epoch: int) -> None:
    """Only -1 ends a session; INVALID_FETCH_SESSION_EPOCH otherwise, as Kafka answers."""
    fake = FakePartitionServer(filled(0))
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 3), session=(0, 0)))
    session, _ = session_of(pipe)
    pipe.send(fetch(2, session=(session, epoch)))
    assert pipe.answer(1, 12).error_code == InvalidFetchSessionEpoch.code
    pipe.send(fetch(3, session=(session, 1)))
    assert session_of(pipe) == (session, {})


async def test_a_session_returns_only_changes() -> None:
    """KIP-227: the first response is full, later responses are incremental, and wait for changes."""
    one, two = filled(0), filled(1)
    fake = FakePartitionServer(one, two)
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), session=(0, 0)))
    session, found = session_of(pipe)
    assert session > 0 and set(found) == {0, 1}
    pipe.send(fetch(2, (0, 3), (1, 3), session=(session, 1)))
    assert session_of(pipe) == (session, {})
    pipe.send(fetch(3, session=(session, 2), max_wait_ms=60_000))
    assert not pipe.transport.written[pipe._read :]
    producer.send(produce(1, (1, batch())))
    await run_pending()
    _, found = session_of(pipe)
    assert set(found) == {1} and len(found[1].records) == 61


async def test_an_incremental_fetch_reads_only_what_may_be_new() -> None:
    """A fetch costs what moved, not what is subscribed."""
    partitions = [FakePartition(index=each) for each in range(20)]
    fake = FakePartitionServer(*partitions)
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, *((each, 0) for each in range(20)), session=(0, 0)))
    session, _ = session_of(pipe)
    before = sum(each.reads for each in partitions)
    for epoch in range(1, 6):
        producer.send(produce(epoch, (7, batch()), acks=0))
        pipe.send(fetch(epoch, (7, epoch - 1), session=(session, epoch)))
        assert set(session_of(pipe)[1]) == {7}
    assert sum(each.reads for each in partitions) - before == 5


async def test_a_partition_whose_records_did_not_fit_comes_first_next_time() -> None:
    """KIP-227: partitions take turns, so none starves behind a busy partition."""
    one, two = filled(0, batches=30), filled(1, batches=30)
    pipe = FakePartitionServer(one, two).connect()
    pipe.send(fetch(1, (0, 0), (1, 0), session=(0, 0), max_bytes=300))
    session, found = session_of(pipe)
    assert [len(found[each].records) for each in (0, 1)] == [300, 0]
    pipe.send(fetch(2, (0, 3), session=(session, 1), max_bytes=300))
    assert {index: len(each.records) for index, each in session_of(pipe)[1].items()} == {1: 300}
    pipe.send(fetch(3, (1, 3), session=(session, 2), max_bytes=300))
    assert {index: len(each.records) for index, each in session_of(pipe)[1].items()} == {0: 300}


async def test_records_whose_offset_the_client_did_not_move_come_again() -> None:
    """The client may have lost the answer or thrown it away; its position is what it says."""
    pipe = FakePartitionServer(filled(0)).connect()
    pipe.send(fetch(1, (0, 0), session=(0, 0)))
    session, _ = session_of(pipe)
    pipe.send(fetch(2, session=(session, 1)))
    assert len(session_of(pipe)[1][0].records) == 300


async def test_a_forgotten_partition_is_not_returned_any_more() -> None:
    """KIP-227: forgotten_topics_data."""
    one, two = filled(0), filled(1)
    fake = FakePartitionServer(one, two)
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 3), (1, 3), session=(0, 0)))
    session, _ = session_of(pipe)
    pipe.send(fetch(2, session=(session, 1), forget=[0]))
    pipe.frames()
    producer.send(produce(1, (0, batch()), (1, batch())))
    pipe.send(fetch(3, session=(session, 2)))
    assert set(session_of(pipe)[1]) == {1}
    assert not one.parked


async def test_errors_of_a_session_are_repeated_until_they_are_over() -> None:
    """Then the partition is in a response again even without records, so that the client knows."""
    fake = FakePartitionServer(filled(0))
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 3), session=(0, 0)))
    session, _ = session_of(pipe)
    fake.partition.error = NotLeaderOrFollower()
    for waiter in tuple(fake.partition.parked):
        waiter.wake(fake.partition)
    for epoch in (1, 2):
        pipe.send(fetch(epoch, session=(session, epoch)))
        assert session_of(pipe)[1][0].error_code == 6
    fake.partition.error = None
    pipe.send(fetch(3, session=(session, 3)))
    assert session_of(pipe)[1][0].error_code == 0


async def test_wrong_sessions_are_refused_as_a_whole() -> None:
    """KIP-227: unknown id, wrong epoch; KIP-516: another way to name topics."""
    pipe = FakePartitionServer(filled(0)).connect()
    pipe.send(fetch(1, (0, 0), session=(12345, 1)))
    assert pipe.answer(1, 12).error_code == 70
    pipe.send(fetch(2, (0, 0), session=(0, 0)))
    session, _ = session_of(pipe)
    pipe.send(fetch(3, session=(session, 7)))
    assert pipe.answer(1, 12).error_code == 71
    pipe.send(fetch(4, session=(session, 1), version=13))
    assert pipe.answer(1, 13).error_code == 106


async def test_a_session_ends_by_epoch_minus_1_and_by_losing_all_its_partitions() -> None:
    """KIP-227: FINAL_EPOCH, and an empty session is no session."""
    fake = FakePartitionServer(filled(0))
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), session=(0, 0)))
    session, _ = session_of(pipe)
    pipe.send(fetch(2, (0, 0), session=(session, -1)))
    assert session_of(pipe)[0] == 0
    assert len(fake.server.sessions) == 0
    pipe.send(fetch(3, (0, 0), session=(0, 0)))
    session, _ = session_of(pipe)
    pipe.send(fetch(4, session=(session, 1), forget=[0]))
    assert session_of(pipe)[0] == 0
    assert len(fake.server.sessions) == 0
    assert not fake.partition.parked


async def test_a_client_that_comes_back_on_another_connection_goes_on_with_its_session() -> None:
    """The fetch it left behind gives way."""
    fake = FakePartitionServer(filled(0))
    old, new = fake.connect(), fake.connect()
    old.send(fetch(1, (0, 3), session=(0, 0)))
    session, _ = session_of(old)
    old.send(fetch(2, session=(session, 1), max_wait_ms=60_000))
    new.send(fetch(3, (0, 0), session=(session, 2)))
    assert len(session_of(new)[1][0].records) == 300
    assert old.answer(1, 12).responses == ()


async def test_an_unread_session_is_woken_once() -> None:
    """Sessions of clients that are gone do not burden producers."""
    fake = FakePartitionServer(FakePartition())
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), session=(0, 0)))
    assert fake.partition.parked
    producer.send(produce(1, (0, batch())))
    assert not fake.partition.parked


# -- replicas -----------------------------------------------------------------------------------------------------


def as_broker(pipe: FakeClient, broker_id: int = 2, broker_epoch: int = 12) -> FakeClient:
    pipe.connection.peer = ReplicaId(broker_id, broker_epoch)
    pipe.connection.is_follower = True
    return pipe


async def test_a_client_that_claims_a_replica_id_does_not_move_the_high_watermark() -> None:
    """Replica fetches are for connections that proved the cluster secret, under their own id."""
    fake = FakePartitionServer(filled(0))
    for pipe in (fake.connect(), as_broker(fake.connect(), 3), as_broker(fake.connect(), 2, 11)):
        pipe.send(fetch(1, (0, 0), version=15, replica=(2, 10), topic=TOPIC_ID))
        assert told(pipe, 15)[0].error_code == 29
    assert fake.partition.noted == []


async def test_a_broker_is_not_heard_as_a_follower_where_it_came_to_ask() -> None:
    """Such a connection may be older than that of its fetcher: its offsets would be of the past."""
    fake = FakePartitionServer(filled(0))
    pipe = as_broker(fake.connect())
    pipe.connection.is_follower = False
    pipe.send(fetch(1, (0, 0), version=15, replica=(2, 12), topic=TOPIC_ID))
    assert told(pipe, 15)[0].error_code == 29
    assert fake.partition.noted == []


@pytest.mark.parametrize("version", [11, 17])
async def test_a_replica_reads_to_the_log_end_and_its_offset_is_noted(version: int) -> None:
    """The replica id is a field of its own before version 15, and has an epoch from then on (KIP-903)."""
    fake = FakePartitionServer(filled(0))
    fake.partition.auto_commit = False
    fake.partition.append_produced(memoryview(batch(1, 39)), acks=1, now_ms=0)
    pipe = as_broker(fake.connect())
    topic = TOPIC_ID if version >= 13 else "words"
    pipe.send(fetch(1, (0, 3), version=version, replica=(2, 12), topic=topic))
    assert len(told(pipe, version)[0].records) == 100
    assert fake.partition.noted == [(3, ReplicaId(2, 12))]


async def test_a_waiting_replica_is_woken_by_the_log_end_once_for_all_partitions() -> None:
    """One follower wake-up per loop iteration, not per produced batch."""
    partitions = [FakePartition(index=each) for each in range(4)]
    for each in partitions:
        each.auto_commit = False
    fake = FakePartitionServer(*partitions)
    pipe, producer = as_broker(fake.connect()), fake.connect()
    wanted = [(each, 0) for each in range(4)]
    pipe.send(fetch(1, *wanted, session=(0, 0), version=17, replica=(2, 12), topic=TOPIC_ID))
    session = pipe.answer(1, 17).session_id
    wait = fetch(2, session=(session, 1), max_wait_ms=60_000, version=17, replica=(2, 12), topic=TOPIC_ID)
    pipe.send(wait)
    producer.send(*(produce(each, (each % 4, batch()), acks=0) for each in range(12)))
    await run_pending()
    answer = told(pipe, 17)
    assert {index: len(each.records) for index, each in answer.items()} == dict.fromkeys(range(4), 183)


async def test_a_replica_that_waits_says_once_what_it_has_flushed() -> None:
    """When new records wake the request, its repeated offset proves no further flush."""
    fake = FakePartitionServer(FakePartition())
    follower, producer = as_broker(fake.connect()), fake.connect()
    follower.send(fetch(1, (0, 0), max_wait_ms=60_000, version=17, replica=(2, 12), topic=TOPIC_ID))
    producer.send(produce(1, (0, batch()), acks=0))
    await run_pending()
    assert told(follower, 17)[0].records == batch()
    assert fake.partition.noted == [(0, ReplicaId(2, 12))]


async def test_a_position_that_a_leader_could_not_take_is_noted_once_it_can() -> None:
    """It may learn later than its follower that it leads; an idle partition is not named again."""
    fake = FakePartitionServer(FakePartition())
    follower = as_broker(fake.connect())
    session_fields: dict[str, Any] = {"version": 17, "replica": (2, 12), "topic": TOPIC_ID}
    fake.partition.error = UnknownLeaderEpoch()
    follower.send(fetch(1, (0, 0), session=(0, 0), **session_fields))
    answer = follower.answer(1, 17)
    assert [each.error_code for topic in answer.responses for each in topic.partitions] == [
        UnknownLeaderEpoch.code
    ]
    fake.partition.error = None
    follower.send(fetch(2, session=(answer.session_id, 1), **session_fields))
    assert fake.partition.noted == [(0, ReplicaId(2, 12))]


@pytest.mark.parametrize("is_due", [True, False])
async def test_a_follower_hears_of_high_watermarks_with_an_answer_when_it_is_time(is_due: bool) -> None:
    """Without records to send, a high watermark does not end the wait, and goes along every HIGH_WATERMARKS_S."""
    fake = FakePartitionServer(FakePartition(index=0), FakePartition(index=1))
    one, two = fake.partitions
    one.auto_commit = two.auto_commit = False
    one.append_produced(memoryview(batch()), acks=1, now_ms=0)
    pipe = as_broker(fake.connect())
    session_fields: dict[str, Any] = {"version": 17, "replica": (2, 12), "topic": TOPIC_ID}
    pipe.send(fetch(1, (0, 1), (1, 0), session=(0, 0), **session_fields))
    session = pipe.answer(1, 17).session_id
    pipe.send(fetch(2, session=(session, 1), max_wait_ms=60_000, **session_fields))
    (kept,) = fake.server.sessions
    kept.high_watermarks_sent_at = fake.server.loop.time() - (HIGH_WATERMARKS_S if is_due else 0)
    one.high_watermark = 1
    for waiter in tuple(one.parked_replicas):
        waiter.high_watermark_moved(one)
    await run_pending()
    assert not pipe.transport.written[pipe._read :]
    two.append_produced(memoryview(batch()), acks=1, now_ms=0)
    await run_pending()
    found = told(pipe, 17)
    assert len(found[1].records) == 61
    assert set(found) == {0, 1} if is_due else {1}
    if is_due:
        assert (found[0].high_watermark, found[0].records or b"") == (1, b"")
    else:
        assert kept.by_partition[one] in kept.changed_high_watermarks


async def test_a_brokers_session_ends_with_its_connection_even_before_its_first_answer() -> None:
    """Such sessions are never evicted: a lost session would stay for ever."""
    cold = filled(0)
    cold.cold = True
    fake = FakePartitionServer(cold)
    pipe = as_broker(fake.connect())
    pipe.send(fetch(1, (0, 0), session=(0, 0), version=17, replica=(2, 12), topic=TOPIC_ID))
    pipe.connection.connection_lost(None)
    fake.offload.run()
    await run_pending()
    assert len(fake.server.sessions) == 0


async def test_sessions_of_a_broker_end_with_its_connection() -> None:
    """They need no slots, so they must be bounded by connections."""
    fake = FakePartitionServer(filled(0), max_incremental_fetch_session_cache_slots=0)
    client, pipe = fake.connect(), as_broker(fake.connect())
    client.send(fetch(1, (0, 0), session=(0, 0)))
    assert session_of(client)[0] == 0
    pipe.send(fetch(1, (0, 0), session=(0, 0), version=17, replica=(2, 12), topic=TOPIC_ID))
    assert pipe.answer(1, 17).session_id > 0
    assert len(fake.server.sessions) == 1
    pipe.connection.connection_lost(None)
    assert len(fake.server.sessions) == 0


async def test_a_fetch_that_waits_on_a_connection_given_up_reads_no_more() -> None:
    """Its position is stale: a newer connection silences this connection before the transport is gone."""
    fake, me = FakePartitionServer(FakePartition()), ReplicaId(2, 12)
    fake.partition.auto_commit = False
    older, newer, producer = as_broker(fake.connect()), fake.connect(), fake.connect()
    assert fake.server.take_peer(older.connection, me, HELLO)
    fields: dict[str, Any] = {"version": 17, "replica": me, "topic": TOPIC_ID}
    older.send(fetch(1, (0, 0), session=(0, 0), **fields))
    session = older.answer(1, 17).session_id
    older.send(fetch(2, session=(session, 1), max_wait_ms=60_000, **fields))
    before = len(fake.partition.noted)
    assert fake.server.take_peer(newer.connection, me, HELLO)
    producer.send(produce(1, (0, batch()), acks=0))
    await run_pending()
    assert len(fake.partition.noted) == before


async def test_a_fetch_of_nothing_is_answered_at_once() -> None:
    """There is no reason to wait."""
    pipe = FakePartitionServer().connect()
    make = request_builders(1, 12)
    pipe.send(request(1, 12, 1, make.FetchRequest(max_wait=60_000, min_bytes=1)))
    assert pipe.answer(1, 12).responses == ()


# -- what a client can make fail ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("length", [NAME_MAX_CHARS + 1, 32_767])
async def test_a_name_that_no_topic_can_have_is_refused_on_decoding(version: int, length: int) -> None:
    """A session would keep it, and the strings of the response's version cannot hold it."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    with capture_logs() as logs:
        pipe.send(fetch(1, (0, 0), version=version, topic="t" * length, session=(0, 0)))
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["request_malformed"]
    assert len(fake.server.sessions) == 0


@pytest.mark.parametrize("version", [4, 7, 11, 12])
async def test_the_longest_name_is_answered_in_every_version(version: int) -> None:
    """Strings of every version hold what the reader of requests lets through."""
    pipe = FakePartitionServer().connect()
    pipe.send(fetch(1, (0, 0), version=version, topic="x" * NAME_MAX_CHARS))
    assert told(pipe, version)[0].error_code == 3


async def test_a_session_does_not_change_between_names_and_ids() -> None:
    """FETCH_SESSION_TOPIC_ID_ERROR, as Apache Kafka answers; the session goes on in its own way."""
    pipe = FakePartitionServer(filled()).connect()
    pipe.send(fetch(1, (0, 0), session=(0, 0)))
    session_id, _ = session_of(pipe)
    pipe.send(fetch(2, session=(session_id, 1), version=13))
    assert pipe.answer(1, 13).error_code == 106
    pipe.send(fetch(3, session=(session_id, 1), version=11))
    assert pipe.answer(1, 11).error_code == 0


async def test_a_cold_read_whose_answer_fails_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client ended a node so: the callback of the read answered outside of any guard."""
    cold = filled()
    cold.cold = True
    fake = FakePartitionServer(cold)
    pipe, other = fake.connect(), fake.connect()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
    pipe.send(fetch(1, (0, 0)))
    monkeypatch.setattr(fetch_handler, "encode_session", lambda *_, **__: 1 / 0)
    with capture_logs() as logs:
        fake.offload.run()
        await run_pending()
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["request_crashed"]
    assert failures == []
    assert not other.transport.closed
    assert fake.server.memory.answers.used == 0


async def test_a_fetch_that_fails_as_it_begins_to_wait_leaves_nothing_parked() -> None:
    """A session without a connection would be woken for ever."""
    fake = FakePartitionServer(FakePartition(), FakePartition(index=1))
    second = fake.partitions[1]
    second.park = lambda _waiter: 1 / 0  # type: ignore[assignment,method-assign]
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), (1, 0), max_wait_ms=60_000))
    assert pipe.transport.closed
    assert not fake.partition.parked
    assert len(fake.server.deadlines) == 0


async def test_a_session_that_fails_as_it_is_woken_costs_its_own_fetch_not_the_producer() -> None:
    """A partition wakes it during another client's append."""
    fake = FakePartitionServer(FakePartition(), FakePartition(index=1))
    consumer, producer = fake.connect(), fake.connect()
    consumer.send(fetch(1, (0, 0), (1, 0), max_wait_ms=60_000))
    (session,) = fake.partition.parked
    session.ready = None  # an invariant of ours is broken
    fake.partition.auto_commit = False
    with capture_logs() as logs:
        for waiter in tuple(fake.partition.parked):
            waiter.wake(fake.partition)
    assert [(line["event"], line["what"]) for line in logs] == [("request_crashed", "fetch session: wake")]
    assert consumer.transport.closed
    assert not fake.partition.parked
    fake.partition.auto_commit = True
    producer.send(produce(1, (0, batch())))
    assert producer.correlation_ids() == [1]


async def test_a_fetch_whose_successor_came_elsewhere_fails_alone() -> None:
    """The client came back on another connection, and answering the first one fails."""
    fake = FakePartitionServer(FakePartition())
    first, second = fake.connect(), fake.connect()
    first.send(fetch(1, (0, 0), session=(0, 0)))
    session_id, _ = session_of(first)
    first.send(fetch(2, session=(session_id, 1), max_wait_ms=60_000))
    first.transport.write = lambda _data: 1 / 0  # type: ignore[method-assign,assignment]
    first.transport.writelines = lambda _data: 1 / 0  # type: ignore[method-assign,assignment]
    second.send(fetch(3, session=(session_id, 2)))
    assert first.transport.closed
    assert second.correlation_ids() == [3]


# -- memory -------------------------------------------------------------------------------------------------------

MIB = 1 << 20


async def test_one_answer_takes_a_part_of_what_is_left_for_answers() -> None:
    """Many clients together cannot fill the memory by asking for much at once; each gets a batch at least."""
    fake = FakePartitionServer(filled(batches=100, size=99_939), raftlog_answers_max_bytes=20 * MIB)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_bytes=1 << 30, partition_max_bytes=1 << 30))
    assert len(told(pipe)[0].records) == 20 * MIB // 4 // 100_000 * 100_000
    fake.server.memory.answers.acquire(10 * MIB)
    pipe.send(fetch(2, (0, 0), max_bytes=1 << 30, partition_max_bytes=1 << 30))
    assert len(told(pipe)[0].records) == 10 * MIB // 4 // 100_000 * 100_000


@pytest.mark.parametrize("min_bytes", [1, 2])
async def test_low_response_memory_delays_large_fetches_and_serves_small_ones(
    min_bytes: int,
) -> None:
    """Small consumers go on as before; large fetches wait for room, or get an empty response at the end."""
    small, large = filled(0), filled(1, size=200_000)
    fake = FakePartitionServer(small, large, raftlog_answers_max_bytes=MIB)
    answers = fake.server.memory.answers
    answers.acquire(800_000)
    first, second, third = (fake.connect() for _ in range(3))
    first.send(fetch(1, (0, 0)))
    assert len(told(first)[0].records) == 300
    for pipe in (second, third):
        pipe.send(fetch(1, (1, 0), max_wait_ms=60_000, min_bytes=min_bytes))
        assert not pipe.transport.written
    third.connection.responses.slots[0].expired()  # type: ignore[attr-defined]
    assert (told(third)[1].records or b"") == b""
    answers.release(800_000)
    await run_pending()
    assert len(told(second)[1].records) > 200_000


async def test_brokers_fetch_whatever_clients_have_left_of_the_memory() -> None:
    """Else consumers that do not read would stop acks=all."""
    fake = FakePartitionServer(filled(0, size=200_000), raftlog_answers_max_bytes=MIB)
    fake.server.memory.answers.acquire(2 * MIB)
    follower, client = as_broker(fake.connect()), fake.connect()
    follower.send(fetch(1, (0, 0), version=17, replica=(2, 12), topic=TOPIC_ID))
    assert len(told(follower, 17)[0].records) > 200_000
    client.send(fetch(1, (0, 0)))
    assert client.correlation_ids() == []


async def test_a_cold_read_is_counted_while_it_is_under_way_even_if_its_client_has_gone() -> None:
    """Asking and leaving, again and again, must not fill the memory with what threads still read."""
    cold = filled()
    cold.cold = True
    fake = FakePartitionServer(cold)
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_bytes=MIB, partition_max_bytes=MIB))
    assert fake.server.memory.answers.used == MIB
    pipe.connection.connection_lost(None)
    assert fake.server.memory.answers.used == MIB
    fake.offload.run()
    await run_pending()
    assert fake.server.memory.answers.used == 0


async def test_a_fetch_without_a_session_waits_only_in_memory_that_there_is() -> None:
    """Its request is kept meanwhile, and counted; without room it is answered at once."""
    fake = FakePartitionServer(
        FakePartition(), FakePartition(index=1), queued_max_request_bytes=2 * ENTRY_BYTES
    )
    requests = fake.server.memory.requests
    first, second = fake.connect(), fake.connect()
    for pipe in (first, second):
        pipe.send(fetch(1, (0, 0), (1, 0), max_wait_ms=60_000))
    assert not first.transport.written
    assert requests.used == 2 * ENTRY_BYTES
    assert second.correlation_ids() == [1]
    first.connection.responses.slots[0].expired()  # type: ignore[attr-defined]
    assert (first.correlation_ids(), requests.used) == ([1], 0)


@pytest.mark.parametrize("ending", ["answered", "refused", "left"])
async def test_the_partitions_of_a_large_fetch_are_counted_while_it_takes_its_turns(ending: str) -> None:
    """No session counts them yet; after the fetch the count is zero, however it ended."""
    fake = FakePartitionServer(filled())
    pipe = fake.connect()
    session = (77, 5) if ending == "refused" else (0, -1)
    pipe.send(fetch(1, *[(index, 0) for index in range(1_500)], max_wait_ms=0, session=session))
    requests = fake.server.memory.requests
    assert requests.used >= 1_500 * ENTRY_BYTES
    if ending == "left":
        pipe.connection.abort()
        pipe.connection.connection_lost(None)
    while fake.server.tasks:
        await asyncio.sleep(0)
    assert requests.used == 0
    assert len(pipe.frames()) == (ending != "left")


# -- very many partitions ------------------------------------------------------------------------------------------

MANY = 1_200


async def fetch_of_many(**more: Any) -> tuple[FakePartitionServer, FakeClient, FakeClient]:
    """A fetch of more partitions than one slice, after its first slice."""
    fake = FakePartitionServer(*(FakePartition(index=each) for each in range(MANY)))
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, *((each, 0) for each in range(MANY)), max_wait_ms=60_000, **more))
    while not fake.partition.reads:
        await asyncio.sleep(0)
    assert not fake.partitions[-1].reads
    return fake, pipe, producer


async def ended(fake: FakePartitionServer) -> None:
    """Wait until all slices have had their turn."""
    while fake.server.tasks:
        await asyncio.sleep(0)
    await run_pending()


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_records_that_come_between_two_slices_are_read_by_the_same_fetch(
    session: tuple[int, int],
) -> None:
    """Their partition was read already, and its wake comes while the fetch does not wait yet."""
    fake, pipe, producer = await fetch_of_many(session=session)
    producer.send(produce(1, (0, batch())))
    await ended(fake)
    assert len(session_of(pipe)[1][0].records) == 61


async def test_a_request_behind_slices_ends_the_fetch_with_what_they_find() -> None:
    """The client does not wait any longer, and responses keep their order."""
    fake, pipe, _ = await fetch_of_many()
    pipe.send(fetch(2, (0, 0)))
    await ended(fake)
    first, _second = frames = pipe.frames()
    assert [int.from_bytes(each[:4], "big") for each in frames] == [1, 2]
    assert len(first) > 10 * MANY


async def test_a_deadline_during_later_slices_ends_the_fetch_with_what_they_find() -> None:
    """Its partitions woke it, but with less than min.bytes, and the time is up before the last slice."""
    fake, pipe, _ = await fetch_of_many(min_bytes=1 << 19)
    await ended(fake)
    assert len(fake.server.deadlines) == 1
    for partition in fake.partitions:
        partition.append_produced(memoryview(batch()), acks=1, now_ms=0)
        partition.role = "leader in epoch 1"  # so that its size does not matter
    await run_pending()
    pipe.connection.responses.slots[0].expired()  # type: ignore[attr-defined]
    await ended(fake)
    assert len(told(pipe)) == MANY
    assert len(fake.server.deadlines) == 0
