"""What expressions match, of very many topics: nothing takes long, nothing is looked at twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftlog.base.errors import GroupMaxSizeReached, InvalidRegularExpression
from raftlog.base.regex import STEPS_AT_ONCE, TEXT_STEPS
from raftlog.coordinator.consumer.draft import MOST_EXPRESSIONS
from raftlog.coordinator.consumer.requests import Heard
from raftlog.coordinator.consumer.topics import KEPT_S, MOST_LOOKS, Topics
from tests.coordinator.journals import Bench, image_of, topic_id

MANY = {f"{number:05}-log": 1 for number in range(20_000)}


class TopicMatcher:
    """Topics, and a clock."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.image = image_of(topics)
        self.topics = Topics(lambda: self.image)
        self.now = 1.0

    def matching(self, regex: str) -> tuple[str, ...] | None:
        return self.topics.matching(regex, self.now)

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
    """Whole names, sorted; internal topics match like any other, as in Apache Kafka."""
    world = TopicMatcher({"b-log": 1, "a-log": 1, "a-log-2": 1, "__consumer_offsets": 1})
    assert world.matching(".*-log") == ("a-log", "b-log")
    assert world.matching(".*") == ("__consumer_offsets", "a-log", "a-log-2", "b-log")
    assert world.matching("[^_].*") == ("a-log", "a-log-2", "b-log")
    assert not world.topics.is_behind
    with pytest.raises(InvalidRegularExpression):
        world.matching("(")


def test_very_many_names_are_looked_at_slice_by_slice():
    """Twenty thousand names take some slices of bounded work, each of them a turn of its own."""
    world = TopicMatcher(MANY)
    assert world.matching("0000[0-4]-.*") is None
    assert world.matching("0000[0-4]-.*") is None, "asking again does not hasten it"
    steps_of_a_name = 600 + 9 * 10
    assert world.work_off() >= len(MANY) * steps_of_a_name // STEPS_AT_ONCE
    assert world.matching("0000[0-4]-.*") == tuple(f"0000{number}-log" for number in range(5))


def test_a_large_expression_sees_fewer_names_at_a_time():
    """Each character may cost as much as the expression is large."""
    small, large = TopicMatcher(MANY), TopicMatcher(MANY)
    assert small.matching(".*x") is None
    assert large.matching("(.*(x|y|zz)){40}") is None
    assert large.work_off() > 3 * small.work_off()


def test_between_two_slices_others_have_the_loop():
    """A slice that is asked for at once after the last one is not looked at."""
    world = TopicMatcher(MANY)
    world.matching(".*x")
    world.topics.work(5.0)
    left = len(world.topics._looks[".*x"].pending)
    world.topics.work(5.001)
    assert len(world.topics._looks[".*x"].pending) == left < len(MANY)


def test_only_new_names_are_looked_at():
    """A topic that came to very many is looked at alone, and one that went is not matched any longer."""
    world = TopicMatcher(MANY)
    world.matching(".*[05]-log")
    world.work_off()
    before = world.matching(".*[05]-log")
    assert before is not None
    world.image = image_of({**MANY, "new0-log": 1})
    assert world.matching(".*[05]-log") == (*before, "new0-log")
    world.image = image_of({name: 1 for name in MANY if name != before[0]})
    assert world.matching(".*[05]-log") == before[1:]


def test_more_expressions_than_are_remembered_all_come_to_an_end(monkeypatch: pytest.MonkeyPatch):
    """Who waits finds what was found for him, however many ask meanwhile: there is no order that starves anybody."""
    world = TopicMatcher(dict(list(MANY.items())[:4_100]))
    monkeypatch.setattr("raftlog.coordinator.consumer.topics.MOST_LOOKS", 10)
    waiting = [f"0000{number % 10}-.*|{number}" for number in range(30)]
    rounds = 0
    while waiting:
        waiting = [each for each in waiting if world.matching(each) is None]
        for _ in range(20):
            world.topics.work(world.now)
            world.now += 0.01
        rounds += 1
        assert len(world.topics._looks) <= 10
        assert rounds <= 10, waiting


def test_what_nobody_comes_for_makes_room():
    """As many groups as are remembered have gone: others are looked at once it is clear that nobody asks again."""
    world = TopicMatcher(dict(list(MANY.items())[:4_100]))
    gone = [f"gone{number}" for number in range(MOST_LOOKS)]
    assert not any(map(world.matching, gone))
    world.work_off()
    assert world.matching("00000-.*") is None
    world.topics.work(world.now)
    assert world.topics.is_behind
    world.now += KEPT_S
    world.work_off()
    assert world.matching("00000-.*") == ("00000-log",)


