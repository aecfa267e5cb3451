"""Request frames → header and message; response message → frame. Every API, every version; ints in, ints out.

The two hot APIs have codecs of their own in `produce` and `fetch`. Frames come in without their length prefix
and go out with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from raftlog.base.errors import InvalidRequest, UnsupportedVersion
from raftlog.protocol.apis import API_VERSIONS, APIS, FLEXIBLE_FROM, NEVER_FLEXIBLE, is_flexible
from raftlog.protocol.message_builders import build_response
from raftlog.protocol.reader import (
    NO_LIMIT,
    Cursor,
    IncrementalRead,
    read_message,
    read_message_incrementally,
    read_tag_count,
)
from raftlog.protocol.schema import KioType, message_type
from raftlog.protocol.writer import PreEncoded, entity_writer, incremental_entity_writer, write_varint

_new = tuple.__new__
_HEADER = Struct(">hhih")
_CORRELATION = Struct(">ii")
_LENGTH = Struct(">i")
_SMALLEST_HEADER_BYTES: Final = _HEADER.size


class RequestHeader(NamedTuple):
    """The header of a request, versions 1 and 2 (KIP-482)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Return a request's header and where its body starts. Raise InvalidRequest when the header is cut off.

    An unknown API is assumed to have header version 1, which all versions start with.
    """
    try:
        api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
        position = _SMALLEST_HEADER_BYTES
        client_id = None
        if size >= 0:
            position += size
            if position > len(frame):
                raise InvalidRequest("the client id is cut off")
            client_id = str(frame[_SMALLEST_HEADER_BYTES:position], "utf-8")
        if version >= FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE):
            position = skip_tagged(frame, position) if frame[position] else position + 1
    except (struct_error, IndexError):
        raise InvalidRequest("the request header is cut off") from None
    except UnicodeDecodeError:
        raise InvalidRequest("the client id is not UTF-8") from None
    return _new(RequestHeader, (api_key, version, correlation_id, client_id)), position


def skip_tagged(frame: memoryview, position: int) -> int:
    """Return the position behind the tagged fields at `position`."""
    if position < len(frame) and not frame[position]:
        return position + 1
    cursor = Cursor(frame, position)
    for _ in range(read_tag_count(cursor)):
        cursor.varint()
        cursor.take(cursor.varint())
    return cursor.position


def request_type(api_key: int, version: int) -> KioType:
    """Return kio's class of a request. Raise UnsupportedVersion if there is none."""
    _require(api_key, version)
    return message_type(api_key, version, "request")


def response_type(api_key: int, version: int) -> KioType:
    """Return kio's class of a response. Raise UnsupportedVersion if there is none."""
    _require(api_key, version)
    return message_type(api_key, version, "response")


def _require(api_key: int, version: int) -> None:
    api = APIS.get(api_key)
    if api is None:
        raise UnsupportedVersion(f"API key {api_key} is unknown")
    if not api.handles(version):
        raise UnsupportedVersion(
            f"{api.name} version {version} is not in {api.min_version}..{api.max_version}"
        )


def decode_request(
    api_key: int, version: int, buffer: memoryview, position: int, *, parts_max: int = NO_LIMIT
) -> Any:
    """Decode the body that starts at `position`; bytes behind it are ignored.

    Durations are ints of milliseconds. Raise InvalidRequest for malformed bytes, TooManyElements for more than
    `parts_max` elements of arrays, UnsupportedVersion for a version without schema.
    """
    return read_message(request_type(api_key, version), buffer, position, parts_max=parts_max)


def decode_request_incrementally(
    api_key: int, version: int, buffer: memoryview, position: int, *, parts_max: int = NO_LIMIT
) -> IncrementalRead:
    """Decode as `decode_request` does, piece by piece."""
    return read_message_incrementally(request_type(api_key, version), buffer, position, parts_max=parts_max)


def decode_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """Return the correlation id and message of a response frame (without its length prefix)."""
    entity, position = _response_body(api_key, version, frame)
    return _LENGTH.unpack_from(frame)[0], read_message(entity, frame, position, is_asked_for=True)


def decode_response_incrementally(api_key: int, version: int, frame: memoryview) -> IncrementalRead:
    """Decode the message of a response frame as `decode_response` does, piece by piece."""
    entity, position = _response_body(api_key, version, frame)
    return read_message_incrementally(entity, frame, position, is_asked_for=True)


def _response_body(api_key: int, version: int, frame: memoryview) -> tuple[KioType, int]:
    position = _LENGTH.size
    if is_flexible(api_key, version) and api_key != API_VERSIONS:
        position = skip_tagged(frame, position)
    return response_type(api_key, version), position


def encode_response(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """Return the whole frame of a response, its length in front. `message` may be Encoded."""
    out = response_head(api_key, version, correlation_id)
    entity_writer(response_type(api_key, version))(out, message)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


def encode_response_incrementally(
    api_key: int, version: int, correlation_id: int, message: Any, out: bytearray
) -> Iterator[None]:
    """Append to `out`, which is empty, what `encode_response` returns; stop at each piece
    (`incremental_entity_writer`).
    """
    out += response_head(api_key, version, correlation_id)
    yield from incremental_entity_writer(response_type(api_key, version))(out, message)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)


def response_head(api_key: int, version: int, correlation_id: int) -> bytearray:
    """Return a length placeholder and the response header.

    ApiVersions keeps header version 0, since the client may not know ours (KIP-511).
    """
    out = bytearray(_CORRELATION.pack(0, correlation_id))
    if version >= FLEXIBLE_FROM[api_key] and api_key != API_VERSIONS:
        out.append(0)
    return out


def encode_entity(entity: Any) -> PreEncoded:
    """Return a message or a part of a message as bytes, to be sent many times."""
    kind: KioType = type(entity)
    out = bytearray()
    entity_writer(kind)(out, entity)
    return PreEncoded(out)


def encode_request(header: RequestHeader, message: Any) -> bytes:
    """Return the whole frame of a request, its length in front."""
    client_id = None if header.client_id is None else header.client_id.encode()
    out = bytearray(_LENGTH.size)
    out += _HEADER.pack(*header[:3], -1 if client_id is None else len(client_id))
    out += client_id or b""
    if is_flexible(header.api_key, header.api_version):
        write_varint(out, 0)
    entity_writer(request_type(header.api_key, header.api_version))(out, message)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


def error_response(api_key: int, version: int, error_code: int, message: str | None = None) -> Any | None:
    """Return a response with only an error of the whole request, or None if the API has no place for it.

    A version without schema is answered in the nearest version that has a schema.
    """
    api = APIS[api_key]
    version = min(max(version, api.min_version), api.max_version)
    names = {each.name for each in _fields(response_type(api_key, version))}
    if "error_code" not in names:
        return None
    fields: dict[str, Any] = {"error_code": error_code}
    if "error_message" in names:
        fields["error_message"] = message
    return build_response(api_key, version, **fields)


def _fields(entity: KioType) -> Any:
    return entity.__dataclass_fields__.values()
