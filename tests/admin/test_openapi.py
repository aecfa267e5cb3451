"""raftlog.admin.openapi: the document is work, and anyone may ask for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator

import msgspec

from raftlog.admin.openapi import Document, document
from raftlog.admin.resources import ROUTES
from raftlog.admin.route import Route


class Noted(Iterable[Route]):
    """The routes, and the thread of each request for them."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def __iter__(self) -> Iterator[Route]:
        self.threads.append(threading.current_thread())
        return iter(ROUTES)


async def test_the_document_is_made_once_and_not_on_the_loop() -> None:
    """It took a tenth of a second per request, a hundred requests in one turn of the loop."""
    routes = Noted()
    made = Document(routes)
    texts = await asyncio.gather(*(made.text() for _ in range(5)))
    assert set(texts) == {msgspec.json.encode(document(ROUTES))}
    assert len(routes.threads) == 1
    assert routes.threads[0] is not threading.current_thread()


def test_patterns_are_those_of_json_schema() -> None:
    r"""Python's `\Z` is `$` there."""
    text = msgspec.json.encode(document(ROUTES)).decode()
    assert ("^(earliest|latest|[0-9]{1,18})$" in text, r"\\Z" in text) == (True, False)
