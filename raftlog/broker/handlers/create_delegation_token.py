"""CreateDelegationToken 1-3: create a token for the user, or for another user if the ACLs allow it (KIP-48)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any, Final

from raftlog.base.errors import NONE
from raftlog.broker.api import AT_ONCE, Api, Change
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, wait_for_image
from raftlog.broker.handlers.shared.token_messages import (
    demand_enabled,
    demand_password_login,
    principal_fields,
    principal_of,
    token_outcomes,
)
from raftlog.broker.rights import demand
from raftlog.metadata.controller_api import CreateToken, TokenTimes
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.CREATE_DELEGATION_TOKEN

ID_BYTES: Final = 16
"""Random bytes in a token's id, for which Kafka uses a random UUID."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller create a token, and wait until this broker accepts it."""
    demand_password_login(request)
    owner = request.principal
    if getattr(message, "owner_principal_name", None):
        owner = principal_of(message.owner_principal_type or "", message.owner_principal_name, "owner")
    if owner != request.principal:
        demand(broker, request, Operation.CREATE_TOKENS, ResourceType.USER, owner)
    demand_enabled(broker)
    token_id = urlsafe_b64encode(broker.env.unguessable.randbytes(ID_BYTES)).decode().rstrip("=")
    renewers = tuple(
        principal_of(each.principal_type, each.principal_name, "renewers") for each in message.renewers
    )
    asked = CreateToken(token_id, owner, request.principal, renewers, message.max_lifetime)
    times = await ask(broker, asked, TokenTimes)
    await wait_for_image(broker, lambda image: token_id in image.tokens)
    make = response_builders(API_KEY, request.api_version)
    return make.CreateDelegationTokenResponse(
        error_code=NONE,
        **principal_fields("", owner),
        **principal_fields("token_requester_", request.principal),
        issue_timestamp=times.issued_ms,
        expiry_timestamp=times.expires_ms,
        max_timestamp=times.max_ms,
        token_id=token_id,
        hmac=broker.token_key.hmac_of(token_id),
        throttle_time=0,
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.CREATE_TOKENS, ResourceType.USER),)),
    max_parts=AT_ONCE,
    audit=Change(token_outcomes),
    controllers=True,
)
