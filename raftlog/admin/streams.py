"""The open streams of one kind on one node: each caller has a share of them, and metadata wake them. It does not know
events.

Beyond the limit, the oldest stream of the caller with the most streams ends, with the reason. So no caller can lock out
the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from raftlog.admin.errors import ApiError
from raftlog.base.places import Places
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from aiohttp import web


class Stream:
    """One open stream. `news` is set when there may be news; `ended` says why no more may be sent."""

    def __init__(self, request: web.Request, on_displaced: Callable[[ApiError], None]) -> None:
        self.request = request
        self.news = asyncio.Event()
        self.ended: ApiError | None = None
        self.on_displaced = on_displaced


class Streams:
    """`opened` for each stream; `wake` for all of them; `close` once, when the node ends."""

    def __init__(self, most: int, what: str) -> None:
        """`what` names the kind in messages."""
        self._open: dict[Stream, None] = {}
        self._places: Places[Stream] = Places(most, self._displace)
        self._displaced = f"{most} {what} are in progress on this node, the most; a newer one took this place"
        self.is_closing = False

    @contextmanager
    def opened(
        self,
        request: web.Request,
        caller: str,
        on_displaced: Callable[[ApiError], None] = lambda _error: None,
    ) -> Iterator[Stream]:
        """Count a stream while it lasts. `on_displaced(error)` is called if its place goes to a newer stream.

        A caller without a name is known by its address.

        Streams of clients that left lose their places, and are woken to end: else short-lived streams would pile up
        until their next heartbeats.
        """
        for each in self._open:
            if is_gone(each.request):
                self._places.leave(each)
                each.news.set()
        stream = Stream(request, on_displaced)
        self._open[stream] = None
        self._places.enter(stream, caller or request.remote or "")
        try:
            yield stream
        finally:
            self._places.leave(stream)
            del self._open[stream]

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Stream]:
        return iter(tuple(self._open))

    def wake(self) -> None:
        """Have every stream look whether there are news."""
        for each in self._open:
            each.news.set()

    def on_metadata(self, _old: MetadataImage, _new: MetadataImage) -> None:
        """Wake the streams when new metadata was published."""
        self.wake()

    def close(self) -> None:
        """Have every stream end."""
        self.is_closing = True
        self.wake()

    def _displace(self, stream: Stream) -> None:
        stream.ended = ApiError(429, self._displaced)
        stream.news.set()
        stream.on_displaced(stream.ended)


def is_gone(request: web.Request) -> bool:
    """Say whether a client has closed its connection, which its stream notices when it is woken."""
    return request.transport is None or request.transport.is_closing()
