"""raftlog.broker.network.bearer_exchange: logins by OAUTHBEARER (RFC 7628, KIP-255, KIP-342, KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.config.oauth import ListenerOauth
from raftlog.base.config.security import ListenerLogins
from raftlog.base.env import Env
from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.broker.network.bearer_exchange import REFUSED
from raftlog.broker.network.token_keys import TokenKeys
from raftlog.security.acls import ANONYMOUS
from tests.broker.fakes import LISTENER, FakeClient, FakePartitionServer, batch, produce
from tests.broker.network.test_login import authenticate, begin, say
from tests.kit.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.kit.waits import PATIENCE_S

NOW_S = 1_700_000_000
DAY_S = 86_400
GUESS = "x.y.z"


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


class TokenWorld:
    """A broker with a single listener for tokens of a provider, and a password; its time is NOW_S."""

    def __init__(
        self, provider: IdentityProvider, folder: Path, *, max_reauth_ms: int = 0, **config: Any
    ) -> None:
        self.provider = provider
        self.now_s = NOW_S
        config.setdefault("connection_failed_authentication_delay_ms", 0)
        logins = ListenerLogins(("OAUTHBEARER", "PLAIN"), {"bob": "the builder"}, max_reauth_ms)
        self.fake = FakePartitionServer(logins={LISTENER: logins}, **config)
        self.fake.broker.env.wall_clock_ms = lambda: self.now_s * 1000
        oauth = ListenerOauth(
            oauth_jwks_url=provider.write(folder / "jwks.json"),
            oauth_expected_issuer=ISSUER,
            oauth_expected_audience=(AUDIENCE,),
        )
        env = Env(wall_clock_ms=self.fake.broker.env.wall_clock_ms)
        self.keys = TokenKeys(oauth, env, self.fake.server.loop.time)
        self.fake.server.token_keys[LISTENER] = self.keys

    async def connect(self) -> FakeClient:
        """A client that has chosen the mechanism."""
        await self.keys.open()
        client = self.fake.connect()
        assert (await begin(client, "OAUTHBEARER")).error_code == 0
        return client

    def token(self, user: str = "alice", **claims: Any) -> str:
        return self.provider.token(user, now_s=NOW_S, **claims)

    @property
    def failures(self) -> dict[tuple[str, str], int]:
        return dict(self.fake.server.counters.failed_logins)


@pytest.fixture
def world(provider: IdentityProvider, tmp_path: Path) -> Callable[..., TokenWorld]:
    return lambda **options: TokenWorld(provider, tmp_path, **options)


def first(token: str, *, authzid: str = "", more: str = "") -> bytes:
    named = f"a={authzid}" if authzid else ""
    return f"n,{named},\x01auth=Bearer {token}\x01{more}\x01".encode()


async def test_a_token_opens_the_gate(world: Callable[..., TokenWorld]) -> None:
    """To the user in its `sub`, for as long as it holds (KIP-368)."""
    here = world()
    pipe = await here.connect()
    answer = await say(pipe, first(here.token(lasts_s=600)))
    assert (answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime) == (0, b"", 600_000)
    assert pipe.connection.principal == "User:alice"
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]
    assert not here.failures


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(1000, 1000), (3_600_000, 600_000)])
async def test_a_login_holds_no_longer_than_the_listener_says(
    world: Callable[..., TokenWorld], max_reauth_ms: int, lifetime_ms: int
) -> None:
    """connections.max.reauth.ms, or the token's end, whichever is sooner."""
    here = world(max_reauth_ms=max_reauth_ms)
    pipe = await here.connect()
    assert (await say(pipe, first(here.token(lasts_s=600)))).session_lifetime == lifetime_ms


async def test_a_token_that_only_the_skew_saves_holds_until_that_is_over(
    world: Callable[..., TokenWorld],
) -> None:
    """Zero would say to the client that its login holds for ever."""
    here = world()
    pipe = await here.connect()
    here.now_s = NOW_S + 610
    assert (await say(pipe, first(here.token(lasts_s=600)))).session_lifetime == 20_000


