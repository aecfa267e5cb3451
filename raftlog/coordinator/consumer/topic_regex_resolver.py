"""The topics there are, for all groups of a broker: the image, and which topics regular expressions match.

Looking at a hundred thousand names takes longer than the loop may be held up. So what is little is looked at where it
is asked for, all that is asked for together within one budget. The rest waits in a queue, and is looked at slice by
slice as `run_slice` is called. Until that is done nobody is told anything about it. A result that somebody waits for
is kept until that is asked for, so everybody who waits is served at some time, however many there are.

Internal topics match like any other, as in Apache Kafka: only rights keep a topic from a group's members.

A slice is measured in names and characters, not in time, so that a simulation takes the same ones each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from raftlog.base.regex import STEPS_AT_ONCE, TEXT_STEPS, check_regex, compiled
from raftlog.metadata.image import MetadataImage

PAUSE_S: Final = 0.01
"""Between two slices others have the loop."""

PAUSE_AT_ONCE_S: Final = 0.05
"""So often the looks that are done where they are asked for may take a slice together."""

MAX_CACHED_REGEXES: Final = 100
"""Expressions of which is remembered what they match: each may match all names."""

MAX_QUEUED_REGEXES: Final = 1_000
"""Expressions that wait for their look. A member that comes with one more asks again later."""

KEPT_S: Final = 30.0
"""A result that nobody asks for any longer is kept for so long, some heartbeats."""


class _Look:
    """At one expression: what matched so far, and what is yet to be looked at."""

    __slots__ = ("_found", "_matches", "_size", "is_wanted", "matched", "pending", "wanted_until")

    def __init__(self, expression: Any, names: Iterable[str]) -> None:
        self._matches = expression.fullmatch
        self._size: int = expression.programsize
        self.matched: set[str] = set()
        self.pending = list(names)
        self.is_wanted = False
        """Whether somebody waits for what was found."""
        self.wanted_until = 0.0
        """Loop seconds."""
        self._found: tuple[str, ...] | None = None

    def steps(self, most: int) -> int:
        """Return how many steps are left to take; if more than `most`, any such number."""
        least = TEXT_STEPS * len(self.pending)
        return least if least > most else least + self._size * sum(map(len, self.pending))

    def follow(self, new: list[str], gone: frozenset[str], names: Collection[str]) -> None:
        """Topics have come and gone."""
        self.pending += new
        if len(self.pending) > len(names):
            self.pending = list(names)
        if not gone.isdisjoint(self.matched):
            self.matched -= gone
            self._found = None

    def work(self, names: Collection[str]) -> None:
        """Look at one slice of what is pending; some of it may have gone from `names`."""
        left = STEPS_AT_ONCE
        while self.pending and left > 0:
            name = self.pending.pop()
            left -= TEXT_STEPS + self._size * len(name)
            if name in names and self._matches(name):
                self.matched.add(name)
                self._found = None

    def found(self) -> tuple[str, ...]:
        """Return what matched, sorted."""
        if self._found is None:
            self._found = tuple(sorted(self.matched))
        return self._found


class TopicRegexResolver:
    """The matches of expressions are remembered: when topics come and go, only the new names are looked at."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self.image = image
        self.due_at = 0.0
        """When the next slice may be looked at, loop seconds."""
        self._offset = -1
        self._names: frozenset[str] = frozenset()
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        """The expression that was asked for last is last."""
        self._queue: dict[str, None] = {}
        """A look is begun when its turn has come: until then it takes no more than its expression."""
        self._at_once_at = 0.0
        self._at_once_steps = 0

    @property
    def has_work(self) -> bool:
        """Whether there is work to do."""
        return bool(self._queue)

    def resolve(self, regex: str, now: float) -> tuple[str, ...] | None:
        """Return the names that match, sorted; None: ask again, that has to wait. Raises InvalidRegularExpression.

        May look at a slice of the names itself.
        """
        check_regex(regex)
        self._follow()
        if regex in self._queue:
            return None
        look = self._looks.get(regex)
        if look is None and TEXT_STEPS * len(self._names) <= STEPS_AT_ONCE:
            look = self._begin(regex, now)
        if look is None or not self._may_look_at_once(look, now):
            if len(self._queue) < MAX_QUEUED_REGEXES:
                self._queue[regex] = None
            return None
        look.work(self._names)
        look.is_wanted = False
        self._looks.move_to_end(regex)
        return look.found()

    def is_queued(self, regex: str) -> bool:
        """Whether it is of no use yet to ask what matches."""
        return regex in self._queue

    def run_slice(self, now: float) -> None:
        """Look at one more slice of what waits, unless the last one was just now."""
        if not self._queue or now < self.due_at:
            return
        self.due_at = now + PAUSE_S
        self._follow()
        regex = next(iter(self._queue))
        if regex not in self._looks and self._begin(regex, now) is None:
            waiting = next((each for each in self._queue if each in self._looks), None)
            if waiting is None:
                return
            regex = waiting
        look = self._looks[regex]
        look.work(self._names)
        if not look.pending:
            look.is_wanted, look.wanted_until = True, now + KEPT_S
            del self._queue[regex]

    def _may_look_at_once(self, look: _Look, now: float) -> bool:
        if not look.pending:
            return True
        if now >= self._at_once_at:
            self._at_once_at, self._at_once_steps = now + PAUSE_AT_ONCE_S, STEPS_AT_ONCE
        steps = look.steps(self._at_once_steps)
        if steps > self._at_once_steps:
            return False
        self._at_once_steps -= steps
        return True

    def _begin(self, regex: str, now: float) -> _Look | None:
        """Return a new look; None while somebody waits for each of those that are remembered."""
        if len(self._looks) >= MAX_CACHED_REGEXES:
            former = next((each for each in self._looks if self._may_forget(each, now)), None)
            if former is None:
                return None
            del self._looks[former]
        look = self._looks[regex] = _Look(compiled(regex), self.image().topics)
        return look

    def _may_forget(self, regex: str, now: float) -> bool:
        look = self._looks[regex]
        return regex not in self._queue and not (look.is_wanted and now < look.wanted_until)

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
                look.follow(new, gone, image.topics)
