"""Random HTTP requests, made from the node's own OpenAPI document: valid, mutated and odd requests."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any, Final

from raftlog_chaos.fuzz.draw import GROUPS, TOPICS

_PARAMETER: Final = re.compile(r"\{[^}]+\}")
VALUES: Final = (
    *TOPICS,
    *GROUPS,
    "0",
    "1",
    "-1",
    "99",
    "x",
    "%00",
    "%2e%2e",
    "a" * 300,
    "cleanup.policy",
    "ü",
    "%7Bx%7D",
    "2147483648",
)
HEADERS: Final = (
    "Content-Type: application/json",
    "Content-Type: text/plain",
    "Content-Type: application/json; charset=utf-16",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "Connection: upgrade",
    "Expect: 100-continue",
    "Content-Encoding: gzip",
    "Authorization: Bearer x",
    "X-Request-Id: " + "i" * 64,
    "Origin: http://evil.example",
    "Accept-Encoding: gzip",
    "Range: bytes=0-",
    "Content-Length: 5",
    "Content-Length: -1",
)
LEAVES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1,
    2.0,
    1e308,
    2**63,
    "",
    "x",
    "fuzz-0",
    "1",
    "\u0000",
    "a" * 300,
)
KEYS: Final = (
    "topic_name",
    "partitions_count",
    "replication_factor",
    "configs",
    "name",
    "value",
    "data",
    "type",
    "entries",
    "id",
)
UNSAFE: Final = ("/brokers", "broker-configs", "/faults", "/drain", "/v1/transactions")
"""Paths that change more than the fuzzer's own topics and groups; they are only asked with GET."""


class HttpRequests:
    """`next` returns requests for ever. `document` is what /openapi.json says."""

    def __init__(self, seed: str, document: Mapping[str, Any], cluster_id: str) -> None:
        self._rng = random.Random(seed)
        self._cluster_id = cluster_id
        self._operations = [
            (method.upper(), path)
            for path, methods in document["paths"].items()
            for method in methods
            if method == "get" or not any(each in path for each in UNSAFE)
        ]

    def next(self) -> bytes:
        """Return one request."""
        rng = self._rng
        method, path = rng.choice(self._operations)
        path = path.replace("{cluster_id}", self._cluster_id if rng.random() < 0.9 else "x")
        path = _PARAMETER.sub(lambda _: rng.choice(VALUES), path)
        if rng.random() < 0.2:
            path += "?" + "&".join(
                f"{rng.choice(('page_size', 'page_token', 'from', 'x'))}={rng.choice(VALUES)}"
                for _ in range(rng.choice((1, 2, 30)))
            )
        body = b"" if method == "GET" and rng.random() < 0.9 else self._body()
        headers = rng.sample(HEADERS, rng.choice((0, 1, 1, 2, 4)))
        if body and rng.random() < 0.9:
            headers = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""])
        data = head.encode("utf-8") + body
        return self._mutated(bytearray(data)) if rng.random() < 0.3 else data

    def _body(self) -> bytes:
        value = self._value(3)
        text = json.dumps(value)
        return (
            text.encode() if self._rng.random() < 0.9 else text.encode()[: self._rng.randrange(len(text) + 1)]
        )

    def _value(self, depth: int) -> Any:
        rng = self._rng
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(LEAVES)
        if rng.random() < 0.3:
            return [self._value(depth - 1) for _ in range(rng.choice((0, 1, 2, 5)))]
        return {rng.choice(KEYS): self._value(depth - 1) for _ in range(rng.choice((1, 2, 3)))}

    def _mutated(self, data: bytearray) -> bytes:
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data)) if data else 0
            way = rng.randrange(5)
            if way == 0 and data:
                data[at] = rng.choice((0, 9, 10, 13, 32, 58, 127, 255))
            elif way == 1:
                del data[at:]
            elif way == 2:
                data[at:at] = rng.choice((b"\r\n", b"\n", b"\0", b" ", b":", b"X: y\r\n", b"%", b"\xff"))
            elif way == 3:
                del data[at : at + rng.randint(1, 9)]
            else:
                data[at:at] = data[at : at + 40]
        return bytes(data)
