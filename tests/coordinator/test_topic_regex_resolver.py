"""Expressions are matched against very many topics: no slice takes long, no topic is matched twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftlog.base.errors import GroupMaxSizeReached, InvalidRegularExpression
from raftlog.base.regex import STEPS_AT_ONCE, TEXT_STEPS
from raftlog.coordinator.consumer.decision_builder import MAX_REGEXES
from raftlog.coordinator.consumer.heartbeat_requests import ConsumerGroupHeartbeatResult
from raftlog.coordinator.consumer.topic_regex_resolver import (
    KEPT_S,
    MAX_CACHED_REGEXES,
    RIGHTS_STEPS,
    TopicRegexResolver,
    Viewer,
)
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from tests.coordinator.group_coordinator_setup import GroupCoordinatorSetup, image_of, topic_id

MANY = {f"{number:05}-log": 1 for number in range(20_000)}


class TopicMatcher:
    """Topics, and a clock."""

    def __init__(self, topics: dict[str, int], *rules: Acl) -> None:
        self.image = image_of(topics)
        self.rules = Authorizer(rules, super_users=["User:root"])
        self.topics = TopicRegexResolver(lambda: self.image, self.rules)
        self.now = 1.0

    def resolve(self, regex: str, viewer: Viewer | None = None) -> tuple[str, ...] | None:
        return self.topics.resolve(regex, self.now, viewer)

    def work_off(self) -> int:
        """Run slices until the work is done; return their number."""
        slices = 0
        while self.topics.has_work:
            assert self.topics.due_at <= self.now, "others have had the loop for long enough"
            self.topics.run_slice(self.now)
            self.now += 1
            slices += 1
        return slices


def test_few_names_are_looked_at_where_they_are_asked_for():
    """Whole names, sorted; internal topics match like any other, as in Apache Kafka."""
    matcher = TopicMatcher({"b-log": 1, "a-log": 1, "a-log-2": 1, "__consumer_offsets": 1})
    assert matcher.resolve(".*-log") == ("a-log", "b-log")
    assert matcher.resolve(".*") == ("__consumer_offsets", "a-log", "a-log-2", "b-log")
    assert matcher.resolve("[^_].*") == ("a-log", "a-log-2", "b-log")
    assert not matcher.topics.has_work
    with pytest.raises(InvalidRegularExpression):
        matcher.resolve("(")


def test_very_many_names_are_looked_at_slice_by_slice():
    """Twenty thousand names take some slices of bounded work, each of them a turn of its own."""
    matcher = TopicMatcher(MANY)
    assert matcher.resolve("0000[0-4]-.*") is None
    assert matcher.resolve("0000[0-4]-.*") is None, "asking again does not hasten it"
    steps_of_a_name = 600 + 9 * 10
    assert matcher.work_off() >= len(MANY) * steps_of_a_name // STEPS_AT_ONCE
    assert matcher.resolve("0000[0-4]-.*") == tuple(f"0000{number}-log" for number in range(5))


def test_a_large_expression_sees_fewer_names_at_a_time():
    """Each character may cost as much as the expression is large."""
    small, large = TopicMatcher(MANY), TopicMatcher(MANY)
    assert small.resolve(".*x") is None
    assert large.resolve("(.*(x|y|zz)){40}") is None
    assert large.work_off() > 3 * small.work_off()


def test_between_two_slices_others_have_the_loop():
    """A slice that is requested right after the last does no work."""
    matcher = TopicMatcher(MANY)
    matcher.resolve(".*x")
    matcher.topics.run_slice(5.0)
    left = len(matcher.topics._looks[".*x", None].pending)
    matcher.topics.run_slice(5.001)
    assert len(matcher.topics._looks[".*x", None].pending) == left < len(MANY)


def test_only_new_names_are_looked_at():
    """A topic that is added to very many is matched alone, and a removed topic is not matched any longer."""
    matcher = TopicMatcher(MANY)
    matcher.resolve(".*[05]-log")
    matcher.work_off()
    before = matcher.resolve(".*[05]-log")
    assert before is not None
    matcher.image = image_of({**MANY, "new0-log": 1})
    assert matcher.resolve(".*[05]-log") == (*before, "new0-log")
    matcher.image = image_of({name: 1 for name in MANY if name != before[0]})
    assert matcher.resolve(".*[05]-log") == before[1:]


def test_more_expressions_than_are_remembered_all_come_to_an_end(monkeypatch: pytest.MonkeyPatch):
    """A waiting member finds what was found for it, however many ask meanwhile: no order starves anybody."""
    matcher = TopicMatcher(dict(list(MANY.items())[:4_100]))
    monkeypatch.setattr("raftlog.coordinator.consumer.topic_regex_resolver.MAX_CACHED_REGEXES", 10)
    waiting = [f"0000{number % 10}-.*|{number}" for number in range(30)]
    rounds = 0
    while waiting:
        waiting = [each for each in waiting if matcher.resolve(each) is None]
        for _ in range(20):
            matcher.topics.run_slice(matcher.now)
            matcher.now += 0.01
        rounds += 1
        assert len(matcher.topics._looks) <= 10
        assert rounds <= 10, waiting


def test_matches_that_no_group_asks_for_are_evicted():
    """As many groups as are remembered have gone: others are matched once it is clear that they stay away."""
    matcher = TopicMatcher(dict(list(MANY.items())[:4_100]))
    gone = [f"gone{number}" for number in range(MAX_CACHED_REGEXES)]
    assert not any(map(matcher.resolve, gone))
    matcher.work_off()
    assert matcher.resolve("00000-.*") is None
    matcher.topics.run_slice(matcher.now)
    assert matcher.topics.has_work
    matcher.now += KEPT_S
    matcher.work_off()
    assert matcher.resolve("00000-.*") == ("00000-log",)


def test_small_expressions_share_one_evaluation_budget():
    """Fifty expressions in a heartbeat take no longer than a large expression: the rest waits."""
    matcher = TopicMatcher(dict(list(MANY.items())[:1_000]))
    found = [matcher.resolve(f"{number}0.*") for number in range(50)]
    most = STEPS_AT_ONCE // (TEXT_STEPS * 1_000)
    assert 1 <= sum(each is not None for each in found) <= most
    matcher.work_off()
    assert all(matcher.resolve(f"{number}0.*") is not None for number in range(50))


def test_an_expression_that_waits_takes_no_memory_for_names():
    """A hundred thousand names for each waiting expression would be very much, and slow down a topic's end."""
    matcher = TopicMatcher(MANY)
    for number in range(MAX_CACHED_REGEXES):
        matcher.resolve(f"{number}.*")
    assert sum(len(each.pending) for each in matcher.topics._looks.values()) <= len(MANY)


