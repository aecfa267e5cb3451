"""Claims about the event stream: its events, its resumption, and its end. No node is behind it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace as Fake
from typing import Any, Final, NamedTuple, cast

import pytest
from structlog.testing import capture_logs

from raftlog.admin.limits import STREAMS_SHARE, Limits
from raftlog.admin.openapi import document
from raftlog.admin.resources import ROUTES
from raftlog.admin.samples import KEPT, Samples
from raftlog.admin.server import AdminServer
from raftlog.admin.streams import is_gone
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.metadata.image import MetadataImage
from tests.kit.waits import PATIENCE_S

NEVER_S: Final = 3600.0
SOON_S: Final = 0.05
SMALL_BYTES: Final = 4096
CALM: Final = Limits(heartbeat_s=NEVER_S, sweep_s=NEVER_S)
EVENTS: Final = "/v1/events"


class Event(NamedTuple):
    name: str
    id: str
    data: Any


class Stream:
    """One client's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def line(self) -> str:
        return (await self.reader.readline()).decode().rstrip("\r\n")

    async def begin(self) -> Stream:
        """Read the headers."""
        self.status = int((await self.line()).split()[1])
        while line := await self.line():
            name, _, value = line.partition(": ")
            self.headers[name] = value
        return self

    async def event(self) -> Event:
        """Return the next event, without comments."""
        found: dict[str, str] = {}
        while not found:
            while line := await self.line():
                name, _, value = line.partition(": ")
                found |= {name: value} if value else {}
            assert found or not self.reader.at_eof(), "the stream has ended"
        return Event(found["event"], found.get("id", ""), json.loads(found["data"]))


class World:
    """A server; a test changes its metadata and samples."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.offset = 7
        self.listeners: list[Callable[[Any, Any], None]] = []
        self.view = NodeView(
            load_config(flags={"raftlog.admin.listener": "127.0.0.1:0"}),
            lambda: MetadataImage(offset=self.offset),
            list,
            lambda: self.now_s * 1000,
            subscribe=self.listeners.append,
            facts=cast(Any, Fake(traffic=dict, connections=lambda: None, groups=self.groups)),
        )
        self.samples = self.view.samples = Samples(self.view, lambda: self.now_s)
        self.server: AdminServer | None = None

    async def groups(self) -> list[Any]:
        return []

    async def sample(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_s += 3
            await self.samples.take_sample()

    def change(self) -> None:
        self.offset += 1
        for each in self.listeners:
            each(None, None)

    async def ask(
        self, path: str = EVENTS, last: str = "", *, small: bool = False, source: str = "127.0.0.1"
    ) -> Stream:
        """Send a request from an address; `small`: have as few bytes as possible on the way."""
        assert self.server is not None
        connection = socket.socket()
        connection.bind((source, 0))
        if small:
            assert self.server._listening is not None
            listening = self.server._listening.sockets[0]  # a connection takes its sizes from there
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, self.server.address)
        reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL_BYTES)
        more = f"Last-Event-ID: {last}\r\n" if last else ""
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n{more}\r\n".encode())
        return Stream(reader, writer)

    async def follow(self, path: str = EVENTS, last: str = "", source: str = "127.0.0.1") -> Stream:
        return await (await self.ask(path, last, source=source)).begin()


def told(scenario: Callable[[World], Awaitable[Any]], limits: Limits = CALM) -> None:
    async def run() -> None:
        world = World()
        world.server = AdminServer(world.view, limits)
        await world.server.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(world)
        finally:
            await world.server.stop()

    asyncio.run(run())


def test_metadata_is_sent_at_once_and_whenever_it_changes() -> None:
    """As its newest offset, however often it changed meanwhile; with the type that browsers know."""

    async def scenario(world: World) -> None:
        stream = await world.follow()
        assert (stream.status, stream.headers["Content-Type"]) == (200, "text/event-stream")
        assert await stream.event() == ("metadata", "7.0", {"node_id": 1, "metadata_offset": 7})
        for _ in range(3):
            world.change()
        assert (await stream.event()).data["metadata_offset"] == 10
        stream.writer.close()

    told(scenario)


def test_stream_goes_on_after_the_last_event_that_its_reader_has() -> None:
    """It gets the news since then, each event once."""

    async def scenario(world: World) -> None:
        await world.sample(4)
        first = await world.follow(f"{EVENTS}?samples=true")
        names = [(await first.event()).name for _ in range(3)]
        assert names == ["metadata", "sample", "sample"]
        third = await first.event()
        first.writer.close()
        await world.sample()
        again = await world.follow(f"{EVENTS}?samples=true", third.id)
        assert (await again.event()).data["at_ms"] == third.data["at_ms"] + 3000
        world.change()
        assert (await again.event()).name == "metadata"
        await world.sample()
        assert (await again.event()).data["at_ms"] == third.data["at_ms"] + 6000
        again.writer.close()

    told(scenario)


def test_reader_that_comes_from_a_node_with_a_later_clock_gets_all_samples() -> None:
    """A client of a node that set its clock back gets all samples, too."""

    async def scenario(world: World) -> None:
        await world.sample(3)
        stream = await world.follow(f"{EVENTS}?samples=true", "7.999999999")
        assert [(await stream.event()).data["at_ms"] for _ in range(2)] == [106_000, 109_000]
        stream.writer.close()

    told(scenario)


def test_id_that_no_event_has_is_refused() -> None:
    """By the header's name."""

    async def scenario(world: World) -> None:
        stream = await world.follow(last="yesterday")
        assert stream.status == 400
        assert b"Last-Event-ID must be the id of an event, but is 'yesterday'" in await stream.reader.read()

    told(scenario)


