"""Claims about the `why` of a consumer group: the coordinator's events, in words, and what the metadata adds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace as Answer
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
from confluent_kafka import Consumer

from raftlog.admin.caller import NOBODY, Caller
from raftlog.admin.errors import ApiError
from raftlog.admin.limits import Limits
from raftlog.admin.native.group_sentences import GENERATIONS, MESSAGES, reason, sentence
from raftlog.admin.native.group_why import GroupWhy, get_group_why
from raftlog.admin.route import Call
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.errors import GroupIdNotFound
from raftlog.base.group_events import GROUP_EVENT_KINDS, GroupEvent, GroupHistoryAnswer
from raftlog.metadata.causes import Cause
from raftlog.metadata.history import History
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState, TopicState
from raftlog.metadata.metadata_records import Batch, PartitionCreated
from raftlog.protocol.apis import ApiKey
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.admin.test_health import api_of, create

TOPIC = "rides"
TOPIC_ID = UUID(int=1)
STATE = PartitionState((1,), (1,), 1)
HOSTILE = "{who} <img src=x> {0} {detail}"


def answer(*events: GroupEvent, **changes: Any) -> GroupHistoryAnswer:
    """A stable group of one member."""
    fields: dict[str, Any] = {
        "state": "Stable",
        "type": "classic",
        "members": 1,
        "generation": 1,
        "partition": 3,
        "leader_epoch": 0,
        "loaded_at_ms": 1_000,
        "known_since_ms": 1_000,
        "topics": [],
        "events": list(events),
        "forgotten": 0,
    }
    return GroupHistoryAnswer(**(fields | changes))


class Coordinator:
    """Broker 1. It coordinates group `g` and answers with the given events; None: it does not know the request."""

    def __init__(self, told: GroupHistoryAnswer | None) -> None:
        self._told = told

    async def ask(self, api_key: int, message: Any, *, broker_id: int | None = None) -> Any:
        """Answer as a broker would."""
        if api_key == ApiKey.FIND_COORDINATOR:
            return Answer(error_code=0, error_message=None, node_id=1)
        assert (api_key, broker_id, message.groups) == (ApiKey.DESCRIBE_GROUPS, 1, ("g",))
        assert message.tell_history
        code = GroupIdNotFound.code if self._told is None else 0
        group = Answer(group_id="g", error_code=code, group_state="Stable", members=())
        return Answer(groups=(group,), history=b"" if self._told is None else msgspec.json.encode(self._told))


def why(
    told: GroupHistoryAnswer | None,
    history: History | None = None,
    image: MetadataImage = EMPTY_IMAGE,
    *,
    seen: frozenset[str] | None = None,
) -> GroupWhy:
    """`seen`: the topics that the caller may describe; None: all."""
    view = NodeView(NodeConfig(node_id=2), lambda: image, list, lambda: 0.0, history=history or History())
    asker: Any = Coordinator(told)
    nothing: Any = None
    names = {"consumer_group_id": "g"}
    caller = NOBODY
    if seen is not None:
        caller = Caller("User:eve", "operator", "User:eve", "h")
        view.authorizer = cast(Any, Answer(allows=lambda *asked: asked[-1] in seen))
    call = Call(view, asker, "http://h", names, nothing, nothing, nothing, "id", Limits(), caller)
    return asyncio.run(get_group_why(call))


def test_every_kind_of_event_has_words() -> None:
    """An event of a kind that this version does not know is shown by its name."""
    assert MESSAGES.keys() | GENERATIONS == GROUP_EVENT_KINDS
    for kind in GROUP_EVENT_KINDS:
        assert "{" not in sentence(GroupEvent(kind, 0, count=2, number=3))
    assert sentence(GroupEvent("member_promoted", 0, detail="by vote")) == "member promoted by vote"


def test_names_that_look_like_templates_are_only_names() -> None:
    """Clients choose them."""
    event = GroupEvent("subscription_changed", 0, "m", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    assert sentence(event) == f"{HOSTILE} (static {HOSTILE}, {HOSTILE}) reads other topics: {HOSTILE}"


def test_generation_is_explained_by_what_came_before_it() -> None:
    """By the first event since the generation before, and how many more there were."""
    events = [
        GroupEvent("generation_began", 1, number=1, count=2),
        GroupEvent("session_timed_out", 2, "m1", client_id="c1", client_host="/10.0.0.1", detail="10000 ms"),
        GroupEvent("offsets_expired", 3, count=1),
        GroupEvent("member_joined", 4, "m2", client_id="c2"),
        GroupEvent("generation_began", 5, number=2, count=2, took_ms=2_100, settled_ms=30),
    ]
    assert (
        sentence(events[4]) == "generation 2 began with 2 members (gathered in 2.1 s, assigned 30 ms later)"
    )
    assert reason(events, 4) == (
        "c1 (10.0.0.1) was removed: it sent no heartbeat until its session timed out (10000 ms);"
        " and 1 more change"
    )
    assert reason(events, 0) == ""


def test_reasons_of_a_client_and_of_an_administrator_are_shown() -> None:
    """KIP-800, and the principal of a request."""
    left = GroupEvent("member_left", 0, "m", client_id="c", detail="consumer poll timeout has expired.")
    assert (sentence(left), reason([left], 0)) == (
        "c left",
        'the client gave the reason "consumer poll timeout has expired."',
    )
    moved = GroupEvent("offsets_set", 0, detail="t-0 from 7 to 3", by="User:alice", count=4)
    assert sentence(moved) == "4 offsets were set from outside of the group: t-0 from 7 to 3 and 3 more"
    assert reason([moved], 0) == "User:alice asked for it"


def test_topics_that_the_caller_may_not_describe_are_not_named() -> None:
    """The event is still shown; names of other topics stay, and so do names of expressions."""
    events = [
        GroupEvent("offsets_set", 5, detail="a-0 to 1, b-0 to 2", topics=("a", "b"), count=2),
        GroupEvent("offsets_deleted", 6, detail="a-0", topics=("a",), count=1),
        GroupEvent("subscription_changed", 7, "m", client_id="c", detail="b", topics=("b",)),
        GroupEvent("subscription_changed", 8, "m", client_id="c", detail="b.*"),
    ]
    found = why(answer(*events), seen=frozenset("a"))
    assert [each.message for each in found.events if each.what != ["coordinator_loaded"]] == [
        "c reads other topics: b.*",
        "c reads other topics",
        "1 offset was deleted: a-0",
        "2 offsets were set from outside of the group",
    ]
    assert found.events[0].message == why(answer(*events)).events[0].message


def test_group_whose_events_had_no_room_is_not_said_to_have_none() -> None:
    """The response says that earlier events are unknown."""
    found = why(answer(known_since_ms=2_000))
    assert found.known_since.at_ms == 2_000
    assert found.summary.endswith(
        "Nothing has happened to it since 1970-01-01T00:00:02.000+00:00; earlier events were evicted."
    )


def test_unknown_group_is_404_and_an_older_coordinator_501() -> None:
    """A deleted group is reported as long as its coordinator remembers it.

    An older coordinator reports that no groups of the consumer protocol exist. It is asked once: 503 would be retried
    for seconds.
    """
    for told, status in ((answer(state="Dead", type="", members=0), 404), (None, 501)):
        with pytest.raises(ApiError) as caught:
            why(told)
        assert caught.value.status == status
    gone = why(answer(GroupEvent("group_deleted", 5, by="User:bob"), state="Dead", type="", members=0))
    assert (gone.state, gone.type) == ("DEAD", None)
    assert gone.summary.startswith(
        "The group is no more. At 1970-01-01T00:00:00.005+00:00: the group was deleted,"
    )


def test_new_coordinator_says_since_when_it_knows() -> None:
    """It has no events of its own: they were its predecessor's."""
    found = why(answer(leader_epoch=4))
    (loaded,) = found.events
    assert (loaded.what, found.complete, found.known_since.at_ms) == (["coordinator_loaded"], False, 1_000)
    assert loaded.because == "it became the leader of __consumer_offsets-3, in epoch 4"