ALICE, BOB = Viewer("User:alice", "10.0.0.1"), Viewer("User:bob", "10.0.0.1")


def rule(
    name: str,
    user: Viewer = ALICE,
    operation: Operation = Operation.DESCRIBE,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.PREFIXED,
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, user.principal, "*", operation, permission)


def test_an_expression_matches_what_its_viewer_may_describe():
    """Some other right includes it, a rule that denies wins, and a super user sees all, as in Apache Kafka."""
    matcher = TopicMatcher(
        {"a-log": 1, "a-secret": 1, "b-log": 1},
        rule("a-"),
        rule("a-s", permission=Permission.DENY),
        rule("b-log", BOB, Operation.READ, pattern=PatternType.LITERAL),
    )
    assert matcher.resolve(".*", ALICE) == ("a-log",)
    assert matcher.resolve(".*", BOB) == ("b-log",)
    assert matcher.resolve(".*", Viewer("User:eve", "10.0.0.1")) == ()
    for all_seeing in (None, Viewer("User:root", "10.0.0.1")):
        assert matcher.resolve(".*", all_seeing) == ("a-log", "a-secret", "b-log")


def test_an_acl_is_in_force_for_its_principal_from_its_change_on():
    """Expressions of others are not looked at again; a rule about everybody is about each of them."""
    matcher = TopicMatcher({"a-log": 1, "b-log": 1}, rule("a-"), rule("b-", BOB))
    assert (matcher.resolve(".*", ALICE), matcher.resolve(".*", BOB)) == (("a-log",), ("b-log",))
    of_bob = matcher.topics._looks[".*", BOB]
    matcher.rules.change(removed=[rule("a-")])
    assert (matcher.resolve(".*", ALICE), matcher.resolve(".*", BOB)) == ((), ("b-log",))
    assert matcher.topics._looks[".*", BOB] is of_bob
    matcher.rules.change(added=[rule("a-", Viewer("User:*", ""))])
    assert (matcher.resolve(".*", ALICE), matcher.resolve(".*", BOB)) == (("a-log",), ("a-log", "b-log"))


