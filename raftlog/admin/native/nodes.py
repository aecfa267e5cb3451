"""The brokers and their HTTP APIs' addresses, from their settings: a node's page links to the others."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.route import Call, Route
from raftlog.admin.view import NodeView
from raftlog.base.config.network import http_url, is_loopback
from raftlog.base.config.tls import TLS_PROTOCOLS
from raftlog.base.errors import KafkaError
from raftlog.metadata.image import BrokerState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import DESCRIBE_CLUSTER

BROKER: Final = 4
"""The resource type of a broker's configs."""
SETTINGS: Final = (
    "raftlog.admin.advertised.listener",
    "raftlog.admin.listener",
    "raftlog.admin.security.protocol",
)
ANSWER_S: Final = 1.0
"""Longest wait for each broker, in parallel."""


class NodeLine(msgspec.Struct):
    """A broker. `http_url` null: it has no HTTP API that the caller could reach, or does not answer."""

    broker_id: int
    http_url: str | None


class NodeLines(msgspec.Struct):
    """All brokers, by id; node `node_id` answers."""

    node_id: int
    data: list[NodeLine]


async def list_nodes(call: Call) -> NodeLines:
    """Ask each broker for its settings; loopback addresses are returned only to callers on this machine."""
    brokers = [each for _, each in sorted(call.node.image().brokers.items())]
    data = await asyncio.gather(*(_line(call, each) for each in brokers))
    return NodeLines(call.node.config.node_id, list(data))


async def _line(call: Call, broker: BrokerState) -> NodeLine:
    nearby = is_loopback(urlsplit(call.base_url).hostname or "")
    return NodeLine(broker.broker_id, await http_url_of(call, broker, nearby=nearby))


def is_nearby(node: NodeView, host: str) -> bool:
    """Return whether a broker with this host for other brokers is on the machine of this node."""
    own = node.image().brokers.get(node.config.node_id)
    endpoint = None if own is None else own.endpoint(node.config.inter_broker_listener_name)
    return is_loopback(host) or (endpoint is not None and endpoint.host == host)


async def http_url_of(call: Call, broker: BrokerState, *, nearby: bool | None = None) -> str | None:
    """Return the address of a broker's HTTP API.

    `nearby`: whether the caller is on the brokers' machine; None: this node is the caller.
    """
    settings = await settings_of_broker(call, broker.broker_id, SETTINGS)
    endpoint = broker.endpoint(call.node.config.inter_broker_listener_name)
    host = "" if endpoint is None else endpoint.host
    return http_url(settings, host, nearby=is_nearby(call.node, host) if nearby is None else nearby)


async def settings_of_broker(call: Call, broker_id: int, names: tuple[str, ...]) -> dict[str, str]:
    """Return these settings of a broker; none if it does not answer soon."""
    make = builders_for(ApiKey.DESCRIBE_CONFIGS)
    resource = make.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker_id), configuration_keys=names
    )
    request = make.DescribeConfigsRequest(
        resources=(resource,), include_synonyms=False, include_documentation=False
    )
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await call.asker.ask(ApiKey.DESCRIBE_CONFIGS, request, broker_id=broker_id, at_once=True)
    except (BrokerUnreachable, KafkaError, TimeoutError):
        return {}
    return {each.name: each.value or "" for each in answer.results[0].configs}


async def tls_to(node: NodeView, broker: BrokerState) -> dict[str, Any]:
    """Return the options of a connection to a broker's HTTP API over TLS. Raises ConnectionError.

    They are those of its listener for brokers; without TLS there, the authorities of the system count.
    """
    endpoint = broker.endpoint(node.config.inter_broker_listener_name)
    options = {} if endpoint is None or node.tls_options is None else await node.tls_options(endpoint)
    return options or {"ssl": True}


def why_no_login(node: NodeView, broker: BrokerState, *, is_tls: bool) -> str:
    """Return why a caller's login must not be sent to a broker's HTTP port; "" if it may be sent.

    `tls_to` always verifies the chain of the broker's certificate. Where it verifies no host, the certificate must be
    of an authority that the settings name: anyone can get one of the system's authorities.
    """
    if not is_tls:
        if node.config.admin_tls is None:
            return ""
        return "does not speak TLS: the login that came over TLS is not sent to it"
    endpoint = broker.endpoint(node.config.inter_broker_listener_name)
    if endpoint is None or endpoint.security_protocol not in TLS_PROTOCOLS:
        return ""
    tls = node.config.tls.get(endpoint.listener)
    if tls is None or tls.verifies_hosts or tls.names_authorities:
        return ""
    return (
        "cannot be told from other hosts: ssl.endpoint.identification.algorithm is empty and there is no "
        "ssl.truststore, so a login is not sent to it"
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/nodes",
        list_nodes,
        "List the brokers and where their HTTP APIs are",
        rights=DESCRIBE_CLUSTER,
    ),
)
