"""Claims about paginated lists. Items come and go between two pages."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.admin.caller import Caller
from raftlog.admin.errors import ApiError
from raftlog.admin.kafka_rest.acls import AclQuery
from raftlog.admin.kafka_rest.shared import Page, page_of
from raftlog.admin.limits import Limits
from raftlog.admin.route import Call
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType

READER = Caller("token", "reader")
ITEMS: dict[str, list[Any]] = {
    "names": ["", "a", "b", "ä", "{x}", "z/?&#%"],
    "numbers": [0, 1, 5, 2_147_483_647],
    "partitions": [("a", 0), ("a", 1), ("b", 0), ("b", 10)],
    "configs": [SimpleNamespace(name=each) for each in ("a.b", "c.d", "e.f")],
    "rules": [
        Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:x", "*", Operation.READ, permission)
        for permission in (Permission.DENY, Permission.ALLOW)
    ],
}
KEYS: dict[str, Callable[[Any], Any]] = {"configs": attrgetter("name"), "rules": msgspec.structs.astuple}


def call_of(query: Page) -> Call:
    view = NodeView(NodeConfig(node_id=1), lambda: EMPTY_IMAGE, list, lambda: 0.0)
    nothing: Any = None
    return Call(view, nothing, "http://h", {}, query, nothing, nothing, "id", Limits(), READER)


def following(url: str | None, kind: type[Page] = Page) -> Page | None:
    """Return the query of the next page, as the server would read it."""
    return url and msgspec.convert(dict(parse_qsl(urlsplit(url).query)), kind, strict=False)  # type: ignore[return-value]


def walk(items: list[Any], key: Callable[[Any], Any], size: int) -> list[Any]:
    found: list[Any] = []
    query: Page | None = Page(page_size=size)
    while query is not None:
        shown, metadata = page_of(call_of(query), items, "list", key=key)
        found += shown
        assert len(found) <= len(items), "it goes round in a circle"
        query = following(metadata.next)
    return found


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("size", [1, 2, 10])
def test_pages_together_are_the_list(kind: str, size: int) -> None:
    """Items are sorted by names, numbers, partitions, settings or rules."""
    key: Callable[[Any], Any] = KEYS.get(kind, lambda each: each)
    items = sorted(ITEMS[kind], key=key)
    assert walk(items, key, size) == items


@given(st.sets(st.text(max_size=5)), st.sets(st.text(max_size=5)), st.integers(1, 5))
def test_what_comes_and_goes_between_pages_moves_no_other_item(
    before: set[str], after: set[str], size: int
) -> None:
    """An item that is there all the time is shown once: a position would skip some, or show some twice."""
    shown, metadata = page_of(call_of(Page(page_size=size)), sorted(before), "list")
    found = [*shown]
    while (query := following(metadata.next)) is not None:
        shown, metadata = page_of(call_of(query), sorted(after), "list")
        found += shown
        assert len(found) == len(set(found))
    if len(before) > size:
        assert before & after <= set(found)


def test_a_filter_holds_for_all_pages() -> None:
    """`next` asks what the first page asked; it named the page only."""
    asked = AclQuery(page_size=1, resource_type="TOPIC", principal="User:a&b")
    _, metadata = page_of(call_of(asked), ["x", "y"], "acls")
    again = following(metadata.next, AclQuery)
    assert again is not None and msgspec.structs.replace(again, page_token="") == asked


@pytest.mark.parametrize("token", ["p1000", "eA", "NQ", "WzEsMl0", "_", "bnVsbA"])
def test_a_token_that_is_not_of_the_list_is_refused(token: str) -> None:
    """A token of another list, of another release, or an invalid token."""
    with pytest.raises(ApiError, match="page_token") as found:
        page_of(call_of(Page(page_token=token)), [("t", 0), ("t", 1)], "list")
    assert found.value.status == 400
