"""raftlog.broker.network.connection and dispatch: framing in place, order, limits, and what closes a connection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, MutableMapping, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from raftlog.base.errors import CoordinatorNotAvailable, NotLeaderOrFollower
from raftlog.base.log import LIMITED_LINES
from raftlog.base.turns import SERVES_A_BROKER
from raftlog.broker.links.peer_auth import API_KEY
from raftlog.broker.long_work.arrivals import FREE_READS, HANDLED_AT_ONCE, TURN_S, Arrivals
from raftlog.broker.long_work.turns import BYTES_AT_ONCE
from raftlog.broker.network.connection import Connection
from raftlog.broker.network.outbox import PIECE_BYTES
from raftlog.broker.network.request_memory import LARGE_BYTES
from raftlog.broker.network.responses import ANSWERS_HIGH_BYTES, MAX_OPEN_SLOTS, Slot
from raftlog.protocol.message_builders import request_builders, response_builders
from raftlog.replication.replica_host import ReplicaId
from tests.broker.fakes import (
    LISTENER,
    TOPIC,
    FakeClient,
    FakePartition,
    FakePartitionServer,
    FakeTransport,
    api_versions,
    batch,
    fetch,
    produce,
    request,
)
from tests.broker.rows import change_row
from tests.kit.examples import examples


async def test_responses_leave_in_request_order_however_commits_come() -> None:
    """A later response that is ready waits for earlier responses. Source: Kafka protocol guide, "Network"."""
    slow, quick = FakePartition(index=0), FakePartition(index=1)
    slow.auto_commit = False
    fake = FakePartitionServer(slow, quick)
    pipe = fake.connect()
    pipe.send(
        produce(1, (0, batch()), acks=-1),
        produce(2, (1, batch()), acks=-1),
        produce(3, (0, batch()), acks=-1),
        api_versions(4),
    )
    assert pipe.correlation_ids() == []
    assert slow.log_end_offset == 2, "later requests are appended while earlier ones wait"
    slow.commit(1)
    assert pipe.correlation_ids() == [1, 2]
    slow.commit(2)
    assert pipe.correlation_ids() == [3, 4]


def _requests() -> list[bytes]:
    return [
        api_versions(1),
        produce(2, (0, batch(1, 100)), (1, batch(2, 3000)), acks=-1),
        produce(3, (0, batch(3, 40_000)), acks=1, version=3),
        produce(4, (0, batch(1, 10)), acks=0),
        fetch(5, (0, 0), (1, 0), version=12),
        fetch(6, (0, 1), version=4, max_bytes=200),
        produce(7, (3, batch()), acks=1, version=8),
        api_versions(8, version=0),
    ]


def _answers(sizes: list[int]) -> bytes:
    async def run() -> bytes:
        fake = FakePartitionServer(FakePartition(index=0), FakePartition(index=1))
        pipe = fake.connect()
        pipe.feed(b"".join(_requests()), sizes)
        assert pipe.unread == b""
        return bytes(pipe.transport.written)

    return asyncio.run(run())


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.one_of(st.integers(1, 8), st.integers(1, 70_000)), max_size=60))
def test_any_fragmentation_of_a_request_stream_gives_the_same_responses(sizes: list[int]) -> None:
    """TCP keeps bytes, not their borders: what arrives in which pieces changes no answer."""
    assert _answers(sizes) == _answers([])


async def test_a_frame_larger_than_the_window_arrives_whole_and_its_memory_is_given_back() -> None:
    """The bytes that arrived of it are held, and none once it is handled: an idle connection has no buffer of its
    own.
    """
    fake = FakePartitionServer()
    pipe = fake.connect()
    data = batch(1, 3_000_000)
    frame = produce(1, (0, data))
    pipe.feed(frame[:1_000_000])
    assert fake.server.memory.requests.used == 1_000_000
    pipe.feed(frame[1_000_000:])
    assert fake.partition.batches[0][2] == data
    assert pipe.correlation_ids() == [1]
    assert (fake.server.memory.requests.used, pipe.connection.inbox.rest) == (0, None)
    pipe.send(produce(2, (0, data)))
    assert pipe.correlation_ids() == [2]


async def test_an_announced_length_alone_takes_no_memory() -> None:
    """A tiny frame that claims 100 MB must not allocate them (CVE-2022-34917's class)."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.feed((100_000_000).to_bytes(4, "big") + b"\0" * 1000)
    assert fake.server.memory.requests.used == 1004
    assert not pipe.transport.closed


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        ((-5).to_bytes(4, "big", signed=True), "not positive"),
        (b"\0\0\0\0", "not positive"),
        ((200).to_bytes(4, "big"), "socket.request.max.bytes"),
    ],
)
async def test_what_cannot_be_a_frame_is_said_once_and_closes(start: bytes, reason: str) -> None:
    """Framing is lost: one log line with a reason, then the connection closes. Source: the "Bad input" rules."""
    fake = FakePartitionServer(socket_request_max_bytes=100)
    pipe = fake.connect()
    with capture_logs() as logs:
        pipe.feed(start)
        pipe.feed(start)
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["framing_lost"]
    assert reason in logs[0]["reason"]
    assert fake.server.counters.closed_by_broker == {"framing_lost": 1}


