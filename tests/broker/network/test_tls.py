"""raftlog.broker.network.tls on real sockets, asyncio's loop and uvloop's: admission, principals, and protocols."""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates
from structlog.testing import capture_logs

from raftlog.base.config import NodeConfig, load_config
from raftlog.base.config.network import Listener
from raftlog.base.config.security import ListenerLogins
from raftlog.base.env import ThreadOffload
from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.base.handshake import bound_secret
from raftlog.base.log import LimitedLog, get_logger
from raftlog.broker.links.peer_auth import prove_membership
from raftlog.broker.links.peer_channel import PeerChannel
from raftlog.broker.links.probe import probe
from raftlog.broker.links.tls import MAX_STORE_BYTES, PeerTls, TlsUnusable
from raftlog.broker.network.admission import TLS_CONNECTION_BYTES
from raftlog.broker.network.connection import Connection
from raftlog.broker.network.server import ListenerUnavailable
from raftlog.broker.network.tls import ServerTls
from raftlog.broker.network.tls_handshake import DISPLACED, HandshakePlaces
from raftlog.broker.replicas.fetchers import shown_certificate
from raftlog.protocol.codec import decode_response
from raftlog.replication.replica_host import ReplicaId
from tests.broker.fakes import FakePartitionServer, api_versions, batch, fetch, produce
from tests.kit.certificates import HOST, Authority
from tests.kit.loops import run
from tests.kit.waits import PATIENCE_S

__all__ = ["run"]

