"""Claims about the connections of the admin API."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

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
