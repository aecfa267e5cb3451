"""The requests to the node, in their order, and the time that each takes.

`LEFT_OUT` names each API and route that is not asked, with the reason.
"""

from __future__ import annotations

import gc
import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from raftlog.admin.resources import ROUTES
from raftlog.broker.handlers import served
from raftlog.process import GARBAGE_THRESHOLDS
from raftlog.protocol.apis import APIS, Api, ApiKey
from raftlog.testing.in_process import InProcessCluster
from raftlog_chaos.attacks.target import Line
from raftlog_chaos.turns.largest import ALL_NAMES, Known, Names, largest_requests
from raftlog_chaos.turns.registry import registry_calls
from raftlog_chaos.turns.report import NO_ANSWER, Row
from raftlog_chaos.turns.routes import Asked, largest_calls, name_of
from raftlog_chaos.turns.shares import PER_TOPIC, share_requests
from raftlog_chaos.turns.slowness import slowness
from raftlog_chaos.turns.states import ANSWER_S, GROUP, SETTINGS, SMALL, WIDE, WITH_ABORTED, Filling, Sizes
from raftlog_chaos.turns.stopwatch import Stopwatch

PAUSES_S: Final = (0.0, 0.0, 2.0, 8.0)
"""The time before each try of a request that was late so far: a machine is slow for a while, not for a moment."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "add_raft_voter": "one voter, which must be there",
    "remove_raft_voter": "one voter, which would be gone",
    "update_raft_voter": "one voter, at the controllers' listener alone",
    "unregister_broker": "one number: its work is that of a broker that is lost",
    "GET /v1/events": "an answer that does not end",
}
"""APIs and routes that are not asked, by name, with the reason."""

ONE_DECISION: Final[Mapping[str, str]] = {
    "a topic of 10,000 partitions": "decided and applied as a whole, in some 0.1 s each with three brokers",
    "topics in a cluster of 1,000 brokers": "a look at each broker for each replica, 0.2 s for 250 partitions",
    "a group of 10,000 topics": "a change is decided as a whole: 0.1 s for a share group, 0.8 s for a consumer group",
}
"""Known turns that are too long: the controller or a coordinator decides about one batch of records at once."""

REMOVES: Final = (
    ApiKey.DELETE_ACLS,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_DELETE,
    ApiKey.DELETE_GROUPS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DELETE_TOPICS,
)
"""These come last."""


class Ask(NamedTuple):
    """One request: its name, what bounds it, and the function that sends it and returns the answer in words."""

    what: str
    limit: str
    send: Callable[[], str]


class Scope(NamedTuple):
    """The requests that a node gets, and the amount of data that it holds."""

    sizes: Sizes = Sizes()
    only: Sequence[str] = ()
    """Requests with this in their name; all where it is empty."""
    every_version: bool = True
    """The oldest version of each API too."""
    choices: Sequence[Names] = ALL_NAMES
    share: float = 1.0
    """The share of an array's allowed length."""

    def wants(self, what: str) -> bool:
        """Return whether a request is asked for."""
        return not self.only or any(each.lower() in what.lower() for each in self.only)

    def versions(self, api: Api) -> set[int]:
        """Return the versions of an API that are asked."""
        return {api.max_version, api.min_version if self.every_version else api.max_version}


SAMPLE: Final = Scope(SMALL, every_version=False, choices=("new",), share=0.1)
"""Some seconds on a quiet machine."""


def measure(scope: Scope) -> list[Row]:
    """Return a row for each request."""
    thresholds = gc.get_threshold()
    with Stopwatch("raftlog-node-1") as watch, InProcessCluster(1, settings=SETTINGS) as cluster:
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)  # the node's thresholds
        try:
            return list(_measured(cluster, watch, scope))
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()


def _measured(cluster: InProcessCluster, watch: Stopwatch, scope: Scope) -> Iterator[Row]:
    filling = Filling(cluster, scope.sizes)
    for what, fill in filling.fills():
        watch.begin()
        said = fill()
        sys.stderr.write(f"{what}: {said}; longest turn {watch.longest.seconds * 1000:.0f} ms\n")
    asks = chain(
        of_share_groups(cluster, filling, scope),
        of_apis(cluster, filling.known(), scope),
        of_routes(cluster, filling.narrow[0], scope),
        of_registry(cluster, scope),
    )
    for ask in asks:
        yield _timed(watch, ask)
    sys.stderr.write(f"longest look for garbage: {watch.longest_collection_s * 1000:.0f} ms\n")


