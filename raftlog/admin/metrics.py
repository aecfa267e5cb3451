"""GET /metrics: this node for Prometheus. It is gathered and written in slices, so that no scrape holds up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec
from aiohttp import web

from raftlog.admin import metrics_clients, metrics_kafka, metrics_own, process_facts
from raftlog.admin.errors import ApiError
from raftlog.admin.exposition import MEDIA_TYPE, Family, slices
from raftlog.admin.loop_lag import LoopLag
from raftlog.admin.route import Call, Route
from raftlog.admin.scrape import Scrape, gather
from raftlog.admin.sending import send


class WhichMetrics(msgspec.Struct, forbid_unknown_fields=True):
    """`family`: raftlog's own names, those that Kafka's dashboards query, what clients pushed (KIP-714), or all."""

    family: Literal["all", "raftlog", "kafka", "clients"] = "all"


async def get_metrics(call: Call) -> web.StreamResponse:
    """Stream the text: the first slices are on their way while the last ones are made."""
    node = call.node
    if node.facts is None:
        raise ApiError(503, "this node has no numbers to tell yet")
    scrape = await gather(node, node.facts, node.lag or LoopLag())
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", "X-Request-Id": call.request_id}
    response = web.StreamResponse(headers=headers)
    try:
        await response.prepare(call.raw)
        for piece in slices(families(scrape, call.query.family)):
            await send(response, piece.encode(), call.raw, within_s=call.limits.chunk_s)
            await asyncio.sleep(0)
        await response.write_eof()
    except ConnectionError:
        pass  # whoever asked is gone, or reads nothing and was cut off
    return response


def families(scrape: Scrape, which: str) -> Iterator[Family]:
    """Yield what is asked for."""
    parts: list[Iterable[Family]] = []
    if which in ("all", "raftlog"):
        parts.append(metrics_own.families(scrape))
    if which in ("all", "kafka"):
        parts.append(metrics_kafka.families(scrape))
    if which in ("all", "clients"):
        parts.append(metrics_clients.families(scrape))
    parts.append(process_facts.families())
    for part in parts:
        yield from part


ROUTES: Final = (
    Route(
        "GET",
        "/metrics",
        get_metrics,
        "This node's numbers, for Prometheus",
        str,
        query=WhichMetrics,
        media_type="text/plain",
    ),
)
