"""A REST catalog of Iceberg tables: HTTP in front of pyiceberg's own SQLite catalog, with a script of delays."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import CommitTableRequest


class Delay(Enum):
    """The fate of a request that gets no response before its client gives up."""

    NEVER = "it is never carried out"
    RESPONSE = "it is carried out at once"
    BEFORE_NEXT = "it is carried out before the next commit"
    AFTER_NEXT = "it is carried out after the next commit"


class RestServer:
    """The server. `delays`: the delay of each coming request whose method and path begin with the key, once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{folder / 'rest.db'}", warehouse=str(folder))
        self.delays: dict[str, Delay] = {}
        self.is_silent = False
        self.requests: list[str] = []
        self._waiting: list[tuple[Delay, Callable[[], Any]]] = []
        self._lock = threading.Lock()
        server = self
        self._silence = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # a response is one segment, so no delayed acknowledgement holds it up

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = server.take(self.command, self.path, body)
                if answer is None:
                    self.rfile.read(1)  # until the client gives up
                    self.close_connection = True
                    return
                status, found = answer
                encoded = b"" if status == 204 else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            do_POST = do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, method: str, path: str, body: bytes) -> tuple[int, Any] | None:
        """Return status and body; None for no answer."""
        with self._lock:
            self.requests.append(asked := f"{method} {path}")
            if self.is_silent:
                return None
            key = next((each for each in self.delays if re.fullmatch(each, asked)), None)
            if key is None:
                return self._answer_between(asked, body)
            delay = self.delays.pop(key)
            if delay is Delay.RESPONSE:
                self._answer(asked, body)
            elif delay is not Delay.NEVER:
                self._waiting.append((delay, lambda: self._answer(asked, body)))
            return None

    def _answer_between(self, asked: str, body: bytes) -> tuple[int, Any]:
        """Answer a request; what waits for a commit is carried out around it."""
        late = self._waiting if COMMIT.fullmatch(asked) else []
        for delay in (Delay.BEFORE_NEXT, Delay.AFTER_NEXT):
            for each, answer in late:
                if each is delay:
                    answer()
            if delay is Delay.BEFORE_NEXT:
                found = self._answer(asked, body)
        if late:
            self._waiting = []
        return found

    def _answer(self, asked: str, body: bytes) -> tuple[int, Any]:
        try:
            return self._carry_out(asked, body)
        except NoSuchTableError as error:
            return _error(404, "NoSuchTableException", error)
        except NamespaceAlreadyExistsError as error:
            return _error(409, "NamespaceAlreadyExistsException", error)
        except CommitFailedException as error:
            return _error(409, "CommitFailedException", error)

    def _carry_out(self, asked: str, body: bytes) -> tuple[int, Any]:
        method, _, path = asked.partition(" ")
        match method, path.partition("?")[0].removeprefix("/v1/").split("/"):
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                namespace = json.loads(body)["namespace"]
                self.catalog.create_namespace(tuple(namespace))
                return 200, {"namespace": namespace, "properties": {}}
            case "POST", ["namespaces", namespace, "tables"]:
                request = CreateTableRequest.model_validate_json(body)
                return 200, _table(
                    self.catalog.create_table(
                        (namespace, request.name),
                        request.table_schema,
                        location=request.location,
                        properties=request.properties,
                    )
                )
            case "GET", ["namespaces", namespace, "tables", name]:
                return 200, _table(self.catalog.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables", name]:
                commit = CommitTableRequest.model_validate_json(body)
                table = self.catalog.load_table((namespace, name))
                self.catalog.commit_table(table, commit.requirements, commit.updates)
                return 200, _table(self.catalog.load_table((namespace, name)))
        raise AssertionError(f"{asked} is not in the script")

    @contextmanager
    def running(self) -> Iterator[RestServer]:
        """Serve in a thread."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


COMMIT = re.compile(r"POST /v1/namespaces/\w+/tables/[\w-]+")


def _table(table: Any) -> Any:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


def _error(status: int, kind: str, error: Exception) -> tuple[int, Any]:
    return status, {"error": {"message": str(error), "type": kind, "code": status}}
