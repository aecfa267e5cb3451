"""The largest requests of each API, written by the fuzzer's grammar. No part is drawn by chance.

One array of a request has as many elements as a limit allows, the other arrays have one element. Further requests have
the longest strings and bytes, and name no resource, which requests all of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, TypeVar
from uuid import UUID

from raftlog.broker.dispatch import REQUEST_MAX_BYTES
from raftlog.broker.handlers import find_api
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import decode_header
from raftlog.protocol.reader import (
    BASE_OBJECT_BYTES,
    MAX_OBJECT_BYTES,
    OBJECT_BYTES_PER_RECEIVED_BYTE,
    Cursor,
    entity_reader,
)
from raftlog.protocol.schema import message_type
from raftlog.records.batch import build_batch, new_record
from raftlog_chaos.fuzz.draw import NUMBERS, WORDS, Draw, KnownValues
from raftlog_chaos.fuzz.grammar import draw_request

_T = TypeVar("_T")

FRAME_BYTES: Final = REQUEST_MAX_BYTES - (1 << 20)
LONGEST_STRING: Final = 32_767
MAX_BYTES: Final = 1 << 20
"""The length of a bytes field."""
HOT: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""Their decoders count no bytes of objects."""
HELD: Final = "what the node holds"

Names = Literal["known", "new", "same"]
"""Whether strings name what exists, are each another that does not exist, or are all the same."""
ALL_NAMES: Final[tuple[Names, ...]] = ("known", "new", "same")

NOW_MS: Final = int(time.time() * 1000)
"""Records of later times are refused, and records of earlier times are deleted by and by."""
SMALL_BATCH: Final = build_batch([new_record(b"k", b"v", timestamp=NOW_MS)])

LIKELY: Final[Mapping[str, int]] = {
    "validate_only": 1,  # what is created for real is bounded by the cluster's limits, not by one request
    "timeout": 100,
    "timeout_ms": 100,
    "max_wait": 0,
    "replica_id": -1,
    "acks": 1,
    "producer_id": -1,
    "producer_epoch": -1,
    "session_id": 0,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "max_bytes": 50 << 20,
    "partition_max_bytes": 1 << 20,
    "retention_time": -1,
    "resource_type_filter": 1,  # any
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "duration_filter": -1,
    "strict": 0,
}
"""Values of integer fields, by name."""

INDEXES: Final = ("partition", "index", "partition_index", "partitions", "partition_indexes")
TOPIC_FIELDS: Final = ("name", "resource_name")


class Known(NamedTuple):
    """Names of what the node has, for requests about it."""

    topics: Sequence[str] = ("topic",)
    topic_ids: Sequence[UUID] = (UUID(int=1),)
    words: Mapping[str, Sequence[str]] = {}
    """Groups, transactional ids and users, by the name of the field."""


class Largest(NamedTuple):
    """One request. `limit` names what bounds it; `make` returns its frame."""

    what: str
    limit: str
    make: Callable[[], bytes]
    is_refused: bool = False
    """Whether a broker may end the connection: a string may be longer than the field allows."""


class LargestDraw(Draw):
    """Draws the array of a number with `length` elements, all others with one element."""

    __slots__ = ("_counted", "_known", "_large", "_names", "arrays", "length", "longest")

    def __init__(self, known: Known, *, large: int = -1, length: int = 1, names: Names = "known") -> None:
        super().__init__(random.Random(0), KnownValues())
        self.random = lambda: 0.5  # no field is null
        self.batch = SMALL_BATCH
        self.arrays = 0
        """Arrays that were drawn so far, arrays of elements too."""
        self.length = length
        self.longest = False
        """Whether all strings and bytes are as long as they may be."""
        self._known = known
        self._large = large
        self._names = names
        self._counted = 0

    def count(self) -> int:
        """Return the length of the next array."""
        number = self.arrays
        self.arrays += 1
        found = self.length if number == self._large or self.length == 0 else 1
        self.size += found
        return found

    def integer(self, name: str, code: str) -> int:
        """Return the same value for each field of a name; partitions are counted."""
        if name in INDEXES:
            self._counted += 1
            return 0 if self._names == "same" else self._counted % 1_000
        return LIKELY.get(name, NUMBERS.get(name, (0,))[0])

    def text(self, name: str) -> str:
        """Return a string for a field."""
        if self.longest:
            return "x" * LONGEST_STRING
        self._counted += 1
        if self._names == "new":
            return f"new-name-of-fifty-letters-which-nothing-has-{self._counted:06}"
        is_topic = "topic" in name or name in TOPIC_FIELDS
        words = self._known.topics if is_topic else self._known.words.get(name) or WORDS.get(name, ("x",))
        return self._one_of(words)

    def uuid(self) -> bytes:
        """Return a topic's id."""
        self._counted += 1
        return (
            UUID(int=self._counted) if self._names == "new" else self._one_of(self._known.topic_ids)
        ).bytes

    def data(self) -> bytes:
        """Return what a field of bytes has."""
        return bytes(MAX_BYTES if self.longest else 20)

    def _one_of(self, among: Sequence[_T]) -> _T:
        return among[0 if self._names == "same" else self._counted % len(among)]


