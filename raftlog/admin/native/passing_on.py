"""Asks the HTTP API of another node as the caller: for what only that node knows or can do."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from raftlog.admin.errors import ApiError, Error, not_found
from raftlog.admin.native.nodes import http_url_of
from raftlog.admin.route import Call

PASS_ON_S: Final = 10.0
"""Longest wait for another node."""
MAX_BYTES: Final = 1 << 20
"""The longest answer of another node."""


async def ask_node(
    call: Call,
    node_id: int,
    method: Literal["GET", "POST", "DELETE"],
    path: str,
    kind: Any,
    *,
    body: bytes | None = None,
) -> Any:
    """Return the answer of another node, of type `kind`. Raise ApiError, also for that node's errors."""
    broker = call.node.image().brokers.get(node_id)
    if broker is None:
        raise not_found(f"broker {node_id}")
    url = await http_url_of(call, broker, nearby=True)
    if url is None or not url.startswith("http:"):
        what = "has no HTTP API that answers" if url is None else "speaks TLS"
        raise ApiError(503, f"node {node_id} {what}: its HTTP API is unreachable from here", code=503)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if given := call.raw.headers.get("Authorization"):
        headers["Authorization"] = given

    def ask() -> tuple[int, bytes]:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=PASS_ON_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_BYTES)
        finally:
            connection.close()

    try:
        status, text = await asyncio.to_thread(ask)
        if status == 200:
            return msgspec.json.decode(text, type=kind)
        refused = msgspec.json.decode(text, type=Error)
    except (OSError, HTTPException, msgspec.MsgspecError) as error:
        raise ApiError(503, f"node {node_id} is unreachable: {error}", code=503) from None
    raise ApiError(status, f"node {node_id}: {refused.message}", code=refused.error_code)
