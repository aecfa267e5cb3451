"""The APIs about delegation tokens (KIP-48, KIP-373). The controller's own functions decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.config import load_config
from raftlog.base.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    InvalidRequest,
    KafkaError,
)
from raftlog.controller.tokens import decide_create_token, decide_expire_token, decide_renew_token
from raftlog.metadata.controller_api import CreateToken, ExpireToken, RenewToken
from raftlog.metadata.record_replay import apply_records
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import ADMIN_API, ANONYMOUS, Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from raftlog.security.tokens import DelegationToken, TokenKey
from tests.broker.handlers.one_broker import HandlerSetup, versions

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
KEY = "the key of tokens"
NOW_MS = 1_000_000
ALICE, BOB, CY = "User:alice", "User:bob", "User:cy"


class TokenSetup(HandlerSetup):
    """A broker, and a controller that decides at once. Without an authorizer of its own, rules are asked."""

    def __init__(self, *rules: Acl, key: str = KEY) -> None:
        super().__init__(delegation_token_secret_key=key)
        self.broker.authorizer = Authorizer(rules)
        config = load_config({"delegation.token.secret.key": key} if key else {})
        self.answers |= {
            CreateToken: lambda asked: self._decide(decide_create_token(self.image, asked, config, NOW_MS)),
            RenewToken: lambda asked: self._decide(decide_renew_token(self.image, asked, config, NOW_MS)),
            ExpireToken: lambda asked: self._decide(decide_expire_token(self.image, asked, config, NOW_MS)),
        }

    def _decide(self, decision: Any) -> Any:
        self.image = apply_records(self.image, decision.records)
        return decision.reply

    async def ask(
        self, api_key: int, version: int, principal: str = ALICE, token_id: str | None = None, **fields: Any
    ) -> Any:
        """Send a request as a logged-in user, with a token if it is named."""
        connection = SimpleNamespace(login=SimpleNamespace(token_id=token_id), is_open=True)
        return await self.call(api_key, version, principal=principal, connection=connection, **fields)

    async def create(
        self, principal: str = ALICE, *, owner: str | None = None, renewers: tuple[str, ...] = ()
    ) -> Any:
        make = request_builders(CREATE, 3)
        return await self.ask(
            CREATE,
            3,
            principal,
            owner_principal_type="User" if owner else None,
            owner_principal_name=owner,
            renewers=tuple(
                make.CreatableRenewers(principal_type="User", principal_name=each) for each in renewers
            ),
            max_lifetime=-1,
        )

    async def described(self, principal: str, *owners: str, everyones: bool = True) -> set[str]:
        """Return the ids of the tokens that a user may describe; of all owners unless some are named."""
        make = request_builders(DESCRIBE, 3)
        asked = tuple(
            make.DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners
        )
        answer = await self.ask(DESCRIBE, 3, principal, owners=asked if owners or not everyones else None)
        return {each.token_id for each in answer.tokens}


def allow(operation: Operation, kind: ResourceType, name: str, principal: str = BOB) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)


@pytest.mark.parametrize("version", versions(CREATE))
async def test_a_user_needs_no_right_for_a_token_of_its_own(version: int) -> None:
    """The answer has what logs in with it; the metadata has not."""
    setup = TokenSetup()
    make = request_builders(CREATE, version)
    renewer = make.CreatableRenewers(principal_type="User", principal_name="cy")
    answer = await setup.ask(CREATE, version, renewers=(renewer,), max_lifetime=5_000)
    (token,) = setup.image.tokens.values()
    assert token == DelegationToken(
        answer.token_id, ALICE, ALICE, (CY,), NOW_MS, NOW_MS + 5_000, NOW_MS + 5_000
    )
    assert bytes(answer.hmac) == TokenKey(KEY).hmac_of(token.token_id)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (0, "User", "alice")
    assert (answer.issue_timestamp, answer.max_timestamp) == (NOW_MS, NOW_MS + 5_000)
    assert bytes(answer.hmac).hex() not in repr(setup.image) + repr(setup.asked)


async def test_ids_are_as_kafka_writes_uuids() -> None:
    """16 bytes in base64 for addresses, another one each time."""
    setup = TokenSetup()
    ids = {(await setup.create()).token_id for _ in range(5)}
    assert len(ids) == 5
    assert {len(each) for each in ids} == {22}


async def test_a_token_for_another_user_needs_a_right_to_that_user() -> None:
    """CREATE_TOKENS on the owner. The requester is not the owner. Source: KIP-373."""
    setup = TokenSetup(allow(Operation.CREATE_TOKENS, ResourceType.USER, ALICE))
    answer = await setup.create(BOB, owner="alice")
    assert (answer.principal_name, answer.token_requester_principal_name) == ("alice", "bob")
    (token,) = setup.image.tokens.values()
    assert (token.owner, token.requester) == (ALICE, BOB)
    with pytest.raises(DelegationTokenAuthorizationFailed):
        await setup.create(BOB, owner="cy")
    with pytest.raises(DelegationTokenAuthorizationFailed):
        await setup.create(CY, owner="alice")
    assert len(setup.asked) == 1
    assert (await setup.create(CY, owner="cy")).error_code == 0


@pytest.mark.parametrize("field", ["owner", "renewers"])
async def test_principals_of_tokens_are_users(field: str) -> None:
    """A token for another type would act as a principal that no login gives, such as a node's HTTP API."""
    setup = TokenSetup(allow(Operation.ALL, ResourceType.USER, "*"))
    setup.broker.authorizer = None
    make = request_builders(CREATE, 3)
    renewers = (make.CreatableRenewers(principal_type="Node", principal_name="admin-api"),)
    owner = {"owner_principal_type": "Node", "owner_principal_name": "admin-api"}
    fields: dict[str, Any] = {"renewers": renewers} if field == "renewers" else {"renewers": (), **owner}
    with pytest.raises(InvalidPrincipalType, match=field):
        await setup.ask(CREATE, 3, max_lifetime=-1, **fields)
    nameless = (make.CreatableRenewers(principal_type="User", principal_name=""),)
    with pytest.raises(InvalidRequest, match="renewers: "):
        await setup.ask(CREATE, 3, max_lifetime=-1, renewers=nameless)
    assert not setup.asked