def test_little_looks_have_one_budget_together():
    """Fifty expressions of one heartbeat take no longer than one that is large: the rest waits."""
    world = TopicMatcher(dict(list(MANY.items())[:1_000]))
    found = [world.matching(f"{number}0.*") for number in range(50)]
    most = STEPS_AT_ONCE // (TEXT_STEPS * 1_000)
    assert 1 <= sum(each is not None for each in found) <= most
    world.work_off()
    assert all(world.matching(f"{number}0.*") is not None for number in range(50))


def test_an_expression_that_waits_takes_no_memory_for_names():
    """A hundred thousand names for each of those that wait would be very much, and a topic's end would take long."""
    world = TopicMatcher(MANY)
    for number in range(MOST_LOOKS):
        world.matching(f"{number}.*")
    assert sum(len(each.pending) for each in world.topics._looks.values()) <= len(MANY)


class Counted(Topics):
    """Counts the looks at expressions."""

    asked = 0

    def matching(self, regex: str, now: float) -> tuple[str, ...] | None:
        self.asked += 1
        return super().matching(regex, now)


def bench(topics: dict[str, int], **settings: Any) -> tuple[Bench, Counted]:
    made = Bench(**settings)
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


def test_who_has_an_expression_that_turns_out_to_match_too_much_is_told_so():
    """It was let in before that was known, and never had anything; the others of the group do not suffer for it."""
    made, topics = bench(MANY)
    heard = made.beat("a", 0, topics=(), regex=".*")
    other = made.beat("b", 0, topics=(), regex=".*7-log")
    until_matched(made, topics)
    other = made.beat("b", other.epoch)
    assert sum(map(len, other.assignment.values())) == len(MANY) // 10
    assert isinstance(made.beat("a", heard.epoch), GroupMaxSizeReached)
    assert set(made.read().consumer.members) == {"b"}
    assert isinstance(made.beat("a", 0, topics=(), regex=".*"), GroupMaxSizeReached)
    assert isinstance(made.beat("c", 0, topics=(), regex=".*[03]-log"), Heard)


def test_a_member_that_tries_again_once_there_are_fewer_topics_is_let_in():
    """What was refused is no longer known once nobody has it."""
    made, topics = bench(MANY)
    made.beat("b", 0, topics=())
    heard = made.beat("a", 0, topics=(), regex=".*")
    until_matched(made, topics)
    made.beat("a", heard.epoch)
    assert isinstance(made.beat("a", heard.epoch), GroupMaxSizeReached)
    made.image = image_of({"t": 1})
    assert made.beat("a", 0, topics=(), regex=".*").assignment == {topic_id("t"): frozenset({0})}


def test_expressions_whose_matches_fit_into_one_batch_each_are_all_read():
    """Together they do not: they are noted one after the other, and a topic that comes is read as well."""
    names = {f"{number:05}-prod.payments.orders": 1 for number in range(2_000)}
    made, _ = bench(names, message_max_bytes=100_000)
    epochs = {f"m{number}": 0 for number in range(4)}
    owned: dict[str, Any] = {each: {} for each in epochs}

    def beat(member_id: str) -> None:
        made.now += 1
        made.tick()
        joining = {"topics": (), "regex": f".*prod.*|{member_id}"} if not epochs[member_id] else {}
        heard = made.beat(member_id, epochs[member_id], **{"owned": owned[member_id], **joining})
        assert isinstance(heard, Heard)
        epochs[member_id] = heard.epoch
        owned[member_id] = owned[member_id] if heard.assignment is None else heard.assignment

    for _ in range(12):
        for each in epochs:
            beat(each)
    assert [sum(map(len, each.values())) for each in owned.values()] == [500] * 4
    made.image = image_of({**names, "new-prod.payments": 1})
    for _ in range(12):
        for each in epochs:
            beat(each)
    assert sum(sum(map(len, each.values())) for each in owned.values()) == 2_001
    assert {len(each.topics) for each in made.read().consumer.regexes.values()} == {2_001}


def test_a_group_has_so_many_expressions_at_most():
    """Each is looked at whenever a topic comes; who shares one is let in."""
    made, _ = bench({"t": 1})
    for number in range(MOST_EXPRESSIONS):
        assert isinstance(made.beat(f"m{number}", 0, topics=(), regex=f"t|{number}"), Heard)
    assert isinstance(made.beat("more", 0, topics=(), regex="more"), GroupMaxSizeReached)
    assert isinstance(made.beat("same", 0, topics=(), regex="t|0"), Heard)
    assert isinstance(made.beat("named", 0), Heard)


def test_what_is_recorded_already_is_not_asked_for_again():
    """A member that comes asks for its own expression alone, while the topics are the same."""
    made, topics = bench({"t": 1})
    for number in range(20):
        made.beat(f"m{number}", 0, topics=(), regex=f"t|{number}")
    assert topics.asked == 20


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
