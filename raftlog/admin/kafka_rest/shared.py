"""Parts that the resources of v3 share: metadata of items and lists, pages, links."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, not_found
from raftlog.admin.route import Call
from raftlog.metadata.image import MetadataImage, TopicState

DEFAULT_PAGE: Final = 1000
LARGEST_PAGE: Final = 10_000

Part = TypeVar("Part")
Made = TypeVar("Made")


class ItemMetadata(msgspec.Struct):
    """`self`: the URL of the item. `resource_name`: its name in the world."""

    self: str
    resource_name: str


class ListMetadata(msgspec.Struct):
    """`next`: the URL of the next page, null on the last."""

    self: str
    next: str | None = None


class Related(msgspec.Struct):
    """A link to other resources."""

    related: str


class Page(msgspec.Struct, forbid_unknown_fields=True):
    """The wanted part of a list. `page_token` comes from the `next` of the page before."""

    page_size: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] = DEFAULT_PAGE
    page_token: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]*\Z")] = ""


def image_of(call: Call) -> MetadataImage:
    """Return the metadata. Raise ApiError 404 if the path names another cluster."""
    image = call.node.image()
    if not image.cluster_id:
        raise ApiError(503, "this node has no metadata from a controller yet")
    if call.path["cluster_id"] != image.cluster_id:
        raise not_found(f"cluster {call.path['cluster_id'][:100]}")
    return image


def topic_of(call: Call, image: MetadataImage) -> TopicState:
    """Return the path's topic. Raises ApiError 40403."""
    name = call.path["topic_name"]
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(404, f"topic {name[:249]} does not exist", code=UNKNOWN_PARTITION)
    return topic


def item(call: Call, image: MetadataImage, *parts: object, **names: object) -> ItemMetadata:
    """Return an item's metadata: `parts` is its path below its cluster, `names` what its resource name consists of."""
    own = "".join(f"/{name.replace('_', '-')}={value}" for name, value in names.items())
    return ItemMetadata(
        call.link("clusters", image.cluster_id, *parts), f"crn:///kafka={image.cluster_id}{own}"
    )


def page_of(
    call: Call, items: Sequence[Any], *parts: object, key: Callable[[Any], Any] = lambda each: each
) -> tuple[Sequence[Any], ListMetadata]:
    """Return one page of items, which are sorted by a unique `key`, and its metadata; `parts` is the path of the list.

    A token names the last item of its page, so created and deleted items do not shift others between pages.
    """
    url = call.link(*parts)
    query: Page = call.query
    start = _place_after(query.page_token, items, key) if query.page_token else 0
    shown = items[start : start + query.page_size]
    following = None
    if start + len(shown) < len(items):
        last = base64.urlsafe_b64encode(msgspec.json.encode(key(shown[-1]))).decode().rstrip("=")
        asked = {name: value for name, value in msgspec.structs.asdict(query).items() if value != ""}
        following = f"{url}?{urlencode({**asked, 'page_token': last})}"
    return shown, ListMetadata(url, following)


def _place_after(token: str, items: Sequence[Any], key: Callable[[Any], Any]) -> int:
    """Return where a list goes on after the item that a token names. Raises ApiError 400."""
    try:
        last = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return bisect_right(items, tuple(last) if isinstance(last, list) else last, key=key)
    except (ValueError, TypeError):
        raise ApiError(
            400, "query: page_token is not of this list: use `next` of the previous page"
        ) from None
