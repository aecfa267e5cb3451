"""Asking a node's HTTP API, for what Kafka's wire has no request for. Every failure is one line and an exit code."""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from raftlog.base import variables
from raftlog.base.config.network import ADMIN_ADDRESSES, is_loopback
from raftlog.cli import exits
from raftlog.cli.contexts import HTTP_URL, REGISTRY_URL
from raftlog.cli.exits import Failure
from raftlog.cli.listener_probe import speaks_kafka
from raftlog.cli.printable import printable

LOCAL: Final = "http://localhost:9644"
SEVERAL: Final = "if the cluster has other nodes, name several: -b HOST:PORT,HOST:PORT"
"""For a command that knows a single node, which may hang or be down."""
SEE_HEALTH: Final = "see `raftlog cluster health`"
"""Where to look next when a node answers, and the cluster does not."""
PROBE_S: Final = 1.0
"""How long a node may take to say that it is there, once it has not answered a request."""
MAX_BYTES: Final = 16 << 20
MAX_MESSAGE_CHARS: Final = 2_000
"""What is printed of a server's message."""
REDIRECTS: Final = range(300, 400)
TEMPORARY_REDIRECT: Final = 307
UNAUTHENTICATED: Final = 401
NOT_FOUND: Final = 404
MISSING: Final = re.compile(r"((?:share group|group|broker|topic|transactional id|voter) \S+) does not exist")
"""What the HTTP API says of a name that it does not know. Commands say it as they do over Kafka's protocol."""
_CODES: Final = {
    403: exits.DENIED,
    404: exits.NOT_FOUND,
    409: exits.EXISTS,
    503: exits.UNREACHABLE,
    504: exits.UNREACHABLE,
}
"""Exit codes for statuses; of others it is 1."""


class HttpEndpoint(NamedTuple):
    """A port of a node that speaks HTTP, and how commands find it."""

    what: str
    option: str
    variable: str
    """The environment variable for the option."""
    local: str
    """The address without the option."""
    settings: tuple[str, ...]
    """The settings of a broker with its address, the first that is set."""
    cluster_path: str
    """Where it returns the id of its cluster."""
    saved: str
    """The setting of a context with its address."""


ADMIN_API: Final = HttpEndpoint(
    "HTTP API", "--http", variables.HTTP, LOCAL, ADMIN_ADDRESSES, "/v1/whoami", HTTP_URL
)
SCHEMA_REGISTRY: Final = HttpEndpoint(
    "schema registry",
    "--registry",
    variables.REGISTRY,
    "http://localhost:8081",
    ("raftlog.schema.registry.listener",),
    "/v1/metadata/id",
    REGISTRY_URL,
)


def _name_a_port(service: HttpEndpoint) -> str:
    return f"name a port of the {service.what}, such as {urlsplit(service.local).port}"


