"""A blocking connection to a broker: TCP or TLS, a login, then requests, several under way if wanted."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from raftlog.base.errors import from_code
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import version_for
from raftlog.protocol.conversation import MAX_RESPONSE_BYTES, Conversation
from raftlog.protocol.message_builders import request_builders
from raftlog.security.sasl_client import Login, login_messages

CLIENT_ID: Final = "raftlog"


class Connection:
    """A connection to a broker that has accepted this client. Use it in `with`."""

    def __init__(
        self,
        connected: socket.socket,
        client_id: str = CLIENT_ID,
        *,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._socket = connected
        self._client_id = client_id
        self._conversation = Conversation(max_response_bytes=max_response_bytes)
        self._responses: deque[Any] = deque()
        self._served: dict[int, tuple[int, int]] | None = None
        self.is_closed = False

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def release_memory(self) -> None:
        """Release the memory of large responses."""
        self._conversation.release_memory()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for a response."""
        return self._socket.fileno()

    def has_response(self) -> bool:
        """Return whether bytes of a response were received that the descriptor does not show."""
        return bool(self._responses) or (
            isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        )

    def set_timeout(self, timeout_s: float) -> None:
        """Limit each following wait for the socket."""
        self._socket.settimeout(max(timeout_s, 0.001))

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        """Return the response to a request. Raise OSError, KafkaError for a response with only an error."""
        response = self.exchange(api_key, version, message)
        if code := getattr(response, "error_code", 0):  # some responses have errors of their parts only
            raise from_code(code, getattr(response, "error_message", None))
        return response

    def exchange(self, api_key: int, version: int, message: Any) -> Any:
        """Return the response to a request, whatever its error code. Raise OSError."""
        self.send(api_key, version, message)
        return self.receive()

    def send(self, api_key: int, version: int, message: Any, *, is_answered: bool = True) -> None:
        """Send a request. Raise OSError, which leaves the connection unusable."""
        frame = self._conversation.request(
            api_key, version, message, client_id=self._client_id, is_answered=is_answered
        )
        try:
            self._socket.sendall(frame)
        except BaseException:
            self.close()
            raise

    def receive(self) -> Any:
        """Return the next response. Raise OSError, which leaves the connection unusable."""
        try:
            while not self._responses:
                received = self._socket.recv_into(self._conversation.get_buffer())
                if not received:
                    raise ConnectionResetError("the broker closed the connection")
                self._responses.extend(self._conversation.received(received))
        except BaseException:  # a response that comes later would be taken for the next
            self.close()
            raise
        return self._responses.popleft()

    def version_of(self, api_key: int, *, newest: int | None = None) -> int:
        """Return the version of an API to use with this broker. Raise OSError, UnsupportedVersion."""
        if self._served is None:
            asked = request_builders(ApiKey.API_VERSIONS, 0).ApiVersionsRequest()
            answer = self.ask(ApiKey.API_VERSIONS, 0, asked)
            self._served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return version_for(api_key, self._served, newest=newest)

    def log_in(self, login: Login) -> None:
        """Authenticate. Raise OSError, KafkaError, ServerUnproven."""
        make = request_builders(ApiKey.SASL_HANDSHAKE, 1)
        self.ask(ApiKey.SASL_HANDSHAKE, 1, make.SaslHandshakeRequest(mechanism=login.mechanism))
        make = request_builders(ApiKey.SASL_AUTHENTICATE, 2)
        messages = login_messages(login, nonce=secrets.token_hex(24))
        try:
            message = next(messages)
            while True:
                asked = make.SaslAuthenticateRequest(auth_bytes=message)
                answer = self.ask(ApiKey.SASL_AUTHENTICATE, 2, asked)
                message = messages.send(bytes(answer.auth_bytes))
        except StopIteration:
            return


class Dialer(NamedTuple):
    """Connects to a listener: with or without TLS, with or without a login."""

    context: ssl.SSLContext | None = None
    login: Callable[[], Login] | None = None
    """Called for each connection: a token may have expired since the last connection."""

    @property
    def is_plaintext(self) -> bool:
        return self.context is None and self.login is None

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return an authenticated socket. Raise OSError, KafkaError, ServerUnproven."""
        connected = socket.create_connection((host, port), timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context is not None:
                connected = self.context.wrap_socket(connected, server_hostname=host)
            if self.login is not None:
                Connection(connected).log_in(self.login())
        except BaseException:
            connected.close()
            raise
        return connected
