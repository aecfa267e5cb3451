"""Claims about a run: one system's trouble is a note, and never the end of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from raftlog_chaos.compare.figures import Comparison, Sample
from raftlog_chaos.compare.loads import Load, LoadFailed, TooSlow
from raftlog_chaos.compare.parts.bench import Bench, Part, Scale
from raftlog_chaos.compare.registry import PARTS
from raftlog_chaos.compare.run import Plan, Run
from raftlog_chaos.compare.systems.system import Failed, Missing, Refused, System


class Healthy(System):
    """A system that does no work, and never fails. `log` collects the events of all systems."""

    key = "raftlog"
    title = "raftlog"
    kinds = frozenset()
    warm_up_s = 0.0
    log: list[str] = []

    @classmethod
    def version(cls) -> str:
        return "1"

    def start(self) -> float:
        self.log.append(f"{self.key} start")
        return 0.5

    def close(self) -> None:
        self.log.append(f"{self.key} close")

    def pids(self) -> Sequence[int]:
        return [os.getpid()] * self.nodes

    def create_topic(self, name: str, partitions: int) -> None:
        """It has no topics."""

    def client(self, load: Load) -> Sequence[str]:
        raise NotImplementedError


class Peer(Healthy):
    key = "peer"
    title = "Peer"


class Absent(Healthy):
    key = "absent"
    title = "Absent"

    @classmethod
    def version(cls) -> str:
        raise Missing("there is no absent here")


class Crippled(Healthy):
    key = "crippled"
    title = "Crippled"

    def start(self) -> float:
        raise Failed("node 1 ended: no")


@pytest.fixture(autouse=True)
def empty_log() -> None:
    Healthy.log.clear()


def run(
    folder: Path,
    systems: Sequence[type[System]],
    parts: Sequence[Part],
    *,
    rounds: int = 1,
    limit_s: float = 60.0,
) -> Comparison:
    comparison = Comparison("2026-01-01", {}, [])
    Run(Plan(systems, parts, Scale(), rounds, limit_s, folder), comparison, lambda _: None).run()
    assert not list(folder.iterdir()), "each system's files go with it"
    return comparison


def measure(bench: Bench) -> Iterator[Sample]:
    yield Sample("ready", bench.ready_s, "s", "less")


def failing(error: Exception, system: str) -> Callable[[Bench], Iterator[Sample]]:
    def part(bench: Bench) -> Iterator[Sample]:
        yield Sample("before", 1.0, "s")
        if bench.system.key == system:
            raise error
        yield Sample("after", 1.0, "s")

    return part


def test_every_second_round_goes_the_other_way(tmp_path):
    """A machine that gets slower favours none."""
    found = run(tmp_path, [Healthy, Peer], [Part("ready", "", measure)], rounds=2)
    assert [line for line in Healthy.log if "start" in line] == [
        "raftlog start",
        "peer start",
        "peer start",
        "raftlog start",
    ]
    assert found.figures[0].samples == {"raftlog": {1: 0.5, 2: 0.5}, "peer": {1: 0.5, 2: 0.5}}
    assert found.rounds == 2


def test_a_missing_system_is_reported_and_never_started(tmp_path):
    """Once, not in every round."""
    found = run(tmp_path, [Absent, Healthy], [Part("ready", "", measure)], rounds=2)
    assert [(note.system, note.why) for note in found.notes] == [
        ("absent", "missing: there is no absent here")
    ]
    assert not any("absent" in line for line in Healthy.log)
    assert set(found.figures[0].samples) == {"raftlog"}


def test_a_system_that_does_not_start_is_reported_and_closed(tmp_path):
    """The others go on."""
    found = run(tmp_path, [Crippled, Healthy], [Part("ready", "", measure)])
    assert [(note.system, note.why) for note in found.notes] == [("crippled", "round 1: node 1 ended: no")]
    assert Healthy.log == ["crippled close", "raftlog start", "raftlog close"]


@pytest.mark.parametrize(
    "error",
    [Failed("it died"), TooSlow("it hangs"), LoadFailed("no answer"), OSError("no space"), KeyError(7)],
    ids=repr,
)
def test_a_system_in_trouble_keeps_what_it_has_and_starts_again_for_the_next_part(tmp_path, error):
    """Samples from before the trouble count, and the reason is reported."""
    parts = [Part("first", "", failing(error, "peer")), Part("second", "", measure)]
    found = run(tmp_path, [Peer, Healthy], parts)
    assert set(found.find("first", "before").samples) == {"peer", "raftlog"}
    assert set(found.find("first", "after").samples) == {"raftlog"}
    assert set(found.find("second", "ready").samples) == {"peer", "raftlog"}
    assert [(note.system, note.part) for note in found.notes] == [("peer", "first")]
    assert str(error) in found.notes[0].why
    assert Healthy.log.count("peer start") == Healthy.log.count("peer close") == 2


def test_a_system_that_refuses_goes_on_as_it_is(tmp_path):
    """A refusal is no sign of its health."""
    parts = [Part("first", "", failing(Refused("no such setting"), "peer")), Part("second", "", measure)]
    found = run(tmp_path, [Peer], parts)
    assert [note.why for note in found.notes] == ["no such setting"]
    assert Healthy.log == ["peer start", "peer close"]


def test_no_part_begins_after_the_time_is_over(tmp_path):
    """And each skipped system is reported."""
    found = run(tmp_path, [Healthy, Peer], [Part("ready", "", measure)], limit_s=0.0)
    assert not found.figures
    assert {note.system for note in found.notes} == {"raftlog", "peer"}
    assert Healthy.log == []


def test_a_part_that_starts_clusters_itself_has_the_machine_alone(tmp_path):
    """The cluster of the other parts has ended before, and its own end with it."""

    def part(bench: Bench) -> Iterator[Sample]:
        with bench.open(5) as (system, ready_s):
            assert system.nodes == 5
            yield Sample("ready", ready_s, "s")

    run(tmp_path, [Healthy], [Part("many", "", part, alone=True), Part("ready", "", measure)])
    assert Healthy.log[:2] == ["raftlog start", "raftlog close"]
    assert Healthy.log[2:4] == ["raftlog start", "raftlog close"]


def test_a_part_alone_that_cannot_even_begin_is_reported(tmp_path):
    """A system without free ports, or with a program that does not compile, ends its own part only."""

    class Unmade(Peer):
        def __init__(self, folder: Path, nodes: int = 3) -> None:
            raise ZeroDivisionError("no nodes")

    found = run(tmp_path, [Unmade, Healthy], [Part("many", "", measure, alone=True)])
    assert [(note.system, note.why) for note in found.notes] == [
        ("peer", "round 1: ZeroDivisionError: no nodes")
    ]
    assert set(found.find("many", "ready").samples) == {"raftlog"}


def test_a_disk_that_cannot_be_made_slower_is_reported_and_no_part_starts(tmp_path):
    """A figure of an unchanged disk would be taken for that of a slow disk."""
    found = run(tmp_path, [Peer], [PARTS["slow-disk"]])
    assert [(note.part, note.why) for note in found.notes] == [
        ("slow-disk", "its disk can't be made slower here")
    ]
    assert not any("start" in line for line in Healthy.log)


@pytest.mark.parametrize("part", [PARTS["ready"].measure, PARTS["memory"].measure], ids=["ready", "memory"])
def test_a_system_that_died_has_no_memory_and_no_cpu(tmp_path, part):
    """The sum over the remaining nodes would be taken for the sum over all."""

    class Dead(Peer):
        kinds = frozenset({"produce"})

        def pids(self) -> Sequence[int]:
            return []

    found = run(tmp_path, [Dead], [Part("rest", "", part, cold=True)])
    assert [(note.part, note.why) for note in found.notes] == [
        ("rest", "round 1: 3 of its 3 processes ended")
    ]
    assert {each.name for each in found.figures} <= {"three nodes ready"}


def test_a_load_in_which_a_node_died_is_no_figure(tmp_path):
    """Two of three nodes are another system, whatever they reach."""

    class Dying(Peer):
        kinds = frozenset({"produce"})
        looks = 0

        def pids(self) -> Sequence[int]:
            self.looks += 1
            return [os.getpid()] * (3 if self.looks <= 2 else 2)

        def client(self, load: Load) -> Sequence[str]:
            answer = '{"records": 2000, "seconds": 0.5, "client_s": 0.1}'
            return [sys.executable, "-c", f"print('begin\\nend\\n{answer}')"]

    with pytest.raises(Failed, match="1 of its 3 processes ended"):
        Dying(tmp_path).run(Load(kind="produce", seconds=0.1, warmup_s=0.0))


def test_a_part_that_runs_once_comes_after_the_first_round_and_for_no_variant(tmp_path):
    """It would only say the same again."""

    class Variant(Peer):
        variant = True

    parts = [Part("growth", "", measure, once=True), Part("ready", "", measure)]
    found = run(tmp_path, [Healthy, Variant], parts, rounds=3)
    assert [each.part for each in found.figures] == ["ready", "growth"]
    assert found.find("growth", "ready").samples == {"raftlog": {1: 0.5}}


def test_parts_without_a_figure_are_reported_as_out_of_time(tmp_path):
    """Further rounds only make figures better."""
    asked = []

    def once(bench: Bench) -> Iterator[Sample]:
        asked.append(bench.again)
        yield from measure(bench)

    found = run(tmp_path, [Healthy], [Part("ready", "", once)], rounds=2)
    assert asked == [False, True]
    assert not found.notes
    late = run(tmp_path, [Healthy], [Part("ready", "", once)], rounds=2, limit_s=0.0)
    assert [note.why for note in late.notes] == ["round 1: no time was left"]
    assert late.rounds == 1