LOCAL = Listener("SSL", HOST, 0, "SSL")
ALICE = {"common_name": "Alice", "organization_name": "Wonder, Land"}
OTHER_ADDRESS = 64
"""X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def config_of(settings: dict[str, str]) -> NodeConfig:
    return load_config({"listeners": f"SSL://{HOST}:0,CONTROLLER://{HOST}:9093"} | settings)


class Client:
    """Raw frames over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, frame: bytes) -> memoryview:
        self.writer.write(frame)
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return memoryview(await self.reader.readexactly(size))

    async def is_closed(self) -> bool:
        """Wait for the end of the connection."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    @property
    def session(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    @property
    def serial_number(self) -> int:
        """Of the certificate that the server showed."""
        return int(str((self.session.getpeercert() or {})["serialNumber"]), 16)


class Serving:
    """A broker's server with a TLS listener, and clients."""

    def __init__(self, fake: FakePartitionServer, port: int) -> None:
        self.fake, self.port = fake, port
        self.clients: list[Client] = []

    @property
    def tls(self) -> ServerTls:
        return self.fake.server.tls["SSL"]

    @property
    def principals(self) -> list[str]:
        return [each.principal for each in self.fake.server.connections]

    async def connect(self, context: ssl.SSLContext | None) -> Client:
        client = Client(*await asyncio.open_connection(HOST, self.port, ssl=context, limit=1 << 24))
        self.clients.append(client)
        return client

    async def is_refused(self, context: ssl.SSLContext | None, say: bytes) -> bool:
        """Whether a client gets no answer. In TLS 1.3 it hears so with its first read, not while it connects."""
        try:
            client = await self.connect(context)
            client.writer.write(say)
            return await client.reader.read(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True


@asynccontextmanager
async def serving(settings: dict[str, str], **more: Any) -> AsyncIterator[Serving]:
    fake = FakePartitionServer(tls=config_of(settings).tls, **more)
    fake.broker.env.offload = ThreadOffload()
    (endpoint,) = await fake.server.start([LOCAL])
    serving = Serving(fake, endpoint.port)
    try:
        yield serving
    finally:
        for client in serving.clients:
            client.writer.transport.abort()
        await fake.server.stop(grace_s=0)


def reasons(logs: list[Any], event: str) -> str:
    return " | ".join(str(each.get("reason")) for each in logs if each["event"] == event)


# --- bytes


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_and_small_frames_pass_whole(run: Any, authority: Authority, version: ssl.TLSVersion) -> None:
    """8 MB come back as they were sent, with small requests between them."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"))
        async with serving(settings) as broker:
            client = await broker.connect(authority.client(minimum_version=version, maximum_version=version))
            data = [batch(1, size, 0x30 + index) for index, size in enumerate((10, 8_000_000, 300_000, 0))]
            for index, each in enumerate(data):
                answer = await client.ask(produce(index, (0, each), acks=-1))
                assert decode_response(0, 9, answer)[0] == index
                await client.ask(api_versions(99))
            answer = await client.ask(fetch(9, (0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24))
            _, fetched = decode_response(1, 12, answer)
            assert bytes(fetched.responses[0].partitions[0].records) == b"".join(data)

    run(main())


# --- principals


def test_a_client_is_the_user_that_its_certificate_names(run: Any, authority: Authority) -> None:
    """RFC 2253, as Kafka's principals: the latest part first. Without a certificate a client is anonymous."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"), client_auth="requested")
        alice = authority.issue("alice", "alice@example.org", **ALICE)
        async with serving(settings) as broker:
            await (await broker.connect(authority.client(alice))).ask(api_versions(1))
            await (await broker.connect(authority.client())).ask(api_versions(1))
            first, second = broker.principals
            assert first.startswith("User:CN=Alice,") and first.endswith("O=Wonder\\, Land")
            assert second == "User:ANONYMOUS"

    run(main())


def test_mapping_rules_make_users_of_names_and_a_name_that_none_fits_is_refused(
    run: Any, authority: Authority
) -> None:
    """Kafka's ssl.principal.mapping.rules, in RE2's syntax."""

    async def main() -> None:
        rules = "RULE:^CN=(Al.*?),.*$/$1/L"
        settings = authority.settings(
            authority.issue("server"), client_auth="required", principal_mapping_rules=rules
        )
        alice, bob = (
            authority.issue("alice", "a@b", **ALICE),
            authority.issue("bob", "b@b", common_name="Bob"),
        )
        async with serving(settings) as broker:
            client = await broker.connect(authority.client(alice))
            await client.ask(api_versions(1))
            assert broker.principals == ["User:alice"]
            with capture_logs() as logs:
                assert await broker.is_refused(authority.client(bob), api_versions(1))
            (told,) = logs
            assert (told["event"], told["reason"]) == ("authentication_failed", "no_principal")
            assert "CN=Bob" in told["advice"]
            counters = broker.fake.server.counters
            assert counters.failed_logins == {("certificate", "no_principal"): 1}
            assert counters.closed_by_broker == {"login_failed": 1}
            await client.ask(api_versions(2))

    run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_clients_with_a_certificate_that_is_believed_get_in(
    run: Any, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """ssl.client.auth=required: neither none, nor another authority's; the log says why."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"), client_auth="required")
        stranger = Authority(tmp_path, "other").issue("stranger", "a@b")
        async with serving(settings) as broker:
            for certificate, why in ((None, "has no certificate"), (stranger, "not trusted")):
                context = authority.client(certificate, maximum_version=version)
                with capture_logs() as logs:
                    assert await broker.is_refused(context, api_versions(1))
                assert why in reasons(logs, "tls_handshake_failed")
                assert {each["address"] for each in logs} == {HOST}
            assert not broker.fake.server.connections
            assert broker.fake.server.counters.closed_by_broker["tls_handshake_failed"] == 2

    run(main())


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (api_versions(1), "set security.protocol to SSL"),
        (bytes(64), "set security.protocol to SSL"),
    ],
)
def test_a_client_that_speaks_no_tls_is_refused_and_the_log_says_so(
    run: Any, authority: Authority, say: bytes, why: str
) -> None:
    """The commonest mistake: a PLAINTEXT client at a TLS listener."""

    async def main() -> None:
        async with serving(authority.settings(authority.issue("server"))) as broker:
            with capture_logs() as logs:
                assert await broker.is_refused(None, say)
            assert why in reasons(logs, "tls_handshake_failed")

    run(main())


def test_a_client_that_never_ends_its_handshake_leaves_nothing_behind(run: Any, authority: Authority) -> None:
    """At a listener with logins too: it is no connection yet, so there is no state to clean up."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"))
        logins = {"SSL": ListenerLogins(("PLAIN",), {"al": "hush"})}
        async with serving(settings, logins=logins) as broker:
            assert await broker.is_refused(None, bytes(64))
            assert await probe(HOST, broker.port, patience_s=PATIENCE_S, tls=True) == "alive"
            async with asyncio.timeout(PATIENCE_S):
                while connections_in_memory(broker):
                    await asyncio.sleep(0.05)
            await broker.connect(authority.client())
            assert connections_in_memory(broker) == 1

    run(main())


