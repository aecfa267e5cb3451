"""The schema registry's port: schemas as large as it takes, many at a time, and bodies that never end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import count
from typing import Any, Final

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog_chaos.attacks.http import request, statuses
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import Target, counted, delete_topics, expect, for_seconds

JSON: Final = "Content-Type: application/json\r\n"
SUBJECT: Final = "attacked-value"
FIELDS: Final = 4_500
"""Of a schema; more are too many parts."""
LINES: Final = 40
OTHER: Final = "127.0.7.7"
"""Source address of a client that is no attacker."""
SLOWEST_S: Final = 5.0
"""Longest wait of that client for an answer."""


def _schema(number: int, fields: int) -> dict[str, Any]:
    listed = [{"name": f"f{each}", "type": "long", "default": number} for each in range(fields)]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": listed})}


def _registration(number: int) -> bytes:
    body = json.dumps(_schema(number, FIELDS)).encode()
    return request("POST", f"/subjects/{SUBJECT}/versions", JSON, body)


def _work(target: Target) -> Iterator[float]:
    """Register small schemas and look them up; yield how long each answer takes, seconds."""
    for number in count():
        node = 1 + number % len(target.nodes)
        for method, path, body in (
            ("POST", f"/subjects/other-{number}/versions", json.dumps(_schema(number, 1))),
            ("GET", f"/subjects/other-{number}/versions/latest", None),
        ):
            began = time.monotonic()
            answer = _ask(target, node, method, path, body)
            expect(answer == "200", f"another client's {method} at node {node} was answered with {answer}")
            yield time.monotonic() - began


def _ask(target: Target, node: int, method: str, path: str, body: str | None = None) -> str:
    """Return the status of an answer to another client, or what came instead."""
    host, port = target.address("registry", node)
    connection = HTTPConnection(host, port, timeout=4 * SLOWEST_S, source_address=(OTHER, 0))
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        found = answer.read(200)
    except (OSError, HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
    return str(answer.status) if answer.status == HTTPStatus.OK else f"{answer.status} {found!r}"


def _beside(target: Target, seconds: float) -> str:
    """Have the other client work for so long, and return how long that took. Raise ClaimBroken if an answer is late."""
    going_on, took = for_seconds(seconds), []
    for each in _work(target):
        took.append(each)
        if not going_on():
            break
    longest = max(took)
    expect(longest < SLOWEST_S, f"another client waited for {longest:.1f} s")
    return f"{len(took)} answers to another client, the longest after {longest:.1f} s"


@attack("registry", within_s=90)
def registrations_of_large_schemas(target: Target) -> str:
    """One client's large schemas, compared with all before them, leave those of another client their time."""
    level = json.dumps({"compatibility": "FULL_TRANSITIVE"})
    expect(_ask(target, 1, "PUT", f"/config/{SUBJECT}", level) == "200", "the level is not set")
    with target.lines(LINES, "registry") as lines:
        for number, line in enumerate(lines):
            line.send(_registration(2 * number) + _registration(2 * number + 1), within_s=0.2)
        words = _beside(target, 10)
        answers = counted([statuses(line, 0.2, 1) for line in lines])
    delete_topics(target, [SCHEMAS_TOPIC])
    return f"{words}; {answers}"


@attack("registry", within_s=60)
def schemas_by_the_byte(target: Target) -> str:
    """Bodies that arrive by the byte on very many connections leave another client its time."""
    start = request("POST", f"/subjects/{SUBJECT}/versions", JSON + "Content-Length: 900000\r\n")
    with target.lines(300, "registry") as lines:
        for line in lines:
            line.send(start + b'{"schema":"', within_s=0.1)
        words = _beside(target, 3)
        for line in lines:
            line.send(b" ", within_s=0.01)
        return f"{words}; {counted([statuses(line, 0.02, 1) for line in lines])}"