def test_rights_to_very_many_topics_are_looked_at_slice_by_slice():
    """A rule that comes meanwhile has all names looked at again, and answers that were kept for others stay."""
    matcher = TopicMatcher(MANY, rule("0000"))
    assert matcher.resolve(".*-log", ALICE) is None
    assert matcher.work_off() >= len(MANY) * (TEXT_STEPS + RIGHTS_STEPS) // STEPS_AT_ONCE
    assert matcher.resolve(".*-log", ALICE) == tuple(f"0000{number}-log" for number in range(10))
    assert matcher.rules._kept == 0
    assert matcher.resolve(".*0-log", ALICE) is None
    matcher.topics.run_slice(matcher.now)
    matcher.now += 1
    matcher.rules.change(added=[rule("1999")], removed=[rule("0000")])
    matcher.work_off()
    assert matcher.resolve(".*0-log", ALICE) == ("19990-log",)


class CountingResolver(TopicRegexResolver):
    """Counts the looks at expressions."""

    asked = 0

    def resolve(self, regex: str, now: float, viewer: Viewer | None = None) -> tuple[str, ...] | None:
        self.asked += 1
        return super().resolve(regex, now, viewer)


def bench(topics: dict[str, int], **settings: Any) -> tuple[GroupCoordinatorSetup, CountingResolver]:
    made = GroupCoordinatorSetup(**settings)
    made.image = image_of(topics)
    counted = CountingResolver(lambda: made.image)
    made.coordinator._groups.topics = counted
    return made, counted


def until_matched(made: GroupCoordinatorSetup, topics: TopicRegexResolver) -> None:
    while topics.has_work:
        assert made.coordinator.next_expiry_at() is not None
        made.now += 0.1
        made.tick()


def test_heartbeats_go_on_while_names_are_looked_at():
    """A member reads no topic of an expression until it was matched, then all with its next heartbeat."""
    made, topics = bench(MANY)
    first = made.consumer_group_heartbeat("a", 0, topics=(), regex="0000[0-4]-log")
    assert first.assignment == {}
    assert made.consumer_group_heartbeat("a", first.epoch).epoch == first.epoch
    until_matched(made, topics)
    second = made.consumer_group_heartbeat("a", first.epoch)
    assert set(second.assignment) == {topic_id(f"0000{number}-log") for number in range(5)}
    assert made.consumer_group_heartbeat("a", second.epoch).epoch == second.epoch


def test_what_was_matched_stands_while_a_new_coordinator_looks():
    """It knows the recorded matches, but not the names yet."""
    made, topics = bench(MANY)
    heard = made.consumer_group_heartbeat("a", 0, topics=(), regex="00000-log")
    until_matched(made, topics)
    heard = made.consumer_group_heartbeat("a", heard.epoch)
    made.fail_over()
    again = made.consumer_group_heartbeat("a", heard.epoch, owned=heard.assignment)
    assert again.epoch == heard.epoch
    assert made.coordinator._groups.topics.has_work
    until_matched(made, made.coordinator._groups.topics)
    assert made.consumer_group_heartbeat("a", heard.epoch, owned=heard.assignment).epoch == heard.epoch


