"""Logins, and the gate of admission: no request is served before a login, and a failed login reveals no secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import scramp
from structlog.testing import capture_logs

from raftlog.base.config.security import ListenerLogins
from raftlog.base.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from raftlog.broker.network.admission import LOGIN_CHECKS
from raftlog.broker.network.login import MAX_MESSAGE_BYTES
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import ANONYMOUS
from raftlog.security.scram import HASHES, MIN_ITERATIONS, REFUSED, ScramCredential, credential
from tests.broker.fakes import (
    LISTENER,
    FakeClient,
    FakePartitionServer,
    api_versions,
    batch,
    produce,
    request,
)
from tests.broker.network.test_admission import BROKER, look, prove
from tests.kit.waits import PATIENCE_S

MECHANISMS = ("PLAIN", *HASHES)
HANDSHAKE, AUTHENTICATE = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)
PASSWORDS = {"alice": "in wonderland", "bob": "the builder"}
OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


def kept_credentials() -> Mapping[tuple[str, str], ScramCredential]:
    return {
        (user, mechanism): credential(mechanism, password, user.encode() * 3, MIN_ITERATIONS)
        for user, password in PASSWORDS.items()
        for mechanism in HASHES
    }


def closed_world(*, max_reauth_ms: int = 0, **config: Any) -> FakePartitionServer:
    """A single listener with logins, where failed logins are answered at once."""
    config.setdefault("connection_failed_authentication_delay_ms", 0)
    logins = {LISTENER: ListenerLogins(MECHANISMS, PASSWORDS, max_reauth_ms)}
    fake = FakePartitionServer(logins=logins, **config)
    fake.image = msgspec.structs.replace(fake.image, scram=kept_credentials())
    return fake


def handshake(mechanism: str) -> bytes:
    return request(HANDSHAKE, 1, 1, request_builders(HANDSHAKE, 1).SaslHandshakeRequest(mechanism=mechanism))


def authenticate(message: bytes) -> bytes:
    make = request_builders(AUTHENTICATE, 2)
    return request(AUTHENTICATE, 2, 2, make.SaslAuthenticateRequest(auth_bytes=message))


async def begin(pipe: FakeClient, mechanism: str) -> Any:
    pipe.send(handshake(mechanism))
    await pipe.wait()
    return pipe.answer(HANDSHAKE, 1)


async def say(pipe: FakeClient, message: bytes) -> Any:
    pipe.send(authenticate(message))
    await pipe.wait()
    return pipe.answer(AUTHENTICATE, 2)


async def log_in(pipe: FakeClient, mechanism: str, user: str = "alice", password: str | None = None) -> Any:
    """Log in as a client does; returns the last answer."""
    password = PASSWORDS[user] if password is None else password
    assert (await begin(pipe, mechanism)).error_code == 0
    if mechanism == "PLAIN":
        return await say(pipe, f"\0{user}\0{password}".encode())
    client = scramp.ScramClient([mechanism], user, password)
    answer = await say(pipe, client.get_client_first().encode())
    assert (answer.error_code, answer.session_lifetime) == (0, 0)
    client.set_server_first(bytes(answer.auth_bytes).decode())
    answer = await say(pipe, client.get_client_final().encode())
    if not answer.error_code:
        client.set_server_final(bytes(answer.auth_bytes).decode())
    return answer


def raw(api_key: int, size: int = 10) -> bytes:
    """A request of an API in its newest version, of which only the header can be read."""
    version = APIS[api_key].max_version
    frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    return size.to_bytes(4, "big") + frame.ljust(size, b"\0")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_opens_the_gate(mechanism: str) -> None:
    """Every API is served from then on, to the user with the proved password. Source: KIP-12, KIP-84, KIP-152."""
    fake = closed_world()
    pipe = fake.connect()
    answer = await log_in(pipe, mechanism)
    assert (answer.error_code, answer.session_lifetime) == (0, 0)
    assert pipe.connection.principal == "User:alice"
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]


@pytest.mark.parametrize("api_key", sorted(set(ApiKey) - OPEN))
async def test_no_other_request_is_served_before_a_login(api_key: ApiKey) -> None:
    """It ends the connection and is not even decoded."""
    fake = closed_world()
    pipe = fake.connect()
    with capture_logs() as logs:
        pipe.send(raw(api_key))
    assert pipe.transport.closed
    assert pipe.transport.written == b""
    assert [line["event"] for line in logs] == ["request_before_login"]


async def test_a_request_behind_a_login_that_is_not_over_ends_the_connection() -> None:
    """A client cannot send its requests ahead: the gate opens with the answer of the login."""
    fake = closed_world()
    pipe = fake.connect()
    await begin(pipe, "PLAIN")
    pipe.send(authenticate(b"\0alice\0wrong") + produce(9, (0, batch())))
    await pipe.wait()
    assert pipe.answer(AUTHENTICATE, 2).error_code == SaslAuthenticationFailed.code
    assert pipe.transport.closed
    assert not fake.partition.batches


async def test_versions_may_be_asked_for_before_a_login() -> None:
    """Clients choose the versions of the login's own requests by them. Source: KIP-35."""
    pipe = closed_world().connect()
    pipe.send(api_versions(1))
    assert pipe.correlation_ids() == [1]


