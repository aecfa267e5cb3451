"""Claims about the connections of the admin API."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from raftlog.admin.connections import Connections
from raftlog.admin.limits import Limits
from raftlog.broker.network.admission import CONNECTION_BYTES
from raftlog.cli import exits, ready
from raftlog.testing.cluster import AdminCluster
from tests.admin.certificate import make_certificate, needs_openssl
from tests.kit.waits import PATIENCE_S


@needs_openssl
def test_api_speaks_https_with_its_certificate_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that trusts the certificate gets a response; a plain HTTP client does not. A container's health check
    uses HTTPS too.
    """
    certificate, key = make_certificate(tmp_path)
    settings = {"raftlog.admin.ssl.certificate": str(certificate), "raftlog.admin.ssl.key": str(key)}
    with AdminCluster(1, settings=settings) as cluster:
        address = cluster.admin_url().removeprefix("http://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(
            f"https://{address}/v1/live", context=trusting, timeout=PATIENCE_S
        ) as answer:
            assert json.load(answer)["status"] == "alive"
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"http://{address}/v1/live", timeout=PATIENCE_S)
        monkeypatch.setenv("RAFTLOG_ADMIN_LISTENER", address)
        assert ready.main() == exits.UNREACHABLE
        monkeypatch.setenv("RAFTLOG_ADMIN_SSL_CERTIFICATE", str(certificate))
        assert ready.main() == exits.OK


def test_slow_client_delays_no_other(cluster: AdminCluster) -> None:
    """Half a request is waited for, not with: others are answered meanwhile."""
    host, _, port = cluster.admin_url(1).removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as slow:
        slow.sendall(b"POST /v3/clusters/x/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n")
        with urllib.request.urlopen(f"{cluster.admin_url(1)}/v1/live", timeout=PATIENCE_S) as answer:
            assert answer.status == 200


def test_health_is_answered_while_clients_have_all_places() -> None:
    """The API asks its own brokers: as a node of the cluster, not as one more client. And why they have them all."""
    memory = {"raftlog.memory.max.bytes": str(8 * 2 * CONNECTION_BYTES)}
    with AdminCluster(1, settings=memory) as cluster:
        host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
        with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))):
            for _ in range(3):
                with urllib.request.urlopen(f"{cluster.admin_url(1)}/v1/health", timeout=30) as answer:
                    health = json.load(answer)
                assert [each["state"] for each in health["brokers"]] == ["in_service"]
                assert "memory_for_connections_exhausted" in [each["code"] for each in health["reasons"]]


async def test_what_is_no_request_is_freed_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, without garbage collection: an error refers to all that was received with it."""
    lost = asyncio.Queue[None]()
    monkeypatch.setattr(
        Connections,
        "_remove",
        lambda self, each, leave=Connections._remove: (leave(self, each), lost.put_nowait(None)),
    )
    server = web.Server(lambda _request: web.Response())  # type: ignore[arg-type,return-value]
    quiet = logging.Logger("quiet", logging.CRITICAL)  # a record keeps its error
    connections = Connections(server, Limits(), logger=quiet)
    listening = await asyncio.get_running_loop().create_server(connections.accept, "127.0.0.1", 0)
    gc.collect()
    gc.disable()
    try:
        _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        for _ in range(4):
            writer.write(b"\xff" * 100_000)
            await asyncio.sleep(0)
        writer.close()
        await asyncio.wait_for(lost.get(), PATIENCE_S)
        await asyncio.sleep(0)  # the connection's task ends
        kept = [each for each in gc.get_objects() if isinstance(each, BadHttpMessage)]
    finally:
        gc.enable()
        listening.close()
    assert [str(each)[:80] for each in kept] == []
    assert len(connections._places) == 0