def test_a_member_whose_expression_matches_too_many_topics_gets_an_error():
    """It was let in before that was known, and never had anything; the others of the group do not suffer for it."""
    made, topics = bench(MANY)
    heard = made.consumer_group_heartbeat("a", 0, topics=(), regex=".*")
    other = made.consumer_group_heartbeat("b", 0, topics=(), regex=".*7-log")
    until_matched(made, topics)
    other = made.consumer_group_heartbeat("b", other.epoch)
    assert sum(map(len, other.assignment.values())) == len(MANY) // 10
    assert isinstance(made.consumer_group_heartbeat("a", heard.epoch), GroupMaxSizeReached)
    assert set(made.read().consumer.members) == {"b"}
    assert isinstance(made.consumer_group_heartbeat("a", 0, topics=(), regex=".*"), GroupMaxSizeReached)
    assert isinstance(
        made.consumer_group_heartbeat("c", 0, topics=(), regex=".*[03]-log"), ConsumerGroupHeartbeatResult
    )


def test_a_member_that_tries_again_once_there_are_fewer_topics_is_let_in():
    """A refused expression is no longer known once no member has it."""
    made, topics = bench(MANY)
    made.consumer_group_heartbeat("b", 0, topics=())
    heard = made.consumer_group_heartbeat("a", 0, topics=(), regex=".*")
    until_matched(made, topics)
    made.consumer_group_heartbeat("a", heard.epoch)
    assert isinstance(made.consumer_group_heartbeat("a", heard.epoch), GroupMaxSizeReached)
    made.image = image_of({"t": 1})
    assert made.consumer_group_heartbeat("a", 0, topics=(), regex=".*").assignment == {
        topic_id("t"): frozenset({0})
    }


def test_expressions_whose_matches_fit_into_one_batch_each_are_all_read():
    """Together they do not: they are recorded in sequence, and a new topic is read as well."""
    names = {f"{number:05}-prod.payments.orders": 1 for number in range(2_000)}
    made, _ = bench(names, message_max_bytes=100_000)
    epochs = {f"m{number}": 0 for number in range(4)}
    owned: dict[str, Any] = {each: {} for each in epochs}

    def beat(member_id: str) -> None:
        made.now += 1
        made.tick()
        joining = {"topics": (), "regex": f".*prod.*|{member_id}"} if not epochs[member_id] else {}
        heard = made.consumer_group_heartbeat(
            member_id, epochs[member_id], **{"owned": owned[member_id], **joining}
        )
        assert isinstance(heard, ConsumerGroupHeartbeatResult)
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
    """Each is matched whenever a topic comes; a member with a known expression is admitted."""
    made, _ = bench({"t": 1})
    for number in range(MAX_REGEXES):
        assert isinstance(
            made.consumer_group_heartbeat(f"m{number}", 0, topics=(), regex=f"t|{number}"),
            ConsumerGroupHeartbeatResult,
        )
    assert isinstance(made.consumer_group_heartbeat("more", 0, topics=(), regex="more"), GroupMaxSizeReached)
    assert isinstance(
        made.consumer_group_heartbeat("same", 0, topics=(), regex="t|0"), ConsumerGroupHeartbeatResult
    )
    assert isinstance(made.consumer_group_heartbeat("named", 0), ConsumerGroupHeartbeatResult)


def test_what_is_recorded_already_is_not_asked_for_again():
    """A member that comes asks for its own expression alone, while the topics are the same."""
    made, topics = bench({"t": 1})
    for number in range(20):
        made.consumer_group_heartbeat(f"m{number}", 0, topics=(), regex=f"t|{number}")
    assert topics.asked == 20


def test_changes_of_leaders_and_replicas_are_no_reason_to_look():
    """A rolling restart changes each topic's state many times, without effect on a group's topics."""
    made, topics = bench({"t": 2, "u": 1})
    heard = made.consumer_group_heartbeat("a", 0, topics=("u",), regex="t")
    asked = topics.asked
    made.image = msgspec.structs.replace(made.image, topics=dict(made.image.topics))
    made.consumer_group_heartbeat("a", heard.epoch)
    assert topics.asked == asked
    made.image = image_of({"t": 3, "u": 1})
    assert made.consumer_group_heartbeat("a", heard.epoch).epoch > heard.epoch
    assert topics.asked > asked


