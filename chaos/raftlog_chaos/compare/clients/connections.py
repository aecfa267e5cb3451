"""Idle connections for any protocol: each says its first bytes, hears something, and stays open."""

from __future__ import annotations

import resource
import socket
import time
from typing import Final

from raftlog_chaos.compare.clients.speech import Clock, main
from raftlog_chaos.compare.loads import Answer, Load

ANSWER_S: Final = 5.0
MAX_FAILURES: Final = 20
"""After so many connections that were refused in a row, no more are tried."""


def _open(address: str, hello: bytes) -> socket.socket | None:
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), timeout=ANSWER_S)
    except OSError:
        return None
    try:
        connection.sendall(hello)
        if connection.recv(1 << 16):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def connections(load: Load) -> Answer:
    """Open connections, spread over the servers, and hold them for a while; the answer has the number of open
    connections.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clock, hello = Clock(), bytes.fromhex(load.hello)
    held: list[socket.socket] = []
    failed = in_a_row = 0
    deadline = time.monotonic() + load.seconds + 20
    clock.begin()
    for number in range(load.clients):
        if in_a_row >= MAX_FAILURES or time.monotonic() > deadline:
            break
        connection = _open(load.servers[number % len(load.servers)], hello)
        if connection is None:
            failed, in_a_row = failed + 1, in_a_row + 1
        else:
            held.append(connection)
            in_a_row = 0
    time.sleep(load.seconds)
    clock.end()
    return clock.answer(len(held), failed=failed)


if __name__ == "__main__":
    main({"connections": connections})