async def test_frames_are_short_before_a_login_only() -> None:
    """`sasl.server.max.receive.size`, by the length that a frame announces (CVE-2022-34917)."""
    fake = closed_world(sasl_server_max_receive_size=1024)
    pipe, stranger = fake.connect(), fake.connect()
    stranger.feed(raw(AUTHENTICATE, 1025)[:20])
    assert stranger.transport.closed
    pipe.feed(raw(AUTHENTICATE, 1024)[:20])
    assert not pipe.transport.closed
    pipe = fake.connect()
    await log_in(pipe, "PLAIN")
    pipe.send(produce(9, (0, batch(1, 5000))))
    assert pipe.correlation_ids() == [9]


async def test_a_client_that_does_not_log_in_is_closed() -> None:
    """Silence and other requests count alike; a logged-in client may be silent."""
    fake = closed_world()
    silent, talker, user = fake.connect(), fake.connect(), fake.connect()
    await log_in(user, "PLAIN")
    look(fake, LOGIN_CHECKS)
    talker.send(api_versions(1))
    assert not silent.transport.closed and not talker.transport.closed
    look(fake)
    assert silent.transport.closed and talker.transport.closed
    look(fake, LOGIN_CHECKS)
    assert not user.transport.closed


async def test_a_client_that_a_rate_keeps_waiting_is_not_too_slow() -> None:
    """It is not read, so it cannot log in; closed, it would come again and make the others wait longer."""
    fake = closed_world()
    pipe = fake.connect()
    pipe.connection.inbox.mute()
    look(fake, LOGIN_CHECKS + 1)
    assert not pipe.transport.closed
    pipe.connection.unmute()
    await log_in(pipe, "PLAIN")
    assert pipe.connection.principal == "User:alice"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_and_an_unknown_user_get_the_same_error(mechanism: str) -> None:
    """No response reveals which users exist, and a refused connection ends."""
    for user in ("alice", "nobody"):
        fake = closed_world()
        pipe = fake.connect()
        with capture_logs() as logs:
            answer = await log_in(pipe, mechanism, user, "a guess")
        assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (
            SaslAuthenticationFailed.code,
            REFUSED,
            b"",
        )
        assert pipe.transport.closed
        assert pipe.connection.principal == ANONYMOUS
        (told,) = logs
        assert told["event"] == "authentication_failed"
        assert (told["mechanism"], told["reason"]) == (mechanism, "wrong_credentials")
        assert "a guess" not in repr(logs)
        assert fake.server.counters.failed_logins == {(mechanism, "wrong_credentials"): 1}


