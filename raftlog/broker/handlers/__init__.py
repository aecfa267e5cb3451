"""One module for each API. Hot ones (produce, fetch) take the connection; the others are a function of one message:

    API_KEY: int
    def handle(broker: BrokerContext, request: RequestContext, message) -> response | awaitable of one | None
    def error_response(request: RequestContext, message, error: KafkaError) -> response   # optional

`message` and response are kio's dataclasses with plain ints. A KafkaError becomes the API's own error response:
`error_response` if the module has it, else the response's error_code field if it has one.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from types import ModuleType

from raftlog.protocol.apis import APIS, BUILT


@cache
def find_handler(api_key: int) -> ModuleType | None:
    """Return the module that serves an API, imported on first use; None if raftlog does not serve it."""
    return importlib.import_module(_module_name(api_key)) if api_key in served() else None


@cache
def served() -> frozenset[int]:
    """Keys of the APIs that have a handler: what is advertised."""
    return frozenset(key for key in BUILT if importlib.util.find_spec(_module_name(key)) is not None)


def _module_name(api_key: int) -> str:
    return f"{__name__}.{APIS[api_key].name}"
