"""DescribeDelegationToken 1-3: the tokens that a user may see, with their secrets (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE
from raftlog.broker.api import Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.token_messages import (
    demand_enabled,
    demand_password_login,
    principal_fields,
)
from raftlog.broker.rights import may
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import MessageBuilders, response_builders
from raftlog.security.acls import Filtered, Operation, ResourceType, Right
from raftlog.security.tokens import DelegationToken

API_KEY: Final = ApiKey.DESCRIBE_DELEGATION_TOKEN


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond from the newest image: all tokens that the sender may see, or the tokens of some of `owners`."""
    demand_password_login(request)
    demand_enabled(broker)
    owners = None
    if message.owners is not None:
        owners = frozenset(f"{each.principal_type}:{each.principal_name}" for each in message.owners)
    make = response_builders(API_KEY, request.api_version)

    def described(token: DelegationToken) -> Any:
        is_asked = owners is None or any(map(token.concerns, owners))
        if not is_asked or not _may_see(broker, request, token):
            return None
        return _described(make, token, broker.token_key.hmac_of(token.token_id))

    tokens = (described(each) for each in tuple(broker.image().tokens.values()))
    return make.DescribeDelegationTokenResponse(error_code=NONE, tokens=tokens, throttle_time=0)


def _may_see(broker: BrokerContext, request: RequestContext, token: DelegationToken) -> bool:
    """Return whether a token is the sender's, or an ACL lets the sender describe it.

    Anyone able to see a token can use it.
    """
    return (
        token.concerns(request.principal)
        or may(broker, request, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or may(broker, request, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(make: MessageBuilders, token: DelegationToken, proof: bytes) -> Any:
    return make.DescribedDelegationToken(
        **principal_fields("", token.owner),
        **principal_fields("token_requester_", token.requester),
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=proof,
        renewers=tuple(
            make.DescribedDelegationTokenRenewer(**principal_fields("", each)) for each in token.renewers
        ),
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Filtered(
        (
            Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
            Right(Operation.DESCRIBE_TOKENS, ResourceType.USER),
        )
    ),
    max_parts=100,  # owners, each of which is compared with all tokens, in turns
    audit=NoChange(),
    controllers=True,
)
