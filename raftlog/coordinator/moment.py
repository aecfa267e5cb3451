"""A point in time, on both clocks."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """Now, on the loop's clock (seconds) and the wall's (ms)."""

    now: float
    now_ms: int
