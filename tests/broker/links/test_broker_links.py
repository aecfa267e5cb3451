"""raftlog.broker.links.broker_links: one request, one response, as a broker, without effects on replication."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from raftlog.base.errors import BrokerNotAvailable, RequestTimedOut, UnknownServerError
from raftlog.base.turns import TurnQueue
from raftlog.broker.dispatch import serve_own
from raftlog.broker.links import broker_links
from raftlog.broker.links.broker_links import PAUSE_S, BrokerLinks
from raftlog.broker.long_work import turns as broker_turns
from raftlog.protocol.apis import API_VERSIONS
from raftlog.protocol.message_builders import build_response, request_builders
from tests.broker.broker_cluster import BrokerCluster
from tests.broker.replicas.test_replicas import run_scenario
from tests.broker.rows import change_row, row_of

ADD_PARTITIONS, DESCRIBE_CLUSTER = 24, 60
SHARE_STATES = (83, 84, 85, 86, 87)
"""InitializeShareGroupState and the others of share coordinators."""
WRITE_STATE = 85
NO_CLUSTER_AUTHORIZATION = 31


def links_of(cluster: BrokerCluster, broker_id: int) -> BrokerLinks:
    broker = cluster[broker_id]
    return BrokerLinks(
        broker.server.broker.env,
        broker_id,
        broker.replicas.peers.connect,
        partial(serve_own, broker.server.broker),
    )


async def ask(cluster: BrokerCluster, links: BrokerLinks, asked: int, *, timeout_s: float = 2.0) -> Any:
    """Ask what only brokers may ask."""
    message = request_builders(ADD_PARTITIONS, 5).AddPartitionsToTxnRequest(transactions=())
    return await cluster[1].host.start(links.ask(asked, ADD_PARTITIONS, 5, message, timeout_s=timeout_s))


def test_brokers_are_asked_as_a_broker_and_so_is_this_one() -> None:
    """An API that clients may not ask is answered; several requests share a connection, each gets its own response."""

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        for asked in (1, 2, 2, 3):
            assert int((await ask(cluster, links, asked)).error_code) == 0
        assert cluster[2].server.counters.requests[ADD_PARTITIONS] == 2
        assert cluster[1].server.counters.requests[ADD_PARTITIONS] == 0

    run_scenario(scenario)


def test_a_broker_that_is_gone_fails_the_ask_and_is_reached_again_when_it_is_back() -> None:
    """BROKER_NOT_AVAILABLE at once, again at once for a moment, and then a new connection."""

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        await ask(cluster, links, 2)
        cluster[2].host.crash()
        for _ in range(3):
            with pytest.raises(BrokerNotAvailable):
                await ask(cluster, links, 2)
        await cluster.start(2)
        await cluster.pass_time(PAUSE_S)
        assert int((await ask(cluster, links, 2)).error_code) == 0
        with pytest.raises(BrokerNotAvailable):
            await ask(cluster, links, 77)

    run_scenario(scenario)


def test_a_silent_broker_fails_the_ask_in_time_and_its_connection_is_given_up() -> None:
    """REQUEST_TIMED_OUT: it is unknown whether it was carried out. A late response is dropped."""

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        await ask(cluster, links, 2)
        cluster.loop.clog(cluster[2].host, cluster[1].host)
        began_at = cluster.loop.time()
        with pytest.raises(RequestTimedOut):
            await ask(cluster, links, 2)
        assert 1.9 < cluster.loop.time() - began_at < 2.1
        cluster.loop.heal()
        await cluster.pass_time(PAUSE_S)
        assert int((await ask(cluster, links, 2)).error_code) == 0

    run_scenario(scenario)


def test_a_large_answer_is_decoded_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All transactional ids of a broker are megabytes; what is small is decoded at once."""

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        turns = 0
        next_turn = TurnQueue.next

        async def count(self: TurnQueue) -> None:
            nonlocal turns
            turns += self is links._env.turns
            await next_turn(self)

        monkeypatch.setattr(TurnQueue, "next", count)
        monkeypatch.setattr(broker_turns, "PIECES_AT_ONCE", 1)
        message = request_builders(API_VERSIONS, 4).ApiVersionsRequest(
            client_software_name="a", client_software_version="1"
        )
        first = await cluster[1].host.start(links.ask(2, API_VERSIONS, 4, message))
        assert turns == 0
        monkeypatch.setattr(broker_links, "LARGE_BYTES", 0)
        assert await cluster[1].host.start(links.ask(2, API_VERSIONS, 4, message)) == first
        assert turns >= len(first.api_keys)

    run_scenario(scenario)


