"""Groups of the consumer protocol (KIP-848): heartbeats, epochs, assignments, and groups that change their protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import (
    REBALANCE_MS,
    Consumer,
    Fields,
    Member,
    describe,
    group,
    subscription,
)
from raftlog_chaos.conformance.session import Session

INSTANCE: Final = "instance"
MADE_UP: Final = "00000000-0000-0000-0000-00000000002a"
SHORT: Final = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "200",
    "group.consumer.session.timeout.ms": "500",
    "group.consumer.max.size": "2",
}
"""Settings under which members that stall are noticed at once."""


@history({"v0": 0, "v1": 1})
def alone(s: Session, version: int) -> None:
    """A member is given all partitions with its first heartbeat, and leaves in epoch -1."""
    topic = s.topic(partitions=3)
    member = Consumer(s, group(s), topics=[topic], version=version)
    member.join()
    member.heartbeat()
    member.confirm()
    describe(s, member.group, version=version)
    member.leave()
    describe(s, member.group, version=version)
    member.heartbeat()


JOINS: Final[dict[str, Fields]] = {
    "no group": {"group_id": ""},
    "a long group": {"group_id": "g" * 300},
    "no member": {"member_id": ""},
    "a long member": {"member_id": "m" * 300},
    "an empty instance": {"instance_id": ""},
    "an instance with a slash": {"instance_id": "a/b"},
    "an empty rack": {"rack_id": ""},
    "a rack": {"rack_id": "rack"},
    "no rebalance timeout": {"rebalance_timeout": -1},
    "a rebalance timeout of 0": {"rebalance_timeout": 0},
    "a rebalance timeout of -2": {"rebalance_timeout": -2},
    "partitions of null": {"topic_partitions": None},
    "partitions": {"topic_partitions": [{"topic_id": MADE_UP, "partitions": [0]}]},
    "no subscription": {"subscribed_topic_names": None},
    "a subscription to nothing": {"subscribed_topic_names": []},
    "an unknown topic": {"subscribed_topic_names": ["a topic that is not there"]},
    "a topic without a name": {"subscribed_topic_names": [""]},
    "a topic twice": {"subscribed_topic_names": ["x", "x"]},
    "an unknown assignor": {"server_assignor": "best"},
    "an empty assignor": {"server_assignor": ""},
    "uniform": {"server_assignor": "uniform"},
    "range": {"server_assignor": "range"},
    "an expression that is none": {"subscribed_topic_regex": "(", "subscribed_topic_names": None},
    "an empty expression": {"subscribed_topic_regex": "", "subscribed_topic_names": None},
    "an epoch of 1": {"member_epoch": 1},
    "an epoch of -1": {"member_epoch": -1},
    "an epoch of -2": {"member_epoch": -2},
    "an epoch of -3": {"member_epoch": -3},
    "an epoch of -2 and an instance": {"member_epoch": -2, "instance_id": INSTANCE},
    "an epoch of -1 and an instance": {"member_epoch": -1, "instance_id": INSTANCE},
}
"""Odd fields of a first heartbeat, by their name."""


@history(JOINS)
def join(s: Session, odd: Fields) -> None:
    """A first heartbeat that is odd is refused, and makes no group."""
    topic = s.topic()
    member = Consumer(s, group(s), topics=[topic])
    answer = member.join(**odd)
    if answer.get("error_code") == "NONE":
        member.group = odd.get("group_id", member.group)
        describe(s, member.group)
        member.leave()
    elif "group_id" not in odd:
        describe(s, member.group)


@history()
def an_id_of_the_coordinator(s: Session) -> None:
    """In version 0 a member without an id gets an id."""
    topic = s.topic()
    member = Consumer(s, group(s), "", topics=[topic], version=0)
    member.join()
    member.heartbeat()
    member.leave()


BEATS: Final[dict[str, Fields]] = {
    "nothing": {},
    "no group": {"group_id": ""},
    "an unknown group": {"group_id": "a group that is not there"},
    "an unknown member": {"member_id": "unknown"},
    "no member": {"member_id": ""},
    "an epoch of 0": {"member_epoch": 0},
    "the epoch after": {"after": 1},
    "an epoch of 77": {"member_epoch": 77},
    "partitions that it does not have": {"topic_partitions": [{"topic_id": MADE_UP, "partitions": [0]}]},
    "no partitions": {"topic_partitions": []},
    "an unknown instance": {"instance_id": INSTANCE},
    "an empty instance": {"instance_id": ""},
    "an empty rack": {"rack_id": ""},
    "an unknown assignor": {"server_assignor": "best"},
    "another assignor": {"server_assignor": "range"},
    "a rebalance timeout": {"rebalance_timeout": 5000},
    "a rack": {"rack_id": "rack"},
    "an expression that is none": {"subscribed_topic_regex": "("},
    "a subscription to nothing": {"subscribed_topic_names": []},
    "a subscription to what is not there": {"subscribed_topic_names": ["a topic that is not there"]},
    "an epoch of -2": {"member_epoch": -2},
    "an epoch of -3": {"member_epoch": -3},
}
"""Odd fields of a member's heartbeat; `after` is counted from its epoch."""


