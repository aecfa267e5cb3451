"""One module for each API. Produce and Fetch take the connection. Each of the others has a function of one message:

    API_KEY: int
    def handle(broker: BrokerContext, request: RequestContext, message) -> response | awaitable of one | None
    def error_response(request: RequestContext, message, error: KafkaError) -> response   # optional

`message` and response are kio's dataclasses with plain ints. A KafkaError becomes the API's own error response. The
module's `error_response` makes it, which may be a coroutine. Without one, the error code goes into the response's
error_code field.

A request holds the event loop for a few milliseconds at a time. `broker.request_limits` says how many parts it may
have. A handler whose row there is IN_TURNS goes through the parts in turns (`broker.turns`), and answers a repeated
part once. A handler bounds its whole answer where a short question can have a long answer.
`tests/broker/handlers/test_large_requests.py` sends the largest requests to all APIs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Final

from raftlog.protocol.apis import APIS, CONTROLLER_KEYS, SERVED_KEYS
from raftlog.protocol.codec import (
    RequestHeader,
    decode_header,
    decode_request,
    encode_request,
    encode_response,
)
from raftlog.protocol.frames import PREFIX_BYTES
from raftlog.protocol.message_builders import build_response, request_builders
from raftlog.protocol.schema import message_type

FIRST_ASKED: Final = ((18, 4), (18, 3), (3, 13), (3, 12), (3, 1))
"""APIs and versions that clients begin with: ApiVersions and Metadata, of the newest, of librdkafka and of whoever
waits for a node to be ready."""

LIKELY: Final = (0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 19, 22, 24, 25, 26, 28, 68)
"""APIs of programs that produce and consume, in groups and transactions. The others are imported by their first
request: each takes a few milliseconds, and some 100 KB of memory."""

ALSO_LIKELY: Final = ((22, 4), (2, 7), (10, 2))
"""Versions other than the newest that librdkafka asks."""


@cache
def find_handler(api_key: int, *, of_controllers: bool = False) -> ModuleType | None:
    """Return the module that serves an API, imported on first use; None if raftlog does not serve it.

    `of_controllers`: on the controller's listener, which serves fewer (KIP-919).
    """
    keys = served(of_controllers=of_controllers)
    return importlib.import_module(_module_name(api_key)) if api_key in keys else None


@cache
def served(*, of_controllers: bool = False) -> frozenset[int]:
    """Keys of the APIs that have a handler: what a broker's listener, or the controller's, advertises."""
    if of_controllers:
        return served() & CONTROLLER_KEYS
    return frozenset(key for key in SERVED_KEYS if importlib.util.find_spec(_module_name(key)) is not None)


def prepare_first_requests() -> None:
    """Import what the first requests of clients need."""
    for key, version in FIRST_ASKED:
        for _ in _prepare(key, version):
            pass


def warm_up() -> Iterator[None]:
    """Import the handlers, and the messages that clients are likely to send, before the first one waits for that.

    In pieces of a few milliseconds each, so that requests may have their turns between.
    """
    importlib.import_module("raftlog.broker.audited_changes")
    yield
    newest = ((key, APIS[key].max_version) for key in LIKELY)
    for key, version in (*FIRST_ASKED, *newest, *ALSO_LIKELY):
        yield from _prepare(key, version)


def _prepare(api_key: int, version: int) -> Iterator[None]:
    """Import the handler of an API, then its request, then its response, and make their codecs."""
    find_handler(api_key)
    yield
    make = request_builders(api_key, version)
    asked = getattr(make, message_type(api_key, version, "request").__name__)()
    yield
    frame = memoryview(encode_request(RequestHeader(api_key, version, 0, None), asked))[PREFIX_BYTES:]
    decode_request(api_key, version, frame, decode_header(frame)[1])
    yield
    answer = build_response(api_key, version)
    yield
    encode_response(api_key, version, 0, answer)
    yield


def _module_name(api_key: int) -> str:
    return f"{__name__}.{APIS[api_key].name}"
