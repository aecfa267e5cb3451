"""Runs many histories: on Apache Kafka and raftlog side by side, on raftlog against recordings, or to record Kafka."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby

from raftlog_chaos.compare.systems.kafka import Kafka
from raftlog_chaos.conformance import known, recordings
from raftlog_chaos.conformance.brokers import Brokers, brokers
from raftlog_chaos.conformance.compare import Observation, differences, is_broken, observe, story
from raftlog_chaos.conformance.differences import Known, judge
from raftlog_chaos.conformance.history import History, load

NAMES = ("Kafka 4.3", "raftlog")


def print_lines(*lines: str) -> None:
    """Print lines as they come."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


class Findings:
    """The differences that comparing histories finds, printed as they come."""

    def __init__(self, *, all_stories: bool = False) -> None:
        self.compared = 0
        self.differing: list[str] = []
        self.used: list[Known] = []
        self._all_stories = all_stories

    def add(self, history: History, kafka: Observation, other: Observation) -> None:
        """Compare two observations of a history."""
        self.compared += 1
        judged = judge(differences(history.label, kafka, other), known.load())
        self.used += judged.used
        is_bad = bool(judged.unknown) or is_broken(kafka)
        if is_bad:
            self.differing.append(history.label)
        if is_bad or self._all_stories:
            print_lines(*story(history, kafka, other, names=NAMES), "")

    def stale(self, histories: Sequence[History]) -> list[Known]:
        """Return the entries that no history showed, where all of their histories ran."""
        others = load().keys() - {each.label for each in histories}
        unused = [each for each in known.load() if not each.is_drawn and each not in self.used]
        return [each for each in unused if not each.is_about(others)]

    def end(self, histories: Sequence[History], *, strict: bool) -> int:
        """Print the sum; returns 1 if something is to be done."""
        stale = self.stale(histories)
        opened = {each.why for each in self.used if each.kind == "open"}
        for each in stale:
            print_lines(f"no history shows this any more: {each.histories}: {each.why}")
        for why in sorted(opened):
            print_lines(f"open: {why}")
        print_lines(
            f"{self.compared} histories: {len(self.differing)} differ in a way that is not listed, "
            f"{len(set(self.used))} listed differences seen, {len(stale)} not seen any more, {len(opened)} open"
        )
        return int(bool(self.differing or stale or (strict and opened)))


def in_order(histories: Sequence[History]) -> list[History]:
    """Return histories with equal needs beside each other, so that few brokers run at once."""
    return sorted(histories, key=lambda each: each.needs)


def compare_live(histories: Sequence[History], *, strict: bool = False, all_stories: bool = False) -> int:
    """Run histories on Kafka and on raftlog, and print what differs; returns 1 if something does. Raises Missing."""
    found = Findings(all_stories=all_stories)
    with brokers("kafka", "raftlog") as sides, ThreadPoolExecutor(2) as threads:
        for needs, group in groupby(in_order(histories), lambda each: each.needs):
            list(threads.map(partial(Brokers.get, needs=needs), sides))
            for history in group:
                kafka, other = threads.map(partial(run_on, history=history), sides)
                found.add(history, kafka, other)
            for side in sides:
                side.release(needs)
    return found.end(histories, strict=strict)


def run_on(side: Brokers, history: History) -> Observation:
    """Run a history on a broker of one kind."""
    system = side.get(history.needs)
    steps = observe(history, system.servers(), world=system)
    if history.needs.restarts:
        system.restart()
    return steps


def compare_recorded(histories: Sequence[History], *, strict: bool = False, all_stories: bool = False) -> int:
    """Run histories on raftlog alone, and compare it with Kafka's recorded answers."""
    found = Findings(all_stories=all_stories)
    with brokers("raftlog") as (side,):
        for each in in_order(histories):
            kafka = recordings.read(each.subject)["histories"].get(each.name)
            if kafka is None:
                print_lines(f"{each.label}: Kafka's answers are not recorded: make kafka-record")
                found.differing.append(each.label)
                continue
            found.add(each, kafka, run_on(side, each))
    return found.end(histories, strict=strict)


def record(histories: Sequence[History], *, date: str) -> int:
    """Run histories on Kafka and write its answers; the rest of a subject's file stays. Raises Missing or Failed."""
    version = Kafka.version()
    answers: dict[str, dict[str, Observation]] = {}
    with brokers("kafka") as (side,):
        for needs, group in groupby(in_order(histories), lambda each: each.needs):
            for each in group:
                steps = run_on(side, each)
                if is_broken(steps):
                    print_lines(f"{each.label}: {steps[-1]['answer']}")
                    return 1
                answers.setdefault(each.subject, {})[each.name] = steps
            side.release(needs)
    for subject, found in answers.items():
        recordings.write(subject, version, date, {**recordings.read(subject)["histories"], **found})
    print_lines(f"{len(histories)} histories recorded")
    return 0
