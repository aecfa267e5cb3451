"""The open streams of events of one node: how many there may be, and who wakes them. Knows no event."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from raftlog.admin.errors import ApiError
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from aiohttp import web

RETRY_AFTER_S: Final = 5


class EventStreams:
    """`opened` for each stream; `wake` for all of them; `close` once, when the node ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.Event, web.Request] = {}
        self.is_closing = False

    @contextmanager
    def opened(self, request: web.Request) -> Iterator[asyncio.Event]:
        """Count a stream while it lasts, and yield what is set when there may be news. Raises ApiError 429.

        Streams of clients who left do not count, and are woken to end: else those that come and go would pile up until
        their next heartbeats.
        """
        gone = [news for news, each in self._open.items() if is_gone(each)]
        for each in gone:
            each.set()
        if len(self._open) - len(gone) >= self._most:
            raise ApiError(
                429,
                f"{self._most} streams of events are open on this node, which is the most; close one",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        news = asyncio.Event()
        self._open[news] = request
        try:
            yield news
        finally:
            del self._open[news]

    def __len__(self) -> int:
        return len(self._open)

    def wake(self) -> None:
        """Have every stream look whether there are news."""
        for news in self._open:
            news.set()

    def on_metadata(self, _old: MetadataImage, _new: MetadataImage) -> None:
        """Other metadata was published."""
        self.wake()

    def close(self) -> None:
        """Have every stream end."""
        self.is_closing = True
        self.wake()


def is_gone(request: web.Request) -> bool:
    """Say whether a client has closed its connection, which its stream notices when it is woken."""
    return request.transport is None or request.transport.is_closing()
