"""Requests and responses of many parts in slices of the event loop (`base.turns`).

Handlers do not count turns. They put a generator of parts in place of an array of their response, which `completed`
draws, or pass a function to `each_part`. Parts that wait for a commit are begun `together`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cache
from itertools import islice
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from raftlog.base.env import Env
from raftlog.base.errors import KafkaError
from raftlog.base.memory import Account
from raftlog.base.turns import TurnCounter, batches, each_part, run_steps
from raftlog.protocol.codec import encode_response_incrementally

if TYPE_CHECKING:
    from raftlog.protocol.codec import RequestHeader

__all__ = [
    "CallQueue",
    "Weighed",
    "batches",
    "completed",
    "count_parts",
    "decoded",
    "drawn",
    "each_part",
    "encoded",
    "grouped_by_topic",
    "is_incomplete",
    "partitions_by_topic",
    "run_steps",
    "together",
]


class HasTopic(Protocol):
    """A result of one partition."""

    @property
    def topic(self) -> str: ...


Part = TypeVar("Part")
Key = TypeVar("Key")
OfTopic = TypeVar("OfTopic", bound=HasTopic)

PIECES_AT_ONCE: Final = 1_000
"""Parts of a request, or records, that are decoded between two turns of the loop, some 4 µs each."""

PARTS_TOGETHER: Final = 1_000
"""Parts of a request that wait for one commit together; fewer than the machine lets wait."""

BYTES_AT_ONCE: Final = 32 * 1024
"""Bytes of a response that are encoded between two turns of the loop: a thousand of its smallest parts, a few ms."""

PIECE_BYTES: Final = 24
"""The fixed size of a part of a response in this count, in bytes, beside its content."""

CALLS_AT_ONCE: Final = 100
"""Responses that leave between two turns of the loop, each with a task that encodes and sends it."""


class CallQueue:
    """Calls that are spread over turns of the loop, such as the responses to a thousand members of a new generation."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()

    def put(self, call: Callable[[], None]) -> None:
        """Make a call soon, after earlier calls."""
        self._calls.append(call)
        if len(self._calls) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        for _ in range(min(CALLS_AT_ONCE, len(self._calls))):
            self._calls[0]()
            self._calls.popleft()
        if self._calls:
            asyncio.get_running_loop().call_soon(self._run)


class Weighed(NamedTuple):
    """A part of a response that takes as much work as `size` parts."""

    part: Any
    size: int


async def count_parts(env: Env, parts: Iterable[Key]) -> Counter[Key]:
    """Return how often each part is named."""
    times: Counter[Key] = Counter()

    def add(part: Key) -> None:
        times[part] += 1

    await each_part(env, parts, add)
    return times


async def partitions_by_topic(
    env: Env, topics: Iterable[tuple[str, Iterable[int]]]
) -> dict[str, dict[int, None]]:
    """Return the partitions that a request names, each once, by topic; both in the order of the request."""
    named: dict[str, dict[int, None]] = {}

    def add(topic: str, index: int | None) -> None:
        indexes = named.setdefault(topic, {})
        if index is not None:
            indexes[index] = None

    await each_part(
        env,
        ((name, index) for name, indexes in topics for index in (None, *indexes)),
        lambda each: add(*each),
    )
    return named


async def grouped_by_topic(env: Env, results: Iterable[OfTopic]) -> dict[str, list[OfTopic]]:
    """Return results of partitions by topic, both in their order."""
    by_topic: dict[str, list[OfTopic]] = {}
    await each_part(env, results, lambda each: by_topic.setdefault(each.topic, []).append(each))
    return by_topic


def is_incomplete(response: Any) -> bool:
    """Return whether a response is still to be completed (`completed`)."""
    return inspect.isawaitable(response) or any(
        type(getattr(response, name)) is GeneratorType for name in _arrays(response.__class__)
    )


async def completed(env: Env, response: Any) -> Any:
    """Return a response, which may be an awaitable of it, with a tuple in place of each generator.

    An array of a response may be a generator of parts, or of coroutines that return parts. Parts may have such arrays
    themselves. All are drawn here, in turns. A part that is None is left out, but counts. Raises what a generator
    raises.
    """
    if inspect.isawaitable(response):
        response = await response
    await _Drawing(env).draw(response)
    return response