def test_handshakes_that_do_not_end_take_no_more_than_their_places(run: Any, authority: Authority) -> None:
    """The newest always has a place: the oldest of the address with the most is closed for it."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"))
        async with serving(settings, raftlog_tls_handshakes_max=2) as broker:
            for _ in range(3):
                await broker.connect(authority.client())  # finished handshakes take no place
            silent = [await broker.connect(None) for _ in range(5)]
            with capture_logs() as logs:
                client = await broker.connect(authority.client())
                await client.ask(api_versions(1))
                assert [await each.is_closed() for each in silent[:3]] == [True] * 3
            assert {each["event"] for each in logs} == {DISPLACED}
            assert broker.fake.server.counters.closed_by_broker[DISPLACED] == 4
            assert not broker.fake.server.counters.closed_by_broker["tls_handshake_failed"]

    run(main())


def test_a_stop_closes_connections_in_their_handshake(run: Any, authority: Authority) -> None:
    """Else they would stay until their time is over."""

    async def main() -> None:
        async with serving(authority.settings(authority.issue("server"))) as broker:
            silent = await broker.connect(None)
            await (await broker.connect(authority.client())).ask(api_versions(1))
            await broker.fake.server.stop(grace_s=0)
            assert await silent.is_closed()

    run(main())


def connections_in_memory(broker: Serving) -> int:
    """Return how many connections anything refers to."""
    gc.collect()
    return sum(
        isinstance(each, Connection) and each.server is broker.fake.server for each in gc.get_objects()
    )


def test_versions_of_tls_that_are_not_enabled_are_refused(run: Any, authority: Authority) -> None:
    """ssl.enabled.protocols."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"), enabled_protocols="TLSv1.3")
        async with serving(settings) as broker:
            old = authority.client(maximum_version=ssl.TLSVersion.TLSv1_2)
            assert await broker.is_refused(old, api_versions(1))
            client = await broker.connect(authority.client())
            assert client.session.version() == "TLSv1.3"

    run(main())


