"""The topics there are, for all groups of a broker: the image, and which topics regular expressions match.

Looking at a hundred thousand names takes longer than the loop may be held up. So what is little is looked at where it
is asked for, and the rest slice by slice, as `work` is called; until that is done nobody is told anything about it. A
slice is measured in names and characters, not in time, so that a simulation takes the same ones each time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.coordinator.regex import MOST_REMEMBERED, check_regex, compiled
from raftlog.metadata.image import MetadataImage

NAME_STEPS: Final = 600
"""Looking at a name takes as long as this many steps, beside one for each character and instruction at most."""

SLICE_STEPS: Final = 2_400_000
"""Of one slice, some ten milliseconds; a single name may take more."""

PAUSE_S: Final = 0.01
"""Between two slices others have the loop."""


class _Look:
    """At one expression: what matched so far, and what is yet to be looked at."""

    __slots__ = ("_found", "_matches", "_size", "matched", "pending")

    def __init__(self, expression: Any, names: Iterable[str]) -> None:
        self._matches = expression.fullmatch
        self._size: int = expression.programsize
        self.matched: set[str] = set()
        self.pending = list(names)
        self._found: tuple[str, ...] | None = None

    @property
    def is_little(self) -> bool:
        """Whether all that is left fits into one slice."""
        most = SLICE_STEPS // NAME_STEPS
        return len(self.pending) <= most and self._steps(self.pending) <= SLICE_STEPS

    def _steps(self, names: Iterable[str]) -> int:
        return sum(NAME_STEPS + self._size * len(name) for name in names)

    def follow(self, new: list[str], gone: frozenset[str]) -> None:
        """Topics have come and gone."""
        self.pending += new
        if gone and self.pending:
            self.pending = [name for name in self.pending if name not in gone]
        if not gone.isdisjoint(self.matched):
            self.matched -= gone
            self._found = None

    def work(self) -> None:
        """Look at one slice of the names."""
        left = SLICE_STEPS
        while self.pending and left > 0:
            name = self.pending.pop()
            left -= NAME_STEPS + self._size * len(name)
            if name not in INTERNAL_TOPICS and self._matches(name):
                self.matched.add(name)
                self._found = None

    def found(self) -> tuple[str, ...]:
        """Return what matched, sorted."""
        if self._found is None:
            self._found = tuple(sorted(self.matched))
        return self._found


class Topics:
    """What expressions match is remembered: when topics come and go, only the new names are looked at."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self.image = image
        self.due_at = 0.0
        """When the next slice may be looked at, loop seconds."""
        self._offset = -1
        self._names: frozenset[str] = frozenset()
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        self._behind: deque[str] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether there is work to do."""
        return bool(self._behind)

    def matching(self, regex: str) -> tuple[str, ...] | None:
        """Return the names that match, sorted; None: that is being looked at. Raises InvalidRegularExpression."""
        check_regex(regex)
        self._follow()
        look = self._look(regex)
        if look is None or regex in self._behind:
            return None
        if look.pending and not look.is_little:
            self._behind.append(regex)
            return None
        look.work()
        return look.found()

    def is_awaited(self, regex: str) -> bool:
        """Whether it is of no use yet to ask what matches."""
        return regex in self._behind

    def work(self, now: float) -> None:
        """Look at one more slice, unless the last one was just now."""
        if not self._behind or now < self.due_at:
            return
        self.due_at = now + PAUSE_S
        look = self._looks[self._behind[0]]
        look.work()
        if not look.pending:
            self._behind.popleft()

    def _look(self, regex: str) -> _Look | None:
        """Return where an expression is, None if so many others are looked at that it has to wait."""
        look = self._looks.get(regex)
        if look is None:
            if len(self._behind) >= MOST_REMEMBERED:
                return None
            if len(self._looks) >= MOST_REMEMBERED:
                self._looks.pop(next(each for each in self._looks if each not in self._behind))
            look = self._looks[regex] = _Look(compiled(regex), self.image().topics)
        self._looks.move_to_end(regex)
        return look

    def _follow(self) -> None:
        image = self.image()
        if image.topics_offset == self._offset:
            return
        self._offset = image.topics_offset
        new = [name for name in image.topics if name not in self._names]
        gone = self._names - image.topics.keys()
        if new or gone:
            self._names = frozenset(image.topics)
            for look in self._looks.values():
                look.follow(new, gone)
