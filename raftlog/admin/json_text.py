"""From JSON to a type: the one place that says what is accepted, for bodies and for records of a stream alike.

JSON Schema calls 2.0 an integer, and so does this: where a type wants one, a number whose fraction is zero will do.
Nothing else is bent: no number from a string, no truth from a number. A value that a type keeps as `msgspec.Raw` is
not read at all, so that its digits stay as they came.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from raftlog.admin.errors import ApiError

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')
MOST_DIGITS: Final = 19
"""An integer of 64 bits has no more; what is longer is left alone, and refused by its type."""


def read_json(text: bytes, kind: Any, *, what: str) -> Any:
    """Return what a JSON text says, as `kind`. Raises ApiError: 422 for another shape, 400 for what is no JSON."""
    try:
        text.decode()  # what is kept as it came is not looked at by the parser
        return _read(text, kind)
    except msgspec.ValidationError as error:
        raise ApiError(422, f"{what}: {error}") from None
    except UnicodeDecodeError:
        raise ApiError(400, f"the {what} is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"the {what} is not JSON: {error}") from None


def _read(text: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    # With whole numbers written as such it must be right; only then the lenient parser has nothing else to bend.
    msgspec.json.decode(_TOKEN.sub(_without_fraction, text), type=kind)
    return msgspec.json.decode(text, type=kind, strict=False)


def _without_fraction(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if text.startswith(b'"') or not any(mark in text for mark in b".eE"):
        return text
    try:
        number = Decimal(text.decode())
    except InvalidOperation:  # its exponent is beyond what any number has
        return text
    if number.adjusted() >= MOST_DIGITS or number != number.to_integral_value():
        return text
    return str(int(number)).encode()
