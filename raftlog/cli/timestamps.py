"""Points and lengths of time as people write them on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from raftlog.cli.exits import USAGE, Failure

_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def read_moment(option: str, text: str) -> int:
    """Return milliseconds since 1970 from such a number or from ISO 8601; without a zone it is UTC. Raises Failure."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(
            f"{option} {text}: must be milliseconds since 1970 or an ISO 8601 time, such as 2026-01-31T12:00:00Z",
            USAGE,
        ) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def read_duration_ms(option: str, text: str) -> int:
    """Return milliseconds from an ISO 8601 duration of days or less, as P1DT2H. Raises Failure."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise Failure(f"{option} {text}: must be an ISO 8601 duration, such as PT15M, PT2H or P1DT12H", USAGE)
    days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
