"""GetTelemetrySubscriptions 0: which metrics a client is to push, and how often (KIP-714)."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.client_telemetry import COMPRESSIONS, MAX_LABEL_CHARS, ClientAttributes
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.network.connection import UNKNOWN
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import NoRights

API_KEY: Final = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Return the combined subscriptions that match this client. A client without an id is given an id."""
    make = response_builders(API_KEY, request.api_version)
    given = message.client_instance_id
    instance_id = given or UUID(int=broker.env.unguessable.getrandbits(128), version=4)
    attributes = attributes_of(request, instance_id)
    asked = broker.telemetry.subscribe(
        instance_id, attributes, broker.image(), now=asyncio.get_running_loop().time()
    )
    return make.GetTelemetrySubscriptionsResponse(
        throttle_time=0,
        error_code=0,
        client_instance_id=instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=COMPRESSIONS,
        push_interval=asked.interval_ms,
        telemetry_max_bytes=broker.config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=asked.metrics,
    )


def attributes_of(request: RequestContext, instance_id: UUID) -> ClientAttributes:
    """Return the labels for matching subscriptions, each text cut to what is kept."""
    connection = request.connection
    software, port = (UNKNOWN, 0) if connection is None else (connection.software, connection.peer_port)
    texts = (str(instance_id), request.client_id or "", *software, request.peer_host, str(port))
    return ClientAttributes(*(each[:MAX_LABEL_CHARS] for each in texts))


API: Final = Api(
    key=API_KEY, handle=handle, needs=NoRights(), max_parts=AT_ONCE, audit=NoChange(), controllers=False
)
