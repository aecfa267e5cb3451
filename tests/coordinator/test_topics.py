"""What expressions match, of very many topics: nothing takes long, nothing is looked at twice."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.base.errors import InvalidRegularExpression
from raftlog.coordinator.consumer.requests import Heard
from raftlog.coordinator.consumer.topics import SLICE_STEPS, Topics
from raftlog.coordinator.regex import MOST_REMEMBERED
from tests.coordinator.journals import Bench, image_of, topic_id

MANY = {f"{number:05}-log": 1 for number in range(20_000)}


class World:
    """Topics, and a clock."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.image = image_of(topics)
        self.topics = Topics(lambda: self.image)
        self.now = 1.0

    def work_off(self) -> int:
        """Look until nothing is left to look at; returns in how many slices."""
        slices = 0
        while self.topics.is_behind:
            assert self.topics.due_at <= self.now, "others have had the loop for long enough"
            self.topics.work(self.now)
            self.now += 1
            slices += 1
        return slices


def test_few_names_are_looked_at_where_they_are_asked_for():
    """Whole names, sorted; internal topics never match."""
    world = World({"b-log": 1, "a-log": 1, "a-log-2": 1, "__consumer_offsets": 1})
    assert world.topics.matching(".*-log") == ("a-log", "b-log")
    assert world.topics.matching(".*") == ("a-log", "a-log-2", "b-log")
    assert not world.topics.is_behind
    with pytest.raises(InvalidRegularExpression):
        world.topics.matching("(")


def test_very_many_names_are_looked_at_slice_by_slice():
    """Twenty thousand names take some slices of bounded work, each of them a turn of its own."""
    world = World(MANY)
    assert world.topics.matching("0000[0-4]-.*") is None
    assert world.topics.matching("0000[0-4]-.*") is None, "asking again does not hasten it"
    steps_of_a_name = 600 + 9 * 10
    assert world.work_off() >= len(MANY) * steps_of_a_name // SLICE_STEPS
    assert world.topics.matching("0000[0-4]-.*") == tuple(f"0000{number}-log" for number in range(5))


def test_a_large_expression_sees_fewer_names_at_a_time():
    """Each character may cost as much as the expression is large."""
    small, large = World(MANY), World(MANY)
    assert small.topics.matching(".*x") is None
    assert large.topics.matching("(.*(x|y|zz)){40}") is None
    assert large.work_off() > 3 * small.work_off()


def test_between_two_slices_others_have_the_loop():
    """A slice that is asked for at once after the last one is not looked at."""
    world = World(MANY)
    world.topics.matching(".*x")
    world.topics.work(5.0)
    left = len(world.topics._looks[".*x"].pending)
    world.topics.work(5.001)
    assert len(world.topics._looks[".*x"].pending) == left < len(MANY)


def test_only_new_names_are_looked_at():
    """A topic that came to very many is looked at alone, and one that went is not matched any longer."""
    world = World(MANY)
    world.topics.matching(".*[05]-log")
    world.work_off()
    before = world.topics.matching(".*[05]-log")
    assert before is not None
    world.image = image_of({**MANY, "new0-log": 1})
    assert world.topics.matching(".*[05]-log") == (*before, "new0-log")
    world.image = image_of({name: 1 for name in MANY if name != before[0]})
    assert world.topics.matching(".*[05]-log") == before[1:]


def test_more_expressions_than_are_remembered_all_come_to_an_end():
    """None that is still looked at is forgotten; who comes too many waits."""
    world = World(dict(list(MANY.items())[:4_100]))
    wanted = [f"0000{number % 10}-.*|{number}" for number in range(MOST_REMEMBERED + 3)]
    assert [world.topics.matching(each) for each in wanted] == [None] * len(wanted)
    world.work_off()
    assert world.topics.matching(wanted[0]) == ("00000-log",)
    assert world.topics.matching(wanted[-1]) is None
    world.work_off()
    assert world.topics.matching(wanted[-1])


class Counted(Topics):
    """Counts the looks at expressions."""

    asked = 0

    def matching(self, regex: str) -> tuple[str, ...] | None:
        self.asked += 1
        return super().matching(regex)


def bench(topics: dict[str, int]) -> tuple[Bench, Counted]:
    made = Bench()
    made.image = image_of(topics)
    counted = Counted(lambda: made.image)
    made.coordinator._groups.topics = counted
    return made, counted


def until_matched(made: Bench, topics: Topics) -> None:
    while topics.is_behind:
        assert made.coordinator.next_expiry_at() is not None
        made.now += 0.1
        made.tick()


def test_heartbeats_go_on_while_names_are_looked_at():
    """A member has nothing of an expression until that was looked at, then all with its next heartbeat."""
    made, topics = bench(MANY)
    first = made.beat("a", 0, topics=(), regex="0000[0-4]-log")
    assert first.assignment == {}
    assert made.beat("a", first.epoch).epoch == first.epoch
    until_matched(made, topics)
    second = made.beat("a", first.epoch)
    assert set(second.assignment) == {topic_id(f"0000{number}-log") for number in range(5)}
    assert made.beat("a", second.epoch).epoch == second.epoch


def test_what_was_matched_stands_while_a_new_coordinator_looks():
    """It knows nothing of the names yet, but what is recorded."""
    made, topics = bench(MANY)
    heard = made.beat("a", 0, topics=(), regex="00000-log")
    until_matched(made, topics)
    heard = made.beat("a", heard.epoch)
    made.fail_over()
    again = made.beat("a", heard.epoch, owned=heard.assignment)
    assert again.epoch == heard.epoch
    assert made.coordinator._groups.topics.is_behind
    until_matched(made, made.coordinator._groups.topics)
    assert made.beat("a", heard.epoch, owned=heard.assignment).epoch == heard.epoch


def test_an_expression_that_turns_out_to_match_too_much_matches_nothing():
    """Its member is in by then, and the others of the group must not suffer for it."""
    made, topics = bench(MANY)
    heard = made.beat("a", 0, topics=(), regex=".*")
    until_matched(made, topics)
    assert made.beat("a", heard.epoch).epoch == heard.epoch
    assert made.beat("b", 0, topics=("00007-log",)).assignment == {topic_id("00007-log"): frozenset({0})}
    assert isinstance(made.beat("c", 0, topics=(), regex=".*g"), Heard)


def test_changes_of_leaders_and_replicas_are_no_reason_to_look():
    """A rolling restart changes each topic's state many times, and nothing that a group reads."""
    made, topics = bench({"t": 2, "u": 1})
    heard = made.beat("a", 0, topics=("u",), regex="t")
    asked = topics.asked
    made.image = msgspec.structs.replace(made.image, topics=dict(made.image.topics))
    made.beat("a", heard.epoch)
    assert topics.asked == asked
    made.image = image_of({"t": 3, "u": 1})
    assert made.beat("a", heard.epoch).epoch > heard.epoch
    assert topics.asked > asked