def malformed(logs: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Return these lines of a log, to which a slow machine adds how long a turn of the loop took."""
    return [line for line in logs if line["event"] == "request_malformed"]


@pytest.mark.parametrize(
    "body",
    [
        b"\0",
        b"\0\0\0\x09\0\0",
        b"\0\x00\0\x09\0\0\0\x01\xff\xff\x00",
        b"\0\x03\0\x09\0\0\0\x01\0\x05ab",
    ],
)
async def test_a_malformed_request_closes_the_connection(body: bytes) -> None:
    """A frame with an invalid body gets no guess for a response."""
    pipe = FakePartitionServer().connect()
    with capture_logs() as logs:
        pipe.feed(len(body).to_bytes(4, "big") + body)
    assert pipe.transport.closed
    assert len(malformed(logs)) == 1
    assert pipe.transport.written == b""


async def test_requests_before_a_malformed_one_are_answered() -> None:
    """Closing loses no response that was sent already."""
    pipe = FakePartitionServer().connect()
    pipe.send(api_versions(1), b"\0\0\0\x01\0")
    assert pipe.correlation_ids() == [1]
    assert pipe.transport.closed


async def test_an_unknown_api_closes_and_a_known_one_that_is_not_built_is_refused() -> None:
    """The schema decides which of the two a key is. Source: the project's "Wire" rules."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    make = request_builders(54, 0)
    pipe.send(request(54, 0, 1, make.EndQuorumEpochRequest(cluster_id=None, topics=())))
    for _ in range(5):
        await asyncio.sleep(0)
    assert pipe.answer(54, 0).error_code == 35
    assert not pipe.transport.closed
    with capture_logs() as logs:
        pipe.send(b"\0\0\0\x0a\x12\x34\0\0\0\0\0\x01\xff\xff")
    assert pipe.transport.closed
    assert logs[0]["event"] == "unknown_api_requested"
    assert logs[0]["api_key"] == 0x1234


async def test_an_unknown_version_of_api_versions_gets_version_0_with_the_known_ones() -> None:
    """KIP-511: so that a newer client learns which version to ask in. Kafka lists this API alone."""
    pipe = FakePartitionServer().connect()
    pipe.feed(b"\0\0\0\x0b\0\x12\0\x63\0\0\0\x07\xff\xff\0")
    answer = pipe.answer(18, 0)
    assert answer.error_code == 35
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert ranges == {18: (0, 5)}


async def test_a_full_row_of_slots_stops_reading_until_one_is_answered() -> None:
    """Backpressure: neither requests nor bytes pile up behind a partition that does not commit."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe = fake.connect()
    frames = [produce(each, (0, batch()), acks=-1) for each in range(2 * MAX_OPEN_SLOTS)]
    for frame in frames:
        pipe.send(frame)
    assert fake.partition.log_end_offset == MAX_OPEN_SLOTS
    assert not pipe.transport.reading
    fake.partition.commit(10)
    assert pipe.correlation_ids() == list(range(10))
    await _until(lambda: pipe.transport.reading)
    assert fake.partition.log_end_offset == MAX_OPEN_SLOTS + 1, "the one that was in the buffer"


async def test_a_client_that_does_not_read_is_not_served_further() -> None:
    """Bytes that the kernel does not take are bounded: requests wait, and are not read, until it takes them."""
    fake = FakePartitionServer()
    fake.partition.append_produced(memoryview(batch(1, 2 * ANSWERS_HIGH_BYTES)), acks=1, now_ms=0)
    pipe = fake.connect()
    pipe.transport.room = 1000
    whole = fetch(1, (0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24)
    pipe.send(whole)
    pipe.send(fetch(2, (0, 1)))
    assert not pipe.transport.reading
    assert (
        fake.server.memory.answers.used == pipe.connection.responses.outbox.waiting_bytes > ANSWERS_HIGH_BYTES
    )
    pipe.transport.drain()
    await _until(lambda: pipe.transport.reading)
    assert pipe.correlation_ids() == [1, 2]
    assert fake.server.memory.answers.used == 0


@pytest.mark.parametrize("overlaps", [False, True], ids=["as served", "as for brokers"])
async def test_only_produce_requests_overlap(monkeypatch: pytest.MonkeyPatch, overlaps: bool) -> None:
    """Any other open request holds back what is behind it, as Kafka does, so a reader sees what it wrote before."""
    change_row(monkeypatch, 22, overlaps=overlaps)
    fake = FakePartitionServer()
    pipe = fake.connect()
    make = request_builders(22, 4)
    pipe.send(request(22, 4, 1, make.InitProducerIdRequest(transactional_id=None)), produce(2, (0, batch())))
    assert fake.partition.log_end_offset == 0
    await _until(lambda: fake.partition.log_end_offset == 1)
    assert pipe.correlation_ids() == [1, 2]


async def test_a_request_behind_a_waiting_fetch_ends_its_wait() -> None:
    """A long poll does not hold up what the client asks next on the same connection."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    assert pipe.correlation_ids() == []
    pipe.send(api_versions(2))
    assert pipe.correlation_ids() == [1, 2]
    assert not fake.partition.parked


async def test_a_lost_connection_leaves_nothing_behind() -> None:
    """No waiter, deadline or session entry outlives its client."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe, other = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    other.send(produce(1, (0, batch()), acks=-1))
    assert len(fake.server.deadlines) == 2
    pipe.connection.connection_lost(None)
    other.connection.connection_lost(None)
    assert len(fake.server.deadlines) == 0
    assert not fake.partition.parked
    assert not fake.server.connections
    fake.partition.commit()
    assert other.correlation_ids() == []


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    """connections.max.idle.ms counts silence, not waiting for our answer."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    idle, waiting = fake.connect(), fake.connect()
    waiting.send(produce(1, (0, batch()), acks=-1))
    for _ in range(4):
        idle.connection.sweep(max_quiet_sweeps=3)
        waiting.connection.sweep(max_quiet_sweeps=3)
    assert idle.transport.closed
    assert not waiting.transport.closed
    assert fake.server.counters.idle_closed == 1


async def test_a_connection_that_sends_something_now_and_then_is_not_idle() -> None:
    """Any bytes count, and not only at the time of a sweep."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    for number in range(8):
        if number % 2:
            pipe.send(produce(number, (0, batch())))
        pipe.connection.sweep(max_quiet_sweeps=2)
    assert not pipe.transport.closed


async def test_a_slot_that_is_answered_while_frames_are_handled_leaves_with_the_other_responses() -> None:
    """One write for a read of the socket, however the responses became ready."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=-1))
    handle, writes = pipe.connection.dispatch, list[bytes]()
    pipe.transport.writelines = lambda buffers: writes.append(b"".join(buffers))  # type: ignore[assignment]

    def commit_then_handle(connection: Connection, frame: memoryview) -> None:
        fake.partition.commit()
        handle(connection, frame)

    pipe.connection.dispatch = commit_then_handle
    pipe.send(produce(2, (0, batch()), acks=1))
    (written,) = writes
    assert written.count(TOPIC.encode()) == 2


@pytest.mark.parametrize("answers_all", [True, False])
async def test_a_connection_that_finishes_waits_for_a_fetch_only_if_it_is_to_answer_all(
    answers_all: bool,
) -> None:
    """A fetch may wait long; a client that is to look for another broker still gets its response."""
    fake = FakePartitionServer()
    pipe, producer = fake.connect(), fake.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    pipe.connection.finish(answers_all=answers_all)
    assert pipe.transport.closed is not answers_all
    producer.send(produce(1, (0, batch())))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert pipe.transport.closed
    if answers_all:
        assert pipe.correlation_ids() == [1]


async def test_a_crash_in_a_handler_closes_the_connection_with_its_traceback(monkeypatch: Any) -> None:
    """The fault is ours: it is logged whole, and other connections are not affected."""
    fake = FakePartitionServer()
    pipe, other = fake.connect(), fake.connect()
    monkeypatch.setattr(fake.partition, "append_produced", lambda *_, **__: 1 / 0)
    with capture_logs() as logs:
        pipe.send(produce(1, (0, batch())))
    assert pipe.transport.closed
    assert logs[0]["event"] == "request_crashed"
    assert logs[0]["exc_info"]
    other.send(api_versions(1))
    assert other.correlation_ids() == [1]


def list_groups(correlation_id: int) -> bytes:
    return request(16, 0, correlation_id, request_builders(16, 0).ListGroupsRequest())


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListGroups answers with twenty thousand."""
    make = response_builders(16, 0)
    groups = tuple(make.ListedGroup(group_id=f"group-{each}", protocol_type="") for each in range(20_000))

    async def handle(*_: Any) -> Any:
        return make.ListGroupsResponse(groups=groups)

    change_row(monkeypatch, 16, handle=handle)


async def test_a_large_answer_is_encoded_in_turns_and_keeps_its_place(many_groups: None) -> None:
    """A request behind it waits for it; others have the loop meanwhile."""
    pipe = FakePartitionServer().connect()
    pipe.send(list_groups(1), api_versions(2))
    turns = 0
    while not pipe.transport.written:
        turns += 1
        await asyncio.sleep(0)
    assert turns > len(pipe.transport.written) // BYTES_AT_ONCE > 5
    await _until(lambda: not pipe.connection.server.tasks)  # what was asked behind it goes on
    assert pipe.correlation_ids() == [1, 2]


async def test_a_connection_that_is_closed_while_its_answer_is_encoded_gets_none(many_groups: None) -> None:
    """No bytes are written behind the end."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(list_groups(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert fake.server.tasks, "it is being encoded"
    pipe.connection.close("no_longer_wanted")
    await _until(lambda: not fake.server.tasks)
    assert not pipe.transport.written


async def test_a_connection_that_finishes_answers_appended_batches_and_closes() -> None:
    """Controlled shutdown loses no acknowledgement."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe: FakeClient = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=-1))
    pipe.connection.finish()
    assert not pipe.transport.closed
    pipe.send(produce(2, (0, batch()), acks=-1))
    fake.partition.commit()
    assert pipe.correlation_ids() == [1]
    assert pipe.transport.closed
    assert fake.partition.log_end_offset == 1


async def _until(condition: Any) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


# -- guards -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def failures() -> list[Any]:
    """The exceptions that reached the loop's exception handler, which ends a node."""
    found: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: found.append(context))
    return found


