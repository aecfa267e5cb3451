"""The hot paths' price, counted in Python calls through the real partition and log: the same on every machine.

Source: raftlog/ARCHITECTURE.md, "Cost": at most 21 calls for a produced partition, 20 for a fetched one. The cost of a
request without its partitions has a budget here too.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

import raftlog
from raftlog.base.config.topic import TopicConfig
from raftlog.base.disk import RealDisk
from raftlog.base.types import TopicPartition
from raftlog.broker.handlers import find_api
from raftlog.metadata.image import PartitionState
from raftlog.replication.partition import Partition
from raftlog.security import quotas as kinds
from raftlog.security.acls import (
    ANONYMOUS,
    EVERY_USER,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from raftlog.security.authorizer import Authorizer
from raftlog.storage.log import Log
from tests.broker.fakes import TOPIC, TOPIC_ID, FakeClient, FakePartitionServer, fetch, produce
from tests.replication.replica_cluster import NOW_MS, FakeHost, batch, registrations

PRODUCED_PARTITION = 21
FETCHED_PARTITION = 20
REQUEST = 36
"""From the transport's call to the response given back to it, apart from partitions."""

KEPT_RIGHT = 4
"""Of a topic with a cached verdict: below 1 µs."""

COLD_RIGHT = 12
"""Of a topic that is asked for the first time since rules changed: below 3 µs, however many rules there are."""

RULES = 10_000
USERS = 1_000

PARTITIONS = 8


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(1, registrations([1]))


@pytest.fixture
async def pipe(host: FakeHost, tmp_path: Path) -> FakeClient:
    """Eight partitions that this broker leads alone."""
    partitions = [lead(host, tmp_path, index) for index in range(PARTITIONS)]
    fake = FakePartitionServer(*partitions)  # type: ignore[arg-type]
    fake.broker.env.wall_clock_ms = lambda: NOW_MS
    return fake.connect()


def lead(host: FakeHost, folder: Path, index: int) -> Partition:
    log = Log.open(
        RealDisk(),
        str(folder / f"{TOPIC}-{index}"),
        config=TopicConfig(),
        recovery_point=0,
        clean=False,
        topic_id=TOPIC_ID,
        now_ms=NOW_MS,
    )
    partition = Partition(TopicPartition(TOPIC, index), UUID(int=7), log=log, host=host)
    partition.reconcile(PartitionState((1,), (1,), 1, 3))
    return partition


PACKAGE = f"{Path(raftlog.__file__).parent}/"


