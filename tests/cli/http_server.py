"""A server with the responses that a test chooses, which notes what is asked with which login."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Response(NamedTuple):
    """What is sent: `body` as JSON, unless it is bytes."""

    body: Any = None
    status: int = 200
    location: str = ""


class HttpServer:
    """Answers GET by `answer`, a function of the path, at `url`. Use it in `with`."""

    def __init__(self, answer: Callable[[str], Response]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HttpServer:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def with_login(self, login: str) -> str:
        """Return the URL with a login."""
        return self.url.replace("://", f"://{login}@")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.logins.append(self.headers["Authorization"])
                found = server.answer(self.path)
                content = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
                self.send_response(found.status)
                if found.location:
                    self.send_header("Location", found.location)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print no line for each request."""

        return Handler