def break_writing(pipe: FakeClient) -> None:
    """As uvloop does with a transport that it closed without a word."""

    def fail(_data: Any) -> None:
        raise RuntimeError("the handler is closed")

    pipe.transport.write = pipe.transport.writelines = fail  # type: ignore[method-assign]


async def test_an_answer_that_fails_inside_another_connections_request_costs_its_own_only() -> None:
    """A follower's fetch, or anybody's sync, commits what many producers wait for."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    failing, other = fake.connect(), fake.connect()
    for pipe in (failing, other):
        pipe.send(produce(1, (0, batch()), acks=-1))
    break_writing(failing)
    with capture_logs() as logs:
        fake.partition.commit()
    assert failing.transport.closed
    assert other.correlation_ids() == [1]
    assert [line["event"] for line in logs] == ["request_crashed"]


async def test_a_refusal_that_fails_inside_another_request_costs_its_own_only() -> None:
    """A leader that resigns notifies every waiter."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    failing, other = fake.connect(), fake.connect()
    for pipe in (failing, other):
        pipe.send(produce(1, (0, batch()), acks=-1))
    break_writing(failing)
    for _, waiter in tuple(fake.partition.waiters):
        waiter.failed(fake.partition, NotLeaderOrFollower())
    assert failing.transport.closed
    assert other.correlation_ids() == [1]


