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
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from raftlog.testing.probe import view_topics

LOG_LINES: Final = 50
"""Lines of a node's log in a report, from the end of the test."""
LOG_BYTES: Final = 64 * 1024
MAX_PARTITIONS: Final = 8
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
    """Begins when a test gets a cluster, and later reports what happened since then.

    `faults`: what the test does to the nodes. `is_kept`: whether the logs are still there when a person reads the
    report.
    """

    def __init__(
        self,
        nodes: Sequence[NodeAddress],
        topic_prefix: str = "",
        *,
        faults: Sequence[str] = (),
        is_kept: bool = False,
    ) -> None:
        self._nodes = nodes
        self._prefix = topic_prefix
        self._faults = faults
        self._is_kept = is_kept
        self._began = {each.node_id: _size(each.log) for each in nodes if each.log}

    def sections(self) -> Iterator[tuple[str, str]]:
        """Yield the parts of a report, a title and a text each: why partitions moved first, then the nodes' logs."""
        if self._faults:
            yield "raftlog: what the test did to the nodes", "\n".join(self._faults)
        if stories := list(self._stories()):
            yield "raftlog partitions", "\n".join(stories)
        for node in self._nodes:
            if node.log and (lines := _lines(node.log, self._began[node.node_id])):
                where = node.log if self._is_kept else "--raftlog-keep=FOLDER keeps the whole log"
                yield f"raftlog node {node.node_id} ({where})", "\n".join(lines)

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
            for topic, partition in wanted[:MAX_PARTITIONS]:
                yield _story(node.admin_url, topic, partition)
            if len(wanted) > MAX_PARTITIONS:
                yield f"... and {len(wanted) - MAX_PARTITIONS} more partitions"
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
            lines = log.read(LOG_BYTES).decode(errors="replace").splitlines()
    except OSError as error:
        return [str(error)]
    return [text for each in lines if (text := readable(each))][-LOG_LINES:]


def readable(line: str) -> str:
    """Return a line of a log for a report, "" if it is about a partition of an internal topic, which are 50."""
    try:
        fields = dict(json.loads(line))
        moment, level, event = (str(fields.pop(each)) for each in ("timestamp", "level", "event"))
    except (ValueError, TypeError, KeyError):
        return line  # no event of a node
    if str(fields.get("topic", "")).startswith("__"):
        return ""
    rest = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("room", "node_id"))
    return f"{_time_of(moment)} {level} {event} {rest}".rstrip()


def _story(admin_url: str, topic: str, partition: int) -> str:
    """Return what a node knows of a partition's leader and replicas, and why they changed, newest first."""
    url = f"{admin_url}/v1/topics/{quote(topic, safe='')}/partitions/{partition}/why"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as response:  # noqa: S310 - a node of ours
            why = json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        return f"{topic}-{partition}: {error}"
    leads = "No broker leads" if why["leader"] is None else f"Broker {why['leader']} leads"
    in_sync, replicas = (", ".join(map(str, why[each])) for each in ("isr", "replicas"))
    state = f"{leads} in epoch {why['leader_epoch']}; replicas {replicas}, in sync {in_sync or 'none'}"
    events = [f"  {_sentence(each)}" for each in why["events"][:LOG_LINES]]
    return "\n".join([f"{topic}-{partition}: {state}", *events])


def _sentence(event: Mapping[str, Any]) -> str:
    because = f", because {event['because']}" if event["because"] else ""
    return f"{_time_of(event['when']['at'] or '')} {event['message']}{because}".lstrip()


def _time_of(timestamp: str) -> str:
    """Return the time of day in an ISO timestamp, in milliseconds."""
    return timestamp.partition("T")[2][:12]