def topics_of(made: GroupCoordinatorSetup) -> set[str]:
    """Return the topics that the only expression of the group is recorded to match."""
    (resolved,) = made.read().consumer.regexes.values()
    return set(resolved.topics)


def guarded(
    topics: dict[str, int], *rules: Acl
) -> tuple[GroupCoordinatorSetup, Authorizer, CountingResolver]:
    made, _ = bench(topics)
    authorizer = Authorizer(rules)
    counted = CountingResolver(lambda: made.image, authorizer)
    made.coordinator._groups.topics = counted
    return made, authorizer, counted


def test_a_right_that_is_taken_away_takes_the_topic_from_the_group():
    """With the next heartbeat; Apache Kafka waits for up to ten minutes. A right that is given brings it back."""
    made, rules, _ = guarded({"a": 1, "b": 1}, rule("a"), rule("b"))
    heard = made.consumer_group_heartbeat("m", 0, topics=(), regex=".*", viewer=ALICE)
    assert set(heard.assignment) == {topic_id("a"), topic_id("b")}
    rules.change(removed=[rule("b")])
    told = made.consumer_group_heartbeat("m", heard.epoch, owned=heard.assignment, viewer=ALICE)
    assert set(told.assignment) == {topic_id("a")}, "it is told to give up the rest"
    heard = made.consumer_group_heartbeat("m", told.epoch, owned=told.assignment, viewer=ALICE)
    assert heard.epoch > told.epoch and topics_of(made) == {"a"}
    rules.change(added=[rule("b")])
    heard = made.consumer_group_heartbeat("m", heard.epoch, owned=told.assignment, viewer=ALICE)
    assert set(heard.assignment) == {topic_id("a"), topic_id("b")}


def test_the_rights_of_the_member_that_resolves_an_expression_apply_to_the_whole_group():
    """As in Apache Kafka: a group has one result for an expression. It stands until topics or those rules change."""
    made, rules, counted = guarded({"a": 1, "b": 1}, rule("a"), rule("b", BOB))
    first = made.consumer_group_heartbeat("m", 0, topics=(), regex=".*", viewer=ALICE)
    second = made.consumer_group_heartbeat("n", 0, topics=(), regex=".*", viewer=BOB)
    assert topics_of(made) == {"a"}
    asked = counted.asked
    rules.change(added=[rule("other", BOB)])
    made.consumer_group_heartbeat("m", first.epoch, viewer=ALICE)
    assert (counted.asked, topics_of(made)) == (asked, {"a"}), "no rule about alice has changed"
    rules.change(added=[rule("other")])
    made.consumer_group_heartbeat("n", second.epoch, viewer=BOB)
    assert topics_of(made) == {"b"}


def test_a_rule_that_comes_while_names_are_looked_at_is_heeded():
    """The group goes on with what it matched before, and then matches by the rules of now."""
    made, rules, counted = guarded(MANY, rule("00000"))
    heard = made.consumer_group_heartbeat("m", 0, topics=(), regex="0000.*", viewer=ALICE)
    until_matched(made, counted)
    heard = made.consumer_group_heartbeat("m", heard.epoch, viewer=ALICE)
    assert topics_of(made) == {"00000-log"}
    rules.change(added=[rule("00001")])
    heard = made.consumer_group_heartbeat("m", heard.epoch, owned=heard.assignment, viewer=ALICE)
    assert counted.has_work and topics_of(made) == {"00000-log"}
    rules.change(added=[rule("00002")], removed=[rule("00000")])
    until_matched(made, counted)
    made.consumer_group_heartbeat("m", heard.epoch, viewer=ALICE)
    assert topics_of(made) == {"00001-log", "00002-log"}


def test_rules_cost_groups_without_expressions_nothing():
    """Only what an expression matches depends on rights."""
    made, rules, _ = guarded({"t": 1})
    heard = made.consumer_group_heartbeat("m", 0, topics=("t",), viewer=ALICE)
    rules.change(added=[rule("t", Viewer("User:*", ""))])
    before = made.end_offset
    assert made.consumer_group_heartbeat("m", heard.epoch, viewer=ALICE).epoch == heard.epoch
    assert made.end_offset == before