def largest_requests(
    api_key: int, version: int, known: Known, *, choices: Sequence[Names] = ALL_NAMES, share: float = 1.0
) -> Iterator[Largest]:
    """Yield the largest requests of an API: each of its arrays in turn, with each choice of strings.

    `share`: arrays have so much of what the limits allow.
    """
    for large in range(arrays_of(api_key, version)):
        for names in choices:
            few, more = (
                _sized(api_key, version, LargestDraw(known, large=large, length=length, names=names))
                for length in (2, 3)
            )
            limit, most = _most(api_key, few, more)
            length = max(1, int(most * share))
            make = partial(
                _frame, api_key, version, LargestDraw(known, large=large, length=length, names=names)
            )
            yield Largest(f"array {large} of {length} {names} names", limit, make)
    longest = LargestDraw(known)
    longest.longest = True
    limit = f"strings of {LONGEST_STRING} bytes"
    yield Largest("longest strings", limit, partial(_frame, api_key, version, longest), is_refused=True)
    everything = LargestDraw(known, length=0)
    everything.random = lambda: 0.0  # all is null that may be, which asks for everything
    yield Largest("nothing named", HELD, partial(_frame, api_key, version, everything))


def arrays_of(api_key: int, version: int) -> int:
    """Return how many arrays of a request, and of their elements, have elements that count."""
    draw = LargestDraw(Known())
    _frame(api_key, version, draw)
    return draw.arrays


def _frame(api_key: int, version: int, draw: LargestDraw) -> bytes:
    return bytes(draw_request(draw, api_key, version, 1))


class _Sized(NamedTuple):
    frame: bytes
    parts: int
    objects: int
    """Bytes of objects that the decoder counts."""


def _sized(api_key: int, version: int, draw: LargestDraw) -> _Sized:
    frame = _frame(api_key, version, draw)
    return _Sized(
        frame, draw.size, 0 if draw.length > 3 or api_key in HOT else _object_bytes(api_key, version, frame)
    )


def _object_bytes(api_key: int, version: int, frame: bytes) -> int:
    buffer = memoryview(frame)[4:]
    cursor = Cursor(buffer, decode_header(buffer)[1])
    before = cursor.budget_bytes
    entity_reader(message_type(api_key, version, "request"))(cursor)
    return before - cursor.budget_bytes


def _most(api_key: int, few: _Sized, more: _Sized) -> tuple[str, int]:
    """Return which limit an array reaches first, and with how many elements; `few` has two, `more` three."""
    bytes_each, objects_each = len(more.frame) - len(few.frame), more.objects - few.objects
    gained = max(1, objects_each - OBJECT_BYTES_PER_RECEIVED_BYTE * bytes_each)
    api = find_api(api_key)
    assert api is not None
    limits = (
        (f"parts {api.max_parts}", (api.max_parts - few.parts) // (more.parts - few.parts)),
        (f"bytes {REQUEST_MAX_BYTES}", (FRAME_BYTES - len(few.frame)) // max(1, bytes_each)),
        (f"bytes of objects {MAX_OBJECT_BYTES}", MAX_OBJECT_BYTES // max(1, objects_each) - 4),
        (
            f"bytes of objects {OBJECT_BYTES_PER_RECEIVED_BYTE} a byte",
            (BASE_OBJECT_BYTES - few.objects) // gained,
        ),
    )
    limit, length = min(limits, key=lambda each: each[1])
    return limit, max(1, length)