async def drawn(env: Env, parts: Iterable[Any]) -> tuple[Any, ...]:
    """Return the parts that `completed` would put into an array of a response, for a handler that has to know them."""
    return await _Drawing(env).draw_parts(parts)


class _Drawing(TurnCounter):
    """The drawing of one response: it counts the parts of all its arrays."""

    __slots__ = ()

    async def draw(self, entity: Any) -> None:
        for name in _arrays(entity.__class__):
            parts = getattr(entity, name)
            if type(parts) is GeneratorType:
                object.__setattr__(entity, name, await self.draw_parts(parts))

    async def draw_parts(self, parts: Iterable[Any]) -> tuple[Any, ...]:
        found = []
        for given in parts:
            part = await given if inspect.iscoroutine(given) else given
            part, size = part if type(part) is Weighed else (part, 1)
            if part is not None:
                await self.draw(part)
                found.append(part)
            await self.count(size)
        return tuple(found)


@cache
def _arrays(kind: Hashable) -> tuple[str, ...]:
    """Return the names of an entity's array fields."""
    fields: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    return tuple(each.name for each in fields.values() if "tuple" in str(each.type))


async def decoded(env: Env, pieces: Iterator[Any]) -> Any:
    """Return what is decoded piece by piece, in turns. Raises what the generator raises.

    It runs on the loop rather than in a thread. A thread holds the interpreter for 5 ms at each system call of the
    loop. Other requests then waited four times as long, and less was decoded.
    """
    return await run_steps(env, pieces, at_once=PIECES_AT_ONCE)


async def encoded(env: Env, header: RequestHeader, message: Any, *, account: Account) -> bytearray:
    """Return the whole frame of a response, as `encode_response` does, encoded in turns and counted meanwhile.

    This bounds how long encoding keeps the loop (BYTES_AT_ONCE, and the part that goes beyond). It does not bound the
    size of a response, which is the caller's task. A part is an entity with its strings, and has no parts.
    """
    out, due, counted = bytearray(), BYTES_AT_ONCE, 0
    pieces = encode_response_incrementally(
        header.api_key, header.api_version, header.correlation_id, message, out
    )
    try:
        for number, _ in enumerate(pieces, 1):
            size = len(out) + number * PIECE_BYTES
            if size >= due:
                account.acquire(len(out) - counted)
                counted = len(out)
                await env.turns.next()
                due = size + BYTES_AT_ONCE
    finally:
        account.release(counted)
    return out


async def together(
    env: Env,
    parts: Iterable[Part],
    begin: Callable[[Part], Any],
    *,
    size_of: Callable[[Part], int] = lambda part: 0,
) -> list[tuple[Part, Any]]:
    """Return all parts, each with its outcome (a KafkaError as a value); many are begun before one ends.

    `begin` returns the outcome, or a future or coroutine of it. Coroutines of several parts run as tasks. `size_of`
    returns the size of a part.
    """
    pace, loop = TurnCounter(env), asyncio.get_running_loop()
    ended: list[tuple[Part, Any]] = []
    rest = iter(parts)
    while batch := list(islice(rest, PARTS_TOGETHER)):
        if len(batch) == 1:
            ended.append((batch[0], await _outcome(begin(batch[0]))))
            await pace.count(1 + size_of(batch[0]))
            continue
        begun: list[Any] = []
        try:
            for part in batch:
                size, work = size_of(part), begin(part)
                begun.append(loop.create_task(work) if inspect.iscoroutine(work) else work)
                await pace.count(1 + size)
            for part, work in zip(batch, begun, strict=True):
                ended.append((part, await _outcome(work)))
        finally:
            for future in filter(asyncio.isfuture, begun):
                if not future.cancel() and not future.cancelled():
                    future.exception()  # retrieved, in case no caller does
    return ended


async def _outcome(work: Any) -> Any:
    try:
        return await work if inspect.isawaitable(work) else work
    except KafkaError as error:
        return error.with_traceback(None)  # its traceback holds this frame, and so the future, which holds it