@dataclass(slots=True)
class HttpApi:
    """A node's HTTP API; `token` "" if none is required. Without a `url` it is the API that `find` finds."""

    url: str = LOCAL
    token: str = ""
    timeout_s: float = 10.0
    """How long a request may take as a whole, however slowly its response comes."""
    find: Callable[[], str] | None = None
    """Looks for a node with a working API; called again when that node did not answer. Raises Failure."""
    user: str = ""
    """NAME:PASSWORD; "" for no user."""
    cacert: str = ""
    """PEM file of the authorities that are believed; "": the system's."""
    certificate: str = ""
    """PEM file of the caller's certificate and key."""
    key: str = ""
    """PEM file of the key, if it is not in the certificate's file."""
    only_over_tls: bool = False
    """Whether the login was saved, for this cluster or for Kafka's listeners, and so must not cross a network in the
    clear."""
    is_withheld: bool = False
    """Whether the login that was saved is not sent, since the URL is not of its cluster."""
    max_bytes: int = MAX_BYTES
    """Of a response."""
    skips_verification_here: bool = False
    """Whether any certificate of a server on this machine is accepted, for requests without a login: the certificate is
    for another address."""
    service: HttpEndpoint = ADMIN_API
    file: Path | None = None
    """The file of settings that named it, as a context."""
    _found: str = ""
    _followed: frozenset[tuple[str, str]] = frozenset()
    """Redirects between nodes of one cluster."""

    def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
        """Return a response's body, None if it is empty. Raise Failure for a status from 400 on, except `accepted`."""
        url = self.located()
        try:
            return self._ask(url, method, path, body, accepted)
        except Failure as failure:
            if failure.code == exits.UNREACHABLE:
                self._found = ""
            raise

    def located(self) -> str:
        """Return the URL; look for it first if that is necessary. Raise Failure."""
        if self.url or self.find is None:
            return self.url
        self._found = self._found or self.find()
        return self._found

    def check_tls(self, url: str) -> None:
        """Raise Failure if a request to a URL would send a saved login over a network in the clear."""
        address = read_url(url, self.service.option)
        if self.only_over_tls and address.scheme == "http" and not is_loopback(str(address.hostname)):
            raise Failure(
                f"{url} is not HTTPS: the saved login would cross the network in the clear", exits.USAGE
            )

    def cluster_at(self, url: str) -> str:
        """Return the id of the cluster whose HTTP API is at a URL, "" if it has none. Raise Failure."""
        found = self._ask(url, "GET", self.service.cluster_path, None, None)
        if not isinstance(found, dict):
            return ""
        scope = found.get("scope") or {"clusters": {"kafka-cluster": found.get("cluster_id")}}
        return str(scope["clusters"]["kafka-cluster"] or "")

    def text(self, path: str) -> str:
        """Return a page that is no JSON, as /metrics, of the API at `url`. Raise Failure."""
        return self._content(self.url, "GET", path, None, None).decode(errors="replace")

    def _ask(self, url: str, method: str, path: str, body: Any, accepted: int | None) -> Any:
        return _read(self._content(url, method, path, body, accepted), self.service.what)

    def _content(self, url: str, method: str, path: str, body: Any, accepted: int | None) -> bytes:
        deadline = time.monotonic() + self.timeout_s
        answer, content = self._exchange(url, method, path, body, deadline)
        if answer.status == TEMPORARY_REDIRECT:
            url = self._redirected(url, path, answer, deadline)
            answer, content = self._exchange(url, method, path, body, deadline)
        if answer.status in REDIRECTS:
            raise self._leads_elsewhere(url, answer)
        if answer.status == UNAUTHENTICATED:
            raise Failure(f"{url}: {self._why_nobody()}", exits.DENIED)
        if answer.status >= 400 and answer.status != accepted:
            if answer.status == NOT_FOUND:
                self.check_service(url, path)
            said = printable((_said(content) or answer.reason)[:MAX_MESSAGE_CHARS])
            if found := MISSING.fullmatch(said):
                said = f"there is no {found[1]}"
            raise Failure(said, _CODES.get(answer.status, exits.FAILED))
        return content

    def check_service(self, url: str, path: str) -> None:
        """Raise Failure if the other of a node's services is at a URL, where a path is not found."""
        other = ADMIN_API if self.service is SCHEMA_REGISTRY else SCHEMA_REGISTRY
        if path == self.service.cluster_path:
            return
        try:
            found = replace(self, service=other, timeout_s=min(PROBE_S, self.timeout_s)).cluster_at(url)
        except (Failure, LookupError, TypeError, AttributeError):
            return
        if found:
            raise Failure(
                f"{url}: the {other.what} answers there, not the {self.service.what}: {_name_a_port(self.service)}",
                exits.UNREACHABLE,
            )

    def _exchange(
        self, url: str, method: str, path: str, body: Any, deadline: float
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Return a response, whatever its status, and its body. Raise Failure."""
        self.check_tls(url)
        address = read_url(url, self.service.option)
        connection = self._connection(str(address.hostname), address.port, secure=address.scheme == "https")
        connection.timeout = max(deadline - time.monotonic(), 0.001)
        connection.response_class = partial(_response, deadline=deadline)  # type: ignore[assignment]
        headers = {"Accept": "application/json", **self._authorization()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            content = answer.read(self.max_bytes + 1)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if isinstance(error, ssl.SSLCertVerificationError):
                raise Failure(
                    f"the certificate of {url} is not trusted ({error.verify_message}); --cacert names the authority",
                    exits.DENIED,
                ) from None
            where, why = self._advice(url, path, error), printable(reason[:MAX_MESSAGE_CHARS])
            raise Failure(f"no answer at {url} ({why}); {where}", exits.UNREACHABLE) from None
        finally:
            connection.close()
        if len(content) > self.max_bytes:
            raise Failure(f"{url}: the answer has more than {self.max_bytes} bytes")
        return answer, content

    def _redirected(self, url: str, path: str, answer: http.client.HTTPResponse, deadline: float) -> str:
        """Return the address of the node that answers instead. Raise Failure unless it is of the same cluster.

        A registry redirects callers that it knows by a certificate to the node that leads. It answers for that node if
        a caller has a login, which is therefore never sent on.
        """
        there, wanted = _base_of(answer)
        is_as_safe = urlsplit(there).scheme == urlsplit(url).scheme
        is_same_request = unquote(wanted) == unquote(path) and path != self.service.cluster_path
        if self._authorization() or not (is_same_request and is_as_safe):
            raise self._leads_elsewhere(url, answer)
        if (url, there) not in self._followed:
            asked = replace(self, timeout_s=max(deadline - time.monotonic(), 0.001))
            own = asked.cluster_at(url)
            if not own or asked.cluster_at(there) != own:
                raise self._leads_elsewhere(url, answer)
            self._followed = self._followed | {(url, there)}
        return there

    def _leads_elsewhere(self, url: str, answer: http.client.HTTPResponse) -> Failure:
        there = printable(_base_of(answer)[0][:MAX_MESSAGE_CHARS]) or "nowhere"
        return Failure(
            f"{url} redirects to {there}, which is not followed; {self.service.option} can name it"
        )

    def _advice(self, url: str, path: str, error: Exception) -> str:
        """Return what may help where no API answers."""
        from raftlog.cli.dev_nodes import running_at

        address = urlsplit(url)
        service = self.service
        where = (
            f"give its address: {service.option} http://HOST:PORT, {service.variable}, or {service.option} of "
            "`raftlog context add`; -b HOST:PORT asks a node for it"
        )
        if url == service.local:
            where = running_at(service.option) or f"start one with `raftlog dev`, or {where}"
        if isinstance(error, TimeoutError):  # something listens there
            where = f"the node hangs or is cut off; {SEVERAL}"
            if path != service.cluster_path and self._answers_at(url):
                where = f"the node answers, but not to this request, as without a majority of the voters: {SEE_HEALTH}"
        if isinstance(error, http.client.RemoteDisconnected) and address.scheme == "http":
            where = f"if it uses TLS, use {service.option} https://{address.netloc}"
            if speaks_kafka((address.hostname or "", address.port or 80)):
                where = f"Kafka answers there: {_name_a_port(service)}"
        return where

    def _answers_at(self, url: str) -> bool:
        """Return whether a node answers a request for which it needs no other node."""
        try:
            replace(self, timeout_s=PROBE_S).cluster_at(url)
        except Failure as failure:
            return failure.code != exits.UNREACHABLE
        return True

    def _why_nobody(self) -> str:
        if self.user:
            return "the user name or password is wrong"
        if self.token:
            return "the token is wrong"
        if self.is_withheld:
            return "it requires authentication, and the saved login is only for hosts of its cluster"
        return "it requires authentication: add -F FILE, --user NAME or --token TOKEN"

    def _connection(self, host: str, port: int | None, *, secure: bool) -> http.client.HTTPConnection:
        if not secure:
            return http.client.HTTPConnection(host, port, timeout=self.timeout_s)
        try:
            context = ssl.create_default_context(cafile=self.cacert or None)
        except OSError as error:
            raise Failure(f"--cacert {self.cacert}: {error.strerror or error}", exits.USAGE) from None
        if self.skips_verification_here and is_loopback(host) and not (self._authorization() or self.cacert):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key or None)
            except OSError as error:
                raise Failure(f"--cert {self.certificate}: {error.strerror or error}", exits.USAGE) from None
        return http.client.HTTPSConnection(host, port, timeout=self.timeout_s, context=context)

    def _authorization(self) -> dict[str, str]:
        if self.user:
            return {"Authorization": f"Basic {base64.b64encode(self.user.encode()).decode()}"}
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def read_url(url: str, option: str) -> SplitResult:
    """Return the parts of the address of an HTTP service. Raise Failure, which names the option, for any other text."""
    reason = "expected http://HOST:PORT or https://HOST:PORT"
    try:
        address = urlsplit(url)
        is_whole = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        if is_whole and "@" not in address.path + address.query + address.fragment:  # a part of a password
            return address
    except ValueError as error:  # its words name the port, or what follows a colon in a password
        reason = reason if "@" in url else str(error)
    raise Failure(f"{option} {without_login(url)}: {reason}", exits.USAGE)


def split_login(url: str, option: str) -> tuple[str, str]:
    """Return an address without its login, and the login as NAME:PASSWORD; "" for none. Raise Failure."""
    address = read_url(url, option)
    login, _, host = address.netloc.rpartition("@")
    if login and ":" not in login:
        login += ":"
    return address._replace(netloc=host).geturl(), unquote(login)


def without_login(url: str) -> str:
    """Return any text that is meant as an address, as it may be printed."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return scheme + separator + rest.rpartition("@")[2]


def _base_of(answer: http.client.HTTPResponse) -> tuple[str, str]:
    """Return the address of the server that a redirect leads to, without a login, and the path there."""
    location = answer.headers.get("Location", "")
    try:
        address = urlsplit(location)
        there, _ = split_login(f"{address.scheme}://{address.netloc}", "Location")
    except (ValueError, Failure):
        return "", ""
    return there, address._replace(scheme="", netloc="", fragment="").geturl()


class _Timed(io.RawIOBase):
    """A socket that is read until a deadline. The timeout of a socket is that of each read, so bytes may drip."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._sock, self._deadline = sock, deadline
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open until this is closed

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _response(sock: socket.socket, *given: Any, deadline: float, **named: Any) -> http.client.HTTPResponse:
    reader: Any = _Timed(sock, deadline)
    return http.client.HTTPResponse(reader, *given, **named)


def _said(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"]).rstrip(".")
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _read(content: bytes, what: str) -> Any:
    if not content:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Failure(f"the answer is not JSON: is this a {what}?") from None
