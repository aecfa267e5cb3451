"""raftlog.broker.network.client_quotas: clients over their quota are throttled and muted (KIP-13, KIP-124, KIP-219)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.links.peer_auth import ADMIN_HELLO, FIRST_ASKING_HELLO
from raftlog.broker.network import client_quotas
from raftlog.broker.network.client_quotas import ClientQuotas
from raftlog.security.quotas import CLIENT_ID, FETCH, MUTATION, PRODUCE, REQUEST, USER, Quotas, Rates, Windows
from tests.broker.fakes import FakeClient, FakePartitionServer, api_versions, batch, fetch, produce
from tests.broker.network.test_admission import BROKER, prove
from tests.kit.clock import Clock

PRODUCE_API, FETCH_API = 0, 1
ANYONE = ((CLIENT_ID, None),)
SIZE = 5_000


class QuotaWorld(FakePartitionServer):
    """A broker with client quotas, and a clock that the test moves."""

    def __init__(self, quotas: Quotas, **config: Any) -> None:
        super().__init__(**config)
        self.loop = Clock()
        self.quotas = self.server.quotas = ClientQuotas(self.server.counters, self.loop, Windows())  # type: ignore[arg-type]
        self.quotas.follow(quotas)


def throttle_ms(client: FakeClient, api_key: int = PRODUCE_API, version: int = 9) -> int:
    return client.answer(api_key, version).throttle_time  # type: ignore[no-any-return]


async def test_a_producer_beyond_its_quota_is_throttled_at_once_and_muted() -> None:
    """KIP-219: what it sent is appended and answered; it is not read before the throttle time is over."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=SIZE))))
    assert throttle_ms(client) == 0, "ten seconds' worth may come at once"
    client.send(produce(2, (0, batch(size=3 * SIZE))))
    assert throttle_ms(client) == pytest.approx(10_300, abs=200)
    assert world.partition.log_end_offset == 2
    assert not client.transport.reading
    world.loop.advance(10)
    assert not client.transport.reading
    world.loop.advance(1)
    assert client.transport.reading
    client.send(api_versions(3))
    assert client.correlation_ids() == [3]
    assert world.server.counters.throttled == {PRODUCE: 1}
    assert world.server.counters.throttle_ms[PRODUCE] > 10_000


async def test_requests_that_came_already_wait_as_well() -> None:
    """They are kept, as what a full answer queue holds up, and handled in their order afterwards."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=3 * SIZE))), api_versions(2), produce(3, (0, batch())))
    assert client.correlation_ids() == [1]
    assert not client.transport.reading
    world.loop.advance(4)
    assert client.correlation_ids() == []
    world.loop.advance(30)
    await client.wait()
    assert client.correlation_ids() == [2, 3]


async def test_a_client_that_is_muted_for_two_reasons_waits_for_the_later_end() -> None:
    """An earlier end does not cut it short."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000}})
    client = world.connect()
    assert world.quotas.mute(client.connection, PRODUCE, 5.0) == 5_000
    assert world.quotas.mute(client.connection, REQUEST, 1.0) == 1_000
    assert world.quotas.mute(client.connection, FETCH, 7.0) == 7_000
    world.loop.advance(6.9)
    assert not client.transport.reading
    world.loop.advance(0.2)
    assert client.transport.reading


