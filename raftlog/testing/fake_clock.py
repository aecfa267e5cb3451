"""A process with a wrong wall clock from its first look on, by Debian's libfaketime. Its uptime stays right."""

from __future__ import annotations

import glob
from typing import Final

PLACES: Final = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
"""The library for programs with threads, where distributions and its own Makefile put it."""


def find_libfaketime() -> str | None:
    """Return the path of the library, None if this machine lacks it."""
    return next((found for place in PLACES for found in sorted(glob.glob(place))), None)


def clock_environment(offset_ms: int) -> dict[str, str]:
    """Return the environment of a process with a wall clock that is wrong by this much; none for 0."""
    if not offset_ms:
        return {}
    library = find_libfaketime()
    if library is None:
        raise FileNotFoundError(
            "a node with a wrong clock needs libfaketime (Debian: apt install libfaketime)"
        )
    return {
        "LD_PRELOAD": library,
        "FAKETIME": f"{offset_ms / 1000:+.3f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