@history(BEATS)
def heartbeat(s: Session, odd: Fields) -> None:
    """A heartbeat is of a member in its epoch; what it says has changed may raise the group's epoch."""
    topic = s.topic(partitions=2)
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    given = dict(odd)
    if "after" in given:
        given["member_epoch"] = member.epoch + given.pop("after")
    member.heartbeat(**given)
    member.heartbeat()
    describe(s, member.group)


@history()
def a_first_heartbeat_again(s: Session) -> None:
    """A first heartbeat that is sent again, as its answer was lost, is answered again."""
    topic = s.topic(partitions=2)
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    member.join()
    member.confirm()
    member.join()
    describe(s, member.group)


@history()
def the_epoch_before_with_what_it_owned(s: Session) -> None:
    """After a lost answer a member goes on in the epoch before, if it owns no more than its assignment."""
    topic, other = s.topic(partitions=2), s.topic("other")
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    member.confirm()
    first = member.owned
    member.heartbeat(subscribed_topic_names=[topic, other])
    member.heartbeat(member_epoch=member.epoch - 1, topic_partitions=first)
    member.heartbeat(member_epoch=member.epoch - 1, topic_partitions=None)
    member.heartbeat(
        member_epoch=member.epoch - 1,
        topic_partitions=[{"topic_id": MADE_UP, "partitions": [0]}],
    )


def two(s: Session, topics: Sequence[str], **fields: Any) -> tuple[Consumer, Consumer]:
    """Return two members that share what topics have."""
    name = group(s)
    one, other = Consumer(s, name, "a", topics=topics), Consumer(s, name, "b", topics=topics)
    one.join(**fields)
    one.confirm()
    other.join(**fields)
    one.heartbeat()
    one.confirm()
    other.heartbeat()
    other.confirm()
    return one, other


ASSIGNORS: Final = {
    "the default": {},
    "uniform": {"server_assignor": "uniform"},
    "range": {"server_assignor": "range"},
}


@history(ASSIGNORS)
def a_second_member(s: Session, fields: Fields) -> None:
    """A new member gets partitions after their owners have revoked them."""
    one, other = two(s, [s.topic(partitions=4)], **fields)
    describe(s, one.group)
    one.leave()
    other.heartbeat()
    other.confirm()
    describe(s, one.group)


@history({"3 of 7": (3, (7,)), "2 of 3 and 1": (2, (3, 1)), "3 of 1": (3, (1,)), "4 of 3 and 4": (4, (3, 4))})
def shares(s: Session, row: tuple[int, Sequence[int]]) -> None:
    """Partitions are shared out evenly."""
    count, sizes = row
    name = group(s)
    topics = [s.topic(f"topic-{number}", partitions=size) for number, size in enumerate(sizes)]
    for number in range(count):
        Consumer(s, name, f"member-{number}", topics=topics).join_unseen()
    s.observe("the shares", shares_of(s, name))


def shares_of(s: Session, name: str) -> Fields:
    """Look at how many partitions the members of a group are to have, and which state it is in."""
    found = s.query("ConsumerGroupDescribe", 1, group_ids=[name])["groups"][0]
    targets = [each["target_assignment"]["topic_partitions"] for each in found["members"]]
    sizes = sorted(sum(len(each["partitions"]) for each in target) for target in targets)
    return {"state": found["group_state"], "sizes": sizes, "group_epoch": found["group_epoch"]}