async def test_a_transport_that_fails_as_it_is_handed_over_costs_that_connection_only(
    failures: list[Any],
) -> None:
    """asyncio calls connection_made as a callback: what it raises would end the node."""
    fake = FakePartitionServer()
    connection = Connection(fake.server, LISTENER)
    transport = FakeTransport()
    transport.protocol = connection
    transport.get_extra_info = lambda *_: 1 / 0  # type: ignore[method-assign,assignment]
    asyncio.get_running_loop().call_soon(connection.connection_made, transport)
    await asyncio.sleep(0)
    assert transport.closed
    assert failures == []
    connection.connection_lost(None)
    assert not fake.server.connections
    assert fake.server.counters.open_connections == 0


class FailingSlot(Slot):
    """A slot that cannot even be abandoned."""

    def abandoned(self) -> None:
        raise ZeroDivisionError


async def test_a_slot_that_fails_as_its_connection_is_lost_keeps_no_other_waiting() -> None:
    """Each slot is notified, and the connection's memory is released."""
    fake = FakePartitionServer()
    fake.partition.auto_commit = False
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=-1), produce(2, (0, batch()), acks=-1))
    pipe.connection.responses.slots.insert(1, FailingSlot(pipe.connection))
    pipe.connection.connection_lost(None)
    assert not fake.server.connections
    assert len(fake.server.deadlines) == 0


