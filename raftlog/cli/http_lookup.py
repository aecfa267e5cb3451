"""The address of a cluster's HTTP API, from its brokers' settings over Kafka's protocol."""

from __future__ import annotations

import socket

from raftlog.base.config.network import http_url, is_loopback
from raftlog.cli import exits
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target


def find_http_api(target: Target) -> str:
    """Return the URL of the first broker's HTTP API that can be reached from this machine. Raises Failure."""
    reasons = []
    for broker in target.brokers():
        try:
            rows = settings_of(target, "broker", str(broker.broker_id))
        except Failure as failure:
            if failure.code == exits.DENIED:  # no other broker will say more
                asked = str(failure).removeprefix(f"broker {broker.broker_id}: ")
                raise Failure(
                    f"{asked}, to find the HTTP API; set its address with --http", exits.DENIED
                ) from None
            reasons.append(str(failure))
            continue
        settings = {row["name"]: row["value"] or "" for row in rows}
        found = http_url(settings, str(broker.host), nearby=_is_nearby(target.servers, str(broker.host)))
        if found:
            return found
        where = settings.get("raftlog.admin.listener") or "nowhere"
        reasons.append(f"that of broker {broker.broker_id} listens at {where}")
    why = "; ".join(reasons)
    raise Failure(
        f"no HTTP API of the cluster at {target.servers} can be reached from here ({why}); "
        "set its address with --http",
        exits.UNREACHABLE,
    )


def _is_nearby(servers: str, host: str) -> bool:
    """Whether a broker is on this machine: its host is, or that of the servers by which it was found."""
    own = [each.strip().rpartition(":")[0].strip("[]") for each in servers.split(",")]
    return any(is_loopback(each) or each == socket.gethostname() for each in [host, *own])