@history()
def a_member_that_gives_up_in_its_time(s: Session) -> None:
    """Until it has confirmed, no other member gets its partitions, and its epoch stays."""
    topic = s.topic(partitions=2)
    name = group(s)
    one, other = Consumer(s, name, "a", topics=[topic]), Consumer(s, name, "b", topics=[topic])
    one.join()
    one.confirm()
    had = one.owned
    other.join()
    one.heartbeat(topic_partitions=had)
    other.heartbeat()
    one.heartbeat(topic_partitions=had)
    describe(s, name)
    one.confirm()
    one.confirm()
    other.heartbeat()
    describe(s, name)


@history()
def a_third_member_while_two_share(s: Session) -> None:
    """A group's epoch rises with each member; a member still in an older one gives up for the newest."""
    topic = s.topic(partitions=6)
    name = group(s)
    members = [Consumer(s, name, word, topics=[topic]) for word in "abc"]
    for each in members:
        each.join()
    describe(s, name)
    for _ in range(3):
        for each in members:
            each.confirm()
    describe(s, name)
    members[1].leave()
    for each in (members[0], members[2], members[0]):
        each.confirm()
    describe(s, name)


@history()
def an_assignor_that_most_want(s: Session) -> None:
    """The assignor that most members ask for is used."""
    topic = s.topic(partitions=5)
    name = group(s)
    for word, wanted in zip("abc", ("uniform", "range", "range"), strict=True):
        Consumer(s, name, word, topics=[topic]).join(server_assignor=wanted)
    describe(s, name)


@history()
def a_subscription_that_changes(s: Session) -> None:
    """A new subscription raises the epoch; partitions of topics that are left are given up."""
    topic, other = s.topic(partitions=2), s.topic("other", partitions=2)
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    member.confirm()
    member.heartbeat(subscribed_topic_names=[other])
    member.confirm()
    member.heartbeat()
    describe(s, member.group)
    member.heartbeat(subscribed_topic_names=[other])
    member.heartbeat(subscribed_topic_names=[])
    member.confirm()
    describe(s, member.group)


@history()
def partitions_that_are_added(s: Session) -> None:
    """A topic that grows raises the epoch, and its partitions are assigned."""
    topic = s.topic(partitions=1)
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    member.confirm()
    s.query("CreatePartitions", 3, topics=[{"name": topic, "count": 3, "assignments": None}], timeout=10_000)
    s.wait("they are assigned", lambda: grown(s, member) == 3)
    member.confirm()
    member.heartbeat()
    describe(s, member.group)


def grown(s: Session, member: Consumer) -> int:
    """Look at how many partitions a member is to have, after a heartbeat that is not observed."""
    s.query(
        "ConsumerGroupHeartbeat",
        1,
        group_id=member.group,
        member_id=member.id,
        member_epoch=member.epoch,
        rebalance_timeout=-1,
    )
    found = s.query("ConsumerGroupDescribe", 1, group_ids=[member.group])["groups"][0]["members"][0]
    target = found["target_assignment"]["topic_partitions"]
    member.epoch = found["member_epoch"]
    return sum(len(each["partitions"]) for each in target)


@history()
def a_topic_that_comes_later(s: Session) -> None:
    """A topic that did not exist is assigned once it does."""
    name = "comes-later"
    member = Consumer(s, group(s), topics=[s.name(name)])
    member.join()
    member.confirm()
    s.topic(name, partitions=2)
    s.wait("it is assigned", lambda: grown(s, member) == 2)
    member.confirm()
    describe(s, member.group)


@history()
def a_topic_that_is_deleted(s: Session) -> None:
    """Partitions of a topic that is deleted are given up."""
    topic, other = s.topic(partitions=2), s.topic("other")
    member = Consumer(s, group(s), topics=[topic, other])
    member.join()
    member.confirm()
    s.query("DeleteTopics", 5, topic_names=[topic], timeout=10_000)
    s.wait("its partitions are given up", lambda: grown(s, member) == 1)
    member.confirm()
    member.heartbeat()
    describe(s, member.group)


# --- regular expressions


