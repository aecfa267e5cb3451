"""raftlog.admin.route: what a caller may is asked without holding the loop."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from raftlog.admin.caller import Caller
from raftlog.admin.limits import Limits
from raftlog.admin.route import Call
from raftlog.admin.server import ROUTES
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from tests.broker.loop_turns import count_loop_turns

ALICE = Caller("User:alice", "operator", "User:alice", "127.0.0.1")
TOPIC = ResourceType.TOPIC


def call_of(caller: Caller) -> Call:
    view = NodeView(NodeConfig(node_id=1), lambda: EMPTY_IMAGE, list, lambda: 0.0)
    rule = Acl(TOPIC, "t2", PatternType.PREFIXED, "User:alice", "*", Operation.READ, Permission.ALLOW)
    view.authorizer = Authorizer([rule])
    nothing: Any = None
    return Call(view, nothing, "http://h", {}, nothing, nothing, nothing, "id", Limits(), caller)


@pytest.mark.parametrize(("caller", "seen"), [(ALICE, 1_111), (Caller("token", "reader"), 3_000)])
async def test_what_a_caller_may_see_of_very_many_is_asked_in_turns(caller: Caller, seen: int) -> None:
    """Lists of all topics ask so; a broker serves clients on the same loop. The bearer of a token sees all."""
    names = {f"t{number}": None for number in range(3_000)}
    found, turns = await count_loop_turns(call_of(caller).among(Operation.DESCRIBE, TOPIC, names))
    assert len(found) == seen
    assert turns >= (len(names) // PARTS_AT_ONCE if caller.principal else 0)


@pytest.mark.parametrize(
    "name", ["{3F2504E0-4F89}", "${GROUP}-x", "{", "a/b", "a%7Bb", "a b", "ä", "a\nb", "?#&", "-x", "a:b"]
)
async def test_every_route_takes_every_name_in_its_path(name: str) -> None:
    """Groups, clients, transactional ids and users choose their names; .NET writes a GUID in braces."""
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"route": request.match_info.route.resource.canonical, **request.match_info})

    for route in ROUTES:
        app.router.add_route(route.method, route.pattern, answer)
    async with TestClient(TestServer(app)) as client:
        for route in ROUTES:
            values = {each: "7" if kind is int else name for each, kind in route.parameters.items()}
            path = route.template.format(**{each: quote(value, safe=":") for each, value in values.items()})
            found = await client.request(route.method, path)
            assert found.status == 200, (route.method, path)
            assert await found.json() == {"route": route.template, **values}
