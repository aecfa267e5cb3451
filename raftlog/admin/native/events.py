"""GET /v1/events: server-sent events, for clients that follow a cluster and would otherwise poll.

There is no queue of events. A stream reads the newest metadata offset, and the kept samples that it has not sent yet.
So a slow reader gets the present state, and takes no more memory than one response. The same is true of a reader that
reconnects with the id of its last event. A reader that does not read for `Limits.chunk_s` is disconnected.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec
from aiohttp import web

from raftlog.admin.errors import INVALID, ApiError, Error
from raftlog.admin.listener import limited
from raftlog.admin.response_pieces import send
from raftlog.admin.route import ASKED_BY_HANDLER, CLUSTER, Call, Route
from raftlog.admin.samples import Sample
from raftlog.admin.streams import Stream, Streams, is_gone
from raftlog.security.acls import Operation

LAST_EVENT_ID: Final = "Last-Event-ID"
REST_S: Final = 0.05
"""Shortest time between two checks for news."""
HEARTBEAT: Final = b":\n\n"
_ID: Final = re.compile(r"(-?[0-9]{1,16})\.([0-9]{1,16})")


class Followed(msgspec.Struct, forbid_unknown_fields=True):
    """`samples`: also send samples, kept samples first. It requires DESCRIBE of the cluster."""

    samples: bool = False


class MetadataVersion(msgspec.Struct):
    """The offset up to which this node has applied the cluster's metadata: nodes at the same offset agree."""

    node_id: int
    metadata_offset: int


class MetadataEvent(msgspec.Struct, tag_field="event", tag="metadata"):
    """The metadata changed: reload what you show."""

    id: str
    data: MetadataVersion


class SampleEvent(msgspec.Struct, tag_field="event", tag="sample"):
    """The node has taken a sample, see GET /v1/samples."""

    id: str
    data: Sample


class EndEvent(msgspec.Struct, tag_field="event", tag="end"):
    """The stream ends, and why. At 503 come again with the last id."""

    data: Error


class _Follower:
    """One stream: what its reader has got, and its end."""

    def __init__(self, call: Call, streams: Streams) -> None:
        self._call = call
        self._streams = streams
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + call.limits.stream_s
        self._told_at = self._clock()
        self._offset, self._sample_ms = _last_told(call)

    @property
    def look_at(self) -> float:
        """When to check again, with or without news."""
        expires_at = self._call.caller.expires_at
        return min(self._told_at + self._call.limits.heartbeat_s, self._ends_at, expires_at)

    def why_it_ends(self, stream: Stream) -> ApiError | None:
        """Return why the stream ends, or None."""
        if stream.ended is not None:
            return stream.ended
        if self._streams.is_closing:
            return ApiError(503, "the node is stopping: continue at another node")
        if self._clock() >= self._ends_at:
            return ApiError(503, f"a stream lasts {self._call.limits.stream_s:g} s at most: open another")
        try:
            self._call.check_login()
            self.check_rights()
        except ApiError as error:
            return error
        return None

    def check_rights(self) -> None:
        """Raise ApiError 403 if the caller may not see what it follows."""
        if self._call.query.samples:
            self._call.demand(Operation.DESCRIBE, CLUSTER)

    def news(self) -> bytes:
        """Return the events since the last call; a comment if there were none for a while, so that both ends live."""
        events: list[MetadataEvent | SampleEvent] = []
        node = self._call.node
        offset = node.image().offset
        if offset != self._offset:
            self._offset = offset
            events.append(MetadataEvent(self._id(), MetadataVersion(node.config.node_id, offset)))
        if self._call.query.samples and node.samples is not None:
            if self._sample_ms > node.samples.newest_ms:
                self._sample_ms = 0  # the clock was set back, or the reader comes from another node
            for each in node.samples.asked(self._sample_ms):
                self._sample_ms = each.at_ms
                events.append(SampleEvent(self._id(), each))
        if not events and self._clock() < self._told_at + self._call.limits.heartbeat_s:
            return b""
        self._told_at = self._clock()
        return b"".join(map(_encode, events)) or HEARTBEAT

    def _id(self) -> str:
        return f"{self._offset}.{self._sample_ms}"


def _last_told(call: Call) -> tuple[int | None, int]:
    """Return the reader's metadata offset and its last sample's time. Raises ApiError 400."""
    given = call.raw.headers.get(LAST_EVENT_ID)
    if not given:
        return None, 0
    found = _ID.fullmatch(given)
    if found is None:
        raise ApiError(
            400, f"{LAST_EVENT_ID} must be the id of an event, but is {given[:40]!r}", code=INVALID
        )
    return int(found[1]), int(found[2])


def _encode(event: MetadataEvent | SampleEvent | EndEvent) -> bytes:
    name = event.__struct_config__.tag
    line = b"" if isinstance(event, EndEvent) else b"id: %b\n" % event.id.encode()
    return b"event: %b\n%bdata: %b\n\n" % (str(name).encode(), line, msgspec.json.encode(event.data))


async def stream_events(call: Call) -> web.StreamResponse:
    """Send news as they come, until the client leaves, the token expires, the authorization is lost or the node
    stops.
    """
    node = call.node
    assert node.streams is not None, "the server that serves this has set it"
    follower = _Follower(call, node.streams)
    follower.check_rights()
    with node.streams.opened(call.raw, call.caller.asked_by) as stream:
        if node.samples is not None:
            node.samples.on_taken = node.streams.wake
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Request-Id": call.request_id,
        }
        answer = web.StreamResponse(headers=headers)
        try:
            await answer.prepare(call.raw)
            await _tell(call, answer, follower, stream)
            await answer.write_eof()
        except ConnectionAbortedError as error:
            limited.info("admin_events_dropped", reason=str(error), request_id=call.request_id)
        except ConnectionError:
            pass  # the client is gone
    return answer


async def _tell(call: Call, answer: web.StreamResponse, follower: _Follower, stream: Stream) -> None:
    while not is_gone(call.raw):
        ended = follower.why_it_ends(stream)
        stream.news.clear()
        piece = follower.news() if ended is None else _encode(EndEvent(ended.body))
        if piece:
            await send(answer, piece, call.raw, within_s=call.limits.chunk_s)
        if ended is not None:
            return
        try:
            async with asyncio.timeout_at(follower.look_at):
                await stream.news.wait()
        except TimeoutError:
            continue
        await asyncio.sleep(REST_S)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/events",
        stream_events,
        "Follow changes of the cluster's metadata and samples of this node, as server-sent events",
        answer=MetadataEvent | SampleEvent | EndEvent,
        query=Followed,
        media_type="text/event-stream",
        headers={LAST_EVENT_ID: "The id of the last event that you received. Later events follow."},
        rights=ASKED_BY_HANDLER,
    ),
)
