"""Runs attacks in sessions of a few, and finds the culprit when a session ends badly.

Memory that a node keeps after an attack may be the sum of several attacks. Such an attack runs once more on a cluster
of its own. So does an attack that only delayed the bystanders, since the machine may have been busy. If bystanders'
records are missing at a session's end, each of its attacks runs alone. If a node's memory is not back then, the attacks
run alone after which it was not back soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, get_args

from raftlog_chaos.attacks.registry import Attack, Shape
from raftlog_chaos.attacks.session import Closing
from raftlog_chaos.attacks.verdict import Limits, Outcome, is_slow_only, keeps_only, takes_only

ATTACKS_PER_SESSION: Final = 12


class Session(Protocol):
    """A cluster under attack, as `AttackSession` is."""

    def open(self, *, warm: bool) -> None: ...

    def strike(self, attack: Attack) -> Outcome: ...

    def close(self) -> Closing: ...

    def abandon(self) -> None: ...


StartSession = Callable[[Shape], Session]
"""Starts a cluster of a shape. Raises OSError, RuntimeError."""


class RunObserver(Protocol):
    """Receives the progress of a run."""

    def begins(self, attack: Attack) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...

    def print_line(self, line: str) -> None: ...


class Course:
    """The attacks of one session so far, and their undecided outcomes."""

    def __init__(self) -> None:
        self.struck: list[Attack] = []
        self.warm: list[Attack] = []
        """Attacks after which memory was not back soon; none once an attack ends with all of it back."""
        self.ended_warm = False
        """Whether the last attack left the memory high, so that the end of the session judges it."""
        self.doubted: Outcome | None = None
        """The outcome of the last attack, if it has to run once more, alone."""

    def add(self, attack: Attack, outcome: Outcome, *, is_doubtful: bool) -> None:
        self.struck.append(attack)
        self.ended_warm = outcome.seen.is_warm
        if is_doubtful:
            self.doubted = outcome
        elif outcome.seen.is_warm:
            self.warm.append(attack)
        elif outcome.seen.settled_s is not None:
            self.warm.clear()


class Runner:
    """`run` may be interrupted: the outcomes so far are in `outcomes`."""

    def __init__(
        self,
        start: StartSession,
        observer: RunObserver,
        limits: Limits,
        *,
        has_time: Callable[[], bool] = lambda: True,
    ) -> None:
        self._start = start
        self._observer = observer
        self._limits = limits
        self._has_time = has_time
        self.outcomes: dict[str, Outcome] = {}
        self._slow: set[str] = set()
        """Attacks during which the bystanders waited for too long, without another failure."""

    def run(self, attacks: Sequence[Attack]) -> list[Outcome]:
        """Run all of them, as far as there is time; return their outcomes in that order."""
        for group in groups_of(attacks):
            left = list(group)
            while left and self._has_time():
                left = left[self._run_session(left) :]
        return [self.outcomes[each.name] for each in attacks if each.name in self.outcomes]

    def _run_session(self, attacks: Sequence[Attack]) -> int:
        """Strike one cluster until an attack fails or all are through; return how many were struck."""
        course = Course()
        session = self._start(attacks[0].shape)
        try:
            session.open(warm=attacks[0].shape != "cold")
            for attack in attacks:
                if course.struck and not self._has_time():
                    break
                self._observer.begins(attack)
                outcome = session.strike(attack)
                is_doubtful = bool(outcome.faults) and self._is_doubtful(attack, outcome, course)
                course.add(attack, outcome, is_doubtful=is_doubtful)
                if is_doubtful:
                    break
                self._keep(outcome)
                if outcome.status == "failed":
                    break
            closing = session.close()
        except BaseException:
            session.abandon()
            raise
        self._conclude(course, closing)
        return len(course.struck)

    def _is_doubtful(self, attack: Attack, outcome: Outcome, course: Course) -> bool:
        """Whether another cause than the attack may be to blame, so that it has to run once more, alone."""
        if is_slow_only(outcome.seen, self._limits):
            again = attack.name in self._slow
            self._slow.add(attack.name)
            return not again
        if course.warm and takes_only(outcome.seen, self._limits):
            return True
        return bool(course.struck) and keeps_only(outcome.seen, self._limits)

    def _conclude(self, course: Course, closing: Closing) -> None:
        """Decide about attacks that the end of their session, or an early end, left undecided."""
        struck = course.struck
        if len(struck) == 1 and (closing.lost or closing.kept) and course.doubted is None:
            outcome = self.outcomes[struck[0].name]
            outcome.seen.records += closing.lost
            self._fail(outcome, [*closing.lost, *closing.kept])
        elif closing.lost:
            self._run_each_alone(struck, closing.lost)
        else:
            if course.doubted is not None:
                self._run_alone(struck, course.doubted)
            if closing.kept and course.warm:
                self._blame_for_memory(course, closing.kept)
            elif not course.ended_warm:
                self._run_each_alone(course.warm, ["its memory was not judged, since a later attack failed"])

    def _run_alone(self, struck: Sequence[Attack], before: Outcome) -> None:
        """Decide about an attack that failed after others by running it alone."""
        attack = struck[-1]
        self._observer.print_line(f"{attack.name}: once more, alone ({before.faults[0]})")
        self._run_session([attack])
        alone = self.outcomes[attack.name]
        if alone.status == "passed" and keeps_only(before.seen, self._limits):
            self._fail(before, [], after=struck[:-1])

    def _blame_for_memory(self, course: Course, kept: list[str]) -> None:
        """Memory is not back: find the attack that keeps it, or say that several add up to it."""
        self._run_each_alone(course.warm, kept)
        found = [self.outcomes[each.name] for each in course.warm]
        if all(each.status == "passed" for each in found):
            self._fail(found[-1], kept, after=course.struck)

    def _run_each_alone(self, attacks: Sequence[Attack], why: list[str]) -> None:
        """Run each on a cluster of its own; those for which no time is left have failed for this reason."""
        for line in why if attacks else ():
            self._observer.print_line(
                f"{', '.join(each.name for each in attacks)}: each once more, alone ({line})"
            )
        for attack in attacks:
            if self._has_time():
                self._run_session([attack])
            elif attack.name in self.outcomes:
                self._fail(self.outcomes[attack.name], [f"no time to run it alone: {each}" for each in why])

    def _fail(self, outcome: Outcome, faults: list[str], after: Sequence[Attack] = ()) -> None:
        """Add faults to an outcome; `after`: the attacks before it, if all its faults come about only after them."""
        outcome.faults += faults
        if after:
            names = ", ".join(each.name for each in after if each.name != outcome.attack)
            outcome.faults = [f"only after {names}: {fault}" for fault in outcome.faults]
        outcome.status = "failed"
        self._keep(outcome)

    def _keep(self, outcome: Outcome) -> None:
        self.outcomes[outcome.attack] = outcome
        self._observer.ended(outcome)


def groups_of(attacks: Sequence[Attack]) -> Iterator[list[Attack]]:
    """Yield the attacks in groups that share a cluster, in their order."""
    for shape in get_args(Shape):
        alike = [each for each in attacks if each.shape == shape]
        for start in range(0, len(alike), ATTACKS_PER_SESSION):
            yield alike[start : start + ATTACKS_PER_SESSION]