async def test_a_token_of_the_far_future_sets_a_timer_that_there_can_be(
    world: Callable[..., TokenWorld],
) -> None:
    """The provider decides on it, not the broker."""
    here = world()
    pipe = await here.connect()
    answer = await say(pipe, first(here.token(lasts_s=10_000_000_000_000)))
    assert answer.session_lifetime > 1000 * 365 * DAY_S
    assert pipe.connection.principal == "User:alice"


async def test_the_gate_closes_with_the_token_and_another_one_opens_it(
    world: Callable[..., TokenWorld],
) -> None:
    """KIP-368: a new token of the same user, on the same connection."""
    here = world()
    pipe = await here.connect()
    await say(pipe, first(here.token(lasts_s=600)))
    pipe.connection.gate.close(pipe.connection)
    here.now_s += 600
    assert (await begin(pipe, "OAUTHBEARER")).error_code == 0
    assert (await say(pipe, first(here.token(lasts_s=1200)))).session_lifetime == 600_000
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]


async def test_the_gate_closes_by_itself_when_the_token_ends(world: Callable[..., TokenWorld]) -> None:
    """By the loop's clock, without connections.max.reauth.ms."""
    here = world()
    pipe = await here.connect()
    here.now_s = NOW_S + 629
    assert (await say(pipe, first(here.token(lasts_s=600)))).session_lifetime == 1000
    async with asyncio.timeout(PATIENCE_S):
        while not pipe.transport.closed:
            pipe.send(produce(9, (0, batch())))
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "PLAIN"])
async def test_another_login_may_not_change_the_user(
    world: Callable[..., TokenWorld], mechanism: str
) -> None:
    """KIP-368: a client with another user's token does not take over an open connection."""
    here = world()
    pipe = await here.connect()
    await say(pipe, first(here.token()))
    await begin(pipe, mechanism)
    proof = b"\0bob\0the builder" if mechanism == "PLAIN" else first(here.token("bob"))
    assert (await say(pipe, proof)).error_code == SaslAuthenticationFailed.code
    assert pipe.transport.closed
    assert pipe.connection.principal == "User:alice"
    assert here.failures == {(mechanism, "another_user"): 1}


CLAIMS_AND_REASONS = [
    ({"lasts_s": -100}, "expired"),
    ({"nbf": NOW_S + 3600}, "not_yet_valid"),
    ({"iss": "https://elsewhere"}, "wrong_issuer"),
    ({"aud": "another cluster"}, "wrong_audience"),
    ({"sub": ""}, "no_subject"),
]


@pytest.mark.parametrize(("claims", "reason"), CLAIMS_AND_REASONS)
async def test_refused_tokens_are_answered_alike(
    world: Callable[..., TokenWorld], claims: dict[str, Any], reason: str
) -> None:
    """RFC 7628, 3.2.2: the client hears that its token is invalid, sends 0x01, and hears the failure.

    The operator hears why, once, and never the token.
    """
    here = world()
    pipe = await here.connect()
    token = here.token(**claims)
    with capture_logs() as logs:
        told = await say(pipe, first(token))
        assert (told.error_code, bytes(told.auth_bytes).decode()) == (0, REFUSED)
        assert not pipe.transport.closed and pipe.connection.principal == ANONYMOUS
        ended = await say(pipe, b"\x01")
    assert (ended.error_code, ended.error_message) == (SaslAuthenticationFailed.code, REFUSED)
    assert pipe.transport.closed
    assert [(line["event"], line["mechanism"], line["reason"]) for line in logs] == [
        ("authentication_failed", "OAUTHBEARER", reason)
    ]
    assert logs[0]["advice"] and not any(part in repr(logs) for part in token.split("."))
    assert here.failures == {("OAUTHBEARER", reason): 1}


async def test_a_client_that_takes_the_challenge_for_success_is_served_nothing(
    world: Callable[..., TokenWorld],
) -> None:
    """As aiokafka and KafkaJS do; the operator hears of the login that failed."""
    here = world()
    pipe = await here.connect()
    with capture_logs() as logs:
        await say(pipe, first(GUESS))
        pipe.send(produce(9, (0, batch())))
    assert pipe.transport.closed and not here.fake.partition.batches
    assert [line["event"] for line in logs] == ["authentication_failed", "request_before_login"]


