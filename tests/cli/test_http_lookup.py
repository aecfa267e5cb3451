"""The address of a cluster's HTTP API, from its brokers' settings; without a cluster."""

from __future__ import annotations

import pytest

from raftlog.base.config.network import http_url

LISTENER, PROTOCOL = "raftlog.admin.listener", "raftlog.admin.security.protocol"
ADVERTISED = "raftlog.admin.advertised.listener"


@pytest.mark.parametrize(
    ("settings", "nearby", "url"),
    [
        ({LISTENER: "0.0.0.0:9644"}, False, "http://box:9644"),
        ({LISTENER: ":9644", PROTOCOL: "SSL"}, False, "https://box:9644"),
        ({LISTENER: "10.0.0.7:9644"}, False, "http://10.0.0.7:9644"),
        ({LISTENER: "[fd00::7]:9644"}, False, "http://[fd00::7]:9644"),
        ({LISTENER: "127.0.0.1:9644"}, True, "http://127.0.0.1:9644"),
        ({LISTENER: "127.0.0.1:9644"}, False, None),
        ({LISTENER: "127.0.0.1:0"}, True, None),
        ({LISTENER: ""}, True, None),
        ({}, True, None),
        ({LISTENER: "0.0.0.0:9644", ADVERTISED: "localhost:19641"}, True, "http://localhost:19641"),
        ({LISTENER: "0.0.0.0:9644", ADVERTISED: "localhost:19641"}, False, "http://box:9644"),
        ({LISTENER: "127.0.0.1:9644", ADVERTISED: "door:80", PROTOCOL: "SSL"}, False, "https://door:80"),
    ],
)
def test_an_api_is_looked_for_where_it_can_be_reached(
    settings: dict[str, str], nearby: bool, url: str | None
) -> None:
    """Where the broker says, else at the host that it advertises; on loopback only for this machine."""
    assert http_url(settings, "box", nearby=nearby) == url
