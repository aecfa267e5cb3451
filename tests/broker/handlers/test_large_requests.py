"""No request holds the event loop, whatever it asks for: every array of every API, filled with very many parts.

Work is measured, not time: calls of functions, Python's and C's, in one callback of the loop. All of a node takes part,
as in production: its connection, dispatcher, handlers, coordinators and controller.
"""

from __future__ import annotations

import asyncio
import cProfile
import os
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import msgspec
import pytest

from raftlog import control
from raftlog.base.errors import KafkaError
from raftlog.broker.controller_requests import ask
from raftlog.broker.handlers import served
from raftlog.metadata.controller_api import CreateTopics, CreateTopicsReply, NewTopic
from raftlog.protocol import reader
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.primitives import MAX_PRODUCE_ELEMENTS as HOT_PARTS_MAX
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import PORT, SimCluster
from raftlog_chaos.simulator.handles import SimHandle, SimTimer
from tests.broker.handlers.large_requests import GROUP, TOPIC, TOPIC_ID, Case, cases, frame_of

PARTS = int(os.environ.get("LARGE_REQUEST_PARTS", "2000"))
"""Parts of each request. In a simulation with time, 50,000 find what costs little for each, and take five minutes."""

HOT_PARTS = {ApiKey.PRODUCE: HOT_PARTS_MAX - 1, ApiKey.FETCH: HOT_PARTS_MAX - 1}
"""Partitions of one topic, of requests that take fewer than others and are decoded at once."""

IS_THOROUGH = PARTS >= 10_000

REPEATED_PARTS = 500
"""Of a request with one part again and again: enough for work that grows with their square, as `WORK_AT_ONCE` is."""

WORK = {CodeType: 3, str: 1}
"""The cost of a call of a Python function, and of a C function, which a profile names: some 0.1 µs a unit."""

WORK_AT_ONCE = 350_000
"""Of one turn of the loop: 35 ms."""

WORK_FOR_FEW = 105_000
"""The cost of 2,000 parts that are handled in one turn, so that one more look at each of them is seen."""

SETTINGS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "log.segment.bytes": "1048576",
}


class CountedString(str):
    """A string that compares by calls of Python functions, so that a search through a list is visible."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class CallbackWork:
    """Counts the units in each callback that a process runs, while `is_counting`."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._calls = cProfile.Profile(subcalls=False)
        self.is_counting = False
        self.most = 0
        self.where = ""

    def run(self, handle: SimHandle | SimTimer, call: Callable[[], None]) -> None:
        if not self.is_counting or handle.process.name != self._process:
            return call()
        self._calls.enable()
        try:
            call()
        finally:
            self._calls.disable()
        work = sum(each.callcount * WORK[type(each.code)] for each in self._calls.getstats())
        self._calls.clear()
        if work > self.most:
            self.most, self.where = work, repr(handle._callback)

    def uncounted(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(argument: Any) -> Any:
            if not self.is_counting:
                return call(argument)
            self._calls.disable()
            try:
                return call(argument)
            finally:
                self._calls.enable()

        return run


@pytest.fixture(scope="module")
def turns() -> Iterator[CallbackWork]:
    """Counts the work of the only node, with strings that clients send watched."""
    made = CallbackWork("node1")
    run, encode = asyncio.Handle._run, control.encode
    readers = (reader.entity_reader, reader.incremental_entity_reader)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (SimHandle, SimTimer):  # bytes arrive by a timer
            patch.setattr(kind, "_run", lambda handle: made.run(handle, lambda: run(handle)), raising=False)
        patch.setattr(reader, "_to_str", lambda data: CountedString(data, "utf-8"))
        patch.setattr(control, "encode", made.uncounted(lambda request: encode(_unwatched(request))))
        for cached in readers:
            cached.cache_clear()
        yield made
    for cached in readers:
        cached.cache_clear()


def _unwatched(value: Any) -> Any:
    """Return a request to the controller with strings as msgspec takes them."""
    if isinstance(value, CountedString):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _unwatched(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, tuple):
        return tuple(map(_unwatched, value))
    if isinstance(value, dict):
        return {_unwatched(key): _unwatched(each) for key, each in value.items()}
    return value


class RawBytesClient(asyncio.Protocol):
    """A client that sends bytes, and waits until the broker has answered them or closed the connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.ended = asyncio.Event()
        self.answered = False

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) >= 4 and len(self._data) >= 4 + int.from_bytes(self._data[:4], "big"):
            self.answered = True
            self.ended.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


async def send(loop: SimLoop, frame: bytes) -> RawBytesClient:
    transport, client = await loop.create_connection(RawBytesClient, "node1", PORT)
    assert isinstance(client, RawBytesClient)
    transport.write(frame)
    async with asyncio.timeout(120):
        await client.ended.wait()
    transport.abort()
    return client


def parts_of(case: Case) -> int:
    parts = HOT_PARTS.get(ApiKey(case.api_key), PARTS)
    return REPEATED_PARTS if case.is_repeated and not IS_THOROUGH else parts


@pytest.mark.parametrize("api_key", sorted(served()), ids=lambda key: APIS[key].name)
def test_no_turn_of_the_loop_is_long_however_much_is_asked_for(api_key: int, turns: CallbackWork) -> None:
    """Each array is filled with the same part many times, and with different parts (`broker/long_work/turns.py`)."""
    versions = {APIS[api_key].max_version}
    if IS_THOROUGH:
        versions.add(APIS[api_key].min_version)
    wanted = [case for version in sorted(versions) for case in cases(api_key, version)]
    long: dict[Case, str] = {}
    limit = WORK_AT_ONCE if IS_THOROUGH or api_key in HOT_PARTS else WORK_FOR_FEW

    async def program(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 1, settings=SETTINGS)
        cluster.start()
        await cluster.until_ready()
        node = cluster.nodes[1].node
        assert node is not None and node.broker is not None
        await cluster.nodes[1].host.start(_prepare(node.broker))
        turns.is_counting = True
        for case in wanted:
            turns.most = 0
            client = loop.host("client")
            await client.start(send(loop, frame_of(case, parts_of(case))))
            if turns.most > limit:
                long[case] = f"{case}: {turns.most} units in {turns.where}"
        cluster.check()

    try:
        simulate(program)
    finally:
        turns.is_counting = False
    assert not long, "\n".join(long.values())


async def _prepare(broker: Any) -> None:
    topics = (NewTopic(TOPIC, 50, 1, topic_id=TOPIC_ID),)
    await ask(broker.context, CreateTopics(topics), CreateTopicsReply)
    await broker.coordinators.offsets_topic()
    await broker.transactions.find("x")
    while not _coordinates(broker, GROUP):  # it reads its log first: a commit before that is refused at once
        await asyncio.sleep(0.01)


def _coordinates(broker: Any, group_id: str) -> bool:
    try:
        broker.coordinators.check(group_id)
    except KafkaError:
        return False
    return True