def count_calls(call: Callable[[], Any]) -> Counter[str]:
    """Return the raftlog functions that a call runs, with how often."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def feeding(pipe: FakeClient, frame: bytes) -> Callable[[], None]:
    """Only what the broker does for a frame that arrives in one piece."""

    def feed() -> None:
        connection = pipe.connection
        connection.server.arrivals.reads = 0  # as in most turns of the loop
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))

    return feed


def price(small: Counter[str], large: Counter[str], more: int) -> tuple[float, float]:
    """(calls for each partition, calls for the request without partitions)."""
    each = (large.total() - small.total()) / more
    return each, small.total() - each


def frames(make: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    return make(1), make(PARTITIONS)


async def test_a_produced_partition_costs_at_most_its_budget(pipe: FakeClient, host: FakeHost) -> None:
    """acks=-1, to the response: append, wait, flush, commit."""
    records = bytes(batch("a" * 100))

    def make(count: int) -> bytes:
        return produce(1, *((each, records) for each in range(count)), acks=-1)

    def cycle(frame: bytes) -> Counter[str]:
        return count_calls(feeding(pipe, frame)) + count_calls(lambda: commit(host))

    small, large = frames(make)
    for frame in (small, large):
        cycle(frame)
    each, request = price(cycle(small), cycle(large), PARTITIONS - 1)
    print(f"produce: {each} calls a partition, {request} a request")
    print(cycle(large))
    assert len(pipe.frames()) == 5
    assert each <= PRODUCED_PARTITION
    assert request <= REQUEST


def commit(host: FakeHost) -> None:
    """A flusher notifies partitions when a round is over; the round itself is not counted here."""
    dirty, host.dirty = host.dirty, {}
    for partition in dirty:
        partition.note_flushed(partition.log.log_end_offset)


async def test_a_fetched_partition_costs_at_most_its_budget(pipe: FakeClient, host: FakeHost) -> None:
    """Without a session, each partition with records; with a session, each that moved."""
    for index in range(PARTITIONS):
        for _ in range(3):
            feeding(pipe, produce(1, (index, bytes(batch("a" * 100)))))()
    commit(host)

    def make(count: int) -> bytes:
        return fetch(2, *((each, 1) for each in range(count)))

    small, large = frames(make)
    for frame in (small, large):
        feeding(pipe, frame)()
    pipe.frames()
    each, request = price(
        count_calls(feeding(pipe, small)), count_calls(feeding(pipe, large)), PARTITIONS - 1
    )
    print(f"fetch: {each} calls a partition, {request} a request")
    print(count_calls(feeding(pipe, large)))
    assert all(len(answer) > 200 for answer in pipe.frames())
    assert each <= FETCHED_PARTITION
    assert request <= REQUEST


def rules() -> Iterator[Acl]:
    """Ten thousand ACLs of a thousand users, some for all users, and some for the requesting user."""
    for number in range(RULES):
        pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        name = TOPIC if number % 10 == 0 else f"{TOPIC}-{number}"
        yield allow(f"User:{number % USERS}", name, pattern)
    yield allow(EVERY_USER, "public-", PatternType.PREFIXED)
    yield allow(ANONYMOUS, TOPIC[:2], PatternType.PREFIXED)


def allow(principal: str, name: str, pattern: PatternType) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, "*", Operation.ALL, Permission.ALLOW)


@pytest.mark.parametrize("api", ["produce", "fetch"])
async def test_an_authorized_request_costs_at_most_its_budget(
    pipe: FakeClient, host: FakeHost, api: str
) -> None:
    """With 10,000 ACLs, in calls beyond a broker that checks no rights."""
    feeding(pipe, produce(1, (0, bytes(batch("a" * 100)))))()
    commit(host)
    frame = fetch(2, (0, 1)) if api == "fetch" else produce(3, (0, bytes(batch("a" * 100))))
    broker = pipe.connection.server.broker

    def cost() -> int:
        return count_calls(feeding(pipe, frame)).total()

    feeding(pipe, frame)()
    without = cost()
    broker.authorizer = Authorizer(rules())
    cold, kept = cost(), cost()
    other = allow("User:1", "other", PatternType.LITERAL)
    broker.authorizer.change(added=[other])
    still_kept = cost()
    broker.authorizer.change(removed=[other], added=[allow(ANONYMOUS, "other", PatternType.LITERAL)])
    print(f"{api}: {cold - without} calls where no answer was kept, {kept - without} where one was")
    assert cold - without <= COLD_RIGHT
    assert kept - without == still_kept - without <= KEPT_RIGHT
    assert cost() - without <= COLD_RIGHT
    assert all(len(answer) > 40 for answer in pipe.frames())


QUOTAS_OF_A_REQUEST = 5
"""Calls for a client that has quotas, 1 to 2 µs together."""

WITH_QUOTAS = {
    ((kinds.CLIENT_ID, None),): {kinds.PRODUCE: 1e12, kinds.FETCH: 1e12, kinds.REQUEST: 1e6},
    ((kinds.USER, "somebody else"),): {kinds.PRODUCE: 1.0},
}


async def test_quotas_cost_nothing_where_none_is_set_and_little_where_some_are(
    pipe: FakeClient, host: FakeHost
) -> None:
    """Produce and Fetch, all three quotas of a client together; windows are entered once a second."""
    records = bytes(batch("a" * 100))
    quotas = pipe.connection.server.quotas
    quotas.clock = lambda: 100.0  # no window begins
    calls = {}
    for name, given in (("none", {}), ("some", WITH_QUOTAS)):
        quotas.follow(given)
        for _ in range(2):  # the first one resolves quotas and begins windows
            produced = count_calls(feeding(pipe, produce(1, (0, records))))
        commit(host)
        for _ in range(2):
            fetched = count_calls(feeding(pipe, fetch(2, (0, 1))))
        calls[name] = produced, fetched
    for number in range(2):
        without, with_quotas = calls["none"][number], calls["some"][number]
        assert not [each for each in without if "Quota" in each or "Limits" in each or "Rate" in each]
        print(with_quotas - without)
        assert 0 < with_quotas.total() - without.total() <= QUOTAS_OF_A_REQUEST


def test_hot_apis_have_handlers() -> None:
    """The budget above is of the handlers that are served."""
    assert find_api(0) is not None and find_api(1) is not None
