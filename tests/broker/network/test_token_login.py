"""raftlog.broker.network.login with delegation tokens: a token logs in its owner while it lasts (KIP-48)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import msgspec
import pytest
import scramp
from structlog.testing import capture_logs

from raftlog.base.errors import DelegationTokenRequestNotAllowed, SaslAuthenticationFailed
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import ANONYMOUS
from raftlog.security.scram import HASHES, REFUSED
from raftlog.security.tokens import DelegationToken, TokenKey
from tests.broker.fakes import FakeClient, FakePartitionServer, batch, produce, request
from tests.broker.network.test_login import begin, closed_world, log_in, say
from tests.kit.waits import PATIENCE_S

KEY = "the key of tokens"
NOW_MS = 1_000
"""The wall clock of the fake broker."""
TOKEN = DelegationToken("its id", "User:alice", "User:alice", (), 0, NOW_MS + 60_000, NOW_MS + 90_000)
PASSWORD = b64encode(TokenKey(KEY).hmac_of("its id")).decode()

FIELDS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: {"renewers": (), "max_lifetime": -1},
    ApiKey.RENEW_DELEGATION_TOKEN: {"hmac": TokenKey(KEY).hmac_of("its id"), "renew_period": -1},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"hmac": TokenKey(KEY).hmac_of("its id"), "expiry_time_period": -1},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {"owners": None},
}


def world_with(*tokens: DelegationToken, **config: Any) -> FakePartitionServer:
    fake = closed_world(**({"delegation_token_secret_key": KEY} | config))
    have(fake, *tokens)
    return fake


def have(fake: FakePartitionServer, *tokens: DelegationToken) -> None:
    old = fake.image
    fake.image = msgspec.structs.replace(old, tokens={each.token_id: each for each in tokens})
    fake.server.end_logins(old, fake.image)


class TokenClient:
    """The client's side of a login with `tokenauth=true`, of another implementation but for the extension."""

    def __init__(
        self, mechanism: str, token_id: str, password: str, extension: str = "tokenauth=true"
    ) -> None:
        self._scram = scramp.ScramClient([mechanism], token_id, password)
        self._scram.get_client_first()
        self._scram.client_first_bare += f",{extension}"

    async def first(self, pipe: FakeClient) -> Any:
        return await say(pipe, f"n,,{self._scram.client_first_bare}".encode())

    async def final(self, pipe: FakeClient, first: Any) -> Any:
        self._scram.set_server_first(bytes(first.auth_bytes).decode())
        answer = await say(pipe, self._scram.get_client_final().encode())
        if not answer.error_code:
            self._scram.set_server_final(bytes(answer.auth_bytes).decode())
        return answer


async def token_login(
    pipe: FakeClient, token_id: str = "its id", password: str = PASSWORD, mechanism: str = "SCRAM-SHA-512"
) -> Any:
    await begin(pipe, mechanism)
    client = TokenClient(mechanism, token_id, password)
    return await client.final(pipe, await client.first(pipe))


@pytest.mark.parametrize("mechanism", sorted(HASHES))
async def test_a_token_logs_in_its_owner(mechanism: str) -> None:
    """The password is the HMAC in base64; the session ends with the token. Source: KIP-48, KIP-368."""
    pipe = world_with(TOKEN).connect()
    answer = await token_login(pipe, mechanism=mechanism)
    assert (answer.error_code, answer.session_lifetime) == (0, 60_000)
    assert pipe.connection.principal == "User:alice"
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]


@pytest.mark.parametrize(("most_ms", "lifetime_ms"), [(5_000, 5_000), (10**9, 60_000)])
async def test_a_session_ends_at_the_earlier_of_two_times(most_ms: int, lifetime_ms: int) -> None:
    """`connections.max.reauth.ms` and the token's own."""
    pipe = world_with(TOKEN, max_reauth_ms=most_ms).connect()
    assert (await token_login(pipe)).session_lifetime == lifetime_ms


@pytest.mark.parametrize(
    ("tokens", "token_id", "password"),
    [
        ((TOKEN,), "its id", "a guess"),
        ((TOKEN,), "another", PASSWORD),
        ((), "its id", PASSWORD),
        ((msgspec.structs.replace(TOKEN, expires_ms=NOW_MS - 1),), "its id", PASSWORD),
        ((TOKEN,), "alice", "in wonderland"),
    ],
)
async def test_no_other_login_with_a_token_succeeds(
    tokens: tuple[DelegationToken, ...], token_id: str, password: str
) -> None:
    """Unknown, expired and wrong tokens, and users' own passwords are refused alike, and equally late."""
    pipe = world_with(*tokens).connect()
    with capture_logs() as logs:
        answer = await token_login(pipe, token_id, password)
    assert (answer.error_code, answer.error_message) == (SaslAuthenticationFailed.code, REFUSED)
    assert pipe.transport.closed
    assert pipe.connection.principal == ANONYMOUS
    events = [line["event"] for line in logs if line["event"] != "request_blocked_event_loop"]  # slow machine
    assert events == ["authentication_failed"]