async def test_what_fails_when_the_client_reads_again_costs_that_connection_only(failures: list[Any]) -> None:
    """resume_writing is a callback as well."""
    fake = FakePartitionServer()
    fake.partition.append_produced(memoryview(batch(1, 3 * ANSWERS_HIGH_BYTES)), acks=1, now_ms=0)
    pipe = fake.connect()
    pipe.transport.room = 1000
    pipe.send(fetch(1, (0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24))
    break_writing(pipe)
    pipe.connection.resume_writing()
    assert pipe.transport.closed
    assert fake.server.memory.answers.used == 0
    assert failures == []


async def test_a_task_that_fails_or_is_cancelled_ends_its_connection() -> None:
    """A slot that is never answered would hold up its client for ever."""
    fake = FakePartitionServer()

    async def fail() -> None:
        raise ZeroDivisionError

    async def cancelled() -> None:
        raise asyncio.CancelledError

    for work in (fail, cancelled):
        pipe = fake.connect()
        pipe.connection.spawn(work())
        await _until(lambda: not fake.server.tasks)
        assert pipe.transport.closed


async def test_an_unknown_api_leaves_no_mark() -> None:
    """A client could make a metric for each of 65,000 keys."""
    fake = FakePartitionServer()
    for key in range(1000, 1010):
        fake.connect().send(b"\0\0\0\x0a" + key.to_bytes(2, "big") + b"\0\0\0\0\0\x01\xff\xff")
    assert not fake.server.counters.requests
    assert fake.server.counters.closed_by_broker == {"unknown_api_requested": 10}


async def test_malformed_requests_at_will_are_a_few_lines() -> None:
    """Events that a client can cause are counted, and logged at a bounded rate."""
    fake = FakePartitionServer()
    with capture_logs() as logs:
        for _ in range(50):
            fake.connect().send(b"\0\0\0\x01\0")
    assert len(malformed(logs)) == LIMITED_LINES
    assert fake.server.counters.closed_by_broker == {"request_malformed": 50}


# -- memory -------------------------------------------------------------------------------------------------------

MIB = 1 << 20


async def test_answers_that_wait_for_one_before_them_hold_up_what_comes_by_their_bytes() -> None:
    """17 KB from one client pinned 6.8 GiB: a Produce that waits, then 127 Fetches that are answered at once."""
    stuck, full = FakePartition(index=0), FakePartition(index=1)
    stuck.auto_commit = False
    full.append_produced(memoryview(batch(1, 4 * MIB)), acks=1, now_ms=0)
    fake = FakePartitionServer(stuck, full)
    pipe = fake.connect()
    whole = [
        fetch(each, (1, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24)
        for each in range(2, MAX_OPEN_SLOTS)
    ]
    pipe.send(produce(1, (0, batch()), acks=-1), *whole)
    assert full.reads == 1
    assert 4 * MIB < fake.server.memory.answers.used < 5 * MIB
    assert not pipe.transport.reading
    stuck.commit()
    for _ in range(2 * MAX_OPEN_SLOTS):
        await asyncio.sleep(0)
    assert pipe.correlation_ids() == list(range(1, MAX_OPEN_SLOTS))
    assert fake.server.memory.answers.used == 0
    assert pipe.transport.reading


async def test_without_memory_for_answers_requests_wait_but_for_produce_and_brokers() -> None:
    """A single budget for all responses of a broker; waiting requests go on by themselves."""
    fake = FakePartitionServer(raftlog_answers_max_bytes=1000)
    answers = fake.server.memory.answers
    answers.acquire(1000)
    client, producer, broker = (fake.connect() for _ in range(3))
    broker.connection.peer = ReplicaId(2, 12)
    for pipe in (client, broker):
        pipe.send(api_versions(1))
    producer.send(produce(1, (0, batch())))
    assert [each.correlation_ids() for each in (client, producer, broker)] == [[], [1], [1]]
    assert not client.transport.reading
    answers.release(900)
    await _until(lambda: client.transport.reading)
    assert client.correlation_ids() == [1]


async def test_a_flood_of_small_requests_is_handled_in_turns() -> None:
    """Together all clients with more than a few requests at once have a slice of each turn of the loop."""
    fake = FakePartitionServer()
    pipes = [fake.connect() for _ in range(5)]
    each = 10 * HANDLED_AT_ONCE
    for pipe in pipes:
        pipe.send(b"".join(map(api_versions, range(each))))
        assert len(pipe.correlation_ids()) == HANDLED_AT_ONCE
    left = len(pipes) * (each - HANDLED_AT_ONCE)
    for _ in range(10 * left):
        await asyncio.sleep(0)
        answered = sum(len(pipe.correlation_ids()) for pipe in pipes)
        assert answered <= HANDLED_AT_ONCE
        left -= answered
    assert left == 0
    assert all(pipe.transport.reading for pipe in pipes)


async def test_what_many_clients_send_at_once_is_handled_in_several_turns_of_the_loop() -> None:
    """In the order in which it came; a hundred connections held the loop for half a second. Brokers do not wait."""
    fake, clock = FakePartitionServer(), count()
    fake.server.stopwatch = lambda: next(clock) * TURN_S / 10  # time passes while requests are handled
    fake.server.arrivals = Arrivals(fake.server.loop, fake.server.stopwatch, handshake_api_key=API_KEY)
    clients, broker = [fake.connect() for _ in range(100)], fake.connect()
    broker.connection.peer = ReplicaId(2, 12)
    for pipe in (*clients, broker):
        pipe.send(api_versions(1))
    assert broker.correlation_ids() == [1]
    stranger = fake.connect()
    stranger.send(b"\x00\x00\x00\x0a" + API_KEY.to_bytes(2, "big") + bytes(8))
    assert stranger.transport.closed, "what a broker proves itself with is looked at first"
    answered = [len(pipe.correlation_ids()) for pipe in clients]
    assert 0 < sum(answered) <= FREE_READS + 10
    for _ in range(100):
        assert answered == sorted(answered, reverse=True)
        before = sum(answered)
        await asyncio.sleep(0)
        answered = [each + len(pipe.correlation_ids()) for each, pipe in zip(answered, clients, strict=True)]
        assert sum(answered) - before <= FREE_READS + 10
    assert answered == [1] * 100


async def test_a_large_request_waits_for_memory_unless_others_wait_for_it() -> None:
    """Members of a group wait for each other: a hundred joins of 5 KB waited for the memory of the first joins."""

    class Groups:
        async def ask(self, *_: Any, **__: Any) -> Any:
            raise CoordinatorNotAvailable

    fake = FakePartitionServer()
    fake.broker.groups = Groups()  # type: ignore[assignment]
    objects = fake.server.memory.objects
    objects.acquire(objects.limit)
    asks, joins = fake.connect(), fake.connect()
    names = request_builders(3, 12)
    topics = tuple(
        names.MetadataRequestTopic(topic_id=None, name=f"{'x' * 200}{number}") for number in range(400)
    )
    asks.send(request(3, 12, 1, names.MetadataRequest(topics=topics)))
    make = request_builders(11, 9)
    protocol = make.JoinGroupRequestProtocol(name="range", metadata=bytes(5_000))
    joins.send(
        request(
            11,
            9,
            1,
            make.JoinGroupRequest(
                group_id="",
                session_timeout=1000,
                member_id="",
                protocol_type="consumer",
                protocols=(protocol,),
            ),
        )
    )
    for _ in range(50):
        await asyncio.sleep(0)
    assert (asks.correlation_ids(), joins.correlation_ids()) == ([], [1])


def _join_of_many_protocols() -> tuple[bytes, type]:
    make = request_builders(11, 9)
    protocols = tuple(
        make.JoinGroupRequestProtocol(name=f"{number:030}", metadata=bytes(30)) for number in range(500)
    )
    message = make.JoinGroupRequest(
        group_id="g", session_timeout=1000, member_id="", protocol_type="consumer", protocols=protocols
    )
    return request(11, 9, 1, message), type(protocols[0])


def _sync_of_many_members() -> tuple[bytes, type]:
    return _sync_of(20_000)


def _sync_of_few_members() -> tuple[bytes, type]:
    return _sync_of(77)


def _sync_of(members: int) -> tuple[bytes, type]:
    make = request_builders(14, 5)
    assignments = tuple(
        make.SyncGroupRequestAssignment(member_id=f"{number:030}", assignment=b"")
        for number in range(members)
    )
    message = make.SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )
    return request(14, 5, 1, message), type(assignments[0])


@pytest.mark.parametrize("make", [_join_of_many_protocols, _sync_of_many_members, _sync_of_few_members])
@pytest.mark.parametrize("is_first", [False, True], ids=["known version", "first of its version"])
async def test_a_request_that_waits_for_other_members_is_not_kept(
    make: Callable[[], tuple[bytes, type]], is_first: bool
) -> None:
    """Hundreds of members that each name twenty thousand others, and wait for their leader, took gigabytes."""

    class Groups:
        def ask(self, *_: Any, **__: Any) -> asyncio.Future[Any]:
            asked.set()
            return waiting

    asked, waiting = asyncio.Event(), asyncio.get_running_loop().create_future()
    fake = FakePartitionServer()
    fake.broker.groups = Groups()  # type: ignore[assignment]
    if is_first:
        fake.server.schemas_loaded.clear()
    pipe = fake.connect()
    frame, kind = make()
    pipe.send(frame)
    async with asyncio.timeout(10):
        await asked.wait()
    await asyncio.sleep(0)
    assert not any(isinstance(each, kind) for each in gc.get_objects())
    assert len(frame) - 4 not in [len(each) for each in gc.get_objects() if isinstance(each, memoryview)]
    assert fake.server.memory.requests.used == 0
    waiting.set_exception(CoordinatorNotAvailable())
    for _ in range(10):
        await asyncio.sleep(0)
    assert pipe.correlation_ids() == [1]
    assert fake.server.memory.requests.used == 0


async def test_a_large_request_of_a_connection_that_has_gone_is_not_decoded() -> None:
    """It had its turn all the same, with the memory that it takes."""
    fake = FakePartitionServer()
    objects = fake.server.memory.objects
    objects.acquire(objects.limit)
    pipe = fake.connect()
    names = request_builders(3, 12)
    topics = tuple(names.MetadataRequestTopic(topic_id=None, name=f"{number:030}") for number in range(5_000))
    pipe.send(request(3, 12, 1, names.MetadataRequest(topics=topics)))
    await asyncio.sleep(0)
    pipe.connection.connection_lost(None)
    assert fake.server.memory.requests.used > 8_000
    objects.release(objects.limit)
    async with fake.server.objects.room(4 << 20):
        pass
    for _ in range(3):  # decoding alone would take a turn more
        await asyncio.sleep(0)
    assert (fake.server.memory.requests.used, objects.used) == (0, 0)


async def test_long_work_for_a_broker_is_known_whoever_began_it() -> None:
    """A broker's fetch wakes the fetches of clients, which must not pass for replication."""
    fake, seen = FakePartitionServer(), list[bool]()
    broker, client = fake.connect().connection, fake.connect().connection
    broker.peer = ReplicaId(2, 12)

    async def note() -> None:
        seen.append(SERVES_A_BROKER.get())

    async def wake() -> None:
        await note()
        client.spawn(note())

    broker.spawn(wake())
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == [True, False]


async def test_first_requests_of_a_version_are_handled_one_per_turn() -> None:
    """Loading their decoders takes milliseconds each: all versions at once held the loop for a second."""
    fake = FakePartitionServer()
    fake.server.schemas_loaded.clear()
    pipes = [fake.connect() for _ in range(5)]
    for pipe in pipes:
        pipe.send(api_versions(1))
    left = len(pipes)
    for _ in range(10 * left):
        answered = sum(len(pipe.correlation_ids()) for pipe in pipes)
        assert answered <= 1
        left -= answered
        await asyncio.sleep(0)
    assert left == 0
    pipes[0].send(api_versions(2))
    assert pipes[0].correlation_ids() == [2]


async def test_a_connection_that_goes_while_it_waits_for_memory_is_not_notified() -> None:
    """Its memory is no longer counted."""
    fake = FakePartitionServer(raftlog_answers_max_bytes=1000)
    fake.server.memory.answers.acquire(1000)
    pipe = fake.connect()
    pipe.send(api_versions(1))
    assert fake.server.memory.requests.used == len(api_versions(1))
    pipe.connection.connection_lost(None)
    assert fake.server.memory.requests.used == 0
    fake.server.memory.answers.release(1000)
    await asyncio.sleep(0)
    assert pipe.correlation_ids() == []


async def test_half_frames_of_many_connections_stop_being_read_and_all_come_through() -> None:
    """queued.max.request.bytes: the frame that lacks least is read first, and in the end every client is served."""
    fake = FakePartitionServer(queued_max_request_bytes=MIB)
    frames = [produce(1, (0, batch(1, size))) for size in (900_000, 2_000_000, 600_000, 400_000)]
    pipes = [fake.connect() for _ in frames]
    for pipe, frame in zip(pipes, frames, strict=True):
        pipe.feed(frame[:-350_000])
    unread = [frame[-350_000:] for frame in frames]
    assert fake.server.memory.requests.used <= 2_500_000
    assert fake.server.requests.waiting
    left = dict(
        zip(pipes, [pipe.unread + rest for pipe, rest in zip(pipes, unread, strict=True)], strict=True)
    )
    while left:
        pipe = next(each for each in left if each.transport.reading)
        pipe.feed(left[pipe])
        left[pipe] = pipe.unread
        if not left[pipe]:
            assert pipe.correlation_ids() == [1]
            del left[pipe]
    assert fake.server.memory.requests.used == 0
    assert fake.partition.log_end_offset == len(frames)


async def test_small_requests_are_served_while_the_memory_for_requests_is_used_up() -> None:
    """Bystanders of an attack with half frames."""
    fake = FakePartitionServer(queued_max_request_bytes=MIB)
    fake.server.requests.acquire(2 * MIB)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch(1, 1000))), api_versions(2))
    assert pipe.correlation_ids() == [1, 2]


