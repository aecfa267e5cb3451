"""`cordoned.log.dirs` (KIP-1066): the log directories that get no new replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ALL_DIRS: Final = "*"


def cordoned_dirs(named: Iterable[str], log_dirs: Iterable[str]) -> frozenset[str]:
    """Return the cordoned log directories of a broker. ALL_DIRS names all of them."""
    named = frozenset(named)
    return frozenset(each for each in log_dirs if each in named or ALL_DIRS in named)


def unknown_dirs(named: Iterable[str], log_dirs: Iterable[str]) -> list[str]:
    """Return what names no log directory of a broker."""
    known = {ALL_DIRS, *log_dirs}
    return [each for each in named if each not in known]
