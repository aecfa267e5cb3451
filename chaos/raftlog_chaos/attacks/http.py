"""The HTTP port: requests that two parsers would read differently, endless headers, slow connections."""

from __future__ import annotations

import re
import time
from typing import Final

from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import Line, Target, counted, expect, for_seconds, never_read, send_each

HOST: Final = "Host: localhost\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})")


def request(method: str, path: str, headers: str = "", body: bytes = b"") -> bytes:
    """Return a request; a body brings its length along unless headers say otherwise."""
    if body and "Content-Length" not in headers and "Transfer-Encoding" not in headers:
        headers += f"Content-Length: {len(body)}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{HOST}{headers}\r\n".encode() + body


def statuses(line: Line, within_s: float = 3.0, most: int = 20) -> str:
    """Return the statuses of what comes on a line until it is silent or closed."""
    found, end_at = b"", time.monotonic() + within_s
    while len(found) < 1 << 20 and (left_s := end_at - time.monotonic()) > 0:
        more = line.read(min(left_s, 0.05 if found else within_s))
        if not more:
            break
        found += more
    codes = [code.decode() for code in _STATUS.findall(found)]
    return " ".join(codes[:most]) or ("closed" if line.closed else "silent")


def each_alone(target: Target, requests: list[bytes], within_s: float = 2.0) -> list[str]:
    """Send each on a connection of its own; return the statuses that came for each."""
    with target.lines(len(requests), "http") as lines:
        for line, data in zip(lines, requests, strict=False):
            line.send(data)
        return [statuses(line, within_s) for line in lines]


def _each(target: Target, requests: list[bytes], within_s: float = 2.0) -> str:
    return counted(each_alone(target, requests, within_s))


@attack("http", ci=True)
def smuggled_requests(target: Target) -> str:
    """Requests with a doubled or odd length are refused, so that no proxy can be made to see another end."""
    inner = "GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    words: list[str] = []
    tricks = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Content-Length: 5_0\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        " Content-Length: 5\r\n",
        "X: a\r\n Content-Length: 5\r\n",
        "X: a\nContent-Length: 5\r\n",
        "X: a\rContent-Length: 5\r\n",
        "X: \x00\r\n",
        "Host: other\r\n",
    ]
    bodies = ("0\r\n\r\n" + inner, "5\r\nabcde\r\n0\r\n\r\n" + inner)
    for each in tricks:
        found = each_alone(target, [request("POST", "/v1/elections", each, body.encode()) for body in bodies])
        expect(not any("200" in one for one in found), f"a request was smuggled in by {each!r}: {found}")
        words += found
    return counted(words)


@attack("http")
def lying_chunks(target: Target) -> str:
    """Chunks of impossible sizes, with extensions of megabytes or without an end, are refused within their limits."""
    start = request(
        "POST", "/v1/elections", "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
    )
    tricks = [
        b"ffffffffffffffff\r\nabc",
        b"-1\r\nabc",
        b"0x5\r\nabcde\r\n",
        b"5;" + b"x" * 2_000_000 + b"\r\nabcde\r\n",
        b"\r\n\r\n",
        b"5\nabcde\n0\n\n",
        b"1\r\na\r\n" * 300_000,
        b"0\r\n" + b"X-Trailer: y\r\n" * 50_000 + b"\r\n",
        b"7fffffff\r\n" + b"a" * 1_000_000,
        b" 5\r\nabcde\r\n",
    ]
    return _each(target, [start + each for each in tricks] * 3)


@attack("http", within_s=30)
def floods_of_headers(target: Target) -> str:
    """Thousands of headers, alike or different, and headers of megabytes, cost no more than their bytes."""
    many = "".join(f"X-{number}: a\r\n" for number in range(8_000))
    same = "X: a\r\n" * 8_000
    short = "".join(f"{number:x}:\r\n" for number in range(40_000))
    frames = [
        request("GET", "/v1/live", each) for each in (many, same, short, "X: " + "a" * 2_000_000 + "\r\n")
    ]
    frames.append(request("GET", "/v1/live?" + "&".join(f"a{n}=1" for n in range(20_000))))
    frames.append(request("GET", "/v1/live/" + "a/" * 100_000))
    frames.append(request("GET", "/v1/live", "Cookie: " + "; ".join(f"c{n}=1" for n in range(800)) + "\r\n"))
    return _each(target, frames * 8, 4)


@attack("http", within_s=30)
def the_largest_header_that_is_allowed(target: Target) -> str:
    """Requests with as many headers as are let through, in a row on many connections, leave the loop to others."""
    pairs = "".join(f"{number:x}: \r\n" for number in range(1_000))
    data = request("GET", "/v1/live", pairs) * 20
    going_on, words = for_seconds(4), []
    with target.lines(10, "http") as lines:
        while going_on():
            for line in lines:
                line.send(data, within_s=0.1)
                line.read(0.005)
        words = [statuses(line, 0.2, 2) for line in lines]
    return counted(words)