@pytest.mark.parametrize("change", ["removed", "another password"])
async def test_a_login_that_stood_still_ends_by_the_users_of_now(change: str) -> None:
    """A user that was removed during its login does not get in, and gets the same error as others."""
    fake = closed_world()
    pipe = fake.connect()
    assert (await begin(pipe, "SCRAM-SHA-256")).error_code == 0
    client = scramp.ScramClient(["SCRAM-SHA-256"], "alice", PASSWORDS["alice"])
    answer = await say(pipe, client.get_client_first().encode())
    client.set_server_first(bytes(answer.auth_bytes).decode())
    key, users = ("alice", "SCRAM-SHA-256"), dict(fake.image.scram)
    del users[key]
    if change != "removed":
        users[key] = credential(key[1], "through the looking-glass", b"salt" * 6, MIN_ITERATIONS)
    fake.image = msgspec.structs.replace(fake.image, scram=users)
    answer = await say(pipe, client.get_client_final().encode())
    assert (answer.error_code, answer.error_message) == (SaslAuthenticationFailed.code, REFUSED)
    assert pipe.transport.closed and pipe.connection.principal == ANONYMOUS


async def test_a_failed_login_is_answered_late() -> None:
    """`connection.failed.authentication.delay.ms` slows guessing down; meanwhile the connection handles no request."""
    delay_s = 0.03
    fake = closed_world(connection_failed_authentication_delay_ms=int(delay_s * 1000))
    pipe = fake.connect()
    await begin(pipe, "PLAIN")
    began_at = fake.server.loop.time()
    pipe.send(authenticate(b"\0alice\0a guess"), authenticate(b"\0alice\0in wonderland"))
    await pipe.wait()
    assert pipe.answer(AUTHENTICATE, 2).error_code == SaslAuthenticationFailed.code
    assert fake.server.loop.time() - began_at >= delay_s * 0.9
    assert pipe.connection.principal == ANONYMOUS


@pytest.mark.parametrize("version", [0, 1])
async def test_a_refused_handshake_is_answered_late_as_well(version: int) -> None:
    """Trying mechanisms costs a client the same wait as trying passwords. The operator hears of it before."""
    delay_s = 0.03
    fake = closed_world(connection_failed_authentication_delay_ms=int(delay_s * 1000))
    pipe = fake.connect()
    make = request_builders(HANDSHAKE, version)
    began_at = fake.server.loop.time()
    with capture_logs() as logs:
        pipe.send(request(HANDSHAKE, version, 1, make.SaslHandshakeRequest(mechanism="GSSAPI")))
        while not logs:
            await asyncio.sleep(0)
        assert [line["event"] for line in logs] == ["authentication_failed"] and not pipe.transport.written
        await pipe.wait()
    assert pipe.answer(HANDSHAKE, version).error_code
    assert fake.server.loop.time() - began_at >= delay_s * 0.9
    assert pipe.transport.closed


async def test_a_failed_login_is_logged_though_its_client_is_gone() -> None:
    """A guesser may take silence for a refusal and go: the operator hears of each guess all the same."""
    fake = closed_world(connection_failed_authentication_delay_ms=10_000)
    pipe = fake.connect()
    await begin(pipe, "PLAIN")
    with capture_logs() as logs:
        pipe.send(authenticate(b"\0alice\0a guess"))
        await asyncio.sleep(0)
        pipe.connection.connection_lost(None)
    assert [line["event"] for line in logs] == ["authentication_failed"]
    for task in fake.server.tasks:
        task.cancel()


