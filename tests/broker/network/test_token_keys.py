"""raftlog.broker.network.token_keys: where the keys of an identity provider come from, and how often (KIP-768)."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.config import load_config
from raftlog.base.config.network import Listener
from raftlog.base.config.oauth import ListenerOauth, Trust
from raftlog.base.env import Env
from raftlog.broker.network.server import ListenerUnavailable
from raftlog.broker.network.token_keys import KeysUnavailable, TokenKeys
from raftlog.security.bearer_tokens import MAX_JWKS_BYTES, TokenRefused
from tests.broker.fakes import FakePartitionServer
from tests.kit.certificates import HOST, Authority
from tests.kit.clock import Clock
from tests.kit.identity_provider import IdentityProvider, make_key, sign
from tests.kit.waits import PATIENCE_S

BACKOFF_S = 10
REFRESH_S = 3600


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keys_of(url: str, clock: Clock, *, refresh_ms: int = REFRESH_S * 1000, **more: Any) -> TokenKeys:
    oauth = ListenerOauth(
        oauth_jwks_url=url,
        oauth_jwks_refresh_ms=refresh_ms,
        oauth_jwks_retry_ms=1,
        oauth_jwks_retry_max_ms=BACKOFF_S * 1000,
        listener="CLIENTS",
        names={"oauth_jwks_url": "sasl.oauthbearer.jwks.endpoint.url"},
        **more,
    )
    return TokenKeys(oauth, Env(), clock)


@asynccontextmanager
async def fresh(keys: TokenKeys) -> AsyncIterator[TokenKeys]:
    """Keep keys fresh as long as the block runs."""
    task = asyncio.create_task(keys.keep_fresh())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield keys
    finally:
        task.cancel()


async def refusal(keys: TokenKeys, token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        await keys.verify(token)
    return refused.value.reason


async def is_taken(keys: TokenKeys, token: str) -> bool:
    try:
        await keys.verify(token)
    except TokenRefused:
        return False
    return True


async def test_keys_are_read_from_a_file(provider: IdentityProvider, tmp_path: Path, clock: Clock) -> None:
    """Without any address, and before the listener opens."""
    keys = keys_of(provider.write(tmp_path / "the keys.json"), clock)
    await keys.open()
    token, _ = await keys.verify(provider.token("alice"))
    assert token.subject == "alice"


@pytest.mark.parametrize("content", [None, b"", b"{}", b" " * (MAX_JWKS_BYTES + 1)])
async def test_a_listener_without_usable_keys_in_its_file_does_not_open(
    tmp_path: Path, content: bytes | None
) -> None:
    """No login could succeed; the message names the setting, the file and its fault."""
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    config = load_config(
        {
            "listeners": f"CLIENTS://{HOST}:0,CONTROLLER://{HOST}:9093",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
            "raftlog.cluster.secret": "s" * 32,
        }
    )
    fake = FakePartitionServer(oauth=config.oauth, logins=config.logins)
    fake.broker.env.offload = Env().offload
    with pytest.raises(ListenerUnavailable) as unavailable:
        await fake.server.start([Listener("CLIENTS", HOST, 0, "SASL_PLAINTEXT")])
    assert "sasl.oauthbearer.jwks.endpoint.url" in str(unavailable.value)
    assert str(path) in str(unavailable.value)


async def test_keys_are_fetched_from_an_address_when_the_first_token_needs_them(
    provider: IdentityProvider, clock: Clock
) -> None:
    """The listener opens at once; a login that comes before the keys waits for them."""
    with provider.serving() as url:
        async with fresh(keys_of(url, clock)) as keys:
            await keys.open()
            assert await is_taken(keys, provider.token("alice"))
    assert provider.fetches == 1


async def test_a_new_key_is_fetched_when_a_token_names_it(provider: IdentityProvider, clock: Clock) -> None:
    """And tokens of the key that is gone are refused from then on."""
    with provider.serving() as url:
        async with fresh(keys_of(url, clock)) as keys:
            former = provider.token("alice")
            assert await is_taken(keys, former)
            provider.change_key("next")
            clock.now += BACKOFF_S
            assert await is_taken(keys, provider.token("alice"))
            assert await refusal(keys, former) == "unknown_key"
    assert provider.fetches == 2


async def test_made_up_keys_have_the_provider_asked_once_in_a_while(
    provider: IdentityProvider, clock: Clock
) -> None:
    """sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms; logins at the same time wait for the same answer."""
    own = make_key("ES256", "made up")
    tokens = [sign(own, "ES256", {"sub": "alice"}, kid=f"made up {number}") for number in range(50)]
    with provider.serving() as url:
        async with fresh(keys_of(url, clock)) as keys:
            assert await is_taken(keys, provider.token("alice"))
            for moment in range(3):
                clock.now += BACKOFF_S
                found = await asyncio.gather(*(refusal(keys, token) for token in tokens))
                assert set(found) == {"unknown_key"}
                assert provider.fetches == 2 + moment
                clock.now += BACKOFF_S * 0.9
                await asyncio.gather(*(refusal(keys, token) for token in tokens))
                assert provider.fetches == 2 + moment


async def test_keys_are_fetched_again_after_their_time(provider: IdentityProvider, clock: Clock) -> None:
    """sasl.oauthbearer.jwks.endpoint.refresh.ms: a key that the provider took back is not believed for ever."""
    with provider.serving() as url:
        async with fresh(keys_of(url, clock, refresh_ms=1)) as keys:
            former = provider.token("alice")
            assert await is_taken(keys, former)
            provider.change_key("next")
            while await is_taken(keys, former):
                await asyncio.sleep(0)


@pytest.mark.parametrize("trouble", ["status", "content", "nobody"])
async def test_the_former_keys_stay_while_there_are_no_newer_ones(
    provider: IdentityProvider, clock: Clock, trouble: str
) -> None:
    """A provider that is down, or sends garbage, does not affect users with a token; the operator gets a log line."""
    with provider.serving() as url:
        async with fresh(keys_of(url, clock)) as keys:
            token = provider.token("alice")
            assert await is_taken(keys, token)
            clock.now += BACKOFF_S
            if trouble == "status":
                provider.status = HTTPStatus.SERVICE_UNAVAILABLE
            elif trouble == "content":
                provider.keys = []
            else:
                keys._oauth = keys_of("http://127.0.0.1:1/keys", clock)._oauth
            with capture_logs() as logs:
                assert await refusal(keys, sign(make_key("ES256", "new"), "ES256", {})) == "unknown_key"
            assert await is_taken(keys, token)
    (line,) = (each for each in logs if each["event"] == "token_keys_unavailable")
    assert line["setting"] == "sasl.oauthbearer.jwks.endpoint.url"
    assert "stay in force" in line["consequence"]


async def test_a_provider_that_comes_late_is_asked_until_it_answers(
    provider: IdentityProvider, clock: Clock
) -> None:
    """A broker starts without it; pauses double, and the log says so after 1, 2, 4, 8 failures."""
    provider.status = HTTPStatus.NOT_FOUND
    with provider.serving() as url, capture_logs() as logs:
        async with fresh(keys_of(url, clock)) as keys:
            while keys._failures < 5:
                await asyncio.sleep(0)
            assert await refusal(keys, provider.token("alice")) == "no_keys"
            provider.status = HTTPStatus.OK
            while not await is_taken(keys, provider.token("alice")):
                await asyncio.sleep(0)
    told = [line["times"] for line in logs if line["event"] == "token_keys_unavailable"]
    assert told[:3] == [1, 2, 4]
    assert [line["event"] for line in logs][-1] == "token_keys_fetched"


async def test_an_unforeseen_answer_costs_no_more_than_one_fetch(
    provider: IdentityProvider, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node goes on, with the keys that it had."""
    with provider.serving() as url, capture_logs() as logs:
        async with fresh(keys_of(url, clock)) as keys:
            token = provider.token("alice")
            assert await is_taken(keys, token)
            clock.now += BACKOFF_S
            monkeypatch.setattr(keys, "_download", lambda: None)
            assert await refusal(keys, sign(make_key("ES256", "new"), "ES256", {})) == "unknown_key"
            assert await is_taken(keys, token)
    assert "token_keys_crashed" in [line["event"] for line in logs]


