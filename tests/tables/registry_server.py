"""A schema registry with two routes, for values of any schema."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class FakeRegistry:
    """Serves schemas by id, and referenced versions by subject. Use it in `with`."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.failures = 0
        """So many requests fail first."""
        self.unknown: Any = {"error_code": 40403, "message": "schema not found"}
        """The body for what is not there."""
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeRegistry:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, schema_id: int, schema: Any, **more: Any) -> None:
        """Register a schema under an id."""
        self.schemas[schema_id] = {"schema": json.dumps(schema), **more}

    def find(self, path: str) -> dict[str, Any] | None:
        words = path.partition("?")[0].split("/")
        if words[1:3] == ["schemas", "ids"]:
            return self.schemas.get(int(words[3]))
        return self.versions.get((words[2], int(words[4])))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                found = registry.find(self.path)
                status = 200 if found is not None else 404
                if registry.failures:
                    registry.failures -= 1
                    status = 503
                body = json.dumps(registry.unknown if found is None else found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """Return a value in Confluent's wire format."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4) + stream.getvalue()
