"""The name in a certificate, written as Java writes it (RFC 2253): Kafka's mapping rules and ACLs use that text.

The latest part comes first, with commas and no blanks: `CN=alice,OU=here,O=there`. Nine kinds of parts have short
names; any other is its number and the value's bytes, as `1.2.840.113549.1.9.1=#1609...`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

_TEXTS: Final = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    27: "ascii",
    28: "utf-32-be",
    30: "utf-16-be",
}
"""The encodings of ASN.1's texts, by tag."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"
_VERSION_TAG: Final = 0xA0
_LONG: Final = 0x80


class UnreadableName(ValueError):
    """Bytes that are not a certificate."""


class _Element(NamedTuple):
    """One element of DER: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject's name of a certificate in DER. Raise UnreadableName."""
    try:
        (outer,) = _elements(certificate)
        fields = list(_elements(next(_elements(outer.content)).content))
        if fields[0].tag == _VERSION_TAG:
            del fields[0]
        _, _, _, _, subject, *_ = fields  # behind serial number, algorithm, issuer and time
        parts = [_part(each.content) for each in _elements(subject.content)]
    except (ValueError, IndexError, StopIteration) as error:
        raise UnreadableName(f"not a certificate: {error}") from error
    return ",".join(reversed(parts))


def _elements(encoded: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(encoded):
        size, start = encoded[position + 1], position + 2
        if size & _LONG:
            count = size & ~_LONG
            size, start = int.from_bytes(encoded[start : start + count], "big"), start + count
        end = start + size
        if end > len(encoded):
            raise ValueError("it is truncated")
        yield _Element(encoded[position], encoded[start:end], encoded[position:end])
        position = end


def _part(encoded: bytes) -> str:
    """Return one part of a name, which may hold several values that belong together."""
    return "+".join(_value(*_elements(each.content)) for each in _elements(encoded))


def _value(kind: _Element, value: _Element) -> str:
    number = _number(kind.content)
    short = _SHORT.get(number)
    if short is None or value.tag not in _TEXTS:
        return f"{short or number}=#{value.whole.hex()}"
    return f"{short}={_escaped(value.content.decode(_TEXTS[value.tag]))}"


def _escaped(text: str) -> str:
    head = len(text) - len(text.lstrip(_BLANKS))
    tail = len(text.rstrip(_BLANKS))
    found = []
    for position, each in enumerate(text):
        if each == "\0":
            found.append("\\00")
        elif each in _ESCAPED or not head <= position < tail:
            found.append(f"\\{each}")
        else:
            found.append(each)
    return "".join(found)


def _number(encoded: bytes) -> str:
    """Return an object identifier with dots."""
    numbers, number = [], 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & _LONG:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
