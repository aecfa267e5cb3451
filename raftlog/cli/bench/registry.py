"""The part of `raftlog bench` about the schema registry: what a serializer waits for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
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
MANY: Final = 10_000
"""Schemas that are there then."""
FIRST_ID: Final = 1_000_000
"""Ids of schemas that are written by another registry are higher than those given here."""
SUBJECT: Final = "bench-value"
MEDIA_TYPE: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
BY_ITSELF: Final = {"X-Forward": "false"}
"""Forbids a node to ask the leader."""
FILL_S: Final = 60.0
TIMEOUT_S: Final = 10.0
LOOK_S: Final = 0.02


def requests(*, count: int = REQUESTS, new: int = NEW, many: int = MANY) -> Iterator[Figure]:
    """Yield how long requests take at the leader of the registry, and at another node, which forwards writes to it.

    Then there are `many` schemas, and the same is measured again, with what they cost.
    """
    with closing(AdminCluster(NODES)) as cluster:
        cluster.start()
        urls = {node_id: cluster.schema_registry_url(node_id) for node_id in cluster.nodes}
        schema_id = _register(urls[1], SUBJECT, _schema(0))
        leader = cluster.leader(SCHEMAS_TOPIC)
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
        yield _figure("new schema p50 at the leader", _register_new(urls[leader], range(1, new + 1)), 15.0)
        yield from _with_many(cluster, leader, other, first=new + 1, many=many, new=new)


def _with_many(
    cluster: AdminCluster, leader: int, other: int, *, first: int, many: int, new: int
) -> Iterator[Figure]:
    """Write schemas to `_schemas` as another registry does, and yield what it is like with them."""
    nodes, urls = cluster.nodes, {each: cluster.schema_registry_url(each) for each in (leader, other)}
    numbers = range(first, first + many)
    last = FIRST_ID + numbers[-1]
    before = measure.resident_bytes(nodes[leader].pid)
    _fill(cluster, numbers)
    with closing(_connect(urls[leader])) as connection:
        began = time.perf_counter()
        _ask(connection, "GET", f"/subjects/{SUBJECT}-{numbers[-1]}/versions/latest")
        note = f"{time.perf_counter() - began:.1f} s after they were written the leader has them"
        grown = (measure.resident_bytes(nodes[leader].pid) - before) / 1e6
        yield Figure(
            "registry", f"{many} schemas, memory of the leader", max(grown, 0.1), "MB", 64.0, note=note
        )
        listed = _times(10, lambda _: _ask(connection, "GET", "/subjects"))
        yield _figure(f"list of subjects p50, {many} schemas", listed, 150.0)
        get = _times(new, lambda _: _ask(connection, "GET", f"/schemas/ids/{last}"))
        yield _figure(f"schema by id p50, {many} schemas", get, 2.0)
    fresh = _register_new(urls[leader], range(numbers[-1] + 1, numbers[-1] + 1 + new))
    yield _figure(f"new schema p50, {many} schemas", fresh, 15.0)
    cluster.restart(other)
    cluster.wait_until_healthy()
    with closing(_connect(urls[other])) as connection:
        began = time.perf_counter()
        while True:  # until it has read `_schemas`, it refuses
            try:
                _ask(connection, "GET", f"/schemas/ids/{last}", headers=BY_ITSELF)
                break
            except ClusterError:
                if time.perf_counter() - began > TIMEOUT_S:
                    raise
                time.sleep(LOOK_S)
        took = time.perf_counter() - began
    yield Figure(
        "registry", f"{many} schemas read after a start", took, "s", 5.0, note="with the registry's import"
    )


def _fill(cluster: AdminCluster, numbers: range) -> None:
    """Write a schema for each number to `_schemas`, in Confluent's format. Raises ClusterError."""
    from confluent_kafka import Producer

    failed: list[object] = []

    def note(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    for number in numbers:
        place = {"subject": f"{SUBJECT}-{number}", "version": 1}
        key = {"keytype": "SCHEMA", **place, "magic": 1}
        value = {**place, "id": FIRST_ID + number, "schema": _schema(number), "deleted": False}
        producer.produce(SCHEMAS_TOPIC, json.dumps(value), json.dumps(key), on_delivery=note)
        producer.poll(0)
    if producer.flush(FILL_S) or failed:
        raise ClusterError(f"_schemas took not all schemas: {failed[:1]}")


def _register_new(url: str, numbers: range) -> measure.Quantiles:
    """Register a schema for each number under a subject of its own."""
    with closing(_connect(url)) as connection:
        return _times(
            len(numbers),
            lambda each: _ask(
                connection,
                "POST",
                f"/subjects/{SUBJECT}-{numbers[each]}/versions",
                {"schema": _schema(numbers[each])},
            ),
        )


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


def _ask(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] = MEDIA_TYPE,
) -> Any:
    """Return the answer of the registry. Raises ClusterError for an error."""
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, headers)
    answer = connection.getresponse()
    found = answer.read()
    if answer.status >= 300:
        raise ClusterError(f"{method} {path} was answered with {answer.status}: {found[:200]!r}")
    return json.loads(found)