async def test_after_a_refusal_no_token_is_taken(world: Callable[..., TokenWorld]) -> None:
    """One token for each connection: guesses pay for a new one each."""
    here = world()
    pipe = await here.connect()
    await say(pipe, first(GUESS))
    assert (await say(pipe, first(here.token()))).error_code == SaslAuthenticationFailed.code
    assert pipe.transport.closed and pipe.connection.principal == ANONYMOUS


async def test_a_refusal_is_late(world: Callable[..., TokenWorld]) -> None:
    """connection.failed.authentication.delay.ms, already before the challenge, which reveals enough to a guesser."""
    delay_s = 0.03
    here = world(connection_failed_authentication_delay_ms=int(delay_s * 1000))
    pipe = await here.connect()
    began_at = here.fake.server.loop.time()
    await say(pipe, first(GUESS))
    assert here.fake.server.loop.time() - began_at >= delay_s * 0.9


async def test_the_authorization_id_is_the_tokens_user_or_none(world: Callable[..., TokenWorld]) -> None:
    """RFC 7628, 3.1; commas and equal signs in it are written =2C and =3D."""
    here = world()
    pipe = await here.connect()
    await say(pipe, first(here.token("a,b=c"), authzid="a=2Cb=3Dc"))
    assert pipe.connection.principal == "User:a,b=c"
    pipe = await here.connect()
    assert bytes((await say(pipe, first(here.token(), authzid="admin"))).auth_bytes).decode() == REFUSED
    assert here.failures == {("OAUTHBEARER", "wrong_credentials"): 1}


async def test_extensions_are_taken_and_mean_nothing(world: Callable[..., TokenWorld]) -> None:
    """KIP-342: clients of some services send them always."""
    here = world()
    pipe = await here.connect()
    answer = await say(pipe, first(here.token(), more="logicalCluster=lkc-1\x01traceId=2\x01"))
    assert answer.error_code == 0 and pipe.connection.principal == "User:alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"\xff",
        b"\0bob\0the builder",
        b"n,,\x01auth=Basic x\x01\x01",
        b"p=x,,\x01\x01",
    ],
)
async def test_a_message_that_is_none_of_the_mechanism_fails_at_once(
    world: Callable[..., TokenWorld], message: bytes
) -> None:
    """There is no token in it that could be invalid."""
    here = world()
    pipe = await here.connect()
    assert (await say(pipe, message)).error_code == SaslAuthenticationFailed.code
    assert pipe.transport.closed
    assert here.failures == {("OAUTHBEARER", "malformed"): 1}


async def test_a_login_that_waits_for_keys_delays_no_other(
    world: Callable[..., TokenWorld], provider: IdentityProvider
) -> None:
    """Requests behind it on its connection wait for their turn; other connections log in."""
    here = world()
    await here.keys.open()
    renewed: asyncio.Event = asyncio.Event()

    async def renew() -> bool:
        await renewed.wait()
        await here.keys.open()
        return True

    here.keys._renew = renew  # type: ignore[method-assign]
    pipe = await here.connect()
    before = provider.keys
    try:
        provider.change_key("the next one")
        provider.write(Path(here.keys._oauth.jwks_path or ""))
        pipe.send(authenticate(first(here.token())) + produce(9, (0, batch())))
        for _ in range(10):
            await asyncio.sleep(0)
        assert pipe.transport.written[pipe._read :] == b""
        other = here.fake.connect()
        await begin(other, "PLAIN")
        assert (await say(other, b"\0bob\0the builder")).error_code == 0
        renewed.set()
        async with asyncio.timeout(PATIENCE_S):
            while not here.fake.partition.batches:
                await asyncio.sleep(0)
        assert pipe.connection.principal == "User:alice"
        assert pipe.correlation_ids() == [2, 9]
    finally:
        provider.keys = before


async def test_a_client_that_goes_while_its_login_waits_is_no_trouble(
    world: Callable[..., TokenWorld],
) -> None:
    """The response is dropped, and its timer is cancelled."""
    here = world()
    pipe = await here.connect()
    pipe.send(authenticate(first(here.token())))
    pipe.connection.connection_lost(None)
    async with asyncio.timeout(PATIENCE_S):
        while here.fake.server.tasks:
            await asyncio.sleep(0)
    assert pipe.connection.gate._timer is None