def test_partitions_that_a_topic_got_are_part_of_the_story() -> None:
    """Of topics that the group reads, from what every node remembers; not what was there before the group."""
    history, image = History(), EMPTY_IMAGE
    for number, at_ms in ((1, 500), (2, 2_500)):
        states = (STATE,) * number
        topic = TopicState(TOPIC, TOPIC_ID, states)
        after = MetadataImage(offset=number, topics={TOPIC: topic}, topic_names={TOPIC_ID: TOPIC})
        record = PartitionCreated(TOPIC_ID, number - 1, (1,), (1,), 1)
        cause = Cause("partitions_added", by="User:alice")
        history.add_batch(image, after, Batch(1, number, (record,), at_ms, (cause,)))
        image = after
    began = [GroupEvent("group_created", 2_000), GroupEvent("generation_began", 3_000, number=1, count=1)]
    found = why(answer(*began, topics=[TOPIC]), history, image)
    assert [each.what for each in found.events] == [
        ["generation_began"],
        ["partitions_added"],
        ["group_created"],
    ]
    assert found.complete
    added = found.events[1]
    assert added.message == f"topic {TOPIC}, which the group reads, got 1 partition more"
    assert added.because == "User:alice added partitions"
    assert why(answer(*began), history, image).events[1].what == ["group_created"]


