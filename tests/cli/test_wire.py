"""raftlog.cli.wire: the addresses that -b takes are those that librdkafka takes, and none is a traceback."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from raftlog.cli import exits, wire
from raftlog.cli.exits import Failure
from tests.cli.live import invoke


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the addresses that were dialled; nobody answers."""
    found: list[tuple[str, int]] = []

    def refuse(address: tuple[str, int], *_: Any) -> None:
        found.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    return found


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("one:9092", [("one", 9092)]),
        ("one", [("one", 9092)]),
        ("one:19092, two,", [("one", 19092), ("two", 9092)]),
        ("[::1]:19092,[::1]", [("::1", 19092), ("::1", 9092)]),
        (",", []),
    ],
)
def test_addresses_are_read_as_librdkafka_reads_them(
    dialled: list[tuple[str, int]], servers: str, addresses: list[tuple[str, int]]
) -> None:
    """Without a port it is 9092; what is empty is passed over."""
    with pytest.raises(Failure, match="no broker answers") as refused:
        wire.reach(servers, {}, 1.0)
    assert dialled == addresses and refused.value.code == exits.UNREACHABLE


def test_an_hmac_that_is_no_base64_is_one_line() -> None:
    """It is told apart from a token that there is not."""
    for proof in ("é", "a b", "abc"):
        code, _, err = invoke("token", "renew", proof, "-b", "localhost:1")
        assert (code, err.splitlines()) == (exits.USAGE, ["raftlog: HMAC: is not base64"])