async def test_a_request_in_a_task_is_counted_until_the_task_ends(many_groups: None) -> None:
    """Its client may be gone, and have come back with the next request."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(list_groups(1))
    await asyncio.sleep(0)
    assert fake.server.memory.requests.used == len(list_groups(1)) - 4
    pipe.connection.connection_lost(None)
    assert fake.server.memory.requests.used > 0
    await _until(lambda: not fake.server.tasks)
    assert (fake.server.memory.requests.used, fake.server.memory.answers.used) == (0, 0)


async def test_a_large_answer_is_counted_while_it_is_encoded(many_groups: None) -> None:
    """Many of them at a time are made piece by piece beside each other."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.send(list_groups(1))
    while not pipe.transport.written:
        await asyncio.sleep(0)
    assert fake.server.memory.answers.most > len(pipe.transport.written) // 2
    await _until(lambda: not fake.server.tasks)
    assert fake.server.memory.answers.used == 0


async def test_a_frame_that_a_task_still_needs_is_not_overwritten() -> None:
    """All connections receive into one window: what outlives its call is copied, or has a buffer of its own."""
    fake = FakePartitionServer()
    pipe, other = fake.connect(), fake.connect()
    kept: list[memoryview] = []
    pipe.connection.dispatch = lambda connection, frame: kept.append(connection.keep_bytes(frame))
    small, large = bytes([7]) * 1000, bytes([9]) * 600_000
    for body in (small, large):
        pipe.feed(len(body).to_bytes(4, "big") + body)
    other.send(*[produce(each, (0, batch(1, 250_000))) for each in range(3)])
    assert [bytes(each) for each in kept] == [small, large]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_large_frame_that_a_task_still_needs_is_not_overwritten(is_closed: bool) -> None:
    """Its mapping serves the next large frame only without references to it, whether or not its connection has gone."""
    fake = FakePartitionServer()
    pipe, other = fake.connect(), fake.connect()
    kept: list[memoryview] = []

    def dispatch(connection: Connection, frame: memoryview) -> None:
        if is_closed:
            connection.abort()
        kept.append(connection.keep_bytes(frame))

    pipe.connection.dispatch = other.connection.dispatch = dispatch
    body = 4 * LARGE_BYTES
    for number, each in enumerate((pipe, other)):
        each.feed(body.to_bytes(4, "big") + bytes([number]) * body, [LARGE_BYTES + 4])
    assert [bytes(frame) for frame in kept] == [bytes([0]) * body, bytes([1]) * body]


