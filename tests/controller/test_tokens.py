"""raftlog.controller.tokens: delegation tokens by the rules of KIP-48, and by the active controller's clock."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidRequest,
    PolicyViolation,
)
from raftlog.controller import tokens
from raftlog.controller.acls import MAX_NAME_CHARS
from raftlog.controller.tokens import MAX_RENEWERS
from raftlog.metadata.controller_api import CreateToken, ErrorReply, ExpireToken, RenewToken, TokenTimes
from raftlog.security.tokens import DelegationToken
from tests.controller.controller_cluster import ControllerCluster

SETTINGS: dict[str, Any] = {
    "delegation_token_secret_key": "key",
    "delegation_token_expiry_time_ms": 10_000,
    "delegation_token_max_lifetime_ms": 25_000,
    "delegation_token_expiry_check_interval_ms": 1_000,
}
OWNER, RENEWER, STRANGER = "User:al", "User:cy", "User:dan"


@pytest.fixture
def controllers() -> ControllerCluster:
    return started()


def started(**changes: Any) -> ControllerCluster:
    made = ControllerCluster(**(SETTINGS | changes))
    made.start(1)
    return made


def create(controllers: ControllerCluster, token_id: str = "id", **changes: Any) -> Any:
    fields = {"owner": OWNER, "requester": OWNER, "renewers": (RENEWER,), "max_lifetime_ms": -1}
    return controllers.ask(CreateToken(token_id, **(fields | changes)))


def code_of(reply: Any) -> int:
    return reply.error_code if isinstance(reply, ErrorReply) else 0


def test_a_token_is_a_record_with_its_times(controllers: ControllerCluster) -> None:
    """Times are the controller's, and the log names the token and its people."""
    now_ms = controllers.wall_clock_ms()
    with capture_logs() as logs:
        reply = create(controllers, requester="User:bob", renewers=(RENEWER, RENEWER))
    assert reply == TokenTimes(now_ms, now_ms + 10_000, now_ms + 25_000)
    assert controllers.image.tokens == {
        "id": DelegationToken("id", OWNER, "User:bob", (RENEWER,), now_ms, now_ms + 10_000, now_ms + 25_000)
    }
    (line,) = logs
    assert (line["event"], line["token_id"], line["owner"], line["requester"]) == (
        "delegation_token_created",
        "id",
        OWNER,
        "User:bob",
    )


@pytest.mark.parametrize(
    ("asked_ms", "expires_ms", "max_ms"),
    [
        (-1, 10_000, 25_000),
        (0, 10_000, 25_000),
        (4_000, 4_000, 4_000),
        (20_000, 10_000, 20_000),
        (2**63 - 1, 10_000, 25_000),
    ],
)
def test_a_lifetime_is_what_was_asked_and_no_more_than_the_settings_allow(
    controllers: ControllerCluster, asked_ms: int, expires_ms: int, max_ms: int
) -> None:
    """Source: KIP-48, DelegationTokenControlManager."""
    now_ms = controllers.wall_clock_ms()
    assert create(controllers, max_lifetime_ms=asked_ms) == TokenTimes(
        now_ms, now_ms + expires_ms, now_ms + max_ms
    )


def test_the_longest_lifetimes_do_not_overflow() -> None:
    """A time has 64 bits on the wire."""
    longest = 2**63 - 1
    reply = create(started(delegation_token_max_lifetime_ms=longest, delegation_token_expiry_time_ms=longest))
    assert (reply.expires_ms, reply.max_ms) == (longest, longest)


def test_a_request_that_is_repeated_makes_one_token(controllers: ControllerCluster) -> None:
    """A broker that lost the response asks again, with the id of its choice."""
    first = create(controllers)
    controllers.advance(0.3)
    assert create(controllers) == first
    assert len(controllers.image.tokens) == 1


@pytest.mark.parametrize("principal", [OWNER, RENEWER])
def test_owner_and_renewers_renew_up_to_the_tokens_maximum(
    controllers: ControllerCluster, principal: str
) -> None:
    """Each time for as long as asked, at most as long as the settings say."""
    began_ms = create(controllers).issued_ms

    def renew(period_ms: int) -> int:
        reply = controllers.ask(RenewToken("id", principal, period_ms))
        assert controllers.image.tokens["id"].expires_ms == reply.expires_ms
        return reply.expires_ms - began_ms

    controllers.advance(1.0)
    assert renew(500) == 1_500
    assert renew(-1) == 11_000
    assert renew(10**15) == 11_000
    controllers.advance(9.5)
    assert renew(0) == 20_500
    controllers.advance(9.5)
    assert renew(-1) == 25_000


def test_owner_and_renewers_end_a_token_soon_or_at_once(controllers: ControllerCluster) -> None:
    """A negative time removes it, also an expired token that was not cleaned up yet."""
    began_ms = create(controllers).issued_ms
    assert controllers.ask(ExpireToken("id", RENEWER, 400)).expires_ms == began_ms + 400
    assert controllers.ask(ExpireToken("id", OWNER, 10**15)).expires_ms == began_ms + 25_000
    assert controllers.ask(ExpireToken("id", OWNER, -1)).expires_ms == controllers.wall_clock_ms()
    assert not controllers.image.tokens
    assert code_of(controllers.ask(ExpireToken("id", OWNER, -1))) == DelegationTokenNotFound.code


