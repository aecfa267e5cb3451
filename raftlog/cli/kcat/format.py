"""Records as text, as kcat prints them: format strings, the JSON envelope, unpacked binary. Knows no client library.

This follows kcat's documentation where its code differs: `<` unpacks little-endian, and text is not cut at a zero
byte.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raftlog.cli.exits import USAGE, Failure
from raftlog.records.batch import name_bytes

Print = Callable[["Record"], bytes]
NULL: Final = b"NULL"
REGISTRY: Final = "registry"
BY_GUID_ALONE: Final = 0
"""The id of a schema that is known by its guid only."""

_NUMBERS: Final = frozenset("bBhHiIqQ")
_PACK: Final = frozenset(" <>cs$") | _NUMBERS
_DELIMITER_ESCAPE: Final = re.compile(rb"\\(n|r|t|x[0-9a-fA-F]{1,2})")
_FORMAT_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-9]{1,3}|.)", re.DOTALL)
_NAMED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_JSON_SPECIAL: Final = re.compile(rb'[\x00-\x1f"\\]')
_JSON_SHORT: Final = {
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
}
_TIME_KINDS: Final = ("", "create", "logappend")


class Record(NamedTuple):
    """A record that a consumer got. `time_kind`: 0 none, 1 create time, 2 log append time; `broker` led the
    partition.
    """

    topic: bytes
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    time_kind: int
    timestamp_ms: int
    broker: int
    delivery_count: int = 0
    """How often a share group has delivered it, this time included; 0 outside of share groups."""
    key_schema_id: int | None = None
    """The schema by which the key was decoded, so that it is JSON; None: it is bytes."""
    value_schema_id: int | None = None


def read_delimiter(text: str) -> bytes:
    r"""Return a delimiter as given on a command line, with \n, \r, \t and \xNN."""
    return _DELIMITER_ESCAPE.sub(_unescape, text.encode("utf-8", "surrogateescape"))


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code.isdigit():
        try:
            return bytes([int(code, 8 if code[:1] == b"0" else 10) & 0xFF])
        except ValueError:
            return code
    return _NAMED.get(code, code)


def read_unpack(given: Sequence[str]) -> tuple[str | None, str | None]:
    """Return how to unpack (key, value) from kcat's -s options: a pack-format, or REGISTRY. Raises Failure."""
    key = value = None
    for each in given:
        field, equals, letters = each.partition("=")
        if not equals or field not in ("key", "value"):
            field, letters = "", each
        if letters in (REGISTRY, "avro"):  # which is kcat's word
            key = REGISTRY if field in ("", "key") else key
            value = REGISTRY if field in ("", "value") else value
            continue
        wrong = [letter for letter in letters if letter not in _PACK]
        if wrong or not letters:
            what = f"knows no {wrong[0]!r}" if wrong else "is empty"
            raise Failure(
                f"-s {each}: the pack-format {what}; there are < > b B h H i I q Q c s $, and registry", USAGE
            )
        key = letters if field in ("", "key") else key
        value = letters if field in ("", "value") else value
    return key, value


def unpack(letters: str, content: bytes, what: str) -> bytes:
    """Return binary content as text. Raises Failure when it is not what the pack-format says."""
    out, at, order = [], 0, ">"
    for letter in letters:
        rest = len(content) - at
        if letter in "<>":
            order = letter
        elif letter == " ":
            out.append(b" ")
        elif letter == "s":
            out.append(content[at:])
            at = len(content)
        elif letter == "$":
            if rest:
                raise Failure(f"expected {what} end-of-input, but {rest} bytes remaining")
        else:
            size = struct.calcsize(f"{order}{letter}")
            if size > rest:
                raise Failure(
                    f"{what} truncated, expected {size} bytes to unpack {letter} but only {rest} bytes remaining"
                )
            (found,) = struct.unpack_from(f"{order}{letter}", content, at)
            out.append(found if letter == "c" else b"%d" % found)
            at += size
    return b"".join(out)


