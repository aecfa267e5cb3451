"""The keys of an identity provider, from a file or an address, kept fresh for logins by OAUTHBEARER.

One task fetches; keys stay in force until newer keys have been read. An unknown key triggers an extra fetch, but only
now and then. Made-up tokens must not make a broker flood its identity provider.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Final

from raftlog.base.config.oauth import ListenerOauth
from raftlog.base.config.tls import ListenerTls
from raftlog.base.env import Env
from raftlog.base.log import get_logger
from raftlog.broker.links.tls import TlsUnusable, read_material
from raftlog.security.bearer_tokens import (
    MAX_JWKS_BYTES,
    TokenRules,
    UnknownKey,
    UnusableKeys,
    VerificationKeys,
    VerifiedToken,
    read_jwks,
    verify_token,
)

FETCH_S: Final = 10.0
"""The timeout of a fetch from an identity provider, in seconds."""

LOGIN_WAITS_S: Final = 5.0
"""The maximum wait of a login for keys, in seconds; the fetch goes on without it."""

_CHUNK_BYTES: Final = 1 << 16
_OK: Final = 200

log = get_logger("authentication")


class KeysUnavailable(Exception):
    """Raised if keys cannot be fetched; the message has the reason."""


class TokenKeys:
    """The keys for one listener, and the verification of tokens with them.

    `keep_fresh` runs for as long as it listens.
    """

    def __init__(self, oauth: ListenerOauth, env: Env, clock: Callable[[], float]) -> None:
        self._oauth = oauth
        self._env = env
        self._clock = clock
        self._rules = TokenRules(
            oauth.oauth_expected_issuer,
            oauth.oauth_expected_audience,
            oauth.oauth_clock_skew_seconds,
            oauth.oauth_sub_claim,
            oauth.oauth_scope_claim,
        )
        self._keys: VerificationKeys | None = None
        self._failures = 0
        """Fetches that have failed since the last successful fetch."""
        self._is_fetching = False
        self._began_at: float | None = None
        self._wanted = asyncio.Event()
        self._fetched = asyncio.Event()
        """Set when the fetch that runs, or else the next, is done. Each fetch has its own event."""

    async def open(self) -> None:
        """Read the keys, if they are in a file. Raises KeysUnavailable, since no login could succeed without them.

        A URL may become available later: logins are refused until then.
        """
        if self._oauth.jwks_path is not None:
            self._began_at = self._clock()
            self._keys = await self._read()

    async def keep_fresh(self) -> None:
        """Fetch the keys periodically for as long as this runs."""
        while True:
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self._fetch()

    async def verify(self, token: str, *, may_fetch: bool = True) -> tuple[VerifiedToken, int]:
        """Return a token's claims, and its remaining lifetime in milliseconds. Raises TokenRefused.

        Waits for a fetch if the key is unknown and newer keys may include it, unless `may_fetch` is False.
        """
        try:
            verified = self._verify(token)
        except UnknownKey:
            if not (may_fetch and await self._renew()):
                raise
            verified = self._verify(token)
        left_ms = verified.expires_ms - self._env.wall_clock_ms()
        if left_ms <= 0:  # it is accepted all the same because clocks may differ, and for no longer
            left_ms += self._rules.skew_s * 1000
        return verified, max(left_ms, 1)

    # Inside.

    def _verify(self, token: str) -> VerifiedToken:
        if self._keys is None:
            raise UnknownKey(f"there are no keys of {self._oauth.oauth_jwks_url} yet", reason="no_keys")
        return verify_token(token, self._keys, self._rules, now_ms=self._env.wall_clock_ms())

    async def _renew(self) -> bool:
        """Fetch the keys out of turn, unless that was done a moment ago. Return whether they were fetched."""
        if not self._is_fetching:
            least_s = self._oauth.oauth_jwks_retry_max_ms / 1000
            if self._began_at is not None and self._clock() - self._began_at < least_s:
                return False
            self._wanted.set()
        fetched = self._fetched
        try:
            async with asyncio.timeout(LOGIN_WAITS_S):
                await fetched.wait()
        except TimeoutError:
            return False
        return self._failures == 0

    def _pause_s(self) -> float:
        oauth = self._oauth
        if self._failures:
            first, most = oauth.oauth_jwks_retry_ms, oauth.oauth_jwks_retry_max_ms
            return float(min(first * 2 ** min(self._failures - 1, 30), most)) / 1000
        return 0.0 if self._keys is None else oauth.oauth_jwks_refresh_ms / 1000

    async def _fetch(self) -> None:
        self._is_fetching, self._began_at = True, self._clock()
        try:
            self._keys = await self._read()
        except KeysUnavailable as error:
            self._failures += 1
            self._say_failed(str(error))
        except Exception:  # the node goes on, whatever an identity provider returns
            self._failures += 1
            log.exception("token_keys_crashed", listener=self._oauth.listener)
        else:
            failures, self._failures = self._failures, 0
            if failures:
                log.info("token_keys_fetched", listener=self._oauth.listener, keys=len(self._keys))
        self._is_fetching = False
        fetched, self._fetched = self._fetched, asyncio.Event()
        fetched.set()

    def _say_failed(self, reason: str) -> None:
        if self._failures & (self._failures - 1):  # after 1, 2, 4, 8... failures, not for each
            return
        log.warning(
            "token_keys_unavailable",
            listener=self._oauth.listener,
            setting=self._oauth.names["oauth_jwks_url"],
            url=self._oauth.oauth_jwks_url,
            reason=reason,
            times=self._failures,
            consequence="logins by OAUTHBEARER are refused"
            if self._keys is None
            else "the keys that were there before stay in force",
        )

    async def _read(self) -> VerificationKeys:
        """Fetch and read the keys, away from the loop. Raises KeysUnavailable."""
        path, offload = self._oauth.jwks_path, self._env.offload
        try:
            raw = await (self._download() if path is None else offload(partial(_read_file, path)))
            return await offload(partial(read_jwks, raw))
        except UnusableKeys as error:
            raise KeysUnavailable(f"{self._oauth.oauth_jwks_url}: {error}") from None

    async def _download(self) -> bytes:
        """Get the JWKS from its URL: uncompressed, so that the size limit holds, and without redirects."""
        await self._env.offload(partial(import_module, "aiohttp"))
        import aiohttp

        url = self._oauth.oauth_jwks_url
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            context = await self._env.offload(self._context) if url.startswith("https:") else True
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=FETCH_S), auto_decompress=False
                ) as session,
                session.get(url, headers=headers, allow_redirects=False, ssl=context) as response,
            ):
                if response.status != _OK:
                    raise KeysUnavailable(f"{url} answers {response.status} instead of {_OK}")
                raw = b""
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    raw += chunk
                    if len(raw) > MAX_JWKS_BYTES:
                        break  # `read_jwks` says so
                return raw
        except TimeoutError:
            raise KeysUnavailable(f"{url} does not answer within {FETCH_S:g} s") from None
        except (aiohttp.ClientError, OSError, TlsUnusable) as error:
            raise KeysUnavailable(f"{url}: {error}") from None

    def _context(self) -> ssl.SSLContext:
        """Return a context that verifies the identity provider's certificate. Raises TlsUnusable."""
        trust = self._oauth.trust
        if not trust.location:
            return ssl.create_default_context()
        name = f"ssl.truststore.location of the JAAS line of listener {self._oauth.listener}"
        store = ListenerTls(
            ssl_truststore_location=trust.location,
            ssl_truststore_type=trust.kind,
            ssl_truststore_password=trust.password,
            names={"ssl_truststore_location": name},
        )
        return ssl.create_default_context(cadata=read_material(store).believed)


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_JWKS_BYTES + 1)
    except OSError as error:
        raise KeysUnavailable(f"{path}: {error.strerror or error}") from None