EXPRESSIONS: Final = {
    "one": ("one", 1),
    "both": ("(one|two)", 3),
    "any end": ("one.*", 1),
    "none": ("nothing", 0),
    "a part": ("on", 0),
}
"""Expressions and how many partitions their topics have."""


@history(EXPRESSIONS)
def expression(s: Session, row: tuple[str, int]) -> None:
    """A regular expression that fits whole names subscribes to these topics."""
    text, count = row
    one, other = s.topic("one"), s.topic("two", partitions=2)
    mark = s.name("")
    assert {one, other} == {f"one{mark}", f"two{mark}"}
    member = Consumer(s, group(s), topics=None)
    member.join(subscribed_topic_regex=text if text == "on" else f"{text}{mark}")
    s.wait("it is resolved", lambda: grown(s, member) == count)
    member.confirm()
    describe(s, member.group)


@history()
def an_expression_and_a_name(s: Session) -> None:
    """Both count, and an empty expression takes the former one back."""
    one, other = s.topic("one"), s.topic("two", partitions=2)
    member = Consumer(s, group(s), topics=[other])
    member.join(subscribed_topic_regex=one)
    s.wait("all are assigned", lambda: grown(s, member) == 3)
    member.confirm()
    member.heartbeat(subscribed_topic_regex="")
    s.wait("the topic of the name is left", lambda: grown(s, member) == 2)
    member.confirm()
    member.heartbeat()
    describe(s, member.group)


# --- the whole group


@history({"v0": 0, "v1": 1})
def described(s: Session, version: int) -> None:
    """Groups that are there, empty, of the other protocol, missing, and without a name."""
    topic = s.topic()
    one, empty = Consumer(s, group(s), topics=[topic]), Consumer(s, group(s, "empty"), topics=[topic])
    one.join()
    empty.join()
    empty.leave()
    classic = Member(s, group(s, "classic"))
    classic.settle()
    describe(s, one.group, empty.group, classic.group, s.name("missing"), "", one.group, version=version)
    s.ask("DescribeGroups", 6, groups=[one.group, empty.group])
    s.ask("DescribeGroups", 5, groups=[one.group, empty.group])


@history()
def described_with_rights(s: Session) -> None:
    """The operations that the asker may do are shown if it asks for them."""
    member = Consumer(s, group(s), topics=[s.topic()])
    member.join()
    s.ask("ConsumerGroupDescribe", 1, group_ids=[member.group], include_authorized_operations=True)


@history()
def described_without_names(s: Session) -> None:
    """Without names no group is described."""
    describe(s)


FILTERS: Final[dict[str, Fields]] = {
    "all": {},
    "consumer": {"types_filter": ["consumer"]},
    "Stable": {"states_filter": ["stable"]},
    "Reconciling": {"states_filter": ["Reconciling"]},
    "Empty": {"states_filter": ["Empty"]},
    "Assigning": {"states_filter": ["Assigning"]},
}


@history(FILTERS)
def listed(s: Session, filters: Fields) -> None:
    """Groups are listed in the states of their protocol."""
    topic = s.topic(partitions=2)
    stable, empty = (Consumer(s, group(s, word), topics=[topic]) for word in ("stable", "empty"))
    for each in (stable, empty):
        each.join()
        each.confirm()
    empty.leave()
    moving = group(s, "moving")
    Consumer(s, moving, "a", topics=[topic]).join()
    Consumer(s, moving, "b", topics=[topic]).join()
    answer = s.query("ListGroups", 5, **filters)
    mine = (stable.group, empty.group, moving)
    found = [each for each in answer["groups"] if each["group_id"] in mine]
    s.observe(f"ListGroups v5 {filters}", {"error_code": answer["error_code"], "groups": found})


@history()
def deleted(s: Session) -> None:
    """A group with members is not deleted; it is when they have left."""
    member = Consumer(s, group(s), topics=[s.topic()])
    member.join()
    s.ask("DeleteGroups", 2, groups_names=[member.group])
    member.leave()
    s.ask("DeleteGroups", 2, groups_names=[member.group])
    s.ask("DeleteGroups", 2, groups_names=[member.group])
    member.join()
    describe(s, member.group)


