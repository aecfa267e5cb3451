"""raftlog.broker.connection and dispatch: framing in place, order, limits, and what closes a connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from raftlog.broker.connection import MAX_OPEN_SLOTS, RECEIVE_MIN_BYTES, RECEIVE_USUAL_BYTES
from raftlog.broker.handlers import list_groups as list_groups_handler
from raftlog.broker.turns import BYTES_AT_ONCE
from raftlog.protocol.shapes import request_shapes, response_shapes
from tests.broker.fakes import FakePartition, Pipe, World, batch, fetch, produce, request
from tests.kit.examples import examples


def api_versions(correlation_id: int, version: int = 3) -> bytes:
    make = request_shapes(18, version)
    message = make.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return request(18, version, correlation_id, message)


async def test_responses_leave_in_request_order_however_commits_come() -> None:
    """A later request that is ready waits for the earlier ones. Source: Kafka protocol guide, "Network"."""
    slow, quick = FakePartition(index=0), FakePartition(index=1)
    slow.auto_commit = False
    world = World(slow, quick)
    pipe = world.connect()
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
        world = World(FakePartition(index=0), FakePartition(index=1))
        pipe = world.connect()
        pipe.feed(b"".join(_requests()), sizes)
        assert pipe.unread == b""
        return bytes(pipe.transport.written)

    return asyncio.run(run())


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.one_of(st.integers(1, 8), st.integers(1, 70_000)), max_size=60))
def test_any_fragmentation_of_a_request_stream_gives_the_same_responses(sizes: list[int]) -> None:
    """TCP keeps bytes, not their borders: what arrives in which pieces changes no answer."""
    assert _answers(sizes) == _answers([])


async def test_a_frame_larger_than_the_buffer_arrives_whole_and_the_memory_is_given_back() -> None:
    """The receive buffer grows to the frame and no further, and shrinks when the connection is quiet."""
    world = World()
    pipe = world.connect()
    data = batch(1, 3_000_000)
    pipe.send(produce(1, (0, data)))
    assert world.partition.batches[0][2] == data
    assert pipe.correlation_ids() == [1]
    assert len(pipe.connection.get_buffer(-1)) < 3_001_000
    pipe.connection.sweep(max_quiet_sweeps=0)
    assert len(pipe.connection.get_buffer(-1)) == RECEIVE_USUAL_BYTES
    pipe.connection.sweep(max_quiet_sweeps=0)
    assert len(pipe.connection.get_buffer(-1)) == RECEIVE_MIN_BYTES
    pipe.send(produce(2, (0, data)))
    assert pipe.correlation_ids() == [2]


async def test_an_announced_length_alone_takes_no_memory() -> None:
    """A tiny frame that claims 100 MB must not allocate them (CVE-2022-34917's class)."""
    pipe = World().connect()
    pipe.feed((100_000_000).to_bytes(4, "big") + b"\0" * 1000)
    assert len(pipe.connection.get_buffer(-1)) <= RECEIVE_MIN_BYTES
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
    world = World(socket_request_max_bytes=100)
    pipe = world.connect()
    with capture_logs() as logs:
        pipe.feed(start)
        pipe.feed(start)
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["framing_lost"]
    assert reason in logs[0]["reason"]
    assert world.server.counters.closed_by_broker == {"framing_lost": 1}


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
    """A frame whose inside lies gets no guess for an answer."""
    pipe = World().connect()
    with capture_logs() as logs:
        pipe.feed(len(body).to_bytes(4, "big") + body)
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["request_malformed"]
    assert pipe.transport.written == b""


async def test_requests_before_a_malformed_one_are_answered() -> None:
    """Closing loses nothing that was answered already."""
    pipe = World().connect()
    pipe.send(api_versions(1), b"\0\0\0\x01\0")
    assert pipe.correlation_ids() == [1]
    assert pipe.transport.closed


async def test_an_unknown_api_closes_and_a_known_one_that_is_not_built_is_refused() -> None:
    """The schema decides which of the two a key is. Source: the project's "Wire" rules."""
    world = World()
    pipe = world.connect()
    make = request_shapes(54, 0)
    pipe.send(request(54, 0, 1, make.EndQuorumEpochRequest(cluster_id=None, topics=())))
    assert pipe.answer(54, 0).error_code == 35
    assert not pipe.transport.closed
    with capture_logs() as logs:
        pipe.send(b"\0\0\0\x0a\x12\x34\0\0\0\0\0\x01\xff\xff")
    assert pipe.transport.closed
    assert logs[0]["event"] == "unknown_api_requested"
    assert logs[0]["api_key"] == 0x1234


async def test_an_unknown_version_of_api_versions_gets_version_0_with_the_list() -> None:
    """KIP-511: so that a newer client learns what it may use."""
    pipe = World().connect()
    pipe.feed(b"\0\0\0\x0b\0\x12\0\x63\0\0\0\x07\xff\xff\0")
    answer = pipe.answer(18, 0)
    assert answer.error_code == 35
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[1] == (4, 18)
    assert ranges[18] == (0, 4)


async def test_a_full_row_of_slots_stops_reading_until_one_is_answered() -> None:
    """Backpressure: neither requests nor bytes pile up behind a partition that does not commit."""
    world = World()
    world.partition.auto_commit = False
    pipe = world.connect()
    frames = [produce(each, (0, batch()), acks=-1) for each in range(2 * MAX_OPEN_SLOTS)]
    for frame in frames:
        pipe.send(frame)
    assert world.partition.log_end_offset == MAX_OPEN_SLOTS
    assert not pipe.transport.reading
    world.partition.commit(10)
    await asyncio.sleep(0)
    assert pipe.correlation_ids() == list(range(10))
    assert pipe.transport.reading
    assert world.partition.log_end_offset == MAX_OPEN_SLOTS + 1, "the one that was in the buffer"


async def test_a_client_that_does_not_read_is_not_served_further() -> None:
    """pause_writing is honoured: unsent responses are bounded."""
    world = World()
    pipe = world.connect()
    pipe.connection.pause_writing()
    pipe.send(fetch(1, (0, 0)))
    pipe.send(fetch(2, (0, 0)))
    assert pipe.correlation_ids() == []
    assert not pipe.transport.reading
    pipe.connection.resume_writing()
    await asyncio.sleep(0)
    assert pipe.correlation_ids() == [1]
    assert pipe.transport.reading
    pipe.send(fetch(2, (0, 0)))
    assert pipe.correlation_ids() == [2]


async def test_only_produce_requests_overlap() -> None:
    """Any other open request holds back what is behind it, as Kafka does, so a reader sees what it wrote before."""
    world = World()
    pipe = world.connect()
    make = request_shapes(22, 4)
    pipe.send(request(22, 4, 1, make.InitProducerIdRequest(transactional_id=None)), produce(2, (0, batch())))
    assert world.partition.log_end_offset == 0
    await _until(lambda: world.partition.log_end_offset == 1)
    assert pipe.correlation_ids() == [1, 2]


async def test_a_request_behind_a_waiting_fetch_ends_its_wait() -> None:
    """A long poll does not hold up what the client asks next on the same connection."""
    world = World()
    pipe = world.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    assert pipe.correlation_ids() == []
    pipe.send(api_versions(2))
    assert pipe.correlation_ids() == [1, 2]
    assert not world.partition.parked


async def test_a_lost_connection_leaves_nothing_behind() -> None:
    """No waiter, deadline or session entry outlives its client."""
    world = World()
    world.partition.auto_commit = False
    pipe, other = world.connect(), world.connect()
    pipe.send(fetch(1, (0, 0), max_wait_ms=60_000))
    other.send(produce(1, (0, batch()), acks=-1))
    assert len(world.server.deadlines) == 2
    pipe.connection.connection_lost(None)
    other.connection.connection_lost(None)
    assert len(world.server.deadlines) == 0
    assert not world.partition.parked
    assert not world.server.connections
    world.partition.commit()
    assert other.correlation_ids() == []


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    """connections.max.idle.ms counts silence, not waiting for our answer."""
    world = World()
    world.partition.auto_commit = False
    idle, waiting = world.connect(), world.connect()
    waiting.send(produce(1, (0, batch()), acks=-1))
    for _ in range(4):
        idle.connection.sweep(max_quiet_sweeps=3)
        waiting.connection.sweep(max_quiet_sweeps=3)
    assert idle.transport.closed
    assert not waiting.transport.closed
    assert world.server.counters.idle_closed == 1


async def test_a_crash_in_a_handler_closes_the_connection_with_its_traceback(monkeypatch: Any) -> None:
    """The fault is ours: it is logged whole, and nobody else is disturbed."""
    world = World()
    pipe, other = world.connect(), world.connect()
    monkeypatch.setattr(world.partition, "append_produced", lambda *_, **__: 1 / 0)
    with capture_logs() as logs:
        pipe.send(produce(1, (0, batch())))
    assert pipe.transport.closed
    assert logs[0]["event"] == "request_crashed"
    assert logs[0]["exc_info"]
    other.send(api_versions(1))
    assert other.correlation_ids() == [1]


def list_groups(correlation_id: int) -> bytes:
    return request(16, 0, correlation_id, request_shapes(16, 0).ListGroupsRequest())


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListGroups answers with twenty thousand."""
    make = response_shapes(16, 0)
    groups = tuple(make.ListedGroup(group_id=f"group-{each}", protocol_type="") for each in range(20_000))

    async def handle(*_: Any) -> Any:
        return make.ListGroupsResponse(groups=groups)

    monkeypatch.setattr(list_groups_handler, "handle", handle)


async def test_a_large_answer_is_encoded_in_turns_and_keeps_its_place(many_groups: None) -> None:
    """What was asked behind it waits for it; others have the loop meanwhile."""
    pipe = World().connect()
    pipe.send(list_groups(1), api_versions(2))
    turns = 0
    while not pipe.transport.written:
        turns += 1
        await asyncio.sleep(0)
    assert turns > len(pipe.transport.written) // BYTES_AT_ONCE > 5
    await asyncio.sleep(0)  # to what was asked behind it
    assert pipe.correlation_ids() == [1, 2]


async def test_a_connection_that_is_closed_while_its_answer_is_encoded_gets_none(many_groups: None) -> None:
    """Nothing is written behind the end."""
    world = World()
    pipe = world.connect()
    pipe.send(list_groups(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert world.server.tasks, "it is being encoded"
    pipe.connection.close("no_longer_wanted")
    await _until(lambda: not world.server.tasks)
    assert not pipe.transport.written


async def test_a_connection_told_to_finish_answers_what_was_appended_and_closes() -> None:
    """Controlled shutdown loses no acknowledgement."""
    world = World()
    world.partition.auto_commit = False
    pipe: Pipe = world.connect()
    pipe.send(produce(1, (0, batch()), acks=-1))
    pipe.connection.finish()
    assert not pipe.transport.closed
    pipe.send(produce(2, (0, batch()), acks=-1))
    world.partition.commit()
    assert pipe.correlation_ids() == [1]
    assert pipe.transport.closed
    assert world.partition.log_end_offset == 1


async def _until(condition: Any) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")
