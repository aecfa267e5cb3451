"""ExpireDelegationToken 1-2: the owner of a token, or a renewer, has it end soon or at once (KIP-48)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, wait_for_image
from raftlog.broker.handlers.token_messages import demand_password_login, find_token_id, shows
from raftlog.metadata.controller_api import ExpireToken, TokenTimes
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders

API_KEY: Final = ApiKey.EXPIRE_DELEGATION_TOKEN


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller end a token, and wait until this broker goes by that."""
    demand_password_login(request)
    token_id = await find_token_id(broker, bytes(message.hmac))
    asked = ExpireToken(token_id, request.principal, message.expiry_time_period)
    times = await ask(broker, asked, TokenTimes)
    await wait_for_image(broker, lambda image: shows(image, token_id, times))
    make = response_builders(API_KEY, request.api_version)
    return make.ExpireDelegationTokenResponse(
        error_code=NONE, expiry_timestamp=times.expires_ms, throttle_time=0
    )
