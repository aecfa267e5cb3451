"""Claims about downloads of contents: their places, their time, and their memory have limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.admin.limits import Limits
from raftlog.admin.native import one_record
from raftlog.admin.server import AdminServer
from raftlog.admin.view import NodeView
from raftlog.records.batch import Record
from tests.admin.test_limits import answered, served

LARGE = 24 << 20
"""More than the sockets' buffers take."""
GET = b"/v1/topics/t/partitions/0/content?offset=0"
KEY = GET + b"&part=key"


@pytest.fixture(autouse=True)
def _large_record(monkeypatch: pytest.MonkeyPatch) -> None:
    async def record(_call: Any, offset: int) -> Record:
        return Record(offset, 0, b"k", b"v" * LARGE)

    monkeypatch.setattr(one_record, "_record", record)


class Slow:
    """A client that reads the beginning of a content and then waits."""

    async def begin(self, api: AdminServer) -> bytes:
        self.reader, self.writer = await asyncio.open_connection(*api.address, limit=1024)
        self.writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % GET)
        return await self.reader.readline()

    async def read_on(self) -> int:
        """Return how many bytes come before the connection ends."""
        size = 0
        try:
            while piece := await self.reader.read(1 << 20):
                size += len(piece)
        except ConnectionError:
            pass
        self.writer.close()
        return size


def test_oldest_download_gives_way_and_its_connection_breaks() -> None:
    """A response that just ended would look complete."""

    async def scenario(api: AdminServer) -> tuple[int, bytes]:
        slow = Slow()
        assert b"200" in await slow.begin(api)
        seen[0].contents.limit = 2 * LARGE
        newer = await answered(api, KEY)
        return await slow.read_on(), newer

    seen: list[NodeView] = []
    size, newer = served(scenario, Limits(scans=1), seen=seen)
    assert size < LARGE
    assert newer.endswith(b"\r\n\r\nk")


def test_download_has_a_longest_time() -> None:
    """Even if the client reads a little now and then."""

    async def scenario(api: AdminServer) -> int:
        slow = Slow()
        assert b"200" in await slow.begin(api)
        while seen[0].contents.used:
            await asyncio.sleep(0)
        return await slow.read_on()

    seen: list[NodeView] = []
    assert served(scenario, Limits(stream_s=0.05), seen=seen) < LARGE


def test_contents_count_while_they_are_sent_and_only_what_is_wanted() -> None:
    """Beyond the account's limit, which a single content may exceed, downloads get 503."""

    async def scenario(api: AdminServer) -> list[bytes]:
        slow = Slow()
        assert b"200" in await slow.begin(api)
        contents = seen[0].contents
        assert (contents.used, contents.is_full) == (LARGE, True)
        refused = await answered(api, KEY)
        contents.limit = 2 * LARGE
        taken = await answered(api, KEY)
        assert (contents.used, contents.most) == (LARGE, LARGE + 1)
        slow.writer.transport.abort()
        while contents.used:
            await asyncio.sleep(0)
        return [refused, taken]

    seen: list[NodeView] = []
    refused, taken = served(scenario, seen=seen)
    assert b" 503 " in refused.splitlines()[0]
    assert taken.endswith(b"\r\n\r\nk")