# -- a real cluster --------------------------------------------------------------------------------------


@pytest.fixture
def cluster_with_topic(own_cluster: AdminCluster) -> AdminCluster:
    create(own_cluster, TOPIC)
    return own_cluster


@pytest.fixture
def consumer(cluster_with_topic: AdminCluster, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """A member of a group of the protocol that the test says."""
    member = Consumer(
        {
            "bootstrap.servers": cluster_with_topic.bootstrap_servers,
            "group.id": f"of-{request.param}",
            "client.id": "reader",
            "group.protocol": request.param,
        }
    )
    member.subscribe([TOPIC])
    yield member
    member.close()


def story(node: Api, group: str) -> dict[str, Any]:
    found = node.get(f"/v1/consumer-groups/{group}/why")
    return found.body if found.status == 200 else {"events": [], "status": found.status, **found.body}


def kinds(told: dict[str, Any]) -> list[str]:
    return [each["what"][0] for each in told["events"]]


@pytest.mark.parametrize("consumer", ["classic", "consumer"], indirect=True)
def test_every_node_reports_the_joins_and_why_the_coordinator_moved(
    cluster_with_topic: AdminCluster, consumer: Consumer, request: pytest.FixtureRequest
) -> None:
    """All nodes report joins and assignments alike. After the coordinator is killed, the next reports the reason."""
    group = f"of-{request.node.callspec.params['consumer']}"
    asked = [api_of(cluster_with_topic, each) for each in sorted(cluster_with_topic.running_ids())]

    def assigned() -> bool:
        consumer.poll(0.1)
        told = story(asked[0], group)
        return kinds(told)[:1] == ["generation_began"] and "assigned" in told["events"][0]["message"]

    cluster_with_topic.wait_until(assigned, "it has partitions")
    told = [story(each, group) for each in asked]
    assert told[0] == told[1] == told[2]
    assert kinds(told[0])[-3:] == ["generation_began", "member_joined", "group_created"]
    assert told[0]["complete"]
    member = told[0]["events"][-2]["member"]
    assert (member["client_id"], member["host"]) == ("reader", "127.0.0.1")
    assert told[0]["type"] == group.removeprefix("of-")
    victim = told[0]["coordinator"]
    cluster_with_topic.kill(victim)
    other = api_of(cluster_with_topic, next(iter(cluster_with_topic.running_ids())))

    def moved() -> bool:
        consumer.poll(0.1)
        return story(other, group).get("coordinator", victim) != victim

    cluster_with_topic.wait_until(moved, "another one coordinates it")
    after = story(other, group)
    change = next(each for each in after["events"] if each["what"][0] == "coordinator_changed")
    assert change["because"].startswith(f"broker {victim} was considered dead: ")
    assert change["brokers"][0]["what"] == ["fenced"]
    assert "coordinator_loaded" in kinds(after)
    assert not after["complete"]


def test_unknown_group_has_no_why(cluster_with_topic: AdminCluster) -> None:
    """404 from each node."""
    for each in sorted(cluster_with_topic.running_ids()):
        assert story(api_of(cluster_with_topic, each), "nobody")["status"] == 404
