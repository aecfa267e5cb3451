"""One module for each API. Hot ones (produce, fetch) take the connection; the others are a function of one message:

    API_KEY: int
    def handle(broker: BrokerContext, request: RequestContext, message) -> response | awaitable of one | None
    def error_response(request: RequestContext, message, error: KafkaError) -> response   # optional

`message` and response are kio's dataclasses with plain ints. A KafkaError becomes the API's own error response:
`error_response` if the module has it (it may be a coroutine), else the response's error_code field if it has one.

A request holds the event loop for a few milliseconds at a time. `broker.request_limits` says how many
parts it may have. A handler whose row there is IN_TURNS goes through the parts in turns (`broker.turns`), and answers a
part that is named twice once. A handler that answers more for a part than the part took to ask bounds the whole answer.
`tests/broker/handlers/test_large_requests.py` asks all APIs for very much.
"""

from __future__ import annotations

import importlib
import importlib.util
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

ALSO_LIKELY: Final = ((18, 3), (3, 12), (22, 4), (2, 7), (10, 2))
"""Versions other than the newest that librdkafka begins with: ApiVersions, Metadata and so on."""


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


def warm_up() -> None:
    """Import the handlers, and the messages clients are likely to send, before the first client has to wait for that.

    May run in another thread.
    """
    for key in sorted(served()):
        find_handler(key)
        _warm_codec(key, APIS[key].max_version)
    for key, version in ALSO_LIKELY:
        _warm_codec(key, version)


def _warm_codec(api_key: int, version: int) -> None:
    make = request_builders(api_key, version)
    asked = getattr(make, message_type(api_key, version, "request").__name__)()
    frame = memoryview(encode_request(RequestHeader(api_key, version, 0, None), asked))[PREFIX_BYTES:]
    decode_request(api_key, version, frame, decode_header(frame)[1])
    encode_response(api_key, version, 0, build_response(api_key, version))


def _module_name(api_key: int) -> str:
    return f"{__name__}.{APIS[api_key].name}"
