"""Delegation tokens are created, renewed and expired (KIP-48): by their owner, by renewers, and by the controller's
clock.

It does not know passwords, only tokens' ids and whether the cluster has tokens at all. `now_ms` is wall time of the
active controller's clock.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from raftlog.base.config import NodeConfig
from raftlog.base.config.setting import LONG_MAX
from raftlog.base.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidRequest,
    PolicyViolation,
)
from raftlog.base.machine import Decision
from raftlog.controller.acls import MAX_NAME_CHARS
from raftlog.controller.decisions import DECIDE_AGAIN, MAX_OTHER_RECORDS, LogEvent
from raftlog.controller.metadata_limits import MetadataLimits
from raftlog.metadata.controller_api import CreateToken, ExpireToken, RenewToken, TokenTimes
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import TokenChanged, TokenRemoved
from raftlog.security.tokens import DelegationToken

MAX_RENEWERS: Final = 32

MAX_TOKENS_OF_OWNER: Final = 1_000
"""Users need no authorization for their own tokens, so the number per user is limited."""


def decide_create_token(
    image: MetadataImage, request: CreateToken, config: NodeConfig, now_ms: int
) -> Decision:
    """Create a token. A repeated request finds its own token, by the id."""
    _demand_enabled(config)
    made = image.tokens.get(request.token_id)
    if made is not None:
        return Decision((), _times(made))
    _check_names(request)
    most_ms = config.delegation_token_max_lifetime_ms
    max_ms = _later(now_ms, min(most_ms, request.max_lifetime_ms) if request.max_lifetime_ms > 0 else most_ms)
    token = DelegationToken(
        request.token_id,
        request.owner,
        request.requester,
        tuple(dict.fromkeys(request.renewers)),
        now_ms,
        min(max_ms, _later(now_ms, config.delegation_token_expiry_time_ms)),
        max_ms,
    )
    if sum(1 for each in image.tokens.values() if each.owner == token.owner) >= MAX_TOKENS_OF_OWNER:
        raise PolicyViolation(f"a user has at most {MAX_TOKENS_OF_OWNER} delegation tokens")
    MetadataLimits(image, config).add_token(token)
    return _change(token, "delegation_token_created", requester=token.requester)


def decide_renew_token(
    image: MetadataImage, request: RenewToken, config: NodeConfig, now_ms: int
) -> Decision:
    """Extend a token, for the requested time or the configured time."""
    token = _find(image, request, config)
    _demand_unexpired(token, now_ms)
    most_ms = config.delegation_token_expiry_time_ms
    wanted_ms = min(most_ms, request.period_ms) if request.period_ms > 0 else most_ms
    renewed = replace(token, expires_ms=min(token.max_ms, _later(now_ms, wanted_ms)))
    return _change(renewed, "delegation_token_renewed", by=request.principal)


def decide_expire_token(
    image: MetadataImage, request: ExpireToken, config: NodeConfig, now_ms: int
) -> Decision:
    """Expire a token after a time; at once if that is negative."""
    token = _find(image, request, config)
    if request.period_ms < 0:
        event = LogEvent(
            "info", "delegation_token_removed", {"token_id": token.token_id, "owner": token.owner}
        )
        times = TokenTimes(token.issued_ms, now_ms, token.max_ms)
        return Decision((TokenRemoved(token.token_id),), times, (event,))
    _demand_unexpired(token, now_ms)
    ended = replace(token, expires_ms=min(token.max_ms, _later(now_ms, request.period_ms)))
    return _change(ended, "delegation_token_shortened", by=request.principal)


def decide_remove_expired_tokens(image: MetadataImage, now_ms: int) -> Decision:
    """Remove the tokens that are no longer valid for a login."""
    expired = [each for each in image.tokens.values() if each.is_expired(now_ms)]
    some = list(islice(expired, MAX_OTHER_RECORDS))
    events = tuple(
        LogEvent("info", "delegation_token_expired", {"token_id": each.token_id, "owner": each.owner})
        for each in some
    )
    reply = DECIDE_AGAIN if len(some) < len(expired) else None
    return Decision(tuple(TokenRemoved(each.token_id) for each in some), reply, events)


def _find(image: MetadataImage, request: RenewToken | ExpireToken, config: NodeConfig) -> DelegationToken:
    _demand_enabled(config)
    token = image.tokens.get(request.token_id)
    if token is None:
        raise DelegationTokenNotFound("there is no such delegation token")
    if not token.may_be_renewed_by(request.principal):
        raise DelegationTokenOwnerMismatch("only the token's owner and its renewers may do that")
    return token


def _demand_enabled(config: NodeConfig) -> None:
    if not config.delegation_token_secret_key:
        raise DelegationTokenAuthDisabled(
            "delegation tokens are disabled: delegation.token.secret.key is not set"
        )


def _demand_unexpired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise DelegationTokenExpired("the delegation token has expired")


def _check_names(request: CreateToken) -> None:
    if len(request.renewers) > MAX_RENEWERS:
        raise InvalidRequest(f"renewers: at most {MAX_RENEWERS}, not {len(request.renewers)}")
    for field, principal in (("owner", request.owner), *(("renewers", each) for each in request.renewers)):
        if len(principal) > MAX_NAME_CHARS:
            raise InvalidRequest(f"{field}: at most {MAX_NAME_CHARS} characters, not {len(principal)}")


def _change(token: DelegationToken, event: str, **fields: str) -> Decision:
    facts = {"token_id": token.token_id, "owner": token.owner, **fields}
    return Decision((TokenChanged(token),), _times(token), (LogEvent("info", event, facts),))


def _times(token: DelegationToken) -> TokenTimes:
    return TokenTimes(token.issued_ms, token.expires_ms, token.max_ms)


def _later(now_ms: int, period_ms: int) -> int:
    return min(LONG_MAX, now_ms + period_ms)