async def test_acks_0_is_muted_without_an_answer() -> None:
    """The client gets no notice, and its socket fills."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=4 * SIZE)), acks=0))
    assert client.frames() == []
    assert not client.transport.reading


@pytest.mark.parametrize("epoch", [-1, 0])
async def test_a_fetch_beyond_the_quota_is_answered_empty(epoch: int) -> None:
    """Its records do not count, and come once the time is over; a session that it would begin is not begun."""
    world = QuotaWorld({ANYONE: {FETCH: 1_000}})
    client = world.connect()
    for number in range(3):
        client.send(produce(number, (0, batch(size=SIZE))))
    client.frames()
    client.send(fetch(1, (0, 0), max_bytes=SIZE + 100))
    answer = client.answer(FETCH_API, 12)
    assert (answer.throttle_time, len(answer.responses)) == (0, 1)
    client.send(fetch(2, (0, 1), max_bytes=SIZE + 100, session=(0, epoch)))
    answer = client.answer(FETCH_API, 12)
    assert answer.throttle_time > 0
    assert (answer.error_code, len(answer.responses), answer.session_id) == (0, 0, 0)
    assert world.server.sessions.of_clients == 0
    world.loop.advance(11)
    client.send(fetch(3, (0, 1), max_bytes=SIZE + 100))
    answer = client.answer(FETCH_API, 12)
    assert (answer.throttle_time, len(answer.responses)) == (0, 1)


async def test_a_throttled_session_loses_nothing() -> None:
    """The next response in the same session has the records that the empty response left out."""
    world = QuotaWorld({ANYONE: {FETCH: 1_000}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=2 * SIZE))))
    client.frames()
    client.send(fetch(1, (0, 0), session=(0, 0)))
    first = client.answer(FETCH_API, 12)
    assert first.session_id and len(first.responses) == 1
    client.send(produce(2, (0, batch(size=SIZE))))
    client.frames()
    client.send(fetch(2, (0, 1), session=(first.session_id, 1)))
    held = client.answer(FETCH_API, 12)
    assert (held.session_id, len(held.responses)) == (first.session_id, 0)
    assert held.throttle_time > 0
    world.loop.advance(11)
    client.send(fetch(3, session=(first.session_id, 2)))
    assert len(client.answer(FETCH_API, 12).responses) == 1


async def test_a_batch_larger_than_all_windows_passes_when_nothing_was_fetched_of_late() -> None:
    """Otherwise its reader would never get past it; what follows waits until that is made good."""
    world = QuotaWorld({ANYONE: {FETCH: 100}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=2 * SIZE))), produce(2, (0, batch())))
    client.frames()
    client.send(fetch(1, (0, 0)))
    answer = client.answer(FETCH_API, 12)
    assert (answer.throttle_time, len(answer.responses)) == (0, 1)
    client.send(fetch(2, (0, 1)))
    assert client.answer(FETCH_API, 12).throttle_time == pytest.approx(90_600, abs=500)


async def test_an_answer_has_at_most_what_all_windows_allow() -> None:
    """A fetch of all there is would otherwise be throttled for ever."""
    world = QuotaWorld({ANYONE: {FETCH: 1_000}})
    client = world.connect()
    for number in range(4):
        client.send(produce(number, (0, batch(size=SIZE - 100))))
    client.frames()
    client.send(fetch(1, (0, 0)))
    answer = client.answer(FETCH_API, 12)
    assert answer.throttle_time == 0
    assert len(answer.responses[0].partitions[0].records) < 2 * SIZE


async def test_time_counts_whatever_it_was_used_for() -> None:
    """KIP-124: percent of the event loop's time; the next response has the throttle time, of at most a window."""
    world = QuotaWorld({ANYONE: {REQUEST: 1.0}})
    client = world.connect()
    client.send(api_versions(1, version=2))
    assert throttle_ms(client, 18, 2) == 0
    client.connection.record_turn(18, 0.15)
    client.send(api_versions(2, version=2))
    assert throttle_ms(client, 18, 2) == 1_000, "it owes five seconds"
    world.loop.advance(1)
    client.send(fetch(3, (0, 0), max_wait_ms=0))
    answer = client.answer(FETCH_API, 12)
    assert (answer.throttle_time, len(answer.responses)) == (1_000, 0)
    world.loop.advance(12)
    client.send(produce(4, (0, batch())))
    assert throttle_ms(client) == 0
    assert world.server.counters.throttled == {REQUEST: 2}


async def test_dispatch_measures_the_time() -> None:
    """The stopwatch for long turns, for immediate responses and for responses that take turns."""
    world = QuotaWorld({ANYONE: {REQUEST: 1.0}})
    ticks = iter(range(10_000))
    world.server.stopwatch = lambda: next(ticks) / 100  # each look is 10 ms later
    client = world.connect()
    for number in range(20):
        client.send(api_versions(number, version=2))
        told = throttle_ms(client, 18, 2)
        if told:
            break
    assert told > 0
    world.loop.advance(20)
    client.send(api_versions(99, version=2))
    assert throttle_ms(client, 18, 2) == 0


