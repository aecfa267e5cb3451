"""Claims about the events that a coordinator keeps of its groups: what happened, when, because of what; and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.errors import NotCoordinator
from raftlog.base.group_events import GroupEvent
from raftlog.coordinator.consumer.consumer_membership import MemberMetadata
from raftlog.coordinator.group import Group
from raftlog.coordinator.group_history import (
    KEPT_OF_GROUP,
    MAX_TEXT_CHARS,
    MAX_TOPIC_CHARS,
    SAME_IN_A_ROW,
    GroupHistory,
    HistoryMemory,
)
from raftlog.coordinator.group_requests import DeleteGroup, DeleteOffsets, LeaveGroup, MemberRef
from raftlog.coordinator.record_fields import I16, I32, string
from tests.coordinator.group_coordinator_setup import GroupCoordinatorSetup, image_of


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription v0."""
    return I16.pack(0) + I32.pack(len(topics)) + b"".join(map(string, topics)) + I32.pack(-1)


def protocols(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", subscription(*topics)),)


def events(setup: GroupCoordinatorSetup, group_id: str = "g") -> list[GroupEvent]:
    return setup.coordinator.events_of(group_id)[0]


def kinds(setup: GroupCoordinatorSetup, group_id: str = "g") -> list[str]:
    return [each.what for each in events(setup, group_id)]


@pytest.fixture
def setup() -> GroupCoordinatorSetup:
    return GroupCoordinatorSetup()


def test_history_of_a_classic_group_goes_from_its_first_member_to_its_last(
    setup: GroupCoordinatorSetup,
) -> None:
    """Joined, a generation, its assignments, left with the client's reason (KIP-800), empty."""
    member_id = setup.join().member_id
    joined = setup.join(member_id, reason="it starts")
    setup.now += 0.25
    setup.sync(member_id, joined.generation)
    assert kinds(setup) == ["group_created", "member_joined", "generation_began"]
    _, member, generation = events(setup)
    assert (member.client_id, member.client_host, member.detail) == ("client", "/127.0.0.1", "it starts")
    assert (generation.number, generation.count, generation.settled_ms) == (1, 1, 250)
    setup.now += 5
    leave = LeaveGroup("g", MemberRef(member_id), "consumer poll timeout has expired.")
    setup.ask(setup.coordinator.leave, leave, at=setup.moment)
    assert kinds(setup)[3:] == ["member_left", "group_emptied"]
    left = events(setup)[3]
    assert (left.member_id, left.detail) == (member_id, "consumer poll timeout has expired.")
    assert left.at_ms == setup.now_ms


def test_removal_of_a_silent_member_is_recorded_with_its_session(setup: GroupCoordinatorSetup) -> None:
    """Its session timed out; the others rebalance for it, in so long a time."""
    (first, second), generation = setup.stable_group(None, None)
    already = len(events(setup))
    for _ in range(24):
        setup.pass_time(0.5)
        setup.heartbeat(first, generation)
    joined = setup.join(first)
    assert joined.generation == generation + 1
    timed_out, began = events(setup)[already:]
    assert (timed_out.what, timed_out.member_id, timed_out.detail) == (
        "session_timed_out",
        second,
        "10000 ms",
    )
    assert (began.what, began.count) == ("generation_began", 1)
    assert began.took_ms == began.at_ms - timed_out.at_ms > 0


def test_removal_of_a_member_that_misses_a_rebalance_has_that_reason(setup: GroupCoordinatorSetup) -> None:
    """It went on with its heartbeats, and did not join again in its rebalance timeout."""
    (first, second), generation = setup.stable_group(None, None, rebalance_timeout_ms=20_000)
    already = len(events(setup))
    setup.begin_join(first, protocols=(("range", b"another"),), rebalance_timeout_ms=20_000)
    for _ in range(42):
        setup.pass_time(0.5)
        setup.heartbeat(second, generation)
        setup.heartbeat(first, generation)
    found = events(setup)[already:]
    assert [each.what for each in found] == ["leader_rejoined", "rebalance_timed_out", "generation_began"]
    assert found[1].member_id == second
    assert found[2].took_ms == 20_000


def test_removal_of_a_member_that_never_syncs_has_that_reason(setup: GroupCoordinatorSetup) -> None:
    """It joined a generation and then stood still, with heartbeats."""
    member_id = setup.join().member_id
    generation = setup.join(member_id, rebalance_timeout_ms=5_000).generation
    for _ in range(12):
        setup.pass_time(0.5)
        setup.heartbeat(member_id, generation)
    assert kinds(setup)[3:] == ["sync_timed_out", "group_emptied"]


def test_static_member_that_comes_back_replaces_itself(setup: GroupCoordinatorSetup) -> None:
    """Its former life is fenced (KIP-345), and there is no new generation."""
    (member_id,), _ = setup.stable_group("worker-1")
    already = len(events(setup))
    setup.join(instance="worker-1")
    (fenced,) = events(setup)[already:]
    assert (fenced.what, fenced.member_id, fenced.instance_id) == (
        "static_member_replaced",
        member_id,
        "worker-1",
    )


def test_other_topics_and_a_leader_that_joins_again_are_different_reasons(
    setup: GroupCoordinatorSetup,
) -> None:
    """Only the topics count: members of some assignors also say what they own."""
    member_id = setup.join().member_id
    for topics, assigned in ((["a"], True), (["a"], True), (["a", "b"], True)):
        generation = setup.join(member_id, protocols=protocols(*topics)).generation
        if assigned:
            setup.sync(member_id, generation)
    found = [each for each in events(setup) if each.what in ("leader_rejoined", "subscription_changed")]
    assert [(each.what, each.detail) for each in found] == [
        ("leader_rejoined", ""),
        ("subscription_changed", "a, b"),
    ]
    assert found[1].topics == ("a", "b")


def test_history_of_a_consumer_group_goes_from_its_first_member_to_its_last(
    setup: GroupCoordinatorSetup,
) -> None:
    """KIP-848: joined, an epoch, assigned; other topics; more partitions; left, empty."""
    setup.image = image_of({"t": 1, "u": 1})
    one = setup.consumer_group_heartbeat("one", 0, client_id="c1", client_host="/127.0.0.1")
    assert kinds(setup) == ["group_created", "member_joined", "generation_began"]
    assert (events(setup)[1].client_id, events(setup)[2].settled_ms) == ("c1", 0)
    one = setup.consumer_group_heartbeat("one", one.epoch, topics=("t", "u"))
    setup.image = image_of({"t": 2, "u": 1})
    one = setup.consumer_group_heartbeat("one", one.epoch)
    setup.consumer_group_heartbeat("one", -1)
    assert kinds(setup)[3:] == [
        "subscription_changed",
        "generation_began",
        "topics_changed",
        "generation_began",
        "member_left",
        "group_emptied",
    ]
    assert (events(setup)[3].detail, events(setup)[3].topics) == ("t, u", ("t", "u"))


def test_silent_members_and_members_that_keep_partitions_are_removed_for_different_reasons(
    setup: GroupCoordinatorSetup,
) -> None:
    """One ended its session, the other did not give up what the newcomer was to get."""
    setup.image = image_of({"t": 2})
    keeps = setup.consumer_group_heartbeat("keeps", 0, rebalance_timeout_ms=5_000)
    setup.consumer_group_heartbeat("new", 0)
    told = setup.consumer_group_heartbeat("keeps", keeps.epoch)
    assert told.assignment is not None, "it is to give one up"
    for _ in range(12):
        setup.pass_time(0.5)
        setup.consumer_group_heartbeat("keeps", keeps.epoch)
    setup.pass_time(60)
    gone = [(each.what, each.member_id) for each in events(setup) if each.what.endswith("timed_out")]
    assert gone == [("rebalance_timed_out", "keeps"), ("session_timed_out", "new")]


class Watched(dict[str, MemberMetadata]):
    """Members that fail when they are iterated."""

    def items(self) -> Any:
        raise AssertionError("each member was looked at")


def test_step_of_one_member_does_not_cost_a_look_at_each(setup: GroupCoordinatorSetup) -> None:
    """A rebalance has a step of each member: in a group of thousands that would be millions of looks."""
    setup.image = image_of({"t": 1})
    setup.consumer_group_heartbeat("one", 0)
    group: Group = setup.ask(setup.coordinator.read, "g")
    assert group.consumer is not None
    watched = replace(group.consumer, members=Watched(group.consumer.members))
    before, after = (replace(group, consumer=replace(watched, target_epoch=number)) for number in range(2))
    GroupHistory().members_changed(after, before, setup.moment)


def test_static_member_that_leaves_for_a_while_and_its_successor(setup: GroupCoordinatorSetup) -> None:
    """Epoch -2 keeps the place; the next life takes it (KIP-345)."""
    setup.image = image_of({"t": 1})
    setup.consumer_group_heartbeat("first", 0, instance_id="worker-1")
    setup.consumer_group_heartbeat("first", -2, instance_id="worker-1")
    setup.consumer_group_heartbeat("second", 0, instance_id="worker-1")
    assert kinds(setup)[3:] == ["member_away", "static_member_replaced", "member_joined"]


def test_group_that_changes_its_type_records_that_and_no_member_joins_twice() -> None:
    """A classic member stays what it is when a member of the consumer protocol comes, and when that goes."""
    setup = GroupCoordinatorSetup(group_consumer_migration_policy="bidirectional")
    setup.image = image_of({"t": 2})
    member_id = setup.join(protocols=protocols("t")).member_id
    generation = setup.join(member_id, protocols=protocols("t")).generation
    setup.sync(member_id, generation, assignments={})
    already = len(events(setup))
    setup.consumer_group_heartbeat("new", 0)
    assert kinds(setup)[already:] == ["member_joined", "became_consumer_group", "generation_began"]
    setup.consumer_group_heartbeat("new", -1)
    assert kinds(setup)[already + 3 :][:2] == ["member_left", "became_classic_group"]
    assert [each.member_id for each in events(setup) if each.what == "member_joined"] == [member_id, "new"]


def test_offsets_set_and_deleted_from_outside_are_recorded_with_the_principal(
    setup: GroupCoordinatorSetup,
) -> None:
    """Commits of members are no events, nor are commits of consumers that assign partitions themselves."""
    setup.commit_offset(5, group_id="simple")
    setup.commit_offset(6, group_id="simple")
    assert kinds(setup, "simple") == ["group_created"]
    member_id, generation = setup.stable_member()
    setup.commit_offset(7, member_id=member_id, generation=generation)
    setup.leave(member_id)
    already = len(events(setup))
    setup.commit_offset(3)
    setup.ask(setup.coordinator.delete_offsets, DeleteOffsets("g", (("t", 0), ("t", 9))), at=setup.moment)
    setup.ask(setup.coordinator.delete, DeleteGroup("g"), at=setup.moment)
    found = events(setup)[already:]
    assert [(each.what, each.count, each.detail) for each in found] == [
        ("offsets_set", 1, "t-0 from 7 to 3"),
        ("offsets_deleted", 1, "t-0"),
        ("group_deleted", 0, ""),
    ]
    assert [each.topics for each in found] == [("t",), ("t",), ()]


def test_offsets_that_expire_and_the_group_with_them(setup: GroupCoordinatorSetup) -> None:
    """KIP-211: the last offset takes the empty group along."""
    member_id, generation = setup.stable_member()
    setup.commit_offset(7, member_id=member_id, generation=generation)
    setup.leave(member_id)
    setup.now += setup.config.offsets_retention_minutes * 60 + 1_000
    setup.tick()
    assert (kinds(setup)[-1], events(setup)[-1].count) == ("group_expired", 1)


def test_new_coordinator_begins_with_nothing_and_the_old_one_forgets(setup: GroupCoordinatorSetup) -> None:
    """Events are soft: the response says since when they are known."""
    setup.stable_member()
    former = setup.coordinator
    assert former.events_of("g")[0]
    setup.fail_over()
    former.on_unloaded(NotCoordinator())
    assert former.events_of("g") == setup.coordinator.events_of("g") == ([], 0)


def test_groups_own_bound_counts_what_went(setup: GroupCoordinatorSetup) -> None:
    """The oldest go, and their number is reported."""
    for _ in range(KEPT_OF_GROUP):
        setup.stable_member()
        setup.now += 60
        setup.pass_time(11)
    found, forgotten = setup.coordinator.events_of("g")
    assert len(found) == KEPT_OF_GROUP
    assert forgotten > 0
    assert found[-1].what == "group_emptied"


def note(history: GroupHistory, group_id: str, text: str, at_ms: int = 0) -> None:
    history.add(
        group_id,
        GroupEvent("member_joined", at_ms, text, text, text, text, text, (text,)),
    )


def test_broker_keeps_so_many_bytes_whatever_names_clients_choose() -> None:
    """Texts are cut, and the groups that were quiet for longest go first, of any partition."""
    memory = HistoryMemory(max_bytes=100_000)
    one, other = GroupHistory(memory), GroupHistory(memory)
    hostile = "\N{SNOWMAN}" * 30_000
    for number in range(200):
        note(one if number % 2 else other, f"g{number}", hostile)
        assert memory.bytes <= 100_000
    kept = [number for number in range(200) if (one if number % 2 else other).of(f"g{number}")[0]]
    assert kept == list(range(200 - len(kept), 200))
    assert len(kept) > 10
    (event,) = one.of("g199")[0]
    assert {len(event.member_id), len(event.client_host), len(event.detail)} == {MAX_TEXT_CHARS}
    assert len(event.topics[0]) == MAX_TOPIC_CHARS
    one.clear()
    other.clear()
    assert memory.bytes == 0


def test_groups_for_which_there_was_no_room_are_known_from_then_on() -> None:
    """A group without events for longer keeps none: the response does not claim that no events happened."""
    memory = HistoryMemory(max_bytes=3000)
    history = GroupHistory(memory)
    for number in range(20):
        note(history, f"g{number}", "m", at_ms=100 + number)
    kept = [number for number in range(20) if history.of(f"g{number}")[0]]
    dropped_at_ms = 100 + kept[0] - 1
    assert history.known_since_ms("g0", 50) == dropped_at_ms
    assert history.known_since_ms("never", 50) == dropped_at_ms
    assert history.known_since_ms("g19", 50) == dropped_at_ms
    assert history.known_since_ms("g0", 999) == 999
    assert GroupHistory().known_since_ms("g0", 50) == 50


def test_flood_of_one_kind_does_not_wash_the_others_away() -> None:
    """A hundred members that join at once are five events and a count."""
    history = GroupHistory()
    history.add("g", GroupEvent("group_created", 0))
    for number in range(100):
        note(history, "g", f"m{number}")
    found, forgotten = history.of("g")
    assert [each.what for each in found] == ["group_created"] + ["member_joined"] * SAME_IN_A_ROW
    assert (found[-1].more, forgotten) == (100 - SAME_IN_A_ROW, 0)
    note(history, "g", "later", at_ms=60_000)
    assert history.of("g")[0][-1].member_id == "later"


def test_heartbeats_and_commits_of_members_ask_the_history_nothing(
    setup: GroupCoordinatorSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the hot path: not one call."""
    member_id, generation = setup.stable_member()
    setup.image = image_of({"t": 1})
    one = setup.consumer_group_heartbeat("one", 0, group_id="c")
    called: list[str] = []
    for name in [each for each in vars(GroupHistory) if not each.startswith("__")]:
        monkeypatch.setattr(GroupHistory, name, lambda *_, name=name, **__: called.append(name))
    setup.heartbeat(member_id, generation)
    setup.commit_offset(7, member_id=member_id, generation=generation)
    setup.consumer_group_heartbeat("one", one.epoch, group_id="c")
    setup.commit_offset(7, member_id="one", generation=one.epoch, group_id="c")
    assert called == []