async def test_a_mechanism_that_is_not_offered_ends_the_connection() -> None:
    """The response names the offered mechanisms. Source: KIP-43."""
    fake = closed_world()
    pipe = fake.connect()
    answer = await begin(pipe, "GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (UnsupportedSaslMechanism.code, MECHANISMS)
    assert pipe.transport.closed
    assert fake.server.counters.failed_logins == {("unknown", "unknown_mechanism"): 1}


async def test_a_message_without_a_mechanism_proves_nothing() -> None:
    """SaslHandshake comes first. Source: KIP-152."""
    pipe = closed_world().connect()
    answer = await say(pipe, b"\0alice\0in wonderland")
    assert answer.error_code == IllegalSaslState.code
    assert pipe.connection.principal == ANONYMOUS
    pipe.send(produce(9, (0, batch())))
    assert pipe.transport.closed


async def test_a_listener_without_logins_refuses_one() -> None:
    """A client that is set up for SASL hears that, instead of waiting. The connection stays as open as it was."""
    pipe = FakePartitionServer().connect()
    assert (await begin(pipe, "PLAIN")).error_code == IllegalSaslState.code
    assert (await say(pipe, b"\0alice\0in wonderland")).error_code == IllegalSaslState.code
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]


async def test_a_long_message_of_a_login_is_refused() -> None:
    """A stranger has few bytes parsed (CVE-2022-34917)."""
    pipe = closed_world().connect()
    await begin(pipe, "SCRAM-SHA-256")
    answer = await say(pipe, b"n,,n=alice,r=" + b"x" * MAX_MESSAGE_BYTES)
    assert answer.error_code == SaslAuthenticationFailed.code
    assert pipe.transport.closed


async def test_another_login_may_not_change_the_user() -> None:
    """KIP-368: a connection belongs to one principal for as long as it lasts."""
    pipe = closed_world().connect()
    await log_in(pipe, "SCRAM-SHA-512")
    answer = await log_in(pipe, "PLAIN", "bob")
    assert answer.error_code == SaslAuthenticationFailed.code
    assert pipe.transport.closed
    assert pipe.connection.principal == "User:alice"


async def test_a_login_holds_for_its_time_and_another_one_extends_it() -> None:
    """KIP-368: the client hears how long, may log in again by any mechanism, and is closed if it does not."""
    fake = closed_world(max_reauth_ms=60_000)
    pipe = fake.connect()
    assert (await log_in(pipe, "PLAIN")).session_lifetime == 60_000
    pipe.connection.gate.close(pipe.connection)
    assert (await log_in(pipe, "SCRAM-SHA-256")).session_lifetime == 60_000
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]
    pipe.connection.gate.close(pipe.connection)
    pipe.send(produce(10, (0, batch())))
    assert pipe.transport.closed
    assert len(fake.partition.batches) == 1


async def test_the_gate_closes_by_itself_when_the_time_is_over() -> None:
    """`connections.max.reauth.ms`, by the loop's clock."""
    pipe = closed_world(max_reauth_ms=1).connect()
    await log_in(pipe, "PLAIN")
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S):
            while not pipe.transport.closed:
                pipe.send(produce(9, (0, batch())))
                await asyncio.sleep(0)
    events = [line["event"] for line in logs]
    assert [each for each in events if each != "request_blocked_event_loop"] == [
        "request_before_login"
    ]  # slow machine


async def test_a_broker_proves_the_clusters_secret_instead_of_logging_in() -> None:
    """Brokers reach each other through SASL listeners too, and have no user."""
    fake = closed_world()
    pipe = fake.connect()
    await prove(pipe, BROKER)
    assert pipe.connection.peer == BROKER
    pipe.send(produce(9, (0, batch())))
    assert pipe.correlation_ids() == [9]
    look(fake, LOGIN_CHECKS + 1)
    assert not pipe.transport.closed


async def test_handshake_0_is_listed_and_refused() -> None:
    """Librdkafka 2.0.2 logs in only where version 0 is listed, then sends version 1. Source: librdkafka PR 4983."""
    assert APIS[HANDSHAKE].handles(0)
    fake = closed_world()
    pipe = fake.connect()
    make = request_builders(HANDSHAKE, 0)
    with capture_logs() as logs:
        pipe.send(request(HANDSHAKE, 0, 1, make.SaslHandshakeRequest(mechanism="PLAIN")))
        await pipe.wait()
    assert pipe.answer(HANDSHAKE, 0).error_code == IllegalSaslState.code
    assert pipe.transport.closed
    assert [line["reason"] for line in logs] == ["unsupported_handshake"]
