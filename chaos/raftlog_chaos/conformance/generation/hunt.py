"""Runs drawn histories on Apache Kafka and on raftlog, several at once, and shrinks what differs.

A difference counts if it shows twice: a broker may be between two states when it is asked.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from raftlog_chaos.conformance import known
from raftlog_chaos.conformance.brokers import Brokers, brokers
from raftlog_chaos.conformance.compare import Difference, Observation, differences, is_broken, observe, story
from raftlog_chaos.conformance.differences import Known, judge
from raftlog_chaos.conformance.generation.plan import Plan
from raftlog_chaos.conformance.generation.play import Play
from raftlog_chaos.conformance.generation.words import draw_plan
from raftlog_chaos.conformance.history import History, Needs
from raftlog_chaos.conformance.run import NAMES, print_lines
from raftlog_chaos.conformance.session import NotReady, Session

JOBS: Final = 4
SHRINKING_S: Final = 120.0
"""A plan is not shrunk for longer: its steps may wait for what never comes."""
CLAIM: Final = "Drawn by chance."


class Drawn(NamedTuple):
    """Histories to draw, from the number `first` on. None begins after so many seconds; 0 is no limit."""

    seed: int
    histories: int
    first: int = 0
    seconds: float = 0.0
    jobs: int = JOBS


class Pair(NamedTuple):
    """A history's observations on both sides, and what of them no entry explains."""

    history: History
    kafka: Observation
    other: Observation
    unknown: list[Difference]
    used: list[Known]

    @property
    def kind(self) -> str:
        """The first difference without its numbers, so that equal differences can be counted; empty without a
        difference.
        """
        if self.unknown:
            first = self.unknown[0]
            words = (first.asked.partition(" ")[0], first.path, first.kafka, first.other)
            return re.sub(r"\d+", "#", " ".join(map(str, words)))[:300]
        return f"Kafka stopped: {self.kafka[-1]['answer']}" if is_broken(self.kafka) else ""


def as_history(plan: Plan, seed: int, number: int) -> History:
    """Return a drawn plan as a history."""

    def run(s: Session) -> None:
        Play(s, plan).run(plan.steps)

    return History("generated", f"seed-{seed}/{number}", CLAIM, Needs(), run)


class Hunt:
    """A run of drawn histories on two brokers."""

    def __init__(self, sides: Sequence[Brokers], drawn: Drawn) -> None:
        self.drawn = drawn
        self.kinds: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        self.compared = self.passing = self.not_ready = 0
        self._servers = [each.get(Needs()).servers() for each in sides]
        self._lock = Lock()
        self._began = time.monotonic()

    def run(self) -> int:
        """Run all; returns 1 if something differs in a way that is not listed."""
        numbers = range(self.drawn.first, self.drawn.first + self.drawn.histories)
        with ThreadPoolExecutor(self.drawn.jobs) as threads:
            for _ in threads.map(self._hunt, numbers):
                pass
        return self._end()

    def _hunt(self, number: int) -> None:
        if self.drawn.seconds and time.monotonic() - self._began > self.drawn.seconds:
            return
        plan = draw_plan(self.drawn.seed, number)
        try:
            pair = self.compare(plan, number)
            found = self.compare(plan, number) if pair.kind else pair
        except (NotReady, OSError) as error:
            print_lines(f"generated/seed-{self.drawn.seed}/{number}: {error}")
            with self._lock:
                self.not_ready += 1
            return
        with self._lock:
            self.compared += 1
            self.listed.update({each.why for each in pair.used})
            self.passing += bool(pair.kind) and pair.kind != found.kind
            is_new = bool(found.kind) and pair.kind == found.kind and not self.kinds[found.kind]
            self.kinds[found.kind] += bool(found.kind) and pair.kind == found.kind
        if pair.kind and pair.kind != found.kind:
            print_lines(f"{pair.history.label}: seen once: {pair.kind}", "")
        if is_new:
            self._report(number, plan, found)

    def compare(self, plan: Plan, number: int) -> Pair:
        """Run a plan on both sides. Raises NotReady."""
        history = as_history(plan, self.drawn.seed, number)
        kafka, other = (observe(history, servers) for servers in self._servers)
        judged = judge(differences(history.label, kafka, other), known.load())
        return Pair(history, kafka, other, judged.unknown, judged.used)

    def _report(self, number: int, plan: Plan, found: Pair) -> None:
        until = time.monotonic() + SHRINKING_S

        def is_the_same(steps: Sequence[int]) -> bool:
            try:
                return time.monotonic() < until and self.compare(plan.only(steps), number).kind == found.kind
            except (NotReady, OSError):
                return False

        kept = shrink(range(len(plan.steps)), is_the_same)
        pair = self.compare(plan.only(kept), number)
        shown = pair if pair.kind else found
        steps = ",".join(map(str, kept))
        print_lines(
            *story(shown.history, shown.kafka, shown.other, names=NAMES),
            f"     generated --seed {self.drawn.seed} --first {number} --count 1 --steps {steps}",
            "",
        )

    def _end(self) -> int:
        kinds = +self.kinds
        for kind, times in kinds.most_common():
            print_lines(f"{times} times: {kind}")
        for why, times in self.listed.most_common():
            print_lines(f"{times} times, listed: {why}")
        print_lines(
            f"{self.compared} histories of seed {self.drawn.seed} in {time.monotonic() - self._began:.0f} s: "
            f"{len(kinds)} kinds of differences that are not listed, in {kinds.total()} histories; "
            f"{len(self.listed)} listed ones; {self.passing} differences did not show again; "
            f"{self.not_ready} histories could not run"
        )
        return int(bool(kinds))


def shrink(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Leave out steps as long as it still fails: larger parts first, then one by one."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    while True:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if fails(fewer):
                kept = fewer
            else:
                at += size
        if size == 1:
            return kept
        size //= 2


def hunt(drawn: Drawn, *, steps: Sequence[int] = ()) -> int:
    """Draw histories and compare them live; returns 1 if an unlisted difference is found. Raises Missing.

    With `steps`, these steps of the first history are run, and its details are printed.
    """
    with brokers("kafka", "raftlog") as sides, ThreadPoolExecutor(2) as threads:
        list(threads.map(partial(Brokers.get, needs=Needs()), sides))
        made = Hunt(sides, drawn)
        if not steps:
            return made.run()
        pair = made.compare(draw_plan(drawn.seed, drawn.first).only(steps), drawn.first)
        print_lines(*story(pair.history, pair.kafka, pair.other, names=NAMES))
        return int(bool(pair.kind))
