"""An attack's own process, and its sockets, against a listener without a node."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from raftlog.protocol.codec import decode_header, decode_request
from raftlog_chaos.attacks.__main__ import Order, Report
from raftlog_chaos.attacks.target import (
    ATTACKER,
    ClaimBroken,
    Line,
    NodePorts,
    Target,
    array,
    compact,
    counted,
    expect,
    framed,
    head,
    raw,
    request,
)

Behave = Callable[[socket.socket], None]


def hang_up(connection: socket.socket) -> None:
    connection.recv(1 << 16)


def echo(connection: socket.socket) -> None:
    connection.sendall(framed(b"\0\0\0\1" + connection.recv(1 << 16)[:4]))


@contextmanager
def door(behave: Behave) -> Iterator[int]:
    """A port where every connection is treated alike, then closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            assert address[0] == ATTACKER, "attackers have an address of their own"
            with connection:
                behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def target_at(port: int) -> Target:
    return Target(
        {1: NodePorts("127.0.0.1", port, port, port, "/nowhere")},
        "attacked",
        "attacked-compact",
        "bystanders",
    )


def test_an_attack_runs_in_a_process_of_its_own_and_reports_the_answers():
    """The order goes in as JSON, the report comes out as JSON."""
    with door(hang_up) as port:
        order = Order("impossible-frame-lengths", target_at(port))
        ran = subprocess.run(
            [sys.executable, "-m", "raftlog_chaos.attacks"],
            input=msgspec.json.encode(order),
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
    report = msgspec.json.decode(ran.stdout, type=Report)
    assert report == Report(answered="closed x80")


def test_a_line_distinguishes_answered_closed_and_silent():
    """The words of a report count these."""
    with door(echo) as port, Line(("127.0.0.1", port)) as line:
        assert line.ask(b"abcd") == b"\0\0\0\1abcd"
        assert line.outcome() == "closed"
        assert line.send(b"more") in (0, 4) and line.receive(0.1) is None


def test_a_refused_connection_is_an_error():
    """A refused connection is for the script to count."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(OSError):
            Line(unused.getsockname())


def test_frames_made_by_hand_are_understood_by_the_decoder():
    """An attack would otherwise be refused as malformed, and test no more than that."""
    body = array([bytes(16) + compact("a-topic") + b"\0"]) + b"\0\0\0"
    frame = memoryview(raw(3, 12, body))[4:]
    header, position = decode_header(frame)
    asked = decode_request(3, 12, frame, position)
    assert header.client_id == "attacker" and [each.name for each in asked.topics] == ["a-topic"]
    assert bytes(frame[:position]) == head(3, 12)
    assert request(3, 12, "MetadataRequest", topics=None)[4 : 4 + position] == head(3, 12)


def test_a_claim_that_does_not_hold_is_raised():
    """The process distinguishes it from a failure of its own."""
    claim = "the node answers"
    expect(True, claim)
    with pytest.raises(ClaimBroken, match=claim):
        expect(False, claim)


def test_words_are_counted_most_frequent_first():
    """A hundred answers fit into one line."""
    assert counted(["closed", "silent", "closed"]) == "closed x2, silent"
    assert counted(["a", "b", "c", "d", "e"]) == "a, b, c, d, …"
