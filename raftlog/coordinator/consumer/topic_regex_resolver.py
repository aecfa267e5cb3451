"""The topics for all groups of a broker: the image, and the topics that regular expressions match.

Matching a hundred thousand names would block the loop too long. So small expressions are resolved at once, within a
common budget. The others wait in a queue, and are resolved slice by slice by `run_slice`. Until then they have no
result. An awaited result is kept until it is fetched, so every waiting caller is served at some time.

Internal topics match like any other, as in Apache Kafka: only ACLs hide a topic from a group's members. An expression
matches the topics that its viewer may DESCRIBE. After a change of a viewer's ACLs, all names are matched again for it.

A slice is measured in names and characters, not in time, so that a simulation is deterministic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.regex import STEPS_AT_ONCE, TEXT_STEPS, check_regex, compiled
from raftlog.metadata.image import MetadataImage
from raftlog.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from raftlog.security.authorizer import Authorizer

PAUSE_S: Final = 0.01
"""Pause between two slices for other work of the loop."""

PAUSE_AT_ONCE_S: Final = 0.05
"""Interval at which immediate resolutions may take one slice together."""

MAX_CACHED_REGEXES: Final = 100
"""Expressions with cached matches: each may match all names."""

MAX_QUEUED_REGEXES: Final = 1_000
"""Expressions in the queue. A member with a further expression has to retry."""

KEPT_S: Final = 30.0
"""An unused result is kept this many seconds, some heartbeats."""

RIGHTS_STEPS: Final = 1_200
"""An authorization check of a viewer for a topic counts as this many steps."""


class Viewer(NamedTuple):
    """The client with the rights for matching an expression: AuthorizableRequestContext in Apache Kafka."""

    principal: str
    host: str


Wanted = tuple[str, Viewer | None]
"""An expression and its viewer; None if all topics may be seen."""


class Sight(NamedTuple):
    """The rights by which an expression was matched: the principal, and the version of its ACLs."""

    viewer: Viewer | None
    rules: int


class _Look:
    """The resolution of one expression: its matches so far, and the remaining names."""

    __slots__ = (
        "_found",
        "_matches",
        "_may_see",
        "_name_steps",
        "_size",
        "is_wanted",
        "matched",
        "pending",
        "rules",
        "wanted_until",
    )

    def __init__(
        self, expression: Any, names: Iterable[str], rules: int, may_see: Callable[[str], bool] | None
    ) -> None:
        self._matches = expression.fullmatch
        self._size: int = expression.programsize
        self._may_see = may_see
        self._name_steps = TEXT_STEPS if may_see is None else TEXT_STEPS + RIGHTS_STEPS
        self.rules = rules
        """The version of the ACLs that it began with."""
        self.matched: set[str] = set()
        self.pending = list(names)
        self.is_wanted = False
        """Whether a caller waits for the result."""
        self.wanted_until = 0.0
        """Loop seconds."""
        self._found: tuple[str, ...] | None = None

    def steps(self, most: int) -> int:
        """Return the remaining steps; any number above `most` if there are more than that."""
        least = self._name_steps * len(self.pending)
        return least if least > most else least + self._size * sum(map(len, self.pending))

    def follow(self, new: list[str], gone: frozenset[str], names: Collection[str]) -> None:
        """Follow created and deleted topics."""
        self.pending += new
        if len(self.pending) > len(names):
            self.pending = list(names)
        if not gone.isdisjoint(self.matched):
            self.matched -= gone
            self._found = None

    def work(self, names: Collection[str]) -> None:
        """Match one slice of the pending names; some may no longer be in `names`."""
        left = STEPS_AT_ONCE
        while self.pending and left > 0:
            name = self.pending.pop()
            left -= TEXT_STEPS + self._size * len(name)
            if name not in names or not self._matches(name):
                continue
            if self._may_see is not None:
                left -= RIGHTS_STEPS
                if not self._may_see(name):
                    continue
            self.matched.add(name)
            self._found = None

    def found(self) -> tuple[str, ...]:
        """Return the matches, sorted."""
        if self._found is None:
            self._found = tuple(sorted(self.matched))
        return self._found


class TopicRegexResolver:
    """Caches the matches of expressions: after a change of topics, only new names are matched."""

    def __init__(self, image: Callable[[], MetadataImage], authorizer: Authorizer | None = None) -> None:
        self.image = image
        self.due_at = 0.0
        """When the next slice may run, loop seconds."""
        self._authorizer = authorizer
        self._offset = -1
        self._names: frozenset[str] = frozenset()
        self._looks: OrderedDict[Wanted, _Look] = OrderedDict()
        """In the order of use, the last used at the end."""
        self._queue: dict[Wanted, None] = {}
        """A queued expression takes no memory but its own."""
        self._at_once_at = 0.0
        self._at_once_steps = 0

    @property
    def has_work(self) -> bool:
        """Whether there is work to do."""
        return bool(self._queue)

    def sight(self, viewer: Viewer | None) -> Sight:
        """Return the rights by which expressions are matched for a viewer now."""
        if viewer is None or self._authorizer is None:
            return Sight(viewer, 0)
        return Sight(viewer, self._authorizer.version(viewer.principal))

    def resolve(self, regex: str, now: float, viewer: Viewer | None = None) -> tuple[str, ...] | None:
        """Return the names that match, sorted; None: ask again later. Raise InvalidRegularExpression.

        It may match a slice of the names itself.
        """
        check_regex(regex)
        self._follow()
        wanted = regex, viewer
        if wanted in self._queue:
            return None
        look = self._current_look(wanted)
        if look is None and TEXT_STEPS * len(self._names) <= STEPS_AT_ONCE:
            look = self._begin(wanted, now)
        if look is None or not self._may_look_at_once(look, now):
            if len(self._queue) < MAX_QUEUED_REGEXES:
                self._queue[wanted] = None
            return None
        look.work(self._names)
        look.is_wanted = False
        self._looks.move_to_end(wanted)
        return look.found()

    def is_queued(self, wanted: Wanted) -> bool:
        """Return whether the result is not available yet."""
        return wanted in self._queue

    def run_slice(self, now: float) -> None:
        """Run a slice of the next queued expression, unless the last slice was just now."""
        if not self._queue or now < self.due_at:
            return
        self.due_at = now + PAUSE_S
        self._follow()
        wanted = next(iter(self._queue))
        look = self._current_look(wanted) or self._begin(wanted, now)
        if look is None:
            wanted, look = next(
                ((each, it) for each in self._queue if (it := self._current_look(each))), (wanted, None)
            )
        if look is None:
            return
        look.work(self._names)
        if not look.pending:
            look.is_wanted, look.wanted_until = True, now + KEPT_S
            del self._queue[wanted]

    def _current_look(self, wanted: Wanted) -> _Look | None:
        """Return the resolution of an expression, if it has begun and the ACLs are unchanged."""
        look = self._looks.get(wanted)
        if look is not None and look.rules != self.sight(wanted[1]).rules:
            del self._looks[wanted]
            return None
        return look

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

    def _begin(self, wanted: Wanted, now: float) -> _Look | None:
        """Return a new resolution; None if callers wait for every cached resolution."""
        if len(self._looks) >= MAX_CACHED_REGEXES:
            former = next((each for each in self._looks if self._may_forget(each, now)), None)
            if former is None:
                return None
            del self._looks[former]
        regex, viewer = wanted
        may_see = None if viewer is None or self._authorizer is None else partial(self._may_see, viewer)
        look = _Look(compiled(regex), self.image().topics, self.sight(viewer).rules, may_see)
        self._looks[wanted] = look
        return look

    def _may_see(self, viewer: Viewer, name: str) -> bool:
        """Return whether a viewer may see a topic. The result is not cached: there may be more names than the cache
        holds.
        """
        assert self._authorizer is not None
        return self._authorizer.verdict(*viewer, Operation.DESCRIBE, ResourceType.TOPIC, name).allowed

    def _may_forget(self, wanted: Wanted, now: float) -> bool:
        look = self._looks[wanted]
        return wanted not in self._queue and not (look.is_wanted and now < look.wanted_until)

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
