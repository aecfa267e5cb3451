"""Regular expressions of clients, over topics, transactional ids or clients: in RE2's syntax, and linear in the text.

Linear is not little: an expression may take thousands of steps for each character, and there may be a hundred thousand
names. So `check_regex` bounds the one, and whoever looks at many names counts `steps` and takes turns. A name matches
as a whole. RE2 is imported with the first expression: it keeps two megabytes, and few clusters have expressions.
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

MOST_INSTRUCTIONS: Final = 2_000
"""Of an expression when compiled: what looking at one character of a name may cost, many thousand times a heartbeat."""

TEXT_STEPS: Final = 600
"""Looking at a text takes as long as this many steps, beside one for each character and instruction at most."""

STEPS_AT_ONCE: Final = 2_400_000
"""Of one slice, between two turns of the loop: some ten milliseconds. A single text may take more."""

MOST_REMEMBERED: Final = 100
"""Expressions."""


def check_regex(regex: str, *, most_instructions: int = MOST_INSTRUCTIONS) -> None:
    """Raises InvalidRegularExpression."""
    import re2

    if len(regex) > LONGEST:
        raise InvalidRegularExpression(f"an expression has at most {LONGEST} characters")
    try:
        size = compiled(regex).programsize
    except re2.error as error:
        raise InvalidRegularExpression(
            f"{regex!r} is no regular expression of RE2: {_text(error)}"
        ) from error
    if size > most_instructions:
        raise InvalidRegularExpression(
            f"{regex!r} takes {size} instructions, {most_instructions} at most are looked at"
        )


@lru_cache(maxsize=MOST_REMEMBERED)
def compiled(regex: str) -> Any:
    """Return an expression that `check_regex` let pass, ready to match."""
    _compile(regex, TRIAL_BYTES)
    return _compile(regex, MEMORY_BYTES)


def _compile(regex: str, memory_bytes: int) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    return re2.compile(regex, options)


def steps(regex: str, text: str) -> int:
    """Return what matching a text takes at most."""
    return TEXT_STEPS + int(compiled(regex).programsize) * len(text)


def _text(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
