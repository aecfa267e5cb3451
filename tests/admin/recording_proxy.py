"""A proxy before a node's schema registry that records which routes a client calls, and which errors it gets."""

from __future__ import annotations

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from raftlog.admin.route import PARAMETER, Route
from raftlog.admin.schema_registry.server import ROUTES
from tests.kit.waits import PATIENCE_S

PATTERNS = [(re.compile(PARAMETER.sub("[^/]+", each.path)), each) for each in ROUTES]
HOP = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}


def name_of(route: Route) -> str:
    """Return a route as the reference page writes it."""
    return f"{route.method} {route.template}"


def route_of(method: str, path: str) -> str:
    """Return the route that answers a request; without a route, the request itself."""
    path = path.partition("?")[0]
    found = (name_of(each) for pattern, each in PATTERNS if each.method == method and pattern.fullmatch(path))
    return next(found, f"{method} {path}")


class RecordingProxy:
    """Forwards all requests to a registry. Use it in `with`."""

    def __init__(self, url: str) -> None:
        self.called: set[str] = set()
        self._address = urlsplit(url)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RecordingProxy:
        serve = {"target": self._server.serve_forever, "kwargs": {"poll_interval": 0.01}}
        threading.Thread(**serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[Any, bytes]:
        connection = http.client.HTTPConnection(
            self._address.hostname or "", self._address.port, timeout=PATIENCE_S
        )
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or the body waits for an acknowledgement of the headers

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
                proxy.called.add(route_of(self.command, self.path))
                answer, content = proxy._forward(self.command, self.path, body, kept)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _pass_on

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        return Handler
