"""Converts delegation tokens between wire fields and values, for the four token APIs (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenNotFound,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    InvalidRequest,
)
from raftlog.base.principals import USER
from raftlog.broker.audit import Outcome
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, wait_for_image
from raftlog.metadata.controller_api import ExpireToken, RenewToken, TokenTimes
from raftlog.metadata.image import MetadataImage
from raftlog.security.acls import ANONYMOUS

NEWS_S: Final = 0.25
"""How long to wait for a token that another broker may just have created, in seconds."""


def demand_password_login(request: RequestContext) -> None:
    """Raise DelegationTokenRequestNotAllowed for an anonymous client, or for a login with a token.

    A token cannot create tokens, so a stolen token is only useful for its own lifetime.
    """
    login = None if request.connection is None else request.connection.login
    is_user = request.principal != ANONYMOUS and request.principal.startswith(f"{USER}:")
    if not is_user or (login is not None and login.token_id is not None):
        raise DelegationTokenRequestNotAllowed(
            "a connection authenticated by a delegation token may not do this"
        )


def demand_enabled(broker: BrokerContext) -> None:
    """Raise DelegationTokenAuthDisabled if tokens are not enabled."""
    if not broker.token_key.is_set:
        raise DelegationTokenAuthDisabled(
            "delegation tokens are disabled: delegation.token.secret.key is not set"
        )


def principal_of(kind: str, name: str, field: str) -> str:
    """Return a user as `User:name`. Raises InvalidPrincipalType for another type, InvalidRequest without a name."""
    if kind != USER:
        raise InvalidPrincipalType(f"{field}: the principal's type must be {USER}, not {kind[:100]!r}")
    if not name:
        raise InvalidRequest(f"{field}: the principal's name is empty")
    return f"{kind}:{name}"


def principal_fields(prefix: str, principal: str) -> dict[str, str]:
    """Return a principal's two fields of a response."""
    kind, _, name = principal.partition(":")
    return {f"{prefix}principal_type": kind, f"{prefix}principal_name": name}


async def find_token_id(broker: BrokerContext, proof: bytes) -> str:
    """Return the id of the token with this HMAC. Raises DelegationTokenAuthDisabled, DelegationTokenNotFound."""
    demand_enabled(broker)
    key = broker.token_key
    await wait_for_image(broker, lambda image: key.find(image.tokens, proof) is not None, timeout_s=NEWS_S)
    found = key.find(broker.image().tokens, proof)
    if found is None:
        raise DelegationTokenNotFound("there is no such delegation token")
    return found.token_id


async def change_end(
    broker: BrokerContext,
    request: RequestContext,
    proof: bytes,
    *,
    change: type[RenewToken | ExpireToken],
    period_ms: int,
) -> int:
    """Have the controller set a new expiry for the token with this HMAC, and return it in wall milliseconds.

    Returns once this broker applies it.
    """
    demand_password_login(request)
    token_id = await find_token_id(broker, proof)
    times = await ask(broker, change(token_id, request.principal, period_ms), TokenTimes)
    await wait_for_image(broker, lambda image: shows(image, token_id, times))
    return times.expires_ms


def shows(image: MetadataImage, token_id: str, times: TokenTimes) -> bool:
    """Return whether an image has the token with the controller's expiry time, or no longer has the token."""
    token = image.tokens.get(token_id)
    return token is None or token.expires_ms == times.expires_ms


def token_outcomes(_message: Any, response: Any) -> Iterator[Outcome]:
    """Yield the outcome with the id of a new token. Other requests name a token by its secret, which is not logged."""
    yield getattr(response, "token_id", "") or "delegation token", response.error_code
