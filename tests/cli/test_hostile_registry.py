"""`raftlog consume -s registry` at a registry that refuses, lies or hangs: one schema's fault is not another's."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import SCHEMA_REGISTRY, HttpApi
from raftlog.cli.kcat.format import Record
from raftlog.cli.registry_decoder import MAX_ANSWER_BYTES, RegistryDecoder, decoder_of
from raftlog.cli.target import Target
from tests.cli.http_server import HttpServer, Response

GOOD = Response({"schema": '"long"'})
CODE = "\x1b]0;owned\x07\x1b[2J\nraftlog: done"
"""A message that renames a terminal, clears it, and adds a line."""


def decoder_at(url: str, timeout_s: float = 5.0) -> RegistryDecoder:
    return decoder_of(Target("127.0.0.1:1", (), None, timeout_s), url, ("value",))


def record(prefix: bytes) -> Record:
    return Record(b"orders", 0, 7, None, prefix + b"\x04", (), 0, 0, 1)


def by_id(number: int) -> Record:
    return record(b"\0" + number.to_bytes(4, "big"))


BY_GUID = record(b"\1" + bytes(range(16)))


@pytest.mark.parametrize("asked", [by_id(1), BY_GUID], ids=["id", "guid"])
@pytest.mark.parametrize(
    "refused",
    [
        Response({"error_code": 40301, "message": "denied"}, status=403),
        Response({"error_code": 404, "message": "HTTP 404 Not Found"}, status=404),
        Response({"error_code": 50001, "message": "boom"}, status=500),
        Response({}, status=401),
        Response(b"<html>"),
        Response(b"[" * 100_000),
        Response(b" " * (MAX_ANSWER_BYTES + 1)),
        Response({"schema": '"long"'}, status=302, location="http://127.0.0.1:1/"),
    ],
    ids=["403", "404", "500", "401", "html", "deep", "large", "302"],
)
def test_a_refusal_of_one_schema_concerns_no_other(
    asked: Record, refused: Response, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of an older registry that has no route for guids, or rights for some subjects."""
    with HttpServer(lambda path: GOOD if path.endswith("/2") else refused) as server:
        decoder = decoder_at(server.url)
        assert [decoder.decoded(each).value for each in (asked, by_id(2))] == [asked.value, b"2"]
        known = len(server.asked)
        assert decoder.decoded(asked).value == asked.value and len(server.asked) == known
    first, second = capsys.readouterr().err.splitlines()
    assert first == second and first.startswith(
        "raftlog: orders 0 at offset 7: the value is printed as it is"
    )
    assert decoder.code == exits.FAILED