async def test_a_large_answer_is_given_to_the_transport_piece_by_piece() -> None:
    """Some join and copy what they are given, which would double its memory."""
    fake = FakePartitionServer()
    fake.partition.append_produced(memoryview(batch(1, 3 * MIB)), acks=1, now_ms=0)
    pipe = fake.connect()
    pipe.transport.room = MIB
    pipe.send(fetch(1, (0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24))
    assert 0 < len(pipe.transport.unsent) <= PIECE_BYTES
    while pipe.transport.unsent:
        before = fake.server.memory.answers.used
        pipe.transport.drain(PIECE_BYTES)
        assert fake.server.memory.answers.used < before
    assert pipe.correlation_ids() == [1]


async def test_an_answer_after_the_abort_gives_no_memory_back_twice() -> None:
    """The abort released the bytes that waited behind it; the transport reports its end only later."""
    slow = FakePartition()
    slow.auto_commit = False
    fake = FakePartitionServer(slow)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch()), acks=-1), api_versions(2))
    answers = fake.server.memory.answers
    assert answers.used > 0
    pipe.connection.abort()
    assert answers.used == 0
    slow.commit(1)
    assert answers.used == 0
    assert fake.server.counters.closed_by_broker["request_crashed"] == 0


async def test_requests_of_brokers_wait_for_no_long_work_of_clients() -> None:
    """A follower's second fetch stood behind a slice of each large request, and acks=all with it."""
    fake = FakePartitionServer()
    pipe = fake.connect()
    pipe.connection.peer = ReplicaId(2, 12)
    others = [asyncio.ensure_future(fake.broker.env.turns.next()) for _ in range(100)]
    await asyncio.sleep(0)
    pipe.send(*map(api_versions, range(HANDLED_AT_ONCE + 1)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert pipe.correlation_ids() == list(range(HANDLED_AT_ONCE + 1))
    assert not all(other.done() for other in others)
    await asyncio.gather(*others)
