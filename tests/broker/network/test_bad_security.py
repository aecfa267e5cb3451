"""Bad certificates and bad logins at a real TLS listener: the protocol's error, and a line that says what to mend.

Neither the response nor the line helps an attacker: no user, no password, no nonce.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import scramp
from structlog.testing import capture_logs

from raftlog.base.config.security import ListenerLogins
from raftlog.base.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from raftlog.protocol.codec import decode_response
from raftlog.security.scram import REFUSED
from tests.broker.fakes import api_versions, batch, produce
from tests.broker.network.test_login import (
    AUTHENTICATE,
    HANDSHAKE,
    PASSWORDS,
    authenticate,
    handshake,
    kept_credentials,
)
from tests.broker.network.test_tls import Client, Serving, authority, reasons, run, serving
from tests.kit.certificates import HOST, Authority

__all__ = ["authority", "run"]

SCRAM = "SCRAM-SHA-256"
SECRETS = (*PASSWORDS, *PASSWORDS.values())
A_DAY = timedelta(days=1)


def expired() -> dict[str, Any]:
    now = datetime.now(UTC)
    return {"not_before": now - 2 * A_DAY, "not_after": now - A_DAY}


def test_bad_client_certificates_are_refused_with_what_to_mend(
    run: Any, authority: Authority, tmp_path: Path
) -> None:
    """Expired, valid from tomorrow, self-signed, from an untrusted authority."""
    now, other = datetime.now(UTC), Authority(tmp_path, "other")
    itself = tmp_path / "itself.pem"
    itself.write_bytes(other._ca.private_key_pem.bytes() + other._ca.cert_pem.bytes())
    bad = {
        "has expired (give the client a new one)": authority.issue("old", "a@b", **expired()),
        "is it the right time here?": authority.issue(
            "new", "a@b", not_before=now + A_DAY, not_after=now + 2 * A_DAY
        ),
        "self-signed certificate (add its authority to ssl.truststore.location": itself,
        "add its authority to ssl.truststore.location": other.issue("stranger", "a@b"),
    }

    async def main() -> None:
        settings = authority.settings(authority.issue("server"), client_auth="required")
        async with serving(settings) as broker:
            for advice, certificate in bad.items():
                with capture_logs() as logs:
                    assert await broker.is_refused(authority.client(certificate), api_versions(1)), advice
                assert advice in reasons(logs, "tls_handshake_failed")
            assert not broker.fake.server.connections

    run(main())


def test_a_client_certificate_that_was_cut_off_is_no_certificate(authority: Authority) -> None:
    """Neither at a client, which reports it, nor at a node (see test_tls)."""
    certificate = authority.issue("alice", "a@b")
    certificate.write_bytes(certificate.read_bytes()[:-200])
    with pytest.raises(ssl.SSLError):
        authority.client(certificate)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("expired", "this node's certificate has expired: replace it"),
        ("wrong host", "is it for the host in advertised.listeners?"),
        ("unknown", "the client does not trust this node's certificate"),
    ],
)
def test_a_node_hears_why_clients_refuse_its_certificate(
    run: Any, authority: Authority, tmp_path: Path, kind: str, advice: str
) -> None:
    """The mistake is the operator's, and only the client's alert shows it."""
    signer = Authority(tmp_path, "other") if kind == "unknown" else authority
    host = ("elsewhere.example",) if kind == "wrong host" else ()
    keystore = signer.issue("server", *host, **(expired() if kind == "expired" else {}))

    async def main() -> None:
        async with serving(authority.settings(keystore)) as broker:
            with capture_logs() as logs:
                await asyncio.to_thread(refuse, authority.client(), broker.port)
                while not broker.fake.server.counters.closed_by_broker["tls_handshake_failed"]:
                    await asyncio.sleep(0)
            assert advice in reasons(logs, "tls_handshake_failed")

    run(main())


def refuse(context: ssl.SSLContext, port: int) -> None:
    """Connect as a client that says why it goes; asyncio's own loses that word."""
    with (
        socket.create_connection((HOST, port)) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
        context.wrap_socket(plain, server_hostname=HOST),
    ):
        pass


