"""What a coordinator may know of the consumer protocol's own bytes: which topics a member subscribes to.

Every other protocol type (Connect, schema registries) is opaque.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

CONSUMER: Final = "consumer"

_I16 = Struct(">h")
_I32 = Struct(">i")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription of any version; None if it is none."""
    try:
        if _I16.unpack_from(subscription)[0] < 0:
            return None
        (count,) = _I32.unpack_from(subscription, _I16.size)
        position = _I16.size + _I32.size
        topics = set()
        for _ in range(count):
            (size,) = _I16.unpack_from(subscription, position)
            position += _I16.size
            if not 0 <= size <= len(subscription) - position:
                return None
            topics.add(subscription[position : position + size].decode())
            position += size
    except (StructError, UnicodeDecodeError):
        return None
    return frozenset(topics)
