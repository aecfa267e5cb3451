"""Regular expressions of clients, over topics, transactional ids or clients: in RE2's syntax, and linear in the text.

Linear is not cheap: an expression may take thousands of steps for each character, and there may be a hundred thousand
names. So `check_regex` limits an expression, and callers with many names count `steps` and yield to the loop. A name
matches as a whole. RE2 is imported with the first expression: it keeps two megabytes, and few clusters have
expressions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from raftlog.base.errors import InvalidRegularExpression

LONGEST: Final = 4_096
"""Characters of an expression."""

MEMORY_BYTES: Final = 1 << 20
"""The memory of one compiled expression, at most."""

TRIAL_BYTES: Final = 3 << 16
"""The memory of an expression that is compiled for trial: some 3,000 instructions. Compiling more takes too long."""

MAX_INSTRUCTIONS: Final = 2_000
"""Instructions of a compiled expression: the cost of one character of a name, many thousand times a heartbeat."""

TEXT_STEPS: Final = 600
"""Matching a text costs as much as this many steps, plus one for each character and instruction."""

STEPS_AT_ONCE: Final = 2_400_000
"""Steps of one slice, between two turns of the loop: some ten milliseconds. A single text may take more."""

MAX_REMEMBERED: Final = 100
"""Expressions."""


def check_regex(regex: str, *, most_instructions: int = MAX_INSTRUCTIONS) -> None:
    """Raise InvalidRegularExpression."""
    import re2

    if len(regex) > LONGEST:
        raise InvalidRegularExpression(f"a regular expression has at most {LONGEST} characters")
    try:
        size = compiled(regex).programsize
    except re2.error as error:
        raise InvalidRegularExpression(
            f"{regex!r} is not a valid RE2 regular expression: {_text(error)}"
        ) from error
    if size > most_instructions:
        raise InvalidRegularExpression(
            f"{regex!r} takes {size} instructions; the limit is {most_instructions}"
        )


@lru_cache(maxsize=MAX_REMEMBERED)
def compiled(regex: str) -> Any:
    """Return a compiled expression that `check_regex` accepted."""
    _compile(regex, TRIAL_BYTES)
    return _compile(regex, MEMORY_BYTES)


def _compile(regex: str, memory_bytes: int) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    return re2.compile(regex, options)


def steps(regex: str, text: str) -> int:
    """Return the most steps for matching a text."""
    return TEXT_STEPS + int(compiled(regex).programsize) * len(text)


def _text(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
