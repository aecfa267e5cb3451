"""The names of topics that were deleted in the last minutes, as far as this broker knows: clients may not know yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

DELETED_KNOWN_S: Final = 600.0
"""How long a deleted topic's name is kept. Clients refresh their metadata every five minutes, by default."""

MAX_DELETED_TOPICS: Final = 10_000
"""The maximum number of names; the newest are kept."""


class DeletedTopics:
    """The names of recently deleted topics. `now` returns loop seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known_until: dict[str, float] = {}
        """Keyed by name, the oldest first."""

    def note(self, names: Iterable[str]) -> None:
        """Note topics that were just deleted."""
        known_until = self._now() + DELETED_KNOWN_S
        for name in sorted(names):
            self._known_until.pop(name, None)
            self._known_until[name] = known_until
        while len(self._known_until) > MAX_DELETED_TOPICS:
            del self._known_until[next(iter(self._known_until))]

    def has(self, name: str) -> bool:
        """Return whether a topic of this name was deleted in the last minutes.

        A new topic may have the same name by now.
        """
        return self._now() < self._known_until.get(name, 0.0)
