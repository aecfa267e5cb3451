"""raftlog.broker.network.admission: clients have places, brokers always get in, and strangers leave the hall soon."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from raftlog.base.config.connections import ListenerLimits
from raftlog.base.config.setting import INT_MAX
from raftlog.base.log import LIMITED_EVERY_S, LIMITED_LINES, LimitedLog, get_logger
from raftlog.broker.links.peer_auth import ADMIN_HELLO, FRAME_BYTES, HELLO, prove_membership
from raftlog.broker.network.admission import (
    CONNECTION_BYTES,
    HALL_CHECKS,
    HALL_PLACES,
    ConnectionStanding,
)
from raftlog.replication.replica_host import ReplicaId
from tests.broker.fakes import LISTENER, FakeClient, FakePartitionServer, api_versions
from tests.kit.clock import Clock

BROKER = ReplicaId(2, 12)


async def prove(pipe: FakeClient, own: ReplicaId, *, hello: int = HELLO) -> None:
    async def ask(frame: bytes) -> bytes:
        pipe.send(frame)
        (answer,) = pipe.frames()
        return bytes(answer)

    config = pipe.connection.server.config
    await prove_membership(ask, secret=config.cluster_secret, own=own, server_id=config.node_id, hello=hello)


def full_world(**config: Any) -> FakePartitionServer:
    """Both places of clients are taken."""
    fake = FakePartitionServer(max_connections=2, **config)
    for _ in range(2):
        fake.connect()
    return fake


def look(fake: FakePartitionServer, times: int = 1) -> None:
    for _ in range(times):
        fake.server.watch._check_all()


async def test_strangers_never_take_a_brokers_place() -> None:
    """A broker gets in beside any number of clients, however many of them hang around in the hall."""
    fake = full_world()
    strangers = [fake.connect() for _ in range(2 * HALL_PLACES)]
    pipe = fake.connect()
    await prove(pipe, BROKER)
    assert pipe.connection.peer == BROKER
    pipe.send(api_versions(1))
    assert pipe.correlation_ids() == [1], "from then on anything is handled"
    look(fake, HALL_CHECKS + 1)
    assert not pipe.transport.closed
    assert all(each.transport.closed for each in strangers)
    assert (fake.server.admission.strangers, fake.server.admission.brokers) == (2, 1)


async def test_a_broker_leaves_its_place_among_the_strangers() -> None:
    """It counts as a stranger only until it has proved itself."""
    fake = FakePartitionServer(max_connections=1)
    pipe = fake.connect()
    await prove(pipe, BROKER)
    client = fake.connect()
    client.send(api_versions(1))
    assert client.correlation_ids() == [1]


async def test_a_client_beyond_the_places_is_refused_with_its_first_request() -> None:
    """In the hall only the handshake is handled."""
    fake = full_world()
    pipe = fake.connect()
    with capture_logs() as logs:
        pipe.send(api_versions(1))
    assert pipe.transport.closed
    assert pipe.transport.written == b""
    assert [(line["event"], line["limit"]) for line in logs] == [("connection_refused", "max.connections")]
    assert fake.server.counters.refused == 1


async def test_a_silent_stranger_leaves_the_hall_after_some_seconds() -> None:
    """Its place is for clients that do authenticate."""
    fake = full_world()
    pipe = fake.connect()
    look(fake, HALL_CHECKS)
    assert not pipe.transport.closed
    look(fake)
    assert pipe.transport.closed
    assert fake.server.admission.in_hall == 0


async def test_a_full_hall_refuses_the_oldest() -> None:
    """A flood of strangers shortens their stay and shuts no client out."""
    fake = full_world()
    strangers = [fake.connect() for _ in range(HALL_PLACES + 1)]
    assert [each.transport.closed for each in strangers[:2]] == [True, False]
    assert fake.server.admission.in_hall == HALL_PLACES


async def test_frames_in_the_hall_are_short() -> None:
    """A connection without a place may not send a hundred megabytes; a broker may, once it is known."""
    fake = full_world()
    pipe, broker = fake.connect(), fake.connect()
    pipe.feed((FRAME_BYTES + 1).to_bytes(4, "big"))
    assert pipe.transport.closed
    await prove(broker, BROKER)
    broker.feed((FRAME_BYTES + 1).to_bytes(4, "big"))
    assert not broker.transport.closed


async def test_a_place_in_the_hall_of_the_controllers_listener_is_no_proof() -> None:
    """Nodes come to that listener with a handshake of its own (KIP-919): here are clients only."""
    fake = full_world(controller_listener_names=(LISTENER,))
    pipe = fake.connect()
    with pytest.raises(ValueError):
        await prove(pipe, BROKER)
    assert pipe.transport.closed
    assert fake.server.admission.brokers == 0


async def test_brokers_of_one_address_get_in_beyond_its_limit() -> None:
    """max.connections.per.ip: a bigger host runs several nodes beside clients."""
    fake = FakePartitionServer(max_connections_per_ip=1)
    fake.connect()
    client, broker = fake.connect(), fake.connect()
    with capture_logs() as logs:
        client.send(api_versions(1))
    assert logs[0]["limit"] == "max.connections.per.ip"
    await prove(broker, BROKER)
    assert broker.connection.standing is ConnectionStanding.BROKER


@pytest.mark.parametrize(("limit", "limit_of_clients"), [("sockets", 3), ("memory", 2)])
async def test_files_and_memory_bound_the_places(limit: str, limit_of_clients: int) -> None:
    """max.connections is no limit by default: descriptors and memory would run out first."""
    fake = FakePartitionServer(raftlog_memory_max_bytes=8 * 2 * CONNECTION_BYTES if limit == "memory" else -1)
    if limit == "sockets":
        fake = FakePartitionServer(sockets=3)
    pipes = [fake.connect() for _ in range(5)]
    assert [each.connection.standing for each in pipes].count(ConnectionStanding.STRANGER) == limit_of_clients


async def test_a_limit_that_cannot_be_kept_is_lowered_with_a_warning() -> None:
    """Only if it was set explicitly: the default means as many as possible."""
    for wanted, expected in ((100, ["max_connections_lowered"]), (INT_MAX, [])):
        fake = FakePartitionServer(sockets=3, max_connections=wanted)
        with capture_logs() as logs:
            await fake.server.start([], serve=False)
        assert [line["event"] for line in logs] == expected
        if logs:
            assert (logs[0]["configured"], logs[0]["in_force"]) == (100, 3)
        await fake.server.stop(grace_s=0)


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
async def test_limits_follow_the_dynamic_configs(name: str) -> None:
    """KIP-402 and KIP-612: an operator changes them while the broker runs; connections that exist stay."""
    fake = FakePartitionServer(max_connections=2)
    first = [fake.connect(), fake.connect()]
    fake.image = msgspec.structs.replace(fake.image, configs={("broker", ""): {name: "1"}})
    beyond = fake.connect()
    assert beyond.connection.standing is ConnectionStanding.IN_HALL
    assert not any(each.transport.closed for each in first)
    fake.image = msgspec.structs.replace(
        fake.image, configs={("broker", ""): {"max.connections": "4", "max.connections.per.ip": "4"}}
    )
    assert fake.connect().connection.standing is ConnectionStanding.STRANGER


async def test_a_flood_of_refusals_is_a_few_lines() -> None:
    """Each connection wrote a line, so a client could fill the disk."""
    fake = full_world()
    with capture_logs() as logs:
        for _ in range(100):
            fake.connect().send(api_versions(1))
    assert len(logs) == LIMITED_LINES
    assert fake.server.counters.refused == 100


async def test_the_sweep_logs_the_end_of_a_flood() -> None:
    """An operator reads how many refusals there were, also if no further one comes."""
    fake = full_world()
    clock = Clock()
    with capture_logs() as logs:
        fake.server.log = LimitedLog(get_logger(), clock)
        for _ in range(100):
            fake.connect().send(api_versions(1))
        clock.advance(LIMITED_EVERY_S)
        fake.server._sweep(0)
    await fake.server.stop(grace_s=0)
    assert logs[-1]["event"] == "log_lines_suppressed"
    assert logs[-1]["left_out"] == 100 - LIMITED_LINES


async def test_places_are_given_back_however_a_connection_ends() -> None:
    """Closed by us, cut, or lost, in the hall or out of it: each place is counted once, and released."""
    fake = full_world()
    pipes: list[FakeClient] = [fake.connect() for _ in range(3)]
    await prove(pipes[0], BROKER)
    pipes[1].send(api_versions(1))
    for connection in tuple(fake.server.connections):
        connection.abort()
        connection.connection_lost(None)
        connection.connection_lost(None)
    admission = fake.server.admission
    assert (admission.strangers, admission.brokers, admission.in_hall) == (0, 0, 0)
    assert fake.server.memory.connections.used == 0


async def test_the_admin_api_has_a_brokers_places_but_not_its_rights() -> None:
    """So health can be asked for while clients have all places; several connections beside each other."""
    fake = full_world()
    first, second = fake.connect(), fake.connect()
    for pipe in (first, second):
        await prove(pipe, BROKER, hello=ADMIN_HELLO)
        assert pipe.connection.standing is ConnectionStanding.BROKER
        assert pipe.connection.broker_id is None
    assert not first.transport.closed
    other = fake.connect()
    await prove(other, BROKER, hello=HELLO)
    assert other.connection.broker_id == BROKER.broker_id


async def test_a_sweep_looks_for_garbage_and_gives_memory_back() -> None:
    """The first on the loop, to which what it frees may belong; the second in a thread, since it may take long."""
    fake = FakePartitionServer()
    calls: list[str] = []
    env = fake.broker.env
    env.collect_garbage = lambda: calls.append("garbage")
    env.trim_memory = lambda: calls.append("memory")
    fake.server._sweep(0)
    assert calls == ["garbage"]
    fake.offload.run()
    assert calls == ["garbage", "memory"]
    await fake.server.stop(grace_s=0)


async def test_an_address_may_have_other_limits_than_the_rest() -> None:
    """max.connections.per.ip.overrides; the fakes' address is 10.0.0.9."""
    fake = FakePartitionServer(max_connections_per_ip=0, max_connections_per_ip_overrides={"10.0.0.9": 1})
    first, second = fake.connect(), fake.connect()
    first.send(api_versions(1))
    assert first.correlation_ids() == [1]
    with capture_logs() as logs:
        second.send(api_versions(1))
    assert [line["limit"] for line in logs] == ["max.connections.per.ip"]


async def test_a_listener_may_have_fewer_places_than_the_broker() -> None:
    """listener.name.NAME.max.connections; a place is free again when its client goes."""
    fake = FakePartitionServer(listener_limits={LISTENER: ListenerLimits(max_connections=1)})
    first, second = fake.connect(), fake.connect()
    with capture_logs() as logs:
        second.send(api_versions(1))
    assert [line["limit"] for line in logs] == ["listener.name.plaintext.max.connections"]
    first.connection.connection_lost(None)
    third = fake.connect()
    third.send(api_versions(1))
    assert third.correlation_ids() == [1]
