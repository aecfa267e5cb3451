"""Requests of handlers to the controller, and the wait until this broker's own image shows the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

from msgspec import structs

from raftlog.base.errors import KafkaError, PolicyViolation, RequestTimedOut, from_code
from raftlog.base.turns import in_slices
from raftlog.broker.local_broker import LocalBroker
from raftlog.metadata.controller_api import (
    ByClient,
    CreateTopicsReply,
    ErrorReply,
    Reply,
    Request,
    TopicResults,
)
from raftlog.metadata.image import MetadataImage

R = TypeVar("R", bound=Reply)
Changed = TypeVar("Changed", CreateTopicsReply, TopicResults)
Part = TypeVar("Part")

ASKED_BY: Final[ContextVar[str]] = ContextVar("asked_by", default="")
"""The principal that the current request is handled for. The dispatcher sets it; no handler has to pass it on."""

MIN_TIMEOUT_S: Final = 1.0
MAX_TIMEOUT_S: Final = 30.0
"""Without a majority a client gets a retriable error after this at the latest, however long its own timeout."""

PUBLISH_TIMEOUT_S: Final = 1.0
"""The timeout for this broker to show what the controller committed, and again to serve it."""

PARTS_PER_REQUEST: Final = 250
"""Topics, partitions or resources that the controller decides about in one turn, some 15 µs each."""

CONFIG_SIZE: Final = 2
"""The size of a config in parts. An unknown name takes up to 0.2 ms, to find the nearest known name."""

MAX_PARTS: Final = 10_000
"""Topics, partitions or resources that one request changes (Kafka's limit for the partitions that one creates)."""

MAX_MESSAGE_CHARS: Final = 1000
"""Error messages quote what clients sent; a string on the wire has at most 32,767 bytes."""


async def ask(broker: LocalBroker, request: Request, expected: type[R], *, timeout_ms: int = 30_000) -> R:
    """Return the active controller's reply. Raises KafkaError when the request failed as a whole."""
    timeout = min(max(timeout_ms / 1000, MIN_TIMEOUT_S), MAX_TIMEOUT_S)
    if isinstance(request, ByClient):
        request = structs.replace(request, by=ASKED_BY.get())
    reply = await broker.submit(request, timeout=timeout)
    if isinstance(reply, ErrorReply):
        raise from_code(reply.error_code, reply.message)
    assert isinstance(reply, expected), reply
    return reply


class ask_in_parts(Generic[Part, R]):
    """Send the parts in several requests, and iterate over them with their replies.

    So neither the controller nor this broker has all parts in one turn of the loop. Each part succeeds or fails on its
    own. Parts after the timeout or beyond MAX_PARTS have an error. `size_of` returns the size of a part.

    It is not an asynchronous generator: a generator that waits when its node ends cannot be closed.
    """

    def __init__(
        self,
        broker: LocalBroker,
        parts: Sequence[Part],
        request_of: Callable[[tuple[Part, ...]], Request],
        expected: type[R],
        *,
        timeout_ms: int = 30_000,
        size_of: Callable[[Part], int] = lambda part: 1,
    ) -> None:
        self._broker = broker
        self._portions = in_slices(broker.env, _portions(parts, size_of), 1)
        self._request_of = request_of
        self._expected = expected
        self._clock = asyncio.get_running_loop().time
        self._deadline_at = self._clock() + min(max(timeout_ms / 1000, MIN_TIMEOUT_S), MAX_TIMEOUT_S)
        self._total = 0

    def __aiter__(self) -> ask_in_parts[Part, R]:
        return self

    async def __anext__(self) -> tuple[list[Part], R | KafkaError]:
        some, size = await anext(self._portions)
        self._total += size
        try:
            return some, await self._ask(tuple(some), size)
        except KafkaError as error:
            return some, error

    async def _ask(self, some: tuple[Part, ...], size: int) -> R:
        if self._total > MAX_PARTS and self._total > size:
            raise PolicyViolation(f"a request may change at most {MAX_PARTS} topics, partitions or resources")
        left_ms = int((self._deadline_at - self._clock()) * 1000)
        if left_ms <= 0:
            raise RequestTimedOut("the request timed out before these parts")
        return await ask(self._broker, self._request_of(some), self._expected, timeout_ms=left_ms)


async def change_in_parts(
    broker: LocalBroker,
    asked: ask_in_parts[Part, Changed],
    *,
    failed: Callable[[Part, KafkaError], Any],
    shown_by: Callable[[list[Part], Changed], Callable[[MetadataImage], bool]] | None,
) -> list[Any]:
    """Have the controller change some parts at a time, and return the result of each: the reply's, or `failed`.

    `shown_by` returns a condition, which holds for images that show the changes of some parts. The next parts are sent
    when it holds for this broker's image. With None the parts are only validated, not changed.
    """
    results: list[Any] = []
    async for some, reply in asked:
        if isinstance(reply, KafkaError):
            results += [failed(each, reply) for each in some]
            continue
        results += reply.results
        if shown_by is not None:
            await wait_for_image(broker, shown_by(some, reply))
    return results


def _portions(parts: Sequence[Part], size_of: Callable[[Part], int]) -> Iterator[tuple[list[Part], int]]:
    """Yield lists of parts, each of PARTS_PER_REQUEST in total or of a single part, with their total size."""
    portion: list[Part] = []
    total = 0
    for part in parts:
        size = max(1, size_of(part))
        if portion and total + size > PARTS_PER_REQUEST:
            yield portion, total
            portion, total = [], 0
        portion.append(part)
        total += size
    if portion:
        yield portion, total


async def wait_for_image(
    broker: LocalBroker, ready: Callable[[MetadataImage], bool], *, timeout_s: float = PUBLISH_TIMEOUT_S
) -> bool:
    """Wait until `ready` holds for this broker's image, so that the client's next request sees it too.

    Return False if it does not hold after `timeout_s`.
    """
    if ready(broker.image()):
        return True
    waiter = asyncio.get_running_loop().create_future()
    broker.image_waiters[waiter] = ready
    try:
        async with asyncio.timeout(timeout_s):
            await waiter
    except TimeoutError:
        return False
    finally:
        del broker.image_waiters[waiter]
    return True


@contextmanager
def noting_images(broker: LocalBroker, note: Callable[[], None]) -> Iterator[None]:
    """Call `note` with every new image of this broker, for the body of the `with`."""

    def check(image: MetadataImage) -> bool:
        note()
        return False

    waiter = asyncio.get_running_loop().create_future()
    broker.image_waiters[waiter] = check
    try:
        yield
    finally:
        del broker.image_waiters[waiter]


async def wait_for_leaders(broker: LocalBroker) -> None:
    """Wait until this broker serves the new partitions that it leads.

    Otherwise the client's next request would be refused. Other brokers make theirs at the same time. The limit is
    PUBLISH_TIMEOUT_S.
    """
    if broker.leaderships_made is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await broker.leaderships_made.wait()


def wake_image_waiters(broker: LocalBroker) -> None:
    """End the wait of the requests for which the newest image is ready. Call this when an image was published."""
    image = broker.image()
    for waiter, ready in broker.image_waiters.items():
        if not waiter.done() and ready(image):
            waiter.set_result(None)


def truncate_message(message: str | None) -> str | None:
    """Return an error message short enough for every version of the wire."""
    return None if message is None else message[:MAX_MESSAGE_CHARS]