def test_requests_to_a_broker_do_not_replace_its_fetch_connection() -> None:
    """The connection on which a broker fetches is not superseded by those on which it asks."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(isr=(2, 1, 3))
        await cluster.pass_time(0.5)
        links = links_of(cluster, 1)
        fetcher = cluster[1].replicas.peers.fetchers[2]
        channel = fetcher._channel
        assert channel is not None
        for _ in range(3):
            await ask(cluster, links, 2)
            assert await cluster[2].host.start(cluster[2].produce("a")) == "committed"
        assert fetcher._channel is channel

    run_scenario(scenario)


def test_closing_answers_every_waiter() -> None:
    """A broker that stops answers every waiting caller."""

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        await ask(cluster, links, 2)
        cluster.loop.clog(cluster[2].host, cluster[1].host)
        waiting = cluster[1].host.start(links.ask(2, ADD_PARTITIONS, 5, _empty(), timeout_s=60))
        await cluster.pass_time(0.1)
        cluster[1].host.call(links.close)
        with pytest.raises(BrokerNotAvailable):
            await waiting

    run_scenario(scenario)


def _empty() -> Any:
    return request_builders(ADD_PARTITIONS, 5).AddPartitionsToTxnRequest(transactions=())


def test_an_answer_that_cannot_be_read_costs_that_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """BROKER_NOT_AVAILABLE: callers await KafkaErrors, and some of their tasks end the node for any other."""

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        sound = broker_links.decode_response

        def decode(*args: Any) -> Any:
            raise ValueError("a string is cut off")

        monkeypatch.setattr(broker_links, "decode_response", decode)
        with pytest.raises(BrokerNotAvailable, match="broker 2"):
            await ask(cluster, links, 2)
        monkeypatch.setattr(broker_links, "decode_response", sound)
        await cluster.pass_time(PAUSE_S)
        assert int((await ask(cluster, links, 2)).error_code) == 0

    run_scenario(scenario)


def test_a_bug_in_our_own_handler_is_reported_like_another_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """UNKNOWN_SERVER_ERROR, as a connection's dispatch would have it; a simulation hears of it."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        bugs: list[str] = []
        monkeypatch.setattr(links._env, "on_bug", lambda: bugs.append("told"))
        change_row(monkeypatch, ADD_PARTITIONS, handle=broken)
        with pytest.raises(UnknownServerError):
            await ask(cluster, links, 1)
        assert bugs == ["told"]

    run_scenario(scenario)


def write_of(*, batches: int) -> Any:
    """Return a request with so many parts."""
    make = request_builders(WRITE_STATE, 1)
    batch = make.StateBatch(first_offset=0, last_offset=0, delivery_state=2, delivery_count=1)
    partition = make.PartitionData(
        partition=0,
        state_epoch=0,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=0,
        state_batches=(batch,) * batches,
    )
    topic = make.WriteStateData(topic_id=UUID(int=8), partitions=(partition,))
    return make.WriteShareGroupStateRequest(group_id="g", topics=(topic,))


@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("batches", [0, 1_000], ids=["small", "decoded in turns"])
def test_requests_overlap_at_another_broker_where_their_api_does(
    monkeypatch: pytest.MonkeyPatch, overlaps: bool, batches: int
) -> None:
    """A broker asks for many share states at once, each of which waits for a commit (`Api.overlaps`)."""
    assert all(row_of(each).overlaps for each in SHARE_STATES)
    begun: list[asyncio.Event] = []

    async def waiting(*_: Any) -> Any:
        begun.append(asyncio.Event())
        await begun[-1].wait()
        return build_response(WRITE_STATE, 1, results=())

    async def scenario(cluster: BrokerCluster) -> None:
        links = links_of(cluster, 1)
        change_row(monkeypatch, WRITE_STATE, handle=waiting, overlaps=overlaps)
        message = write_of(batches=batches)
        asked = [cluster[1].host.start(links.ask(2, WRITE_STATE, 1, message)) for _ in range(3)]
        await cluster.pass_time(0.5)
        assert len(begun) == (3 if overlaps else 1)
        for _ in asked:
            for each in begun:
                each.set()
            await cluster.pass_time(0.1)
        assert all(each.done() and each.result().results == () for each in asked)

    run_scenario(scenario)
