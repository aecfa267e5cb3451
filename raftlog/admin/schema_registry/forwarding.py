"""Forwards a request to the node that leads `_schemas`, over HTTP with the caller's own login.

A caller that showed a certificate has no login to pass on, and is redirected instead. A login is passed on only to a
node whose certificate was verified (`why_no_login`), and not in the clear if it came over TLS.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec
from aiohttp import web

from raftlog.admin.errors import ApiError
from raftlog.admin.native.nodes import is_nearby, settings_of_broker, tls_to, why_no_login
from raftlog.admin.route import FORWARDED, Call
from raftlog.admin.view import NodeView
from raftlog.base.config.network import http_url
from raftlog.base.types import NO_BROKER, NO_EPOCH
from raftlog.metadata.image import BrokerState
from raftlog.schemas.errors import FORWARDING_FAILED, NO_LEADER, SchemaError
from raftlog.security.acls import ANONYMOUS

ANSWER_S: Final = 15.0
CONNECT_S: Final = 2.0
RESPONSE_MAX_BYTES: Final = 64 << 20
SETTINGS: Final = ("raftlog.schema.registry.listener", "raftlog.admin.security.protocol")


class Forwarder:
    """Keeps connections to the leaders, and their addresses."""

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[int, tuple[int, str]] = {}
        """The epoch and the URL of each broker that has led."""

    async def forward(self, call: Call, leader: int) -> web.Response:
        """Return the leader's response. Raise SchemaError 50004 without a leader, 50003 if it does not answer."""
        if leader == NO_BROKER:
            raise SchemaError(NO_LEADER, "no broker leads the topic _schemas at the moment; retry")
        if call.is_forwarded:
            raise SchemaError(NO_LEADER, "this node does not lead the topic _schemas any more; retry")
        return await self._send(call, leader)

    async def _send(self, call: Call, leader: int) -> web.Response:
        node, broker = self._node, self._node.image().brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(node.config.inter_broker_listener_name)
        if broker is None or endpoint is None:
            raise SchemaError(
                NO_LEADER, f"broker {leader}, which leads the topic _schemas, is not registered"
            )
        url = await self._url(call, broker, endpoint.host)
        target = f"{url}{call.raw.rel_url.raw_path}"
        if call.raw.query_string:
            target += f"?{call.raw.rel_url.raw_query_string}"
        if "Authorization" not in call.raw.headers and call.caller.principal not in ("", ANONYMOUS):
            raise web.HTTPTemporaryRedirect(target)
        is_tls = target.startswith("https:")
        if "Authorization" in call.raw.headers and (why := why_no_login(node, broker, is_tls=is_tls)):
            raise ApiError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"broker {leader}, which leads the topic _schemas, {why}; ask it yourself at {url}",
                code=FORWARDING_FAILED,
            )
        return await self._ask(call, target, broker)

    async def _ask(self, call: Call, target: str, broker: BrokerState) -> web.Response:
        headers = {
            name: call.raw.headers[name] for name in ("Authorization", "Accept") if name in call.raw.headers
        }
        headers |= {FORWARDED: "false", "X-Request-Id": call.request_id}
        body = None if call.body is None else msgspec.json.encode(call.body)
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with self._sessions().request(
                call.raw.method,
                type(call.raw.url)(target, encoded=True),
                data=body,
                headers=headers,
                allow_redirects=False,
                ssl=(await tls_to(self._node, broker))["ssl"] if target.startswith("https:") else True,
            ) as answer:
                content = bytearray()
                async for piece in answer.content.iter_any():
                    content += piece
                    if len(content) > RESPONSE_MAX_BYTES:
                        raise _too_long()
                return web.Response(
                    status=answer.status, body=bytes(content), content_type=answer.content_type
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._urls.pop(broker.broker_id, None)
            raise SchemaError(
                FORWARDING_FAILED,
                f"the node that leads the topic _schemas did not answer at {target}: {error!r}",
            ) from None

    def _sessions(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CONNECT_S)
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self._session

    async def _url(self, call: Call, broker: BrokerState, host: str) -> str:
        leader = broker.broker_id
        epoch, url = self._urls.get(leader, (NO_EPOCH, ""))
        if epoch == broker.broker_epoch:
            return url
        settings = await settings_of_broker(call, leader, SETTINGS)
        found = http_url(settings, host, nearby=is_nearby(self._node, host), names=SETTINGS[:1])
        if found is None:
            raise SchemaError(
                FORWARDING_FAILED,
                f"broker {leader}, which leads the topic _schemas, has no {SETTINGS[0]} that this node can reach",
            )
        self._urls[leader] = (broker.broker_epoch, found)
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def _too_long() -> ApiError:
    """Return the error for a response that a node does not forward; the same request again has the same end."""
    return ApiError(
        HTTPStatus.BAD_GATEWAY,
        f"the response of the node that leads the topic _schemas has more than {RESPONSE_MAX_BYTES} bytes: "
        "ask for it in parts with offset and limit",
        code=FORWARDING_FAILED,
    )
