"""Levels of compatibility: which versions a new schema is compared with, and in which direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")


class Level(NamedTuple):
    """`backward`: the new schema reads old records. `forward`: old schemas read new records."""

    backward: bool
    forward: bool
    transitive: bool
    """Compared with all versions, not only the latest."""


LEVELS: Final[dict[str, Level]] = {
    "NONE": Level(False, False, False),
    "BACKWARD": Level(True, False, False),
    "BACKWARD_TRANSITIVE": Level(True, False, True),
    "FORWARD": Level(False, True, False),
    "FORWARD_TRANSITIVE": Level(False, True, True),
    "FULL": Level(True, True, False),
    "FULL_TRANSITIVE": Level(True, True, True),
}


def compared_with(level: str, versions: Sequence[T]) -> Sequence[T]:
    """Return the versions, given in ascending order, that a new schema is compared with, the newest first."""
    rule = LEVELS.get(level, LEVELS["BACKWARD"])
    if not (rule.backward or rule.forward):
        return ()
    return versions[::-1] if rule.transitive else versions[-1:]


def differences(
    level: str, new: Any, old: Any, incompatibilities: Callable[[Any, Any], list[str]]
) -> list[str]:
    """Return why a new parsed schema is incompatible with an old parsed schema at a level; empty if it is not."""
    rule = LEVELS.get(level, LEVELS["BACKWARD"])
    found = incompatibilities(new, old) if rule.backward else []
    return found + (incompatibilities(old, new) if rule.forward else [])