class Login:
    """A client of a SASL_SSL listener: says a step, and hears its answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def choose(self, mechanism: str) -> Any:
        answer = await self._client.ask(handshake(mechanism))
        return decode_response(HANDSHAKE, 1, answer)[1]

    async def say(self, message: bytes) -> Any:
        return decode_response(AUTHENTICATE, 2, await self._client.ask(authenticate(message)))[1]

    async def is_closed(self) -> bool:
        self._client.writer.write(produce(9, (0, batch())))
        try:
            return await self._client.reader.read(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True


def closed(authority: Authority) -> Any:
    """Return a broker with a TLS listener that requires a login."""
    logins = {"SSL": ListenerLogins(("PLAIN", SCRAM), PASSWORDS)}
    more = {"logins": logins, "connection_failed_authentication_delay_ms": 0}
    return serving(authority.settings(authority.issue("server")), **more)


async def log_in_at(broker: Serving, authority: Authority) -> Login:
    broker.fake.image = msgspec.structs.replace(broker.fake.image, scram=kept_credentials())
    return Login(await broker.connect(authority.client()))


def told(logs: list[Any]) -> dict[str, Any]:
    """Return the only line about a login, which has no secret."""
    (line,) = [each for each in logs if each["event"] == "authentication_failed"]
    assert not any(each in repr(line) for each in SECRETS)
    return dict(line)


def test_an_unknown_mechanism_is_answered_with_the_offered_mechanisms(run: Any, authority: Authority) -> None:
    """UNSUPPORTED_SASL_MECHANISM (KIP-43); the operator hears what the client wants, cut to a bearable length."""

    async def main() -> None:
        async with closed(authority) as broker:
            for name in ("GSSAPI", "x" * 30_000):
                login = await log_in_at(broker, authority)
                with capture_logs() as logs:
                    answer = await login.choose(name)
                    assert await login.is_closed()
                assert answer.error_code == UnsupportedSaslMechanism.code
                assert tuple(answer.mechanisms) == ("PLAIN", SCRAM)
                line = told(logs)
                assert line["advice"].startswith(f"the client wants '{name[:40]}'")
                assert line["reason"] == "unknown_mechanism" and len(line["advice"]) < 200

    run(main())


@pytest.mark.parametrize("lie", ["another nonce", "the client's own", "a proof cut off", "no message"])
def test_lies_in_scram_sound_like_a_wrong_password(run: Any, authority: Authority, lie: str) -> None:
    """SASL_AUTHENTICATION_FAILED (CVE-2024-56128), with a text that does not reveal how far the login came."""

    async def main() -> None:
        async with closed(authority) as broker:
            login = await log_in_at(broker, authority)
            await login.choose(SCRAM)
            client = scramp.ScramClient([SCRAM], "alice", PASSWORDS["alice"])
            answer = await login.say(client.get_client_first().encode())
            given = bytes(answer.auth_bytes).decode()
            client.set_server_first(given)
            final = client.get_client_final()
            nonce = given.partition(",")[0].removeprefix("r=")
            said = {
                "another nonce": final.replace(nonce, nonce[:-4] + "AAAA"),
                "the client's own": final.replace(nonce, nonce[:-48]),
                "a proof cut off": final[:-8],
                "no message": "r=" + nonce,
            }[lie]
            with capture_logs() as logs:
                answer = await login.say(said.encode())
                assert await login.is_closed()
            assert answer.error_code == SaslAuthenticationFailed.code
            assert answer.error_message in (REFUSED, "this is not a SCRAM message")
            line = told(logs)
            assert line["mechanism"] == SCRAM and line["reason"] in ("wrong_credentials", "malformed")
            assert nonce not in repr(line)

    run(main())


def test_a_login_that_stops_halfway_is_no_login(run: Any, authority: Authority) -> None:
    """A request behind half a login ends the connection, before it is decoded; so does to begin once more."""

    async def main() -> None:
        async with closed(authority) as broker:
            first = scramp.ScramClient([SCRAM], "alice", PASSWORDS["alice"]).get_client_first().encode()
            login = await log_in_at(broker, authority)
            await login.choose(SCRAM)
            await login.say(first)
            with capture_logs() as logs:
                assert await login.is_closed()
            assert [each["event"] for each in logs] == ["request_before_login"]
            again = await log_in_at(broker, authority)
            await again.choose(SCRAM)
            await again.say(first)
            assert (await again.choose(SCRAM)).error_code == IllegalSaslState.code
            assert await again.is_closed()
            assert not broker.fake.partition.batches

    run(main())
