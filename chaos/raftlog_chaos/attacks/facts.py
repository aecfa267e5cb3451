"""Facts from the nodes' HTTP API and logs: stalls of the event loop, fencings, errors with a traceback."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from raftlog_chaos.attacks.target import NodePorts, Target

ASK_S: Final = 20.0
"""A node that does not answer within this is silent."""
OWN_LAG: Final = "raftlog_event_loop_own_lag_seconds"
DIRECTORY_FAILED: Final = '"event":"log_directory_failed"'
_BUCKET = re.compile(rf'^{OWN_LAG}_bucket\{{le="([^"]+)"[^}}]*\}} (\S+)$', re.MULTILINE)

Buckets = dict[float, int]
"""Cumulative counts by upper bound, seconds."""


def careless() -> ssl.SSLContext:
    """Return the context of a client that believes any node."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask(doors: NodePorts, path: str, within_s: float = ASK_S) -> bytes:
    """Return what a node answers. Raises OSError."""
    url = f"{'https' if doors.https else 'http'}://{doors.host}:{doors.http}{path}"
    context = careless() if doors.https else None
    try:
        with urllib.request.urlopen(url, timeout=within_s, context=context) as answer:  # noqa: S310 - our own nodes
            found: bytes = answer.read()
    except TimeoutError as error:
        raise TimeoutError(f"{url}: no answer in {within_s:g} s") from error
    return found


def register(doors: NodePorts) -> None:
    """Have a node's schema registry serve a schema of each type. Raises OSError."""
    if not doors.registry:
        return
    schemas = {
        "AVRO": '"long"',
        "JSON": "{}",
        "PROTOBUF": 'syntax = "proto3"; message R { int64 f = 1; }',
    }
    for kind, schema in schemas.items():
        url = f"http://{doors.host}:{doors.registry}/subjects/warm-{kind}/versions"
        body = json.dumps({"schema": schema, "schemaType": kind}).encode()
        asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=ASK_S) as answer:  # noqa: S310 - our own nodes
                answer.read()
        except TimeoutError as error:
            raise TimeoutError(f"{url}: no answer in {ASK_S:g} s") from error


def buckets_in(metrics: str) -> Buckets:
    """Return the histogram of the loop's own lags from a node's /metrics."""
    return {float(bound): int(float(count)) for bound, count in _BUCKET.findall(metrics)}


def own_lags(doors: NodePorts) -> Buckets:
    """Return how late a node's loop was by its own computing, since it started. Raises OSError."""
    return buckets_in(ask(doors, "/metrics").decode())


class LogTail:
    """Reads the new lines of a node's log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def unforeseen(self) -> list[str]:
        """Return the new errors with a traceback since the last call: event and exception."""
        if not self._path.exists():
            return []  # the cluster was stopped and its files removed
        with self._path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        return unforeseen_in(whole.decode(errors="replace").splitlines())


def unforeseen_in(lines: Iterable[str]) -> list[str]:
    """Return the errors with a traceback among lines of a log, and the log directories that failed."""
    found = []
    for line in lines:
        if DIRECTORY_FAILED in line:
            event = json.loads(line)
            found.append(f"log directory failed: {str(event.get('reason'))[:160]}")
        if '"exception"' not in line or '"level":"error"' not in line:
            continue
        event = json.loads(line)
        trace = str(event["exception"]).strip()
        location = trace.rpartition('  File "')[2].partition("\n")[0].replace('"', "")
        found.append(
            f"{event.get('event')}: {trace.rpartition(chr(10))[2][:160]} ({location.rpartition('/')[2]})"
        )
    return found


def counter(target: Target, name: str) -> float:
    """Return what a counter of /metrics comes to over all nodes and labels. Raises OSError."""
    wanted = re.compile(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)
    pages = [ask(doors, "/metrics").decode() for doors in target.nodes.values()]
    return sum(float(value) for page in pages for value in wanted.findall(page))


def longest_s(before: Buckets, now: Buckets) -> float:
    """Return the bound that every lag since `before` was within, seconds; 0 if there was none."""
    grown = {bound: count - before.get(bound, 0) for bound, count in now.items()}
    total = max(grown.values(), default=0)
    return min((bound for bound, count in grown.items() if count == total), default=0.0) if total else 0.0


def metadata_offset(nodes: Mapping[int, NodePorts]) -> int:
    """Return the offset after the newest metadata that a node knows; 0 if none answers."""
    found = 0
    for doors in nodes.values():
        try:
            found = max(found, int(json.loads(ask(doors, "/v1/health"))["metadata_offset"]))
        except (OSError, ValueError, KeyError):
            continue
    return found


def fencings(nodes: Mapping[int, NodePorts], since_offset: int) -> list[str]:
    """Return the nodes' reports of brokers fenced at this metadata offset or later; a node may not have the news
    yet.
    """
    found: dict[str, None] = {}
    answered = False
    for doors in nodes.values():
        try:
            for node in nodes:
                why = json.loads(ask(doors, f"/v1/brokers/{node}/why"))
                found |= dict.fromkeys(fencings_in(why, since_offset))
            answered = True
        except (OSError, ValueError):
            continue
    return list(found) if answered else ["no node answers which brokers are fenced"]


def fencings_in(why: Mapping[str, Any], since_offset: int) -> list[str]:
    """Return the sentences of one broker's history about its fencing at an offset or later."""
    return [
        f"{event['message']}, because {event['because']}"
        for event in why["events"]
        if "fenced" in event["what"] and event["when"]["metadata_offset"] >= since_offset
    ]