def test_quiet_stream_has_a_comment_now_and_then() -> None:
    """So that a proxy does not cut it, and each end notices that the other is gone."""

    async def scenario(world: World) -> None:
        stream = await world.follow()
        await stream.event()
        assert [await stream.line() for _ in range(4)] == [":", "", ":", ""]
        stream.writer.close()

    told(scenario, Limits(heartbeat_s=SOON_S))


def test_one_stream_too_many_ends_the_oldest_of_the_caller_that_has_most() -> None:
    """The client receives the reason. Streams of other callers stay, and streams of clients that left do not count."""

    async def scenario(world: World) -> None:
        other = await world.follow(source="127.0.0.2")
        streams = [await world.follow() for _ in range(2)]
        gone = streams.pop()
        gone.writer.transport.abort()
        streams.append(await world.follow())
        assert [(await each.event()).name for each in (other, *streams)] == ["metadata"] * 3
        streams.append(await world.follow())
        end = await streams[0].event()
        assert (end.name, end.data["error_code"]) == ("end", 429)
        assert "3 streams of events are in progress on this node, the most" in end.data["message"]
        world.change()
        assert (await streams[2].event()).name == "metadata"
        assert (await other.event()).data["metadata_offset"] == 8
        for each in (other, *streams):
            each.writer.close()

    told(scenario, CALM._replace(connections=3 * STREAMS_SHARE))


def test_clients_that_come_and_go_leave_no_streams_behind() -> None:
    """Each new stream ends the streams of clients that left. They would otherwise end only at their next heartbeats."""

    async def scenario(world: World) -> None:
        streams = world.view.streams
        assert streams is not None
        for _ in range(5):
            stream = await world.follow()
            await stream.event()
            stream.writer.transport.abort()
            while not all(is_gone(each.request) for each in streams):
                await asyncio.sleep(0)
        last = await world.follow()
        while len(streams) > 1:
            await asyncio.sleep(0)
        assert (await last.event()).name == "metadata"
        last.writer.close()

    told(scenario)


def test_reader_that_takes_nothing_is_dropped_with_a_reason() -> None:
    """Its connection is cut, its place is free again, and the log says why."""

    async def scenario(world: World) -> None:
        await world.sample(KEPT)
        with capture_logs() as lines:
            stream = await world.ask(f"{EVENTS}?samples=true", small=True)
            while not (found := [each for each in lines if each["event"] == "admin_events_dropped"]):
                await asyncio.sleep(0)
        assert found[0]["reason"] == f"the client read nothing for {SOON_S} s"
        assert world.view.streams is not None
        assert len(world.view.streams) == 0
        stream.writer.transport.abort()

    told(scenario, CALM._replace(chunk_s=SOON_S))


def test_stop_of_the_node_ends_streams_and_does_not_wait_for_them() -> None:
    """Each client receives an event that says when to reconnect."""

    async def scenario(world: World) -> None:
        assert world.server is not None
        stream = await world.follow()
        await stream.event()
        await world.server.stop()
        end = await stream.event()
        assert (end.name, end.data["error_code"]) == ("end", 503)
        assert "the node is stopping" in end.data["message"]
        assert await stream.reader.read() == b""

    told(scenario)


def test_stream_of_samples_ends_with_the_right_to_see_them() -> None:
    """It takes DESCRIBE of the cluster, as GET /v1/samples does; word of other metadata takes no right."""

    async def scenario(world: World) -> None:
        allowed = True
        world.view.authorizer = cast(Any, Fake(allows=lambda *asked: allowed))
        stream = await world.follow(f"{EVENTS}?samples=true")
        plain = await world.follow()
        assert (await stream.event()).name == (await plain.event()).name == "metadata"
        allowed = False
        world.change()
        end = await stream.event()
        assert (end.name, end.data["error_code"]) == ("end", 40301)
        assert "may not DESCRIBE the cluster" in end.data["message"]
        assert (await plain.event()).data["metadata_offset"] == 8
        assert (await world.follow(f"{EVENTS}?samples=true")).status == 401
        plain.writer.close()

    told(scenario)


def test_stream_lasts_so_long_at_most() -> None:
    """Users that are still allowed then reconnect: passwords and users may have changed."""

    async def scenario(world: World) -> None:
        stream = await world.follow()
        assert [(await stream.event()).name for _ in range(2)] == ["metadata", "end"]

    told(scenario, CALM._replace(stream_s=SOON_S))


@pytest.mark.parametrize("name", ["MetadataEvent", "SampleEvent", "EndEvent"])
def test_events_are_in_the_document(name: str) -> None:
    """Each with the name that it has in the stream, and the header with which to go on."""
    found = document(ROUTES)
    operation = found["paths"][EVENTS]["get"]
    schema = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert {"$ref": f"#/components/schemas/{name}"} in schema["anyOf"]
    event = found["components"]["schemas"][name]["properties"]["event"]
    assert event == {"enum": [name.removesuffix("Event").lower()]}
    assert ("header", "Last-Event-ID") in [(each["in"], each["name"]) for each in operation["parameters"]]