@history()
def offsets_that_are_deleted(s: Session) -> None:
    """Offsets of topics that a member reads stay."""
    topic, other = s.topic(), s.topic("other")
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    s.ask(
        "OffsetCommit",
        9,
        group_id=member.group,
        member_id=member.id,
        generation_id_or_member_epoch=member.epoch,
        topics=[{"name": each, "partitions": partitions} for each in (topic, other)],
    )
    wanted = [{"name": each, "partitions": [{"partition_index": 0}]} for each in (topic, other)]
    s.ask("OffsetDelete", 0, group_id=member.group, topics=wanted)
    s.ask("OffsetFetch", 7, group_id=member.group, topics=None)


# --- members that stall


@history(settings=SHORT)
def silence(s: Session) -> None:
    """A member that is silent for its session is taken out, and fenced."""
    member = Consumer(s, group(s), topics=[s.topic()])
    member.join()
    s.wait("it is taken out", lambda: not members(s, member.group))
    member.heartbeat()
    describe(s, member.group)


def members(s: Session, name: str) -> Sequence[Any]:
    """Look at a group's members."""
    found: Sequence[Any] = s.query("ConsumerGroupDescribe", 1, group_ids=[name])["groups"][0]["members"]
    return found


@history(settings=SHORT)
def a_static_member_that_is_away(s: Session) -> None:
    """A static member that left with -2 is taken out after its session."""
    member = Consumer(s, group(s), topics=[s.topic()], instance=INSTANCE)
    member.join()
    member.leave(-2)
    s.wait("it is taken out", lambda: not members(s, member.group))
    describe(s, member.group)


@history(settings=SHORT)
def a_member_that_gives_nothing_up(s: Session) -> None:
    """A member that does not give up its partitions in the rebalance timeout is taken out, though it is alive."""
    topic = s.topic(partitions=2)
    one = Consumer(s, group(s), "a", topics=[topic])
    one.join(rebalance_timeout=300)
    one.confirm()
    had = one.owned
    other = Consumer(s, one.group, "b", topics=[topic])
    other.join(rebalance_timeout=REBALANCE_MS)
    one.heartbeat(topic_partitions=had)

    def is_out() -> bool:
        for each in (one, other):
            s.query(
                "ConsumerGroupHeartbeat",
                1,
                group_id=each.group,
                member_id=each.id,
                member_epoch=each.epoch,
                rebalance_timeout=-1,
            )
        return len(members(s, one.group)) == 1

    s.wait("it is taken out", is_out)
    one.heartbeat()


@history(settings=SHORT)
def a_full_group(s: Session) -> None:
    """A group takes no more members than `group.consumer.max.size`; that includes classic members."""
    topic = s.topic()
    name = group(s)
    for word in "abc":
        Consumer(s, name, word, topics=[topic]).join()
    Member(s, name).join(protocols=[{"name": "range", "metadata": subscription(topic)}])
    Consumer(s, name, "a", topics=[topic]).leave()
    Consumer(s, name, "c").join()


@history({"a session": "session.timeout", "a heartbeat": "heartbeat.interval"})
def a_config_of_the_group(s: Session, what: str) -> None:
    """A group's own config goes before the broker's."""
    name = group(s)
    configs = [
        {"name": f"consumer.{what}.ms", "config_operation": 0, "value": "50000" if what[0] == "s" else "7000"}
    ]
    s.ask(
        "IncrementalAlterConfigs",
        1,
        resources=[{"resource_type": 32, "resource_name": name, "configs": configs}],
    )
    topic = s.topic()
    member = Consumer(s, name, topics=[topic])
    s.wait("it is in force", lambda: is_in_force(s, member) or what[0] == "s")
    member.join()
    configs[0] |= {"config_operation": 1, "value": None}
    s.ask(
        "IncrementalAlterConfigs",
        1,
        resources=[{"resource_type": 32, "resource_name": name, "configs": configs}],
    )


def is_in_force(s: Session, member: Consumer) -> bool:
    """Look whether a heartbeat is answered with another interval than the broker's."""
    answer = s.query(
        "ConsumerGroupHeartbeat",
        1,
        group_id=member.group,
        member_id=member.id,
        member_epoch=0,
        rebalance_timeout=REBALANCE_MS,
        subscribed_topic_names=[],
        topic_partitions=[],
    )
    return bool(answer["heartbeat_interval"] == 7000)
