"""One module for each API, with its row (`broker.api`) at the end, after the functions that the row names:

    def handle(broker: BrokerContext, request: RequestContext, message) -> response | awaitable | None
    def error_response(request: RequestContext, message, error: KafkaError) -> response   # if the row names it

Message and response are kio's dataclasses with plain ints. A KafkaError becomes the API's own error response, which
the row's `error_response` makes. Without one, the error code goes into the response's error_code field. Produce and
Fetch take the connection instead.

A request holds the event loop for a few milliseconds at a time. `Api.max_parts` says how many parts it may have.
A handler puts a generator of parts in place of an array of its response, and passes the parts of its request to
`each_part` (`broker.long_work.turns`). It answers a repeated part once, and bounds its whole response where a short
request can have a long one.
`tests/broker/handlers/test_large_requests.py` sends the largest requests to all APIs.

A module is imported when its row is first asked for, or by `warm_up`, since some need milliseconds.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Final

from raftlog.broker.api import Api
from raftlog.protocol.apis import APIS, ApiKey
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

FIRST_ASKED: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA)
"""The APIs that a client begins with."""

OF_CONTROLLERS: Final = frozenset({ApiKey.UPDATE_RAFT_VOTER})
"""The APIs that only controllers serve."""


HELD_BACK: Final = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""APIs that are not advertised: of share coordinators (KIP-932), which brokers use among themselves."""


def find_api(api_key: int, *, of_controllers: bool = False) -> Api | None:
    """Return the row of an API, or None if raftlog does not serve it.

    `of_controllers`: on the controller's listener, which serves fewer (KIP-919).
    """
    unlisted = api_key in HELD_BACK or (of_controllers and api_key in OF_CONTROLLERS)
    if not unlisted and api_key not in served():
        return None
    api: Api = _module(api_key).API
    return api if api.controllers or not of_controllers else None


@cache
def served(*, of_controllers: bool = False) -> frozenset[int]:
    """Return the keys of the APIs that a broker's listener, or the controller's, advertises.

    The first question about the controller's listener imports all rows.
    """
    if of_controllers:
        keys = served() | OF_CONTROLLERS
        return frozenset(key for key in keys if find_api(key, of_controllers=True) is not None)
    built = (key for key in APIS if importlib.util.find_spec(_module_name(key)) is not None)
    return frozenset(built) - OF_CONTROLLERS - HELD_BACK


def prepare_first_requests() -> None:
    """Import what the first requests of clients need."""
    for key in FIRST_ASKED:
        for _ in _prepare(key):
            pass


def warm_up() -> Iterator[None]:
    """Import all rows, and the messages that clients are likely to send, before a request has to wait for that.

    In steps of a few milliseconds each, so that requests may have their turns between.
    """
    importlib.import_module("raftlog.broker.audited_changes")
    yield
    for key in (*FIRST_ASKED, *sorted(served())):
        yield from _prepare(key)


def _prepare(api_key: int) -> Iterator[None]:
    """Import the row of an API, then the requests and responses that it has prepared, and make their codecs."""
    api = find_api(api_key)
    assert api is not None
    yield
    for version in api.prepared:
        yield from _prepare_messages(api_key, version)


def _prepare_messages(api_key: int, version: int) -> Iterator[None]:
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


@cache
def _module(api_key: int) -> ModuleType:
    return importlib.import_module(_module_name(api_key))


def _module_name(api_key: int) -> str:
    return f"{__name__}.{APIS[api_key].name}"
