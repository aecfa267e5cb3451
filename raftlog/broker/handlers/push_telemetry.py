"""PushTelemetry 0: a client's metrics, which are shown beside the broker's own (KIP-714)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.client_telemetry import Push
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.get_telemetry_subscriptions import attributes_of
from raftlog.broker.long_work.turns import run_steps
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response
from raftlog.security.acls import NoRights

API_KEY: Final = ApiKey.PUSH_TELEMETRY


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Store the metrics in turns of the loop, or return the error."""
    instance_id = message.client_instance_id
    if instance_id is None:
        raise InvalidRequest("client_instance_id must be the id that GetTelemetrySubscriptions returned")
    pauses = broker.telemetry.push(
        instance_id,
        attributes_of(request, instance_id),
        broker.image(),
        Push(message.subscription_id, message.compression_type, bytes(message.metrics), message.terminating),
        max_bytes=broker.config.telemetry_max_bytes,
        now=asyncio.get_running_loop().time(),
    )
    await run_steps(
        broker.env,
        pauses,
        at_once=1,
        goes_on=lambda: (
            request.is_awaited or message.terminating
        ),  # a client that ends may not wait for the response
    )
    return build_response(API_KEY, request.api_version)


API: Final = Api(
    key=API_KEY, handle=handle, needs=NoRights(), max_parts=AT_ONCE, audit=NoChange(), controllers=False
)
