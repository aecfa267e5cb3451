"""RenewDelegationToken 1-2: the owner of a token, or a renewer, extends it (KIP-48)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE
from raftlog.broker.api import AT_ONCE, Api, Change
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.token_messages import change_end, token_outcomes
from raftlog.metadata.controller_api import RenewToken
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DecidedByController

API_KEY: Final = ApiKey.RENEW_DELEGATION_TOKEN


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller renew a token, and wait until this broker applies that."""
    proof, period_ms = bytes(message.hmac), message.renew_period
    expires_ms = await change_end(broker, request, proof, change=RenewToken, period_ms=period_ms)
    make = response_builders(API_KEY, request.api_version)
    return make.RenewDelegationTokenResponse(error_code=NONE, expiry_timestamp=expires_ms, throttle_time=0)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DecidedByController(),
    max_parts=AT_ONCE,
    audit=Change(token_outcomes),
    controllers=True,
)