def formatter(format: str, *, nulls: bool, unpacked: tuple[str | None, str | None] = (None, None)) -> Print:
    """Return what prints a record by a format string (-f). `nulls`: what is empty or null is the word NULL (-Z)."""
    parts: list[Print] = []
    text = format.encode("utf-8", "surrogateescape")
    letters = _tokens(nulls, unpacked)
    while text:
        literal, percent, text = text.partition(b"%")
        if literal:
            parts.append(_constant(_FORMAT_ESCAPE.sub(_unescape, literal)))
        if not percent:
            break
        letter, text = text[:1], text[1:]
        if letter == b"%":
            parts.append(_constant(b"%"))
        elif letter in letters:
            parts.append(letters[letter])
        else:
            name = letter.decode("utf-8", "replace")
            raise Failure(f"-f: there is no %{name}; there are %s %S %R %k %K %T %h %t %p %o %d %%", USAGE)
    return lambda record: b"".join([part(record) for part in parts])


def _constant(text: bytes) -> Print:
    return lambda _record: text


def _tokens(nulls: bool, unpacked: tuple[str | None, str | None]) -> dict[bytes, Print]:
    empty = NULL if nulls else b""
    key_tokens, value_tokens = unpacked

    def field(content: bytes | None, letters: str | None, what: str) -> bytes:
        if not content:
            return empty
        return content if letters in (None, REGISTRY) else unpack(letters, content, what)

    return {
        b"k": lambda record: field(record.key, key_tokens, "key"),
        b"s": lambda record: field(record.value, value_tokens, "value"),
        b"K": lambda record: b"%d" % _length(record.key),
        b"S": lambda record: b"%d" % _length(record.value),
        b"R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
        b"t": lambda record: record.topic,
        b"p": lambda record: b"%d" % record.partition,
        b"o": lambda record: b"%d" % record.offset,
        b"T": lambda record: b"%d" % record.timestamp_ms,
        b"d": lambda record: b"%d" % record.delivery_count,
        b"h": lambda record: b",".join(
            name_bytes(name) + b"=" + (NULL if value is None else value) for name, value in record.headers
        ),
    }


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def envelope(delimiter: bytes) -> Print:
    """Return what prints a record as kcat's JSON (-J). Bytes that are no UTF-8 stay as they are."""

    def print_record(record: Record) -> bytes:
        times = b""
        if record.time_kind:
            kind = _TIME_KINDS[record.time_kind].encode()
            times = b',"tstype":"%s","ts":%d' % (kind, record.timestamp_ms)
        headers = b""
        if record.headers:
            flat = (each for name, value in record.headers for each in (name_bytes(name), value))
            headers = b',"headers":[%s]' % b",".join(map(_json_string, flat))
        count = b',"delivery_count":%d' % record.delivery_count if record.delivery_count else b""
        ids = b"".join(
            b',"%s_schema_id":%d' % (name, schema_id)
            for name, schema_id in ((b"key", record.key_schema_id), (b"value", record.value_schema_id))
            if schema_id
        )
        return b'{"topic":%s,"partition":%d,"offset":%d%s,"broker":%d%s%s%s,"key":%s,"payload":%s}%s' % (
            _json_string(record.topic),
            record.partition,
            record.offset,
            times,
            record.broker,
            count,
            headers,
            ids,
            _json_string(record.key) if record.key_schema_id is None else record.key,
            _json_string(record.value) if record.value_schema_id is None else record.value,
            delimiter,
        )

    return print_record


def _json_string(content: bytes | None) -> bytes:
    return b"null" if content is None else b'"%s"' % _JSON_SPECIAL.sub(_escape, content)


def _escape(match: re.Match[bytes]) -> bytes:
    return _JSON_SHORT.get(match[0]) or b"\\u00%02X" % match[0][0]
