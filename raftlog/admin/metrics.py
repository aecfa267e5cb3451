"""GET /metrics: this node for Prometheus. It is gathered and written in slices, so that no scrape blocks the loop."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec
from aiohttp import web

from raftlog.admin import metrics_clients, metrics_kafka, metrics_own, metrics_shares, process_facts
from raftlog.admin.errors import ApiError
from raftlog.admin.exposition import MEDIA_TYPE, Family, slices
from raftlog.admin.loop_lag import LoopLag
from raftlog.admin.response_pieces import send
from raftlog.admin.route import Call, Route
from raftlog.admin.scrape import Scrape, gather
from raftlog.base.turns import in_slices
from raftlog.security.acls import DESCRIBE_CLUSTER

GZIP_LEVEL: Final = 3
"""A twentieth of the text remains, as it does at higher levels for twice the work."""
GZIP_WINDOW: Final = 31


class WhichMetrics(msgspec.Struct, forbid_unknown_fields=True):
    """`family`: raftlog's own names, the names of Kafka's dashboards, clients' pushed metrics (KIP-714), or all."""

    family: Literal["all", "raftlog", "kafka", "clients"] = "all"


async def get_metrics(call: Call) -> web.StreamResponse:
    """Stream the text: the first slices are sent while the last are made."""
    node = call.node
    if node.facts is None:
        raise ApiError(503, "this node has no metrics yet")
    scrape = await gather(node, node.facts, node.lag or LoopLag())
    headers = {
        "Content-Type": MEDIA_TYPE,
        "Cache-Control": "no-store",
        "Vary": "Accept-Encoding",
        "X-Request-Id": call.request_id,
    }
    pieces: Iterable[bytes] = (piece.encode() for piece in slices(families(scrape, call.query.family)))
    if accepts_gzip(call.raw.headers.get("Accept-Encoding", "")):
        headers["Content-Encoding"] = "gzip"
        pieces = compressed(pieces)
    response = web.StreamResponse(headers=headers)
    try:
        await response.prepare(call.raw)
        async for piece in in_slices(node, pieces, 1):
            await send(response, piece, call.raw, within_s=call.limits.chunk_s)
        await response.write_eof()
    except ConnectionError:
        pass  # the client is gone, or did not read and was cut off
    return response


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same text as gzip, a piece for each: about as much work as it was to make it."""
    stream = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
    for piece in pieces:
        if some := stream.compress(piece):
            yield some
    yield stream.flush()


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding allows gzip (RFC 9110 §12.5.3); without the header it does not."""
    weights: dict[str, float] = {}
    for item in header.split(","):
        coding, _, parameters = item.partition(";")
        name, _, weight = parameters.strip().partition("=")
        try:
            weights[coding.strip().lower()] = float(weight) if name.strip().lower() == "q" else 1.0
        except ValueError:
            continue
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def families(scrape: Scrape, which: str) -> Iterator[Family]:
    """Yield the requested families."""
    parts: list[Iterable[Family]] = []
    if which in ("all", "raftlog"):
        parts += [metrics_own.families(scrape), metrics_shares.families(scrape)]
    if which in ("all", "kafka"):
        parts += [metrics_kafka.families(scrape), metrics_shares.kafka_families(scrape)]
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
        answer=str,
        query=WhichMetrics,
        media_type="text/plain",
        rights=DESCRIBE_CLUSTER,
    ),
)