def test_a_connection_with_tls_takes_the_place_of_many_without(run: Any, authority: Authority) -> None:
    """Its session and buffers are memory, which bounds the places of clients."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"))
        limit = 8 * 3 * TLS_CONNECTION_BYTES
        async with serving(settings, raftlog_memory_max_bytes=limit) as broker:
            for number in range(3):
                await (await broker.connect(authority.client())).ask(api_versions(number))
            assert broker.fake.server.memory.connections.used == 3 * TLS_CONNECTION_BYTES
            assert await broker.is_refused(authority.client(), api_versions(1))
            broker.clients[0].writer.transport.abort()
            while broker.fake.server.admission.strangers > 2:
                await asyncio.sleep(0)
            await (await broker.connect(authority.client())).ask(api_versions(9))

    run(main())


# --- renewal


def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_stay(
    run: Any, authority: Authority
) -> None:
    """Without a restart; an unusable file has no effect, and is reported once."""

    async def main() -> None:
        path = authority.issue("server")
        async with serving(authority.settings(path)) as broker:
            first = await broker.connect(authority.client())
            authority.renew(path)
            with capture_logs() as logs:
                await broker.tls.reload_if_changed(ThreadOffload())
                await broker.tls.reload_if_changed(ThreadOffload())
            assert [each["event"] for each in logs] == ["tls_renewed"]
            second = await broker.connect(authority.client())
            assert second.serial_number != first.serial_number
            good = path.read_bytes()
            for bad in (b"", b"-----BEGIN CERTIFICATE-----\n", good[:-400]):
                path.write_bytes(bad)
                with capture_logs() as logs:
                    await broker.tls.reload_if_changed(ThreadOffload())
                    await broker.tls.reload_if_changed(ThreadOffload())
                (told,) = logs
                assert (told["event"], told["log_level"]) == ("tls_renewal_failed", "error")
                assert str(path) in told["reason"] and "ssl.keystore.location" in told["reason"]
                third = await broker.connect(authority.client())
                assert third.serial_number == second.serial_number
            for each in (first, second, third):
                await each.ask(api_versions(1))

    run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_removed_authority_lets_no_client_in_any_more(
    run: Any, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Not even a client that brings the session of a connection before."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"), client_auth="required")
        context = authority.client(authority.issue("alice", "a@b"), maximum_version=version)
        after = Authority(tmp_path, "after")
        async with serving(settings) as broker:
            client = await broker.connect(context)
            await client.ask(api_versions(1))
            session = client.session.session
            after.path.replace(authority.path)
            await broker.tls.reload_if_changed(ThreadOffload())
            await client.ask(api_versions(2))
            assert await broker.is_refused(context, api_versions(1))
            assert not await asyncio.to_thread(_resumes, context, broker.port, session)

    run(main())


def _resumes(context: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> bool:
    """Whether a session of before gets a client an answer."""
    import socket

    with socket.create_connection((HOST, port)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=HOST, session=session) as secured:
                secured.sendall(api_versions(1))
                return bool(secured.recv(1))
        except (ssl.SSLError, ConnectionError):
            return False


# --- stores


def open_tls(settings: dict[str, str]) -> bytes:
    """Make the contexts of a listener; returns the certificate that it shows, in DER. Raises TlsUnusable."""
    tls = config_of(settings).tls["SSL"]

    async def main() -> bytes:
        limited = LimitedLog(get_logger("test"), time.monotonic)
        server = ServerTls(tls, limited, lambda _: None, HandshakePlaces(1, limited, lambda _: None))
        await server.open(ThreadOffload())
        assert await PeerTls(tls).options(ThreadOffload())
        assert server._newest is not None
        return server._newest.certificate

    return asyncio.run(main())


def parts_of(pem: Path) -> tuple[str, str]:
    """Return the certificate chain and the key of a file."""
    certificates = load_pem_x509_certificates(pem.read_bytes())
    key = serialization.load_pem_private_key(pem.read_bytes(), None)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    return chain.decode(), plain.decode()


def test_pem_stands_in_settings_too_even_on_one_line(authority: Authority) -> None:
    """A .properties file joins lines, and Kafka reads what comes of it (KIP-651)."""
    chain, key = parts_of(authority.issue("server"))
    shown = open_tls(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain.replace("\n", " "),
            "ssl.keystore.key": key.replace("\n", " "),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.path.read_text().replace("\n", " "),
        }
    )
    own, *_ = load_pem_x509_certificates(chain.encode())
    assert shown == own.public_bytes(serialization.Encoding.DER)


def test_a_key_with_a_password_is_read_and_a_wrong_one_names_the_setting(authority: Authority) -> None:
    """ssl.key.password; OpenSSL never asks at a terminal."""
    path = authority.issue("server")
    chain, key = parts_of(path)
    locked = serialization.load_pem_private_key(key.encode(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hush"),
    )
    path.write_text(chain + locked.decode())
    open_tls(authority.settings(path, key_password="hush"))
    for wrong in ({}, {"key_password": "hush-hush"}):
        with pytest.raises(TlsUnusable, match=r"ssl\.key\.password") as refused:
            open_tls(authority.settings(path, **wrong))
        assert "hush" not in str(refused.value)


def test_pkcs12_stores_are_read(authority: Authority, tmp_path: Path) -> None:
    """As keytool makes them: a store with key and chain, and a store of authorities."""
    chain, key = parts_of(authority.issue("server"))
    first, *others = load_pem_x509_certificates(chain.encode())
    locked = serialization.BestAvailableEncryption(b"hush")
    keystore, truststore = tmp_path / "keystore.p12", tmp_path / "truststore.p12"
    private: Any = serialization.load_pem_private_key(key.encode(), None)
    keystore.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", private, first, others, locked))
    believed = load_pem_x509_certificate(authority.path.read_bytes())
    truststore.write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(believed, b"ca")], locked)
    )
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": "hush",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(truststore),
        "ssl.truststore.password": "hush",
    }
    open_tls(settings)
    for name in ("ssl.keystore", "ssl.truststore"):
        with pytest.raises(TlsUnusable, match=rf"{name}\.location: .*password is wrong"):
            open_tls(settings | {f"{name}.password": "other"})


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda keystore, _: keystore.unlink(), r"ssl\.keystore\.location: .*No such file"),
        (lambda keystore, _: keystore.write_text("hello"), r"ssl\.keystore\.location: .*has no private key"),
        (
            lambda keystore, _: keystore.write_bytes(bytes(MAX_STORE_BYTES + 1)),
            r"ssl\.keystore\.location: .*has more than 4 MiB",
        ),
        (lambda _, trust: trust.unlink(), r"ssl\.truststore\.location: .*No such file"),
        (lambda _, trust: trust.write_text("hello"), r"ssl\.truststore\.location: .*has no certificate"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_setting_and_path(
    authority: Authority, spoil: Any, rule: str
) -> None:
    """A node that cannot secure a listener does not open it."""
    keystore = authority.issue("server")
    settings = authority.settings(keystore)
    open_tls(settings)
    spoil(keystore, authority.path)
    with pytest.raises(TlsUnusable, match=rule):
        open_tls(settings)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    """Both are well-formed, so only OpenSSL sees it."""
    one, other = authority.issue("one"), authority.issue("other")
    one.write_text(parts_of(one)[0] + parts_of(other)[1])
    with pytest.raises(TlsUnusable, match="the key is not the certificate's"):
        open_tls(authority.settings(one))


def test_a_listener_that_cannot_be_secured_is_not_opened(authority: Authority) -> None:
    """The server says which listener, which setting, and why."""

    async def main() -> None:
        keystore = authority.issue("server")
        settings = authority.settings(keystore, principal_mapping_rules="RULE:(?=x)/y/")
        with pytest.raises(ListenerUnavailable, match=r"SSL://.*ssl\.principal\.mapping\.rules.*RE2"):
            async with serving(settings):
                pass

    asyncio.run(main())


# --- other brokers


def test_a_broker_proves_the_secret_for_the_certificate_that_it_was_shown(
    run: Any, authority: Authority
) -> None:
    """The proof cannot be relayed from a connection that ends at another certificate, even a trusted certificate."""

    async def main() -> None:
        path = authority.issue("server")
        settings = authority.settings(path, client_auth="required")
        async with serving(settings) as broker:
            tls = PeerTls(config_of(settings).tls["SSL"])

            async def introduce(secret_for: Callable[[bytes | None], bytes]) -> None:
                channel = PeerChannel(max_frame_bytes=1000)
                options = await tls.options(ThreadOffload())
                loop = asyncio.get_running_loop()
                transport, _ = await loop.create_connection(lambda: channel, HOST, broker.port, **options)
                try:
                    secret = secret_for(shown_certificate(transport))
                    await prove_membership(channel.ask, secret=secret, own=ReplicaId(2, 12), server_id=1)
                finally:
                    channel.close()

            await introduce(lambda shown: bound_secret(b"secret", shown))
            for wrong in (lambda _: b"secret", lambda _: bound_secret(b"secret", b"of another connection")):
                with pytest.raises(SaslAuthenticationFailed):
                    await introduce(wrong)
            authority.renew(path)
            await broker.tls.reload_if_changed(ThreadOffload())
            await introduce(lambda shown: bound_secret(b"secret", shown))

    run(main())


def test_a_broker_is_not_reached_at_a_host_that_its_certificate_is_not_for(
    run: Any, authority: Authority
) -> None:
    """ssl.endpoint.identification.algorithm: https, and empty."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server", "elsewhere.example"))
        async with serving(settings) as broker:
            loop = asyncio.get_running_loop()
            strict = PeerTls(config_of(settings).tls["SSL"])
            with pytest.raises(ssl.SSLCertVerificationError) as refused:
                await loop.create_connection(
                    asyncio.Protocol, HOST, broker.port, **await strict.options(ThreadOffload())
                )
            assert refused.value.verify_code == OTHER_ADDRESS
            anywhere = {"ssl.endpoint.identification.algorithm": ""}
            loose = PeerTls(config_of(settings | anywhere).tls["SSL"])
            options = await loose.options(ThreadOffload())
            transport, _ = await loop.create_connection(asyncio.Protocol, HOST, broker.port, **options)
            transport.abort()

    run(main())


def test_a_probe_finds_a_broker_alive_that_speaks_tls(run: Any, authority: Authority) -> None:
    """With or without a certificate. Asked in the clear it would pass for dead, and be fenced."""

    async def main() -> None:
        settings = authority.settings(authority.issue("server"), client_auth="required")
        async with serving(settings) as broker:
            assert await probe(HOST, broker.port, patience_s=PATIENCE_S, tls=True) == "alive"
            assert await probe(HOST, broker.port, patience_s=PATIENCE_S) == "refused"
            await broker.fake.server.stop(grace_s=0)
            assert await probe(HOST, broker.port, patience_s=PATIENCE_S, tls=True) == "refused"

    run(main())
