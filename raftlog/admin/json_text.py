"""From JSON to a type: the one place that says what is accepted, for bodies and for records of a stream alike.

JSON Schema calls 2.0 an integer, and so does this: where a type wants one, a number whose fraction is zero will do.
Nothing else is bent: no number from a string, no truth from a number. A value that a type keeps as `msgspec.Raw` is
not read at all, so that its digits stay as they came.

A text with such numbers is gone through in Python, in turns of the loop. The parser has found it to be JSON before, so
each string in it has an end. In a text of many quotes without an end, each search would look at all that follows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from raftlog.admin.errors import ApiError

_UP_TO_FLOAT: Final = re.compile(
    rb"""(?:[^-"0-9]++|"(?:[^"\\]++|\\.)*+"|(?!-?[0-9]++[.eE])-?[0-9]++){0,1000}(-?[0-9]++[.eE][0-9.eE+-]*+)?""",
    re.DOTALL,
)
"""Up to 1,000 other tokens, and then a number with a fraction or an exponent, if there is one."""
FLOATS_AT_ONCE: Final = 1_000
TOKENS_AT_ONCE: Final = 20
"""Times 1,000."""
MOST_DIGITS: Final = 19
"""An integer of 64 bits has no more; what is longer is left alone, and refused by its type."""


async def read_json(text: bytes, kind: Any, *, what: str, turn: Callable[[], Awaitable[None]]) -> Any:
    """Return what a JSON text says, as `kind`; `turn` waits for a turn of the loop, and may raise.

    Raises ApiError: 422 for another shape, 400 for what is no JSON.
    """
    try:
        text.decode()  # what is kept as it came is not looked at by the parser
        return await _read(text, kind, turn)
    except msgspec.ValidationError as error:
        raise ApiError(422, f"{what}: {error}") from None
    except UnicodeDecodeError:
        raise ApiError(400, f"the {what} is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"the {what} is not JSON: {error}") from None


async def _read(text: bytes, kind: Any, turn: Callable[[], Awaitable[None]]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    await turn()
    msgspec.json.decode(text, type=msgspec.Raw)  # the parser above stopped at the number
    # With whole numbers written as such it must be right; only then the lenient parser has nothing else to bend.
    whole = await _without_fractions(text, turn)
    await turn()
    msgspec.json.decode(whole, type=kind)
    await turn()
    return msgspec.json.decode(text, type=kind, strict=False)


async def _without_fractions(text: bytes, turn: Callable[[], Awaitable[None]]) -> bytes:
    """Return a JSON text with each number whose fraction is zero written as an integer."""
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
            await turn()
    return bytes(found + text[copied:])


def _without_fraction(text: bytes) -> bytes:
    try:
        number = Decimal(text.decode())
    except InvalidOperation:  # its exponent is beyond what any number has
        return text
    if number.adjusted() >= MOST_DIGITS or number != number.to_integral_value():
        return text
    return str(int(number)).encode()
