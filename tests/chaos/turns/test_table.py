"""The table of what is timed: each API and route is in it, or left out with a reason."""

from __future__ import annotations

import pytest

from raftlog.admin.resources import ROUTES
from raftlog.admin.schema_registry.server import ROUTES as REGISTRY_ROUTES
from raftlog.broker.handlers import served
from raftlog.protocol.apis import APIS
from raftlog.protocol.codec import decode_header, decode_request
from raftlog.schemas.schema import TEXT_MAX_CHARS
from raftlog_chaos.turns.largest import Known, arrays_of, largest_requests
from raftlog_chaos.turns.registry import registry_calls
from raftlog_chaos.turns.routes import QUERIES, largest_calls, name_of
from raftlog_chaos.turns.rows import LEFT_OUT
from raftlog_chaos.turns.schemas import large_schemas

BOTH_TABLES = served() | served(of_controllers=True)


@pytest.mark.parametrize("api_key", sorted(BOTH_TABLES), ids=lambda key: APIS[key].name)
def test_each_api_is_timed_with_each_of_its_arrays(api_key: int) -> None:
    """The oldest and the newest version; every request says which limit bounds it, and can be decoded."""
    api = APIS[api_key]
    if api.name in LEFT_OUT:
        assert LEFT_OUT[api.name]
        return
    for version in (api.min_version, api.max_version):
        found = list(largest_requests(api_key, version, Known(), choices=("new",), share=0.0))
        assert len(found) == arrays_of(api_key, version) + 2
        for each in found:
            assert each.limit, each.what
            frame = memoryview(each.make())[4:]
            header, position = decode_header(frame)
            assert header.api_key == api_key
            decode_request(api_key, version, frame, position)


@pytest.mark.parametrize("route", [*ROUTES, *REGISTRY_ROUTES], ids=name_of)
def test_each_route_is_timed_with_its_largest_query(route: object) -> None:
    """A route with a query of a new type needs a row of `QUERIES`, where a limit of the query may be."""
    found = next(each for each in (*ROUTES, *REGISTRY_ROUTES) if each is route)
    if name_of(found) in LEFT_OUT:
        assert LEFT_OUT[name_of(found)]
        return
    if found.query is not None:
        assert found.query.__name__ in QUERIES
    assert all(each.limit for each in largest_calls(found, {}))
    assert list(largest_calls(found, {}))


def test_what_is_left_out_exists() -> None:
    """A name that was changed would leave no row out."""
    names = {APIS[each].name for each in BOTH_TABLES} | {name_of(each) for each in ROUTES}
    assert LEFT_OUT.keys() <= names


def test_registry_is_asked_by_each_route() -> None:
    """The table has the largest request of each route of the registry, and schemas near each limit."""
    asked = [each.what.removeprefix("registry: ") for each in registry_calls("guid")]
    assert not [
        each for each in map(name_of, REGISTRY_ROUTES) if not any(what.startswith(each) for what in asked)
    ]
    for _, kind, _, body in large_schemas():
        assert len(body["schema"]) <= TEXT_MAX_CHARS, kind