async def test_a_login_in_the_last_moment_is_not_for_ever() -> None:
    """A lifetime of 0 would mean that, on the wire and here."""
    pipe = world_with(msgspec.structs.replace(TOKEN, expires_ms=NOW_MS)).connect()
    assert (await token_login(pipe)).session_lifetime == 1


async def test_a_token_is_no_user() -> None:
    """Its id and password are useless in a login without `tokenauth`."""
    fake = world_with(TOKEN)
    fake.image = msgspec.structs.replace(fake.image, scram={})
    answer = await log_in(fake.connect(), "SCRAM-SHA-512", "its id", PASSWORD)
    assert answer.error_code == SaslAuthenticationFailed.code


async def test_an_extension_that_says_no_is_no_token_login() -> None:
    """Java's client sends `tokenauth=false` on request."""
    pipe = world_with(TOKEN).connect()
    await begin(pipe, "SCRAM-SHA-512")
    client = TokenClient("SCRAM-SHA-512", "alice", "in wonderland", "tokenauth=false")
    assert (await client.final(pipe, await client.first(pipe))).error_code == 0


async def test_without_a_key_no_token_logs_in() -> None:
    """With an empty key, anyone with an id could compute its HMAC."""
    pipe = world_with(TOKEN, delegation_token_secret_key="").connect()
    password = b64encode(TokenKey("").hmac_of("its id")).decode()
    assert (await token_login(pipe, password=password)).error_code == SaslAuthenticationFailed.code


async def test_a_token_that_is_removed_during_the_login_does_not_log_in() -> None:
    """It is looked up again when the proof comes."""
    fake = world_with(TOKEN)
    pipe = fake.connect()
    await begin(pipe, "SCRAM-SHA-256")
    client = TokenClient("SCRAM-SHA-256", "its id", PASSWORD)
    first = await client.first(pipe)
    have(fake)
    assert (await client.final(pipe, first)).error_code == SaslAuthenticationFailed.code


async def test_unknown_and_known_tokens_look_alike_to_a_stranger() -> None:
    """Salts are as long and iterations as many; asked again, both are the same."""
    fake = world_with(TOKEN)
    seen = []
    for token_id in ("its id", "its id", "another", "another"):
        pipe = fake.connect()
        await begin(pipe, "SCRAM-SHA-256")
        first = await TokenClient("SCRAM-SHA-256", token_id, "?").first(pipe)
        _, salt, iterations = bytes(first.auth_bytes).decode().split(",")
        seen.append((salt, iterations))
    assert seen[0] == seen[1] and seen[2] == seen[3]
    assert (len(seen[0][0]), seen[0][1]) == (len(seen[2][0]), seen[2][1])


@pytest.mark.parametrize("api_key", FIELDS)
async def test_a_client_of_a_token_does_nothing_with_tokens(api_key: ApiKey) -> None:
    """Not even with its own, so that a stolen one cannot be made to last. Source: KIP-48."""
    pipe = world_with(TOKEN).connect()
    await token_login(pipe)
    make = request_builders(api_key, 2)
    name = "".join(part.capitalize() for part in api_key.name.split("_")) + "Request"
    pipe.send(request(api_key, 2, 3, getattr(make, name)(**FIELDS[api_key])))
    await pipe.wait()
    assert pipe.answer(api_key, 2).error_code == DelegationTokenRequestNotAllowed.code


async def test_another_login_of_the_owner_makes_it_an_ordinary_client() -> None:
    """A connection is what its last login made it."""
    pipe = world_with(TOKEN).connect()
    await token_login(pipe)
    answer = await log_in(pipe, "SCRAM-SHA-512")
    assert (answer.error_code, answer.session_lifetime) == (0, 0)
    assert pipe.connection.login is not None and pipe.connection.login.token_id is None


async def test_the_end_of_a_token_ends_its_connections_and_no_others() -> None:
    """A right that was taken away is refused from then on."""
    fake = world_with(TOKEN, msgspec.structs.replace(TOKEN, token_id="b"))
    by_token, by_password = fake.connect(), fake.connect()
    await token_login(by_token)
    await log_in(by_password, "PLAIN")
    have(fake, TOKEN)
    assert not by_token.transport.closed
    with capture_logs() as logs:
        have(fake)
    assert by_token.transport.closed
    assert not by_password.transport.closed
    assert [line["event"] for line in logs] == ["delegation_token_gone"]


async def test_a_session_of_a_token_closes_its_gate_when_it_expires() -> None:
    """By the loop's clock; until then the client may log in again with a token that was renewed."""
    pipe = world_with(msgspec.structs.replace(TOKEN, expires_ms=NOW_MS + 20)).connect()
    assert (await token_login(pipe)).session_lifetime == 20
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S):
            while not pipe.transport.closed:
                pipe.send(produce(9, (0, batch())))
                await asyncio.sleep(0)
    events = [line["event"] for line in logs]
    assert [each for each in events if each != "request_blocked_event_loop"] == [
        "request_before_login"
    ]  # slow machine
