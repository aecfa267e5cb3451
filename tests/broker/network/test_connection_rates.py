"""raftlog.broker.network.connection_rates: clients that connect too often wait, and brokers get in (KIP-612)."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.config.connections import ListenerLimits
from raftlog.base.config.network import Listener
from raftlog.broker.network import connection_rates
from raftlog.security.quotas import CONNECTION, IP, Rates
from tests.broker.fakes import LISTENER, api_versions
from tests.broker.network.test_admission import BROKER, prove
from tests.broker.network.test_client_quotas import QuotaWorld

RATE = "max.connection.creation.rate"
EVERY_ADDRESS = ((IP, None),)


def world(rate: float | None = None, **config: Any) -> QuotaWorld:
    quotas = {} if rate is None else {EVERY_ADDRESS: {CONNECTION: rate}}
    made = QuotaWorld(quotas, **config)
    made.server.admission._rates._clock = made.loop.time
    return made


async def test_an_address_beyond_its_quota_is_refused_a_moment_later() -> None:
    """Not at once: a refused client comes again. Refused connections do not count."""
    fake = world(0.5)
    for _ in range(5):
        client = fake.connect()
        client.send(api_versions(1))
        assert client.correlation_ids() == [1]
    late = fake.connect()
    assert not late.transport.reading
    fake.loop.advance(1)
    assert late.transport.reading
    with capture_logs() as logs:
        late.send(api_versions(1))
    assert late.transport.closed
    assert [(line["event"], line["limit"]) for line in logs] == [("connection_refused", CONNECTION)]
    fake.loop.advance(11)
    client = fake.connect()
    client.send(api_versions(1))
    assert client.correlation_ids() == [1]
    assert fake.server.counters.throttled == {CONNECTION: 1}


async def test_a_broker_gets_in_beside_clients_that_connect_too_often() -> None:
    """Its first frame is read a moment later, and proves what it is."""
    fake = world(0.1)
    for _ in range(9):
        fake.connect()
    peer = fake.connect()
    fake.loop.advance(1)
    await prove(peer, BROKER)
    peer.send(api_versions(1))
    assert peer.correlation_ids() == [1]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_connection_creation_rate": 1},
        {"listener_limits": {LISTENER: ListenerLimits(max_connection_creation_rate=1)}},
    ],
)
async def test_beyond_a_rate_clients_wait_for_their_turn(limits: dict[str, Any]) -> None:
    """The rate of a listener or of the broker: no client is refused, and later clients wait longer."""
    fake = world(**limits)
    clients = [fake.connect() for _ in range(13)]
    assert [each.transport.reading for each in clients] == [True] * 10 + [False] * 3
    fake.loop.advance(1)
    assert [each.transport.reading for each in clients] == [True] * 11 + [False] * 2
    fake.loop.advance(2)
    assert all(each.transport.reading for each in clients)
    clients[-1].send(api_versions(1))
    assert clients[-1].correlation_ids() == [1]
    assert fake.server.counters.throttled == {RATE: 3}


async def test_the_brokers_own_listener_has_no_rate_of_the_broker() -> None:
    """A flood of clients on other listeners must not keep brokers apart."""
    own = Listener(LISTENER, "", 1), Listener("CLIENTS", "", 2)
    fake = world(max_connection_creation_rate=1, listeners=own, inter_broker_listener_name=LISTENER)
    assert all(fake.connect().transport.reading for _ in range(30))


async def test_addresses_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network has more of them than memory."""
    monkeypatch.setattr(connection_rates, "Rates", lambda span: Rates(span, most=3))
    rates = world(1).server.admission._rates
    for number in range(20):
        assert rates.delay_of_address(f"10.0.1.{number}") is None
    assert len(rates._of_hosts) == 3