async def _unavailable(url: str, clock: Clock, **more: Any) -> str:
    with pytest.raises(KeysUnavailable) as unavailable:
        await keys_of(url, clock, **more)._read()
    return str(unavailable.value)


async def test_too_long_an_answer_is_not_read_to_its_end(clock: Clock) -> None:
    """Neither as it arrives nor unpacked."""

    class Endless(IdentityProvider):
        def body(self) -> Iterator[bytes]:
            yield from repeat(b" " * MAX_JWKS_BYTES)

    class Packed(IdentityProvider):
        def body(self) -> Iterator[bytes]:
            yield gzip.compress(b" " * (MAX_JWKS_BYTES + 1))

    with Endless().serving() as url:
        assert "at most 1 MiB" in await _unavailable(url, clock)
    packed = Packed()
    packed.headers["Content-Encoding"] = "gzip"
    with packed.serving() as url:
        assert "is not a JWKS" in await _unavailable(url, clock)


async def test_a_redirect_is_not_followed(provider: IdentityProvider, clock: Clock) -> None:
    """The allowed addresses are the operator's."""
    provider.status = HTTPStatus.FOUND
    provider.headers["Location"] = "/elsewhere"
    with provider.serving() as url:
        assert "answers 302" in await _unavailable(url, clock)


async def test_the_providers_certificate_is_verified(
    provider: IdentityProvider, clock: Clock, tmp_path: Path
) -> None:
    """By the system's authorities, or the authorities of the JAAS line, as in Kafka."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(authority.issue("provider"))
    with provider.serving(server) as url:
        assert "certificate" in (await _unavailable(url, clock)).lower()
        assert "certificate" in (await _unavailable(url, clock, trust=Trust(str(stranger.path)))).lower()
        assert "truststore" in await _unavailable(url, clock, trust=Trust(str(tmp_path / "none.pem")))
        keys = keys_of(url, clock, trust=Trust(str(authority.path)))
        assert len(await keys._read()) == 1
        assert await _unavailable(url.replace("127.0.0.1", "127.0.0.2"), clock)
