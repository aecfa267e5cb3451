"""Attacks that occupy the places of new connections, while an honest client from another address must get in."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from raftlog_chaos.attacks.facts import ask, careless
from raftlog_chaos.attacks.http import request, statuses
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    CONNECT_S,
    Line,
    Port,
    Target,
    counted,
    expect,
    for_seconds,
    send_each,
)

NEIGHBOUR: Final = "127.0.0.77"
"""The address of an honest client on another machine than the attacker."""
PROBES: Final = ("/v1/live", "/v1/ready")
PROBE_S: Final = 5.0
SILENT: Final = 1_300
A_SECOND: Final = 200
RECORD: Final = b'{"value": {"type": "STRING", "data": "attack"}}\n'


def _probes(target: Target, going_on: Callable[[], bool]) -> tuple[int, int]:
    """Probe every node repeatedly; return how many answers came, and how many did not."""
    answered = failed = 0
    while going_on():
        for doors in target.nodes.values():
            for path in PROBES:
                try:
                    ask(doors, path, PROBE_S)
                    answered += 1
                except OSError:
                    failed += 1
        time.sleep(0.1)
    return answered, failed


def expect_probes(target: Target, seconds: float) -> str:
    """Probe every node for so long. Raises ClaimBroken if a probe is not answered."""
    answered, failed = _probes(target, for_seconds(seconds))
    expect(failed == 0, f"{failed} of {answered + failed} probes were not answered")
    expect(answered > 0, "no probe was sent")
    return f"{answered} probes answered"


def _newcomers(target: Target, port: Port, count: int) -> str:
    """Complete TLS handshakes from another address, one after the other."""
    made = 0
    for number in range(count):
        with contextlib.suppress(OSError), target.line(port, 1 + number % 3, NEIGHBOUR) as line:
            line.secure(careless(), PROBE_S)
            made += 1
    expect(made == count, f"{count - made} of {count} newcomers finished no handshake")
    return f"{made} newcomers let in"


@contextlib.contextmanager
def _pouring(target: Target, port: Port, a_second: int) -> Iterator[list[socket.socket]]:
    """Open silent connections to all nodes, so many a second to each, for as long as the context lasts."""
    opened: list[socket.socket] = []
    is_over = False

    def pour() -> None:
        while not is_over:
            begun = time.monotonic()
            for node in target.nodes:
                for _ in range(a_second // 10):
                    with contextlib.suppress(OSError):
                        opened.append(Line(target.address(port, node), waits=False).socket)
            time.sleep(max(0.0, begun + 0.1 - time.monotonic()))

    with ThreadPoolExecutor(1) as threads:
        poured = threads.submit(pour)
        try:
            yield opened
        finally:
            is_over = True
            poured.result()
            for each in opened:
                each.close()


@attack("http", within_s=30, shape="encrypted")
def silent_connections_at_https(target: Target) -> str:
    """Silent connections, hundreds at once and then some a second, keep no probe from the HTTPS port."""
    with target.rush(240, "http"), _pouring(target, "http", 20) as opened:
        said = expect_probes(target, 8)
        return f"{len(opened)} silent; {said}"


@attack("http", within_s=30, shape="encrypted")
def other_words_at_https(target: Target) -> str:
    """Plain HTTP, half a hello and hellos of sixteen kilobytes at the HTTPS port leave every probe its answer."""
    words = [
        request("GET", "/v1/live") * 20,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(16_000),
        b"\x16\x03\x01\x00\x00" * 4_000,
        b"\x15\x03\x01\x00\x02\x02\x28" * 1_000,
    ]
    said: list[str] = []
    going_on = for_seconds(4)
    while going_on():
        for node in target.nodes:
            said.append(send_each(target, words * 4, port="http", node=node, within_s=0.2))
    return f"{counted(said, 2)}; {expect_probes(target, 2)}"


@attack("controller", within_s=30, shape="encrypted")
def silent_connections_at_the_controllers_tls(target: Target) -> str:
    """Two hundred silent connections a second to each controller keep no node and no newcomer out."""
    with _pouring(target, "controller", A_SECOND) as opened:
        said = []
        for _ in range(5):
            said.append(_newcomers(target, "controller", 6))
            time.sleep(1)
        return f"{len(opened)} silent; {counted(said)}"


@attack("secure", within_s=40, shape="closed")
def newcomers_beside_silent_tls(target: Target) -> str:
    """Thousands of silent connections to the TLS ports of clients leave room for every newcomer's handshake."""
    with contextlib.ExitStack() as crowds:
        for node in target.nodes:
            crowds.enter_context(target.rush(SILENT, "secure", node))
        time.sleep(CONNECT_S / 3)
        return _newcomers(target, "secure", 12)


@attack("http", within_s=40)
def streams_of_records_that_last(target: Target) -> str:
    """Hundreds of streams of records that never end keep no probe out, and no stream of another client."""
    head = request("POST", _records(target), "Content-Type: application/json\r\nContent-Length: 1000000\r\n")
    with target.lines(300, "http") as lines:
        for each in lines:
            each.send(head + RECORD)
        said = expect_probes(target, 5)
        with target.line("http", source=NEIGHBOUR) as line:
            line.send(head + RECORD)
            expect(statuses(line) == "200", "no record of another client was taken")
        return f"{len(lines)} streams; {said}; {counted([statuses(line, 1.0, 1) for line in lines[::30]])}"


@attack("http", within_s=40)
def streams_of_events_that_last(target: Target) -> str:
    """Hundreds of streams of events of one client keep no probe out, and no stream of another client."""
    head = request("GET", "/v1/events")
    with target.line("http", source=NEIGHBOUR) as mine, target.lines(300, "http") as lines:
        mine.send(head)
        expect(statuses(mine) == "200", "a stream was refused before the attack")
        for each in lines:
            each.send(head)
        said = expect_probes(target, 4)
        expect(bool(mine.read(PROBE_S)), "the stream of another client was ended")
        return f"{len(lines)} streams; {said}; {counted([statuses(line, 1.0, 1) for line in lines[::30]])}"


def _records(target: Target) -> str:
    """Return the path to which records of the attacked topic are written."""
    cluster = json.loads(ask(target.nodes[1], "/v3/clusters"))["data"][0]["cluster_id"]
    return f"/v3/clusters/{cluster}/topics/{target.topic}/records"
