"""Regular expressions over transactional ids, as clients send them: RE2's, which take linear time whatever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

from raftlog.base.errors import InvalidRegularExpression

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return whether a whole id matches; everything matches no pattern. Raises InvalidRegularExpression."""
    if not pattern:
        return lambda _: True
    try:
        compiled = re2.compile(pattern, options=_OPTIONS)
    except re2.error as error:
        raise InvalidRegularExpression(f"{pattern!r} is no regular expression of RE2") from error
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None
