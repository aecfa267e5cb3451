"""A registry forwards a login to the node that leads, and to no other host that could stand in for it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from yarl import URL

from raftlog.admin.errors import ApiError
from raftlog.admin.native.nodes import why_no_login
from raftlog.admin.route import Call
from raftlog.admin.schema_registry import forwarding
from raftlog.admin.schema_registry.forwarding import Forwarder
from raftlog.base.config.tls import ListenerTls
from raftlog.broker.links.tls import PeerTls
from raftlog.metadata.image import BrokerState, Endpoint
from raftlog.schemas.errors import FORWARDING_FAILED, SchemaError
from raftlog.testing.certificates import Certificates

LOGIN = "Basic YWxpY2U6cGFzc3dvcmQ="
HERE, ELSEWHERE = "127.0.0.1", "elsewhere.example"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Certificates, Certificates]]:
    """That of the cluster, and a stranger's. Each has certificates for this host and for another."""
    found = []
    for _ in range(2):
        made = Certificates(tmp_path_factory.mktemp("authority"))
        made.make([[HERE], [ELSEWHERE]])
        found.append(made)
    yield found[0], found[1]


def tls_of(authority: Path | None, identification: str = "") -> ListenerTls:
    """Return the TLS of a node towards others."""
    names = {"ssl_truststore_location": "ssl.truststore.location"}
    location = "" if authority is None else str(authority)
    return ListenerTls(
        ssl_truststore_type="PEM",
        ssl_truststore_location=location,
        ssl_endpoint_identification_algorithm=identification,
        listener="SSL",
        names=names,
    )


async def in_place(work: Any) -> Any:
    return work()


def forwarded(
    monkeypatch: pytest.MonkeyPatch, tls: ListenerTls, *, certificate: Path | None, login: str = LOGIN
) -> tuple[Any, list[str | None]]:
    """Return the outcome of a forwarded request, and the logins that the server behind its address got.

    `certificate`: of that server, which has plain HTTP without.
    """
    heard: list[str | None] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        heard.append(request.headers.get("Authorization"))
        return web.Response(text="[]")

    async def run() -> Any:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        await web.TCPSite(runner, HERE, 0, ssl_context=context).start()
        listener = f"{HERE}:{runner.addresses[0][1]}"

        async def settings_of(*_: object) -> dict[str, str]:
            protocol = "PLAINTEXT" if certificate is None else "SSL"
            return {
                "raftlog.schema.registry.listener": listener,
                "raftlog.admin.security.protocol": protocol,
            }

        monkeypatch.setattr(forwarding, "settings_of_broker", settings_of)
        peers = PeerTls(tls)
        brokers = {
            each: BrokerState(each, 1, uuid4(), (Endpoint("SSL", HERE, 9092, "SSL"),)) for each in (1, 2)
        }
        config = SimpleNamespace(node_id=1, admin_tls=tls, inter_broker_listener_name="SSL", tls={"SSL": tls})
        node: Any = SimpleNamespace(
            config=config,
            image=lambda: SimpleNamespace(brokers=brokers),
            tls_options=lambda _: peers.options(in_place),
        )
        call: Any = object.__new__(Call)
        call.node, call.body, call.request_id = node, None, "r"
        call.caller = SimpleNamespace(principal="User:alice" if login else "")
        url = URL("/subjects")
        headers = {"Authorization": login} if login else {}
        call.raw = SimpleNamespace(headers=headers, rel_url=url, url=url, query_string="", method="GET")
        forwarder = Forwarder(node)
        try:
            return await forwarder.forward(call, 2)
        except (ApiError, SchemaError) as error:
            return error
        finally:
            await forwarder.close()
            await runner.cleanup()

    return asyncio.run(run()), heard


def test_a_login_goes_to_a_node_of_the_clusters_authority_whatever_its_host(
    monkeypatch: pytest.MonkeyPatch, authorities: tuple[Certificates, Certificates]
) -> None:
    """An empty ssl.endpoint.identification.algorithm asks for that; the chain is verified all the same."""
    ours, theirs = authorities
    outcome, heard = forwarded(monkeypatch, tls_of(ours.ca), certificate=ours.node(ELSEWHERE))
    assert (outcome.status, heard) == (200, [LOGIN])
    for host in (HERE, ELSEWHERE):
        outcome, heard = forwarded(monkeypatch, tls_of(ours.ca), certificate=theirs.node(host))
        assert (outcome.code, heard) == (FORWARDING_FAILED, [])


def test_a_login_goes_to_no_node_of_another_name_where_names_count(
    monkeypatch: pytest.MonkeyPatch, authorities: tuple[Certificates, Certificates]
) -> None:
    """The default: https."""
    ours, _ = authorities
    strict = tls_of(ours.ca, "https")
    outcome, heard = forwarded(monkeypatch, strict, certificate=ours.node(ELSEWHERE))
    assert (outcome.code, heard) == (FORWARDING_FAILED, [])
    outcome, heard = forwarded(monkeypatch, strict, certificate=ours.node(HERE))
    assert (outcome.status, heard) == (200, [LOGIN])


def test_a_login_goes_to_no_unnamed_node_by_the_systems_authorities(
    monkeypatch: pytest.MonkeyPatch, authorities: tuple[Certificates, Certificates]
) -> None:
    """Anyone has a certificate of one of them for some host. The system trusts the server's authority here."""
    ours, _ = authorities
    monkeypatch.setenv("SSL_CERT_FILE", str(ours.ca))
    certificate = ours.node(ELSEWHERE)
    outcome, heard = forwarded(monkeypatch, tls_of(None), certificate=certificate)
    assert (outcome.body.error_code, heard) == (FORWARDING_FAILED, [])
    assert "ssl.endpoint.identification.algorithm is empty and there is no ssl.truststore" in str(outcome)
    outcome, heard = forwarded(monkeypatch, tls_of(None), certificate=certificate, login="")
    assert (outcome.status, heard) == (200, [None])
    outcome, heard = forwarded(monkeypatch, tls_of(None, "https"), certificate=ours.node(HERE))
    assert (outcome.status, heard) == (200, [LOGIN])


def test_a_login_that_came_over_tls_is_not_forwarded_without_it(
    monkeypatch: pytest.MonkeyPatch, authorities: tuple[Certificates, Certificates]
) -> None:
    """The node that leads may have another raftlog.admin.security.protocol."""
    outcome, heard = forwarded(monkeypatch, tls_of(authorities[0].ca), certificate=None)
    assert (outcome.body.error_code, heard) == (FORWARDING_FAILED, [])
    assert "the login that came over TLS is not sent to it" in str(outcome)


def test_a_login_may_go_where_a_listener_without_tls_has_the_systems_authorities() -> None:
    """Python's default context verifies the chain and the host then."""
    broker = BrokerState(2, 1, uuid4(), (Endpoint("PLAINTEXT", HERE, 9092),))
    config = SimpleNamespace(admin_tls=object(), inter_broker_listener_name="PLAINTEXT", tls={})
    node: Any = SimpleNamespace(config=config)
    assert why_no_login(node, broker, is_tls=True) == ""
