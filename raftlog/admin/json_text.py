"""Decodes JSON into a type, by the same rules for bodies and for records of a stream.

JSON Schema calls 2.0 an integer, and so does this: a number with a zero fraction is accepted as an integer. There are
no other conversions: no number from a string, no boolean from a number. A `msgspec.Raw` value is not parsed, so that
its digits stay as they came.

A text with such numbers is scanned in Python, in turns of the loop. The parser has accepted it as JSON before, so each
string in it has an end. In a text of many quotes without an end, each search would scan the whole rest.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from raftlog.admin.errors import ApiError
from raftlog.base.turns import HasTurns, run_steps

_UP_TO_FLOAT: Final = re.compile(
    rb"""(?:[^-"0-9]++|"(?:[^"\\]++|\\.)*+"|(?!-?[0-9]++[.eE])-?[0-9]++){0,1000}(-?[0-9]++[.eE][0-9.eE+-]*+)?""",
    re.DOTALL,
)
"""Up to 1,000 other tokens, then an optional number with a fraction or an exponent."""
FLOATS_AT_ONCE: Final = 1_000
TOKENS_AT_ONCE: Final = 20
"""Times 1,000."""
MAX_DIGITS: Final = 19
"""An integer of 64 bits has no more; longer numbers are left alone, and refused by their type."""


async def read_json(text: bytes, kind: Any, *, what: str, of: HasTurns) -> Any:
    """Decode a JSON text as `kind`, in slices. A turn of the request's may raise.

    Raise ApiError: 422 for another shape, 400 if it is not JSON.
    """
    try:
        text.decode()  # what is kept as it came is not looked at by the parser
        return await run_steps(of, _decoding(text, kind))
    except msgspec.ValidationError as error:
        raise ApiError(422, f"{what}: {error}") from None
    except UnicodeDecodeError:
        raise ApiError(400, f"the {what} is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"the {what} is not JSON: {error}") from None


def _decoding(text: bytes, kind: Any) -> Generator[None, None, Any]:
    """Return what `read_json` returns; yield between slices of work."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    yield
    msgspec.json.decode(text, type=msgspec.Raw)  # the parser above stopped at the number
    # With whole numbers written as such it must be valid; only then is the lenient parser safe.
    whole = yield from _without_fractions(text)
    yield
    msgspec.json.decode(whole, type=kind)
    yield
    return msgspec.json.decode(text, type=kind, strict=False)


def _without_fractions(text: bytes) -> Generator[None, None, bytes]:
    """Return a JSON text with each number with a zero fraction written as an integer; yield between slices."""
    found, copied, in_turn = bytearray(), 0, 0
    for part in _UP_TO_FLOAT.finditer(text):
        is_float = part[1] is not None
        if is_float:
            found += text[copied : part.start(1)]
            found += _without_fraction(part[1])
            copied = part.end()
        in_turn += 1 if is_float else FLOATS_AT_ONCE // TOKENS_AT_ONCE
        if in_turn >= FLOATS_AT_ONCE:
            in_turn = 0
            yield
    return bytes(found + text[copied:])


def _without_fraction(text: bytes) -> bytes:
    try:
        number = Decimal(text.decode())
    except InvalidOperation:  # its exponent is beyond what any number has
        return text
    if number.adjusted() >= MAX_DIGITS or number != number.to_integral_value():
        return text
    return str(int(number)).encode()
