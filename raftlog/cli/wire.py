"""One connection to a broker, for requests that client libraries have no call for.

It logs in by PLAIN or SCRAM, over TLS where that is asked for, and has one request under way at a time. It knows the
settings of `target.LOGIN_SETTINGS`.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from raftlog.base.errors import InvalidRequest, KafkaError, from_code
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.refusals import UNPROVEN
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.security.scram import HASHES
from raftlog.security.scram_client import ScramClient, ServerUnproven

CLIENT_ID: Final = "raftlog"
MOST_BYTES: Final = 64 << 20
"""Of an answer."""
NO_ANSWER: Final = "the answer is none of Kafka's protocol"
DEFAULT_PORT: Final = "9092"
PLAIN: Final = "PLAIN"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LENGTH: Final = Struct(">i")


class Wire:
    """A broker that has let us in. Use it in `with`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._asked = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        """Return the response to a request. Raise OSError, KafkaError for a response with only an error."""
        self._asked += 1
        self._connection.sendall(
            encode_request(RequestHeader(api_key, version, self._asked, CLIENT_ID), message)
        )
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not _LENGTH.size <= size <= MOST_BYTES:
            raise OSError(NO_ANSWER)
        frame = memoryview(self._read(size))
        try:
            correlation_id, answer = decode_response(api_key, version, frame)
        except (InvalidRequest, IndexError):
            raise OSError(NO_ANSWER) from None
        if correlation_id != self._asked:
            raise OSError("the answer is to another request")
        if code := getattr(answer, "error_code", 0):  # some answers have errors of their parts only
            raise from_code(code, getattr(answer, "error_message", None))
        return answer

    def log_in(self, mechanism: str, user: str, password: str, *, with_token: bool = False) -> None:
        """Authenticate. Raise OSError, KafkaError, ServerUnproven."""
        make = request_builders(ApiKey.SASL_HANDSHAKE, 1)
        self.ask(ApiKey.SASL_HANDSHAKE, 1, make.SaslHandshakeRequest(mechanism=mechanism))
        if mechanism == PLAIN:
            self._say(f"\0{user}\0{password}".encode())
            return
        client = ScramClient(mechanism, user, password, nonce=secrets.token_hex(24), with_token=with_token)
        client.verify(self._say(client.final(self._say(client.first()))))

    def _say(self, message: bytes) -> bytes:
        make = request_builders(ApiKey.SASL_AUTHENTICATE, 2)
        asked = make.SaslAuthenticateRequest(auth_bytes=message)
        return bytes(self.ask(ApiKey.SASL_AUTHENTICATE, 2, asked).auth_bytes)

    def _read(self, size: int) -> bytearray:
        received = bytearray()
        while len(received) < size:
            piece = self._connection.recv(min(size - len(received), 1 << 16))
            if not piece:
                raise OSError("the broker closed the connection")
            received += piece
        return received


def reach(servers: str, settings: Mapping[str, str], timeout_s: float) -> Wire:
    """Return a connection to the first of some servers that lets us in. Raises Failure."""
    door = door_of(settings)
    addresses = addresses_of(servers)
    reasons = ["none is named"]
    for host, port in addresses:
        address = f"{host}:{port}"
        try:
            return Wire(door.connect(host, port, timeout_s / len(addresses)))
        except ssl.SSLCertVerificationError:
            raise Failure(f"{address}: {UNPROVEN}", exits.DENIED) from None
        except OSError as error:
            reasons.append(error.strerror or str(error))
        except ServerUnproven as error:
            raise Failure(f"{address}: {error}", exits.DENIED) from None
        except KafkaError as error:
            raise Failure(f"{address}: {error.message or error}", exits.DENIED) from None
    raise Failure(f"no broker answers at {servers} ({reasons[-1]})", exits.UNREACHABLE)


class Door(NamedTuple):
    """How to connect to a listener: with TLS or without, with a login or without."""

    context: ssl.SSLContext | None = None
    login: tuple[str, str, str] | None = None

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return a connection that has let us in. Raises OSError, KafkaError or ServerUnproven."""
        connection = socket.create_connection((host, port), timeout_s)
        try:
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_hostname=host)
            if self.login is not None:
                Wire(connection).log_in(*self.login)
        except BaseException:
            connection.close()
            raise
        return connection


def door_of(settings: Mapping[str, str]) -> Door:
    """Return how to connect with these settings. Raises Failure."""
    protocol = settings.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise Failure(f"security.protocol: must be one of {', '.join(PROTOCOLS)}", exits.USAGE)
    login = _login_of(settings) if protocol.startswith("SASL_") else None
    return Door(_context_of(settings) if protocol.endswith("SSL") else None, login)


def addresses_of(servers: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in a list with commas between, as librdkafka reads it."""
    found: list[tuple[str, int]] = []
    for each in filter(None, (each.strip() for each in servers.split(","))):
        host, colon, port = each.rpartition(":")
        if not colon or "]" in port:  # no port is named
            host, port = each, DEFAULT_PORT
        found.append((host.strip("[]"), int(port)))
    return found


def _login_of(settings: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    if mechanism not in (PLAIN, *HASHES):
        raise Failure(f"sasl.mechanism: must be one of {', '.join((PLAIN, *HASHES))}", exits.USAGE)
    for name in ("sasl.username", "sasl.password"):
        if not settings.get(name):
            raise Failure(f"{name}: a login needs it", exits.USAGE)
    return mechanism, settings["sasl.username"], settings["sasl.password"]


def _context_of(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        if settings.get("ssl.endpoint.identification.algorithm", "https") != "https":
            context.check_hostname = False
        if certificate := settings.get("ssl.certificate.location"):
            key, password = settings.get("ssl.key.location"), settings.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        raise Failure(f"the certificates cannot be used: {error.strerror or error}", exits.USAGE) from None
    return context
