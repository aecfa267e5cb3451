"""Claims about the client of a schema registry that tables use: where a login goes, and what it says."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raftlog.tables.registry import Registry, RegistryFailed, RegistryUnreachable
from raftlog.testing.ports import HeldPorts


@contextmanager
def served(answer: bytes, status: int, location: str = "") -> Iterator[tuple[str, list[str | None]]]:
    """Serve one answer to everything; yields the address, and the logins that came."""
    logins: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            logins.append(self.headers.get("Authorization"))
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *about: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", logins
        finally:
            server.shutdown()
            thread.join()


def test_login_does_not_follow_a_redirect_to_another_address() -> None:
    """The first address gets it, the second does not."""
    schema = b'{"schema": "\\"string\\"", "schemaType": "AVRO"}'
    with (
        served(schema, 200) as (elsewhere, there),
        served(b"", 307, f"http://{elsewhere}/schemas/ids/1") as (here, first),
    ):
        found = Registry(f"http://al:secret@{here}", lambda _: None).schema(1)
    assert found is not None
    assert first[0] is not None and first[0].startswith("Basic ")
    assert there == [None]


def test_address_without_a_server_is_named_with_the_option() -> None:
    """In the words of all commands, without the number of the system's error."""
    held = HeldPorts(1)
    held.release()
    said = rf"^no answer at http://127.0.0.1:{held.ports[0]} \(Connection refused\); .*: --registry http://HOST:PORT$"
    with pytest.raises(RegistryUnreachable, match=said):
        Registry(f"http://127.0.0.1:{held.ports[0]}", lambda _: None).check()
    with served(b"", 503) as (here, _), pytest.raises(RegistryFailed, match="fails: 503") as refused:
        Registry(f"http://{here}", lambda _: None).check()
    assert not isinstance(refused.value, RegistryUnreachable)


def test_error_about_an_address_has_no_password() -> None:
    """The message names the rest of it."""
    with pytest.raises(ValueError, match=r"^--registry ftp://h: expected http://HOST:PORT$"):
        Registry("ftp://al:secret@h", lambda _: None)


def test_schema_that_refers_to_too_much_is_named() -> None:
    """Each reference is read in turn; the answer refers to itself under ever another name."""
    text = b"x" * (2 << 20)
    answer = (
        b'{"schema": "' + text + b'", "version": 1, "subject": "s", "id": 1, '
        b'"references": [{"name": "n", "subject": "s", "version": 1}]}'
    )
    with (
        served(answer, 200) as (here, _),
        pytest.raises(RegistryFailed, match=r"schema 1 cannot be used: .* refers to more than"),
    ):
        Registry(f"http://{here}", lambda _: None).schema(1)