FIELDS: dict[int, dict[str, Any]] = {
    CREATE: {"renewers": (), "max_lifetime": -1},
    RENEW: {"hmac": b"x", "renew_period": -1},
    EXPIRE: {"hmac": b"x", "expiry_time_period": -1},
    DESCRIBE: {"owners": None},
}


@pytest.mark.parametrize("api_key", FIELDS)
@pytest.mark.parametrize(("principal", "token_id"), [(ANONYMOUS, None), (ALICE, "id"), (ADMIN_API, None)])
async def test_only_logins_without_a_token_may_manage_tokens(
    api_key: int, principal: str, token_id: str | None
) -> None:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED to strangers, clients of a token and nodes, whatever the rules say."""
    setup = TokenSetup()
    setup.broker.authorizer = None
    for version in versions(api_key):
        with pytest.raises(DelegationTokenRequestNotAllowed):
            await setup.ask(api_key, version, principal, token_id, **FIELDS[api_key])
    with pytest.raises(DelegationTokenRequestNotAllowed):
        await setup.call(api_key, 2, **FIELDS[api_key])
    assert not setup.asked


@pytest.mark.parametrize("api_key", FIELDS)
async def test_without_a_key_there_are_no_tokens(api_key: int) -> None:
    """DELEGATION_TOKEN_AUTH_DISABLED. Source: KIP-48."""
    with pytest.raises(DelegationTokenAuthDisabled):
        await TokenSetup(key="").ask(api_key, 2, **FIELDS[api_key])


@pytest.mark.parametrize("version", versions(RENEW))
async def test_a_token_is_renewed_by_what_proves_it(version: int) -> None:
    """By its owner or a renewer with the HMAC; the response has the new time."""
    setup = TokenSetup()
    made = await setup.create(renewers=("cy",))
    for principal in (ALICE, CY):
        answer = await setup.ask(RENEW, version, principal, hmac=made.hmac, renew_period=7_000)
        assert answer.expiry_timestamp == setup.image.tokens[made.token_id].expires_ms == NOW_MS + 7_000
    with pytest.raises(DelegationTokenOwnerMismatch):
        await setup.ask(RENEW, version, BOB, hmac=made.hmac, renew_period=7_000)


@pytest.mark.parametrize("version", versions(EXPIRE))
async def test_a_token_is_ended_by_what_proves_it(version: int) -> None:
    """Soon, or at once."""
    setup = TokenSetup()
    made = await setup.create()
    answer = await setup.ask(EXPIRE, version, hmac=made.hmac, expiry_time_period=10)
    assert answer.expiry_timestamp == NOW_MS + 10
    answer = await setup.ask(EXPIRE, version, hmac=made.hmac, expiry_time_period=-1)
    assert (answer.expiry_timestamp, setup.image.tokens) == (NOW_MS, {})


@pytest.mark.parametrize("proof", [b"", b"a guess", TokenKey("another key").hmac_of("id")])
async def test_what_proves_no_token_is_not_found(proof: bytes) -> None:
    """And the controller is not asked."""
    setup = TokenSetup()
    await setup.create()
    asked = len(setup.asked)
    with pytest.raises(DelegationTokenNotFound):
        await setup.ask(RENEW, 2, hmac=proof, renew_period=-1)
    assert len(setup.asked) == asked


async def test_tokens_are_shown_to_their_users_and_to_callers_with_a_right() -> None:
    """Owner, requester and renewers; DESCRIBE of the token; DESCRIBE_TOKENS of the owner. Source: KIP-48, KIP-373."""
    setup = TokenSetup(
        allow(Operation.CREATE_TOKENS, ResourceType.USER, ALICE),
        allow(Operation.DESCRIBE_TOKENS, ResourceType.USER, ALICE, "User:auditor"),
    )
    own = (await setup.create(ALICE)).token_id
    renewed = (await setup.create(ALICE, renewers=("cy",))).token_id
    requested = (await setup.create(BOB, owner="alice")).token_id
    others = (await setup.create(CY)).token_id
    assert await setup.described(ALICE) == {own, renewed, requested}
    assert await setup.described(BOB) == {requested}
    assert await setup.described(CY) == {renewed, others}
    assert await setup.described("User:auditor") == {own, renewed, requested}
    assert await setup.described("User:dan") == set()
    rule = allow(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, own, "User:dan")
    setup.broker.authorizer = Authorizer((rule,))
    assert await setup.described("User:dan") == {own}


async def test_owners_that_are_named_limit_what_is_shown() -> None:
    """To tokens of these owners; none at all, if the list is empty. Source: Kafka, filterToken."""
    setup = TokenSetup()
    own = (await setup.create(ALICE, renewers=("cy",))).token_id
    await setup.create(CY)
    assert await setup.described(CY, "alice") == {own}
    assert await setup.described(CY, "bob") == set()
    assert await setup.described(CY, everyones=False) == set()


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_a_token_is_described_with_what_proves_it(version: int) -> None:
    """With its HMAC, as in Kafka: users that may describe a token may use it."""
    setup = TokenSetup()
    made = await setup.create(renewers=("cy",))
    (told,) = (await setup.ask(DESCRIBE, version, owners=None)).tokens
    assert (told.token_id, bytes(told.hmac)) == (made.token_id, bytes(made.hmac))
    assert (told.issue_timestamp, told.expiry_timestamp, told.max_timestamp) == (
        NOW_MS,
        NOW_MS + 86_400_000,
        NOW_MS + 7 * 86_400_000,
    )
    assert [each.principal_name for each in told.renewers] == ["cy"]


async def test_a_token_made_elsewhere_a_moment_ago_is_waited_for() -> None:
    """Another broker has answered its owner, and this broker's image is not that new yet."""
    setup = TokenSetup()
    made = await setup.create()
    newest, setup.image = setup.image, replace(setup.image, tokens={})

    class Waiters(dict[Any, Any]):
        def __setitem__(self, waiter: Any, ready: Any) -> None:
            super().__setitem__(waiter, ready)
            setup.image = newest
            waiter.set_result(None)

    setup.broker.image_waiters = Waiters()
    answer = await setup.ask(RENEW, 2, hmac=made.hmac, renew_period=9_000)
    assert answer.expiry_timestamp == NOW_MS + 9_000


async def test_errors_of_the_controller_are_the_clients() -> None:
    """A code and no token."""
    setup = TokenSetup()
    setup.answers[CreateToken] = KafkaError("busy")
    with pytest.raises(KafkaError):
        await setup.create()
    assert not setup.image.tokens
