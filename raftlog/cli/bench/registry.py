"""The part of `raftlog bench` about the schema registry: what a serializer waits for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.cli.bench.figure import Figure
from raftlog.testing.cluster import AdminCluster, ClusterError
from raftlog_chaos.bench import measure

NODES: Final = 3
REQUESTS: Final = 1_000
NEW: Final = 200
"""Schemas that are registered, each under a subject of its own."""
SUBJECT: Final = "bench-value"
TIMEOUT_S: Final = 10.0


def requests(*, count: int = REQUESTS, new: int = NEW) -> Iterator[Figure]:
    """Yield how long requests take at the leader of the registry, and at another node, which forwards writes to it."""
    with closing(AdminCluster(NODES)) as cluster:
        cluster.start()
        urls = {node_id: cluster.schema_registry_url(node_id) for node_id in cluster.nodes}
        schema_id = _register(urls[1], SUBJECT, _schema(0))
        leader = cluster.partitions(SCHEMAS_TOPIC)[0].leader
        other = next(each for each in urls if each != leader)
        measure.wait_until_idle([node.pid for node in cluster.nodes.values()])
        known = {"schema": _schema(0)}
        for where, node_id in (("at the leader", leader), ("at another node", other)):
            with closing(_connect(urls[node_id])) as connection:
                get = _times(count, lambda each: _ask(connection, "GET", f"/schemas/ids/{schema_id}"))
                again = _times(
                    count, lambda each: _ask(connection, "POST", f"/subjects/{SUBJECT}/versions", known)
                )
            yield _figure(f"schema by id p50 {where}", get, 2.0)
            yield _figure(f"registered schema p50 {where}", again, 4.0)
        with closing(_connect(urls[leader])) as connection:
            fresh = _times(
                new,
                lambda each: _ask(
                    connection,
                    "POST",
                    f"/subjects/{SUBJECT}-{each}/versions",
                    {"schema": _schema(each + 1)},
                ),
            )
        yield _figure("new schema p50 at the leader", fresh, 15.0)


def _schema(number: int) -> str:
    fields = [{"name": f"f{each}", "type": "long"} for each in range(20)]
    return json.dumps({"type": "record", "name": f"R{number}", "fields": fields})


def _figure(name: str, times: measure.Quantiles, aim: float) -> Figure:
    return Figure("registry", name, times.p50, "ms", aim, note=f"p99 {times.p99:.1f} ms, one connection")


def _times(count: int, ask: Callable[[int], Any]) -> measure.Quantiles:
    times = []
    for each in range(count):
        began = time.perf_counter()
        ask(each)
        times.append(1_000 * (time.perf_counter() - began))
    return measure.Quantiles.of(times)


def _connect(url: str) -> HTTPConnection:
    found = urlsplit(url)
    assert found.hostname is not None, "the cluster gives whole addresses"
    return HTTPConnection(found.hostname, found.port, timeout=TIMEOUT_S)


def _register(url: str, subject: str, schema: str) -> int:
    with closing(_connect(url)) as connection:
        found = _ask(connection, "POST", f"/subjects/{subject}/versions", {"schema": schema})
    return int(found["id"])


def _ask(connection: HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    """Return the answer of the registry. Raises ClusterError for an error."""
    content = None if body is None else json.dumps(body)
    connection.request(
        method, path, content, {"Content-Type": "application/vnd.schemaregistry.v1+json"} if content else {}
    )
    answer = connection.getresponse()
    found = answer.read()
    if answer.status >= 300:
        raise ClusterError(f"{method} {path} was answered with {answer.status}: {found[:200]!r}")
    return json.loads(found)