@attack("http", within_s=30)
def query_parameters_by_the_thousand(target: Target) -> str:
    """Queries with thousands of parameters, repeated or not, are refused in time that grows with their number."""
    going_on = for_seconds(4)
    data = [
        request("GET", "/v3/clusters?" + "&".join(f"{number:x}" for number in range(1_900))),
        request("GET", "/v3/clusters?" + "&a" * 3_900),
        request("GET", "/v3/clusters?" + "%61=%62&" * 900),
    ]
    with target.lines(9, "http") as lines:
        while going_on():
            for number, line in enumerate(lines):
                line.send(data[number % 3] * 20, within_s=0.1)
                line.read(0.005)
        return counted([statuses(line, 0.2, 2) for line in lines])


@attack("http", within_s=30)
def headers_that_never_end(target: Target) -> str:
    """Hundreds of connections that send a header line every second hold no place that others need."""
    start = f"GET /v1/live HTTP/1.1\r\n{HOST}".encode()
    with target.lines(300, "http") as lines:
        for line in lines:
            line.send(start, within_s=0.1)
        for number in range(5):
            for line in lines:
                line.send(f"X-{number}: a\r\n".encode(), within_s=0.01)
            time.sleep(1)
        return counted([line.state for line in lines])


@attack("http", within_s=40)
def pages_that_nobody_reads(target: Target) -> str:
    """A hundred connections that request /metrics again and again without reading are bounded."""
    data = request("GET", "/metrics") * 10 + request("GET", "/openapi.json") * 10
    with target.lines(100, "http") as lines:
        sent = never_read(lines, data, seconds=5)
        return f"{sent // 1024} KiB of requests taken, {counted([each.state for each in lines])}"


@attack("http", within_s=40)
def pages_in_a_hurry(target: Target) -> str:
    """As many pages as a client can request in five seconds leave the loop to others."""
    data = b"".join(
        request("GET", path) for path in ("/metrics", "/v1/health", "/openapi.json", "/v1/quorum")
    )
    going_on, taken = for_seconds(5), 0
    with target.lines(16, "http") as lines:
        while going_on():
            for line in lines:
                line.send(data, within_s=0.05)
                taken += len(line.read(0.01, 1 << 20))
    return f"{taken // 1024} KiB read"


@attack("http")
def odd_methods_and_versions(target: Target) -> str:
    """Unknown methods, versions, paths and upgrades are answered with a client error."""
    lines = [
        f"{method} / HTTP/1.1"
        for method in ("CONNECT", "TRACE", "PATCH", "PRI", "BREW", "", "G" * 9_000, "get")
    ]
    lines += [
        f"GET {path} HTTP/1.1"
        for path in ("http://x/v1/live", "*", "//", "/%00", "/%ff%fe", "/..%2f..", "/" + "a" * 9_000)
    ]
    lines += [
        "GET / HTTP/0.9",
        "GET / HTTP/2.0",
        "GET / HTTP/1.99999999999",
        "GET /",
        "/",
        "GET / HTTP/1.1 x",
    ]
    requests = [f"{line}\r\n{HOST}\r\n".encode() for line in lines]
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n"
    requests += [
        request("GET", "/v1/live", upgrade),
        request("GET", "/v1/live", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"),
    ]
    requests += [
        request("GET", "/v1/live", "Expect: 100-continue\r\n"),
        request("GET", "/v1/live", "Range: bytes=0-0," + "1-1," * 900 + "\r\n"),
    ]
    return _each(target, requests)


@attack("http", within_s=30)
def pipelined_requests(target: Target) -> str:
    """Ten thousand requests in one go are answered one by one while others get their turns."""
    data = request("GET", "/v1/live") * 10_000
    with target.line("http") as line:
        line.send(data, within_s=8)
        return statuses(line, 4, 3)


@attack("http")
def other_peoples_browsers(target: Target) -> str:
    """Requests that a foreign page can make a browser send are refused by their Host and Origin."""
    body = b'{"topic_name": "attack-browser"}'
    path = "/v3/clusters/x/topics"
    headers = [
        "Origin: http://evil.example\r\nContent-Type: application/json\r\n",
        "Origin: null\r\nContent-Type: text/plain\r\n",
        "Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n",
    ]
    requests = [request("POST", path, each, body) for each in headers]
    requests.append(request("GET", "/v1/health", "").replace(b"Host: localhost", b"Host: evil.example"))
    return send_each(target, requests, port="http") + "; " + _each(target, requests)
