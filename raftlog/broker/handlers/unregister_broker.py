"""UnregisterBroker 0: remove a broker, which stays out until its process restarts (KIP-500)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.broker.api import AT_ONCE, Api
from raftlog.broker.audited_changes import named_by_request
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask
from raftlog.metadata.controller_api import Done, UnregisterBroker
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER

API_KEY: Final = ApiKey.UNREGISTER_BROKER


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller drop the registration."""
    make = response_builders(API_KEY, request.api_version)
    await ask(broker, UnregisterBroker(message.broker_id), Done)
    return make.UnregisterBrokerResponse(error_code=0, error_message=None)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=ALTER_CLUSTER,
    max_parts=AT_ONCE,
    audit=named_by_request("broker", "broker_id"),
    controllers=True,
)
