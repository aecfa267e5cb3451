"""The evidence of a cluster after a failed test: what its nodes logged meanwhile, and why partitions moved.

Gathering it never fails: a node that does not answer is reported as such.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from raftlog.testing.probe import view_topics

LOG_LINES: Final = 50
"""Lines of a node's log in a report, from the end of the test."""
LOG_BYTES: Final = 64 * 1024
MOST_PARTITIONS: Final = 8
"""Partitions with their history in a report."""
ANSWER_S: Final = 5.0


class NodeAddress(NamedTuple):
    """The places where others find one node of a cluster."""

    node_id: int
    address: str
    """For Kafka clients, host:port."""
    log: str = ""
    """The path of its log; "" for an external cluster, as the next field."""
    admin_url: str = ""

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address in its parts."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


class Watch:
    """Begins when a test gets a cluster, and later reports what happened since then."""

    def __init__(self, nodes: Sequence[NodeAddress], topic_prefix: str = "") -> None:
        self._nodes = nodes
        self._prefix = topic_prefix
        self._began = {each.node_id: _size(each.log) for each in nodes if each.log}

    def sections(self) -> Iterator[tuple[str, str]]:
        """Yield the parts of a report: a title and a text each."""
        for node in self._nodes:
            if node.log and (lines := _lines(node.log, self._began[node.node_id])):
                yield f"raftlog node {node.node_id} ({node.log})", "\n".join(lines)
        if stories := list(self._stories()):
            yield "raftlog partitions", "\n".join(stories)

    def _stories(self) -> Iterator[str]:
        asked = [each for each in self._nodes if each.admin_url]
        for node in asked:
            try:
                found = view_topics(*node.host_and_port, timeout_s=ANSWER_S).partitions
            except OSError:
                continue
            wanted = sorted(
                each for each in found if each[0].startswith(self._prefix or "") and each[0][0] != "_"
            )
            for topic, partition in wanted[:MOST_PARTITIONS]:
                yield _story(node.admin_url, topic, partition)
            if len(wanted) > MOST_PARTITIONS:
                yield f"... and {len(wanted) - MOST_PARTITIONS} more partitions"
            return
        if asked:
            yield "no node answers"


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _lines(path: str, position: int) -> list[str]:
    try:
        with Path(path).open("rb") as log:
            log.seek(max(position, _size(path) - LOG_BYTES))
            return log.read(LOG_BYTES).decode(errors="replace").splitlines()[-LOG_LINES:]
    except OSError as error:
        return [str(error)]


def _story(admin_url: str, topic: str, partition: int) -> str:
    """Return what a node knows of a partition's leader and replicas, and why they changed, newest first."""
    url = f"{admin_url}/v1/topics/{quote(topic, safe='')}/partitions/{partition}/why"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as response:  # noqa: S310 - a node of ours
            why = json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        return f"{topic}-{partition}: {error}"
    events = [f"  {_sentence(each)}" for each in why["events"][:LOG_LINES]]
    return "\n".join([f"{topic}-{partition}: {why['summary']}", *events])


def _sentence(event: Mapping[str, str]) -> str:
    return f"{event['message']}, because {event['because']}" if event["because"] else event["message"]
