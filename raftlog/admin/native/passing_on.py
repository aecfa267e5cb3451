"""Asks the HTTP API of another node, for what only that node knows or can do."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from raftlog.admin.errors import ApiError, Error, not_found
from raftlog.admin.native.nodes import http_url_of, tls_to, why_no_login
from raftlog.admin.route import FORWARDED, Call

PASS_ON_S: Final = 10.0
"""Longest wait for another node."""
MAX_BYTES: Final = 1 << 20
"""The longest answer of another node."""


async def ask_node(
    call: Call,
    node_id: int,
    request: str,
    kind: Any,
    *,
    body: bytes | None = None,
    with_login: bool = True,
) -> Any:
    """Return the answer of another node, of type `kind`. Raise ApiError, also for that node's errors.

    `request` is the method and the path.
    `with_login`: as the caller, so that node sees the caller's password or token; without it, the login is sent only
    over TLS. `why_no_login` may forbid it.
    """
    if call.is_forwarded:  # an address may lead to the wrong node, even to this one again
        own_id = call.node.config.node_id
        raise ApiError(503, f"its address leads to node {own_id}, not to node {node_id}", code=503)
    broker = call.node.image().brokers.get(node_id)
    if broker is None:
        raise not_found(f"broker {node_id}")
    url = await http_url_of(call, broker)
    if url is None:
        raise ApiError(503, f"node {node_id} has no HTTP API that can be reached from here", code=503)
    is_tls = url.startswith("https:")
    headers = {FORWARDED: "false"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    given = call.raw.headers.get("Authorization")
    # that node would take the certificate of this one for the caller's
    if is_tls and with_login and not given:
        raise ApiError(
            503, f"node {node_id} needs your password or token: a certificate is not passed on", code=503
        )
    if given and (with_login or is_tls):
        if why := why_no_login(call.node, broker, is_tls=is_tls):
            raise ApiError(503, f"node {node_id} {why}", code=503)
        headers["Authorization"] = given
    try:
        async with asyncio.timeout(PASS_ON_S):
            options = await tls_to(call.node, broker) if is_tls else {}
            status, text = await _exchange(urlsplit(url), request, headers, body=body or b"", options=options)
        if status == 200:
            return msgspec.json.decode(text, type=kind)
        refused = msgspec.json.decode(text, type=Error)
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ApiError(503, f"node {node_id} is unreachable: {error}", code=503) from None
    raise ApiError(status, f"node {node_id}: {refused.message}", code=refused.error_code)


async def _exchange(
    url: SplitResult, request: str, headers: dict[str, str], *, body: bytes, options: dict[str, Any]
) -> tuple[int, bytes]:
    """Return the status and body of a response. Raise ValueError without a status.

    HTTP/1.0: the server closes, and sends no chunks.
    """
    reader, writer = await asyncio.open_connection(url.hostname, url.port, **options)
    try:
        lines = [f"{request} HTTP/1.0", f"Host: {url.netloc}", "Connection: close"]
        lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join((*lines, "", "")).encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        answer = await reader.read(MAX_BYTES)
        while more := await reader.read(MAX_BYTES - len(answer)):
            answer += more
        return int(head.partition(b" ")[2][:3]), answer
    finally:
        writer.close()
