"""How handlers ask the controller, and how they wait until this broker's own image shows what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from raftlog.base.errors import from_code
from raftlog.broker.context import BrokerContext
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.requests import ErrorReply, Reply, Request

R = TypeVar("R", bound=Reply)

SHORTEST_TIMEOUT_S: Final = 1.0
LONGEST_TIMEOUT_S: Final = 30.0
"""Without a majority a client hears a retriable error after this at the latest, however long it would wait."""

PUBLISH_TIMEOUT_S: Final = 1.0
"""How long an answer waits for this broker's image to show what the controller committed."""

_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.02

MESSAGE_MAX_CHARS: Final = 1000
"""Error messages quote what clients sent; a string on the wire has at most 32,767 bytes."""


async def ask(broker: BrokerContext, request: Request, expected: type[R], *, timeout_ms: int = 30_000) -> R:
    """Return the active controller's reply. Raises KafkaError when the request failed as a whole."""
    timeout = min(max(timeout_ms / 1000, SHORTEST_TIMEOUT_S), LONGEST_TIMEOUT_S)
    reply = await broker.submit(request, timeout=timeout)
    if isinstance(reply, ErrorReply):
        raise from_code(reply.error_code, reply.message)
    assert isinstance(reply, expected), reply
    return reply


async def published(
    broker: BrokerContext, ready: Callable[[MetadataImage], bool], *, timeout_s: float = PUBLISH_TIMEOUT_S
) -> bool:
    """Wait until `ready` holds for this broker's image, so that who asked next sees it; False if time ran out."""
    clock = asyncio.get_running_loop().time
    deadline_at = clock() + timeout_s
    pause = _FIRST_LOOK_S
    while not ready(broker.image()):
        if clock() >= deadline_at:
            return False
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK_S)
    return True


def shown(message: str | None) -> str | None:
    """Return an error message short enough for every version of the wire."""
    return None if message is None else message[:MESSAGE_MAX_CHARS]