@pytest.mark.parametrize("status", [503, 504])
def test_a_registry_that_says_that_it_is_away_is(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A proxy says so. No other schema is asked for meanwhile."""
    with HttpServer(lambda _: Response({"message": CODE}, status=status)) as server:
        decoder = decoder_at(server.url)
        for number in range(3):
            assert decoder.decoded(by_id(number)).value_schema_id is None
        assert len(server.asked) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "printed as they are meanwhile" in line and line.isprintable()


def test_the_other_service_of_a_node_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, not for each record."""
    found = {"/v1/whoami": Response({"cluster_id": "c"})}
    nothing = Response({"error_code": 404, "message": "there is nothing at it"}, status=404)
    with HttpServer(lambda path: found.get(path, nothing)) as server:
        decoder = decoder_at(server.url)
        for number in (1, 2):
            assert decoder.decoded(by_id(number)).value == by_id(number).value
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{server.url}: the HTTP API answers there, not the schema registry" in line


def referring(reference: Any) -> bytes:
    return json.dumps({"schema": '"long"', "references": reference}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"schema":"1","references":[{"name":"a","subject":"b","version":1e999}]}',
        b'{"schema":"1","references":[{"name":"a","subject":"b","version":NaN}]}',
        referring([{"name": "a", "subject": "b", "version": 1.5}]),
        referring([{"name": "a", "subject": "b", "version": -2}]),
        referring([{"name": "a", "subject": "b", "version": 2**31}]),
        referring([{"name": "a", "subject": "\ud800", "version": 1}]),
        referring({"name": "a"}),
        referring("abc"),
        b'{"schema":5}',
        b'{"schema":"1","schemaType":{"a":1}}',
        json.dumps({"schema": "1", "schemaType": CODE}).encode(),
        json.dumps({"schema": json.dumps({"type": CODE})}).encode(),
        json.dumps({"error_code": 404, "message": CODE}).encode(),
        b'{"schema":"{\\"type\\":\\"fixed\\",\\"name\\":\\"a\\",\\"size\\":1e400}"}',
    ],
)
def test_nonsense_is_a_line_for_a_terminal(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, and no character that commands a terminal."""
    with HttpServer(lambda _: Response(body)) as server:
        assert decoder_at(server.url).decoded(by_id(1)).value == by_id(1).value
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable() and line.startswith("raftlog: orders 0 at offset 7: the value is printed")


def test_messages_of_any_server_are_fit_for_a_terminal() -> None:
    """In all commands, and of a length that is bounded."""
    with (
        HttpServer(lambda _: Response({"message": CODE + "x" * 100_000}, status=500)) as server,
        pytest.raises(Failure) as refused,
    ):
        HttpApi(server.url).ask("GET", "/")
    assert str(refused.value).isprintable() and len(str(refused.value)) < 3_000


@contextmanager
def dripping(beginning: bytes, drop: bytes = b" ") -> Iterator[str]:
    """A server that sends a byte each 50 ms; the URL of it."""
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        while not ended.is_set():
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.recv(10_000)
                    connection.sendall(beginning)
                    while not ended.wait(0.05):
                        connection.sendall(drop)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=[listener], daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            ended.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


@pytest.mark.parametrize(
    ("beginning", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b" "),
    ],
    ids=["body", "chunks", "header", "headers", "status"],
)
def test_the_timeout_is_that_of_a_request_as_a_whole(beginning: bytes, drop: bytes) -> None:
    """A server that sends a byte now and then would otherwise keep a command for hours."""
    with dripping(beginning, drop) as url:
        begun_at = time.monotonic()
        with pytest.raises(Failure, match=r"no answer at http://\S+ \(timed out") as refused:
            HttpApi(url, timeout_s=0.3, service=SCHEMA_REGISTRY).ask("GET", SCHEMA_REGISTRY.cluster_path)
        assert refused.value.code == exits.UNREACHABLE and time.monotonic() - begun_at < 3


def test_a_lookup_ends_in_time_with_all_its_requests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each reference could take as long as the schema itself. A member of a group sends no heartbeats meanwhile."""
    now, given_s = [100.0], []
    monkeypatch.setattr("raftlog.cli.registry_decoder.time.monotonic", lambda: now[0])

    def ask(_path: str, timeout_s: float) -> dict[str, Any]:
        """Return a reference to another schema, after two seconds."""
        given_s.append(timeout_s)
        now[0] += 2
        return {
            "schema": '"long"',
            "references": [{"name": "n", "subject": "s", "version": len(given_s)}],
        }

    decoder = RegistryDecoder(ask, ("value",))
    for number in (1, 2):
        assert decoder.decoded(by_id(number)).value == by_id(number).value
        assert given_s == [5.0, 3.0, 1.0]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("raftlog: the registry takes more than 5 s for a schema; keys and values")


CLUSTER_ID = {"scope": {"path": [], "clusters": {"kafka-cluster": "c1"}}}


def cluster_or(answer: Callable[[str], Response], cluster: Any = CLUSTER_ID) -> Callable[[str], Response]:
    return lambda path: Response(cluster) if path == SCHEMA_REGISTRY.cluster_path else answer(path)


def test_a_redirect_to_the_node_that_leads_is_followed() -> None:
    """A registry redirects a caller that it knows by a certificate. The clusters are compared once."""
    with HttpServer(cluster_or(lambda path: Response({"led": path}))) as leader:
        moved = cluster_or(lambda path: Response(b"307", status=307, location=leader.url + path))
        with HttpServer(moved) as follower:
            api = HttpApi(follower.url, service=SCHEMA_REGISTRY)
            for path in ("/subjects/a%40b/versions?deleted=true", "/schemas"):
                assert api.ask("GET", path) == {"led": path}
    assert leader.asked.count(SCHEMA_REGISTRY.cluster_path) == 1


@pytest.mark.parametrize("why", ["login", "cluster", "path", "scheme", "loop", "status", "none"])
def test_any_other_redirect_is_named_and_not_followed(why: str) -> None:
    """A login goes to no other address, and a request to no other cluster."""
    other = {"scope": {"clusters": {"kafka-cluster": "c2"}}}
    with HttpServer(cluster_or(lambda _: GOOD, other if why == "cluster" else CLUSTER_ID)) as leader:
        if why == "loop":
            leader.answer = cluster_or(lambda path: Response(status=307, location=leader.url + path))
        there = leader.url.replace("http:", "https:") if why == "scheme" else leader.url
        status = 308 if why == "status" else 307

        def moved(path: str) -> Response:
            location = there.replace("//", "//al:secretpw@") + ("/x" if why == "path" else path)
            return Response(status=status, location="" if why == "none" else location)

        with HttpServer(cluster_or(moved)) as follower:
            api = HttpApi(follower.url, "hush" if why == "login" else "", service=SCHEMA_REGISTRY)
            with pytest.raises(Failure) as refused:
                api.ask("GET", "/schemas")
        said = str(refused.value)
        shown = "nowhere" if why == "none" else there
        assert f"redirects to {shown}, which is not followed" in said and "secretpw" not in said
        asked = {path for path in leader.asked if path != SCHEMA_REGISTRY.cluster_path}
        assert asked == ({"/schemas"} if why == "loop" else set())
        assert why != "login" or not leader.asked