def test_strangers_neither_renew_nor_end_a_token(controllers: ControllerCluster) -> None:
    """Not even a requester that created it for another owner. Source: KIP-373."""
    create(controllers, requester="User:bob")
    before = controllers.image.tokens["id"]
    for principal in (STRANGER, "User:bob"):
        for asked in (RenewToken("id", principal, -1), ExpireToken("id", principal, -1)):
            assert code_of(controllers.ask(asked)) == DelegationTokenOwnerMismatch.code
    assert controllers.image.tokens["id"] == before


def test_an_expired_token_cannot_be_renewed(controllers: ControllerCluster) -> None:
    """Before the controller has looked, and after."""
    create(controllers, max_lifetime_ms=200)
    controllers.now += 0.201
    assert code_of(controllers.ask(RenewToken("id", OWNER, -1))) == DelegationTokenExpired.code
    assert code_of(controllers.ask(ExpireToken("id", OWNER, 100))) == DelegationTokenExpired.code
    controllers.advance(1.0)
    assert code_of(controllers.ask(RenewToken("id", OWNER, -1))) == DelegationTokenNotFound.code


def test_the_controller_removes_expired_tokens_and_no_others(controllers: ControllerCluster) -> None:
    """At every `delegation.token.expiry.check.interval.ms`, with a line of the log for each."""
    create(controllers, "short", max_lifetime_ms=500)
    create(controllers, "long")
    with capture_logs() as logs:
        controllers.advance(2.0)
    assert set(controllers.image.tokens) == {"long"}
    assert [(line["event"], line["token_id"]) for line in logs] == [("delegation_token_expired", "short")]


def test_a_new_controller_looks_at_once() -> None:
    """However long the interval is."""
    controllers = ControllerCluster(2, **(SETTINGS | {"delegation_token_expiry_check_interval_ms": 10**9}))
    controllers.start(1)
    controllers.advance(0.1)
    create(controllers, max_lifetime_ms=500)
    controllers.advance(1.0)
    assert set(controllers.image.tokens) == {"id"}
    controllers.elect(2)
    controllers.advance(0.1)
    assert not controllers.image.tokens


def test_very_many_expired_tokens_take_several_batches(
    controllers: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is forgotten."""
    monkeypatch.setattr(tokens, "MAX_OTHER_RECORDS", 2)
    for number in range(5):
        create(controllers, str(number), max_lifetime_ms=1)
    batches = len(controllers.journal)
    controllers.advance(1.0)
    assert not controllers.image.tokens
    assert len(controllers.journal) == batches + 3


def test_without_a_key_there_are_no_tokens() -> None:
    """DELEGATION_TOKEN_AUTH_DISABLED. Source: KIP-48."""
    controllers = started(delegation_token_secret_key="")
    for asked in (
        CreateToken("id", OWNER, OWNER, (), -1),
        RenewToken("id", OWNER, -1),
        ExpireToken("id", OWNER, -1),
    ):
        assert code_of(controllers.ask(asked)) == DelegationTokenAuthDisabled.code
    assert not controllers.image.tokens


def test_tokens_are_bounded_for_the_cluster_and_for_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """`raftlog.delegation.tokens.max`, of which one user takes a part only; renewing and ending need no room."""
    monkeypatch.setattr(tokens, "MAX_TOKENS_OF_OWNER", 2)
    controllers = started(raftlog_delegation_tokens_max=3)
    replies = [create(controllers, str(number)) for number in range(3)]
    assert list(map(code_of, replies)) == [0, 0, PolicyViolation.code]
    assert code_of(create(controllers, "3", owner=STRANGER)) == 0
    refused = create(controllers, "4", owner=RENEWER)
    assert refused.error_code == PolicyViolation.code
    assert "raftlog.delegation.tokens.max" in refused.message
    assert code_of(controllers.ask(RenewToken("0", OWNER, -1))) == 0
    assert code_of(controllers.ask(ExpireToken("0", OWNER, -1))) == 0
    assert code_of(create(controllers, "4", owner=RENEWER)) == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"renewers": tuple(f"User:{number}" for number in range(MAX_RENEWERS + 1))}, "renewers"),
        ({"renewers": ("User:" + "x" * MAX_NAME_CHARS,)}, "renewers"),
        ({"owner": "User:" + "x" * MAX_NAME_CHARS}, "owner"),
    ],
)
def test_a_token_has_few_people_with_short_names(
    controllers: ControllerCluster, changes: dict[str, Any], field: str
) -> None:
    """Every node keeps them."""
    refused = create(controllers, **changes)
    assert refused.error_code == InvalidRequest.code
    assert refused.message.startswith(field)