async def test_clients_of_a_user_share_its_quota_and_others_do_not() -> None:
    """Two connections of one user are counted together; another client id of another user is free."""
    world = QuotaWorld({((USER, "al"),): {PRODUCE: 1_000}})
    first, second, other = world.connect(), world.connect(), world.connect()
    first.connection.principal = second.connection.principal = "User:al"
    first.send(produce(1, (0, batch(size=2 * SIZE - 500))))
    assert throttle_ms(first) == 0
    second.send(produce(1, (0, batch(size=SIZE))))
    assert throttle_ms(second) > 0
    other.send(produce(1, (0, batch(size=9 * SIZE))))
    assert throttle_ms(other) == 0


async def test_brokers_and_the_admin_api_have_no_quotas() -> None:
    """Replication and operators must not wait for clients' shares."""
    for hello in (FIRST_ASKING_HELLO, ADMIN_HELLO):
        world = QuotaWorld({ANYONE: {PRODUCE: 1, REQUEST: 0.001}, ((USER, None),): {PRODUCE: 1}})
        peer = world.connect()
        await prove(peer, BROKER, hello=hello)
        peer.send(produce(1, (0, batch(size=SIZE))))
        assert throttle_ms(peer) == 0
        assert peer.connection.limits is None


async def test_new_quotas_hold_from_the_next_request() -> None:
    """A connection keeps no quota longer than the image; earlier usage counts."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000_000}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=3 * SIZE))))
    assert throttle_ms(client) == 0
    world.quotas.follow({ANYONE: {PRODUCE: 1_000}})
    client.send(produce(2, (0, batch())))
    assert throttle_ms(client) > 5_000
    world.quotas.follow({})
    world.loop.advance(60)
    client.send(produce(3, (0, batch(size=9 * SIZE))))
    assert throttle_ms(client) == 0
    assert client.connection.limits is None


async def test_what_clients_make_a_broker_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client ids are the clients' to choose."""
    monkeypatch.setattr(client_quotas, "MAX_LIMITS", 4)
    monkeypatch.setattr(client_quotas, "Rates", lambda span: Rates(span, most=4))
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000}, ((USER, "al"),): {MUTATION: 1}})
    client = world.connect()
    for number in range(20):
        limits = world.quotas.limits_of(client.connection, f"c{number}")
        assert limits is not None and limits.count_produce(client.connection, 10) == 0
    assert len(world.quotas._limits) <= 4
    assert len(world.quotas._rates) <= 4


async def test_a_connection_that_goes_leaves_no_timer() -> None:
    """Its end is not waited for."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1}})
    client = world.connect()
    client.send(produce(1, (0, batch(size=SIZE))))
    assert world.quotas._muted
    client.connection.connection_lost(None)
    assert not world.quotas._muted
    world.loop.advance(10_000)


async def test_strangers_have_no_quotas_until_they_log_in() -> None:
    """A login does not count for User:ANONYMOUS, which has the quota of listeners without logins."""
    world = QuotaWorld({((USER, "ANONYMOUS"),): {REQUEST: 1}})
    anonymous, client = world.connect(), world.connect()
    anonymous.send(api_versions(1))  # with the same client id
    assert anonymous.connection.limits is not None
    client.connection.login = object()  # type: ignore[assignment]
    client.send(api_versions(1))
    assert client.connection.limits is None


async def test_a_frame_in_pieces_mutes_as_well() -> None:
    """It is dropped from the memory of frames under way, which reads on as a rule."""
    world = QuotaWorld({ANYONE: {PRODUCE: 1_000}})
    client = world.connect()
    client.feed(produce(1, (0, batch(size=3 * SIZE))), sizes=[1_000])
    assert throttle_ms(client) > 0
    assert not client.transport.reading
    world.loop.advance(30)
    assert client.transport.reading
