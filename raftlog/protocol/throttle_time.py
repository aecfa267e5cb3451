"""The throttle time of an encoded response (KIP-13, KIP-219).

Quotas are charged when a response is ready, so that its cost counts. Produce and Fetch have codecs of their own, with
the throttle time as a parameter.
"""

from __future__ import annotations

from functools import cache
from struct import Struct

from raftlog.protocol.apis import is_flexible
from raftlog.protocol.codec import response_head
from raftlog.protocol.schema import message_type, schema_of

_i32 = Struct(">i")


def with_throttle_time(
    frame: bytes | bytearray, api_key: int, version: int, throttle_ms: int
) -> bytes | bytearray:
    """Return a response's frame with at least this throttle time, if its version has the field."""
    place = _place(api_key, version)
    if place is None:
        return frame
    position = place if place >= 0 else len(frame) + place
    if _i32.unpack_from(frame, position)[0] >= throttle_ms:
        return frame
    changed = frame if isinstance(frame, bytearray) else bytearray(frame)
    _i32.pack_into(changed, position, throttle_ms)
    return changed


@cache
def _place(api_key: int, version: int) -> int | None:
    """Return the position of the throttle time, negative from the frame's end; or None.

    It is the first field, the last, or comes after an error code. ApiVersions has it before tagged fields.
    """
    schema = schema_of(message_type(api_key, version, "response"))
    names = [each.name for each in schema.fields]
    if "throttle_time" not in names:
        return None
    first = len(response_head(api_key, version, 0))
    if names[0] == "throttle_time":
        return first
    if names[-1] == "throttle_time":
        return None if schema.tagged else -_i32.size - (1 if is_flexible(api_key, version) else 0)
    assert names[:2] == ["error_code", "throttle_time"], f"API {api_key} version {version}"
    return first + 2