def _timed(watch: Stopwatch, ask: Ask) -> Row:
    rows, began_s = [], time.monotonic()
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        watch.begin()
        answer = ask.send()
        rows.append(Row(ask.what, ask.limit, watch.longest, watch.total_s, answer))
        if not rows[-1].is_late:
            break
        rows[-1] = rows[-1]._replace(slowness=slowness())
    row = min(rows, key=lambda each: each.turn.seconds / each.slowness)
    sys.stderr.write(f"{time.monotonic() - began_s:5.1f} s {row}\n")
    return row


def of_apis(cluster: InProcessCluster, known: Known, scope: Scope) -> Iterator[Ask]:
    """Yield the requests of all APIs."""
    for api_key in sorted(served(), key=lambda each: (each in REMOVES and 1 + REMOVES.index(each), each)):
        api = APIS[api_key]
        if api.name in LEFT_OUT or not scope.wants(api.name):
            continue
        for version in scope.versions(api):
            for each in largest_requests(api_key, version, known, choices=scope.choices, share=scope.share):
                frame = each.make()
                what = f"{api.name} {version}: {each.what}, {len(frame) >> 10} KiB"
                yield Ask(what, each.limit, partial(_ask_kafka, cluster, frame, each.is_refused))


def of_share_groups(cluster: InProcessCluster, filling: Filling, scope: Scope) -> Iterator[Ask]:
    """Yield the requests of members of a share group."""
    name, known = filling.narrow[0], filling.known()
    ids = dict(zip(known.topics, known.topic_ids, strict=True))
    many = [(ids[WIDE], index) for index in range(filling.sizes.wide)]
    aborted = many[:WITH_ABORTED]
    many += [(each, index) for each in known.topic_ids if each != ids[WIDE] for index in range(PER_TOPIC)]
    for asked in share_requests(
        partial(_line, cluster),
        (name, ids[name]),
        many,
        aborted=aborted,
        topics=known.topics,
        share=scope.share,
    ):
        ask = Ask(*asked)
        if scope.wants(ask.what):
            yield ask


def _line(cluster: InProcessCluster) -> Line:
    addresses = cluster.addresses[1]
    return Line((addresses.host, addresses.port))


def _ask_kafka(cluster: InProcessCluster, frame: bytes, may_close: bool) -> str:
    with _line(cluster) as line:
        line.send(frame, ANSWER_S)
        answer = line.receive(ANSWER_S)
        if answer is None:
            return "closed" if line.closed and may_close else NO_ANSWER
        return f"{len(answer)} bytes"


def of_routes(cluster: InProcessCluster, narrow: str, scope: Scope) -> Iterator[Ask]:
    """Yield the requests of all routes, deletions last."""
    body = _ask_http(cluster, Asked("", "", "GET", "/v3/clusters"))[1]
    path = {
        "cluster_id": json.loads(body)["data"][0]["cluster_id"],
        "broker_id": "1",
        "topic_name": narrow,
        "partition_id": "0",
        "consumer_group_id": GROUP,
        "share_group_id": GROUP,
        "consumer_id": "member-1",
        "transactional_id": "transaction",
        "user_name": "user-1",
        "mechanism": "SCRAM-SHA-256",
        "name": "retention.ms",
        "offset": "0",
    }
    for topic in (narrow, WIDE):
        for route in sorted(ROUTES, key=lambda each: each.method == "DELETE"):
            name = name_of(route)
            is_asked_twice = topic == WIDE and "topic_name" not in route.path
            if name in LEFT_OUT or is_asked_twice or not scope.wants(name):
                continue
            for call in largest_calls(route, {**path, "topic_name": topic}):
                what = f"{call.what} {'(wide)' if topic == WIDE else ''}"
                yield Ask(what, call.limit, partial(_status_of, cluster, call, call.make_body()))


def of_registry(cluster: InProcessCluster, scope: Scope) -> Iterator[Ask]:
    """Yield the requests of the schema registry's routes."""
    port = cluster.addresses[1].schema_port
    found = json.loads(_ask_http(cluster, Asked("", "", "GET", "/schemas/ids/1"), port=port)[1])
    for call in registry_calls(found["guid"]):
        if scope.wants(call.what):
            yield Ask(call.what, call.limit, partial(_status_of, cluster, call, call.make_body(), port))


def _status_of(cluster: InProcessCluster, call: Asked, asked: bytes | None, port: int = 0) -> str:
    status, body = _ask_http(cluster, call, asked, port=port)
    return f"{status}, {len(body)} bytes"


def _ask_http(
    cluster: InProcessCluster, call: Asked, asked: bytes | None = None, *, port: int = 0
) -> tuple[int, bytes]:
    addresses = cluster.addresses[1]
    connection = http.client.HTTPConnection(addresses.host, port or addresses.admin_port, timeout=ANSWER_S)
    headers = {"Content-Type": "application/json"} if asked else {}
    try:
        connection.request(call.method, call.path, asked, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
