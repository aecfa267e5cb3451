"""The topics there are, for all groups of a broker: the image, and which topics regular expressions match.

Looking at a hundred thousand names takes longer than the loop may be held up. So what is little is looked at where it
is asked for, all that is asked for together within one budget. The rest waits in a queue, and is looked at slice by
slice as `run_slice` is called. Until that is done nobody is told anything about it. A result that somebody waits for
is kept until that is asked for, so everybody who waits is served at some time, however many there are.

Internal topics match like any other, as in Apache Kafka: only rights keep a topic from a group's members. An expression
matches what its viewer may DESCRIBE. Once rules about a viewer have changed, all names are looked at again for it.

A slice is measured in names and characters, not in time, so that a simulation takes the same ones each time.
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
"""Between two slices others have the loop."""

PAUSE_AT_ONCE_S: Final = 0.05
"""So often the looks that are done where they are asked for may take a slice together."""

MAX_CACHED_REGEXES: Final = 100
"""Expressions of which is remembered what they match: each may match all names."""

MAX_QUEUED_REGEXES: Final = 1_000
"""Expressions that wait for their look. A member that comes with one more asks again later."""

KEPT_S: Final = 30.0
"""A result that nobody asks for any longer is kept for so long, some heartbeats."""

RIGHTS_STEPS: Final = 1_200
"""Asking whether a viewer may see a topic takes as long as this many steps."""


class Viewer(NamedTuple):
    """The client whose rights decide what an expression matches: AuthorizableRequestContext in Apache Kafka."""

    principal: str
    host: str


Wanted = tuple[str, Viewer | None]
"""An expression, and for whom; None: for somebody who may see all topics."""


class Sight(NamedTuple):
    """The rights by which an expression was matched: whose, and the version of the rules about that principal."""

    viewer: Viewer | None
    rules: int


class _Look:
    """At one expression: what matched so far, and what is yet to be looked at."""

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
        """The version of the rules that it began with."""
        self.matched: set[str] = set()
        self.pending = list(names)
        self.is_wanted = False
        """Whether somebody waits for what was found."""
        self.wanted_until = 0.0
        """Loop seconds."""
        self._found: tuple[str, ...] | None = None

    def steps(self, most: int) -> int:
        """Return how many steps are left to take; if more than `most`, any such number."""
        least = self._name_steps * len(self.pending)
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
            if name not in names or not self._matches(name):
                continue
            if self._may_see is not None:
                left -= RIGHTS_STEPS
                if not self._may_see(name):
                    continue
            self.matched.add(name)
            self._found = None

    def found(self) -> tuple[str, ...]:
        """Return what matched, sorted."""
        if self._found is None:
            self._found = tuple(sorted(self.matched))
        return self._found


class TopicRegexResolver:
    """The matches of expressions are remembered: when topics come and go, only the new names are looked at."""

    def __init__(self, image: Callable[[], MetadataImage], authorizer: Authorizer | None = None) -> None:
        self.image = image
        self.due_at = 0.0
        """When the next slice may be looked at, loop seconds."""
        self._authorizer = authorizer
        self._offset = -1
        self._names: frozenset[str] = frozenset()
        self._looks: OrderedDict[Wanted, _Look] = OrderedDict()
        """The expression that was asked for last is last."""
        self._queue: dict[Wanted, None] = {}
        """A look is begun when its turn has come: until then it takes no more than its expression."""
        self._at_once_at = 0.0
        self._at_once_steps = 0

    @property
    def has_work(self) -> bool:
        """Whether there is work to do."""
        return bool(self._queue)

    def sight(self, viewer: Viewer | None) -> Sight:
        """Return the rights by which expressions are matched for somebody now."""
        if viewer is None or self._authorizer is None:
            return Sight(viewer, 0)
        return Sight(viewer, self._authorizer.version(viewer.principal))

    def resolve(self, regex: str, now: float, viewer: Viewer | None = None) -> tuple[str, ...] | None:
        """Return the names that match, sorted; None: ask again, that has to wait. Raises InvalidRegularExpression.

        May look at a slice of the names itself.
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
        """Whether it is of no use yet to ask what matches."""
        return wanted in self._queue

    def run_slice(self, now: float) -> None:
        """Look at one more slice of what waits, unless the last one was just now."""
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
        """Return the look at an expression, if it has begun and rules are the same since."""
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
        """Return a new look; None while somebody waits for each of those that are remembered."""
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
        """Whether a viewer may see a topic. The answer is not kept: there may be more names than answers are kept."""
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
