"""Claims about the card of a broker that runs: outcomes, what is left, and a broker that ends in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.protocol.apis import ApiKey
from raftlog_chaos.conformance.brokers import Brokers, brokers
from raftlog_chaos.conformance.card.cleanup import Cleanup
from raftlog_chaos.conformance.card.guest import GuestSession, Host
from raftlog_chaos.conformance.card.result import GONE, Card, Result
from raftlog_chaos.conformance.card.run import CardRun, Occupied, host_with_versions
from raftlog_chaos.conformance.history import History, Needs, choose

FEW = "idempotence,produce/acks/*,produce/shape/no*,produce/compressed/*12"
OLD = {
    ApiKey.PRODUCE: 8,
    ApiKey.FETCH: 11,
    ApiKey.LIST_OFFSETS: 5,
    ApiKey.METADATA: 7,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.INIT_PRODUCER_ID: 1,
}
"""The newest versions of a broker of 2019."""


@pytest.fixture(scope="module")
def side() -> Iterator[Brokers]:
    """A broker of raftlog."""
    with brokers("raftlog") as (made,):
        yield made


@pytest.fixture
def host(side: Brokers) -> Host:
    """How it is reached."""
    return host_with_versions(Host(side.get(Needs()).servers()))


def ignore(_: Result) -> None:
    """Show no progress."""


def card_of(
    host: Host, only: str = FEW, *, progress: Callable[[Result], None] = ignore, anyway: bool = False
) -> Card:
    """Run some histories and return the card."""
    made = CardRun(host, choose(only), name="", progress=progress)
    made.begin(anyway=anyway)
    made.run()
    return made.card()


def outcomes(card: Card) -> dict[str, list[str]]:
    """Return the histories by their outcomes."""
    found: dict[str, list[str]] = {}
    for each in card.histories:
        found.setdefault(each.outcome, []).append(each.history)
    return found


def test_all_histories_that_any_broker_can_be_asked_are_on_the_card(host: Host) -> None:
    """New subjects come in by themselves; histories that need nodes of their own are counted."""
    card = card_of(host)
    wanted = [each for each in choose(FEW) if each.needs.is_any_broker]
    assert [each.history for each in card.histories] == [each.label for each in wanted]
    assert card.own == len(choose(FEW)) - len(wanted)
    assert card.is_raftlog and card.broker == "raftlog"
    assert card.kafka.startswith("4.3") and card.recorded


def test_raftlogs_listed_differences_are_on_purpose_and_those_of_another_broker_are_not(host: Host) -> None:
    """The list of differences is a claim about raftlog; any other broker differs from Kafka."""
    label = "produce/shape/no partition"
    (own,) = card_of(host, label).histories
    assert own.outcome == "differs, on purpose" and "stands in the answer" in own.why[0]
    another = host._replace(versions=host.versions._replace(features=frozenset()))
    (same,) = card_of(another, label).histories
    assert same.outcome == "differs" and not same.why
    assert [each.path for step in same.steps for each in step.differing] == ["answer"]


def test_a_listed_difference_is_on_purpose_whatever_error_shows_it(host: Host) -> None:
    """With UNSUPPORTED_VERSION it was taken for not supported, and with a right that clients lack for not run."""
    labels = ["list-offsets/isolation/2 in v7", "transactions/add-batched/v5"]
    assert outcomes(card_of(host, ",".join(labels))) == {"differs, on purpose": labels}


def test_an_answer_in_a_version_that_a_history_names_is_left_as_it_is(host: Host) -> None:
    """Only where an older version was asked in is a topic id made up, which `Session.topic` looks for."""
    assert outcomes(card_of(host, "topics/create-in/v5")) == {"kept": ["topics/create-in/v5"]}


def test_a_broker_with_older_versions_is_asked_in_these(host: Host) -> None:
    """Fields that an old version lacks are no difference; a version that a history names is not supported."""
    ranges = {
        key: (first, min(last, OLD.get(ApiKey(key), last)) if key in set(OLD) else last)
        for key, (first, last) in host.versions.ranges.items()
    }
    card = card_of(host._replace(versions=host.versions._replace(ranges=ranges)))
    found = outcomes(card)
    assert "differs" not in found, found["differs"]
    assert "produce/compressed/zstd in v12" in found["not supported"]
    assert "produce/acks/1" in found["kept"]
    (asked,) = [each for each in card.histories if each.history == "produce/acks/1"]
    assert asked.older == ["Produce v8"]


def test_internal_topics_are_not_written_to_unless_the_cluster_may_be_changed(host: Host) -> None:
    """A broker that is less careful than Kafka would lose the offsets of all groups."""
    only = "produce/shape/the topic of committed offsets"
    (left_out,) = card_of(host, only).histories
    assert (left_out.outcome, left_out.why) == ("not run", ["it changes internal topics"])
    (asked,) = card_of(host._replace(cluster_wide=True), only).histories
    assert asked.outcome == "kept"


def test_a_declared_history_is_left_out_before_it_begins(host: Host) -> None:
    """It may change a broker's configs, or list what others made."""

    def never(_: Any) -> None:
        raise AssertionError("it was run")

    declared = History("produce", "one", "A claim.", Needs(cluster_wide=True), never)
    made = CardRun(host, [declared], name="", progress=ignore)
    made.run()
    assert [each.outcome for each in made.results] == ["not run"]


def test_a_cluster_with_topics_of_its_own_is_refused_by_default(host: Host) -> None:
    """Its topics stay."""
    session = GuestSession(host)
    topic = session.topic("of-its-own")
    try:
        with pytest.raises(Occupied, match=f"topics of its own: {topic}"):
            card_of(host, "produce/acks/1")
        assert outcomes(card_of(host, "produce/acks/1", anyway=True)) == {"kept": ["produce/acks/1"]}
        assert topic in names_of_topics(session)
    finally:
        session.close()


def names_of_topics(session: GuestSession) -> set[str]:
    return {each["name"] for each in session.query("Metadata", 9, topics=None)["topics"]}


def test_nothing_of_a_history_is_left(host: Host) -> None:
    """Open transactions, members that never left, topics, rights, quotas and users of its names go; others stay."""
    other, session = GuestSession(host), GuestSession(host._replace(cluster_wide=True))
    kept = other.topic("of-another")
    left = [*leave_much(session), session.topic("left")]
    session._topics.clear()  # it forgets to delete them
    session.close()
    marks = frozenset({session.mark})
    assert Cleanup(host, marks=marks, created=frozenset({"made-without-a-mark"})).run() == []
    assert kept in names_of_topics(other)
    assert not [name for name in everything(other) if any(each in name for each in [session.mark, *left])]
    assert "made-without-a-mark" not in names_of_topics(other)
    other.close()


def leave_much(s: GuestSession) -> list[str]:
    """Create one resource of every kind, and return the names."""
    topic, group, new, owner = s.topic(), s.name("classic"), s.name("consumer"), s.name("owner")
    s.query(
        "CreateTopics",
        7,
        topics=[{"name": "made-without-a-mark", "num_partitions": 1, "replication_factor": 1}],
    )
    protocols = [{"name": "range", "metadata": b""}]
    fields = {"protocol_type": "consumer", "protocols": protocols}
    first = s.query(
        "JoinGroup", 9, node=s.coordinator(group), group_id=group, session_timeout=30_000, **fields
    )
    again = {**fields, "group_id": group, "member_id": first["member_id"], "rebalance_timeout": 30_000}
    s.query("JoinGroup", 9, node=s.coordinator(group), session_timeout=30_000, **again)
    s.query(
        "ConsumerGroupHeartbeat",
        1,
        node=s.coordinator(new),
        group_id=new,
        member_id="member",
        rebalance_timeout=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    producer = s.init_producer(transactional_id=owner)
    s.query(
        "AddPartitionsToTxn",
        3,
        node=s.coordinator(owner, kind=1),
        v3_and_below_transactional_id=owner,
        v3_and_below_producer_id=producer["producer_id"],
        v3_and_below_producer_epoch=producer["producer_epoch"],
        v3_and_below_topics=[{"name": topic, "partitions": [0]}],
    )
    entity = [{"entity_type": "client-id", "entity_name": s.name("client")}]
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
    s.query("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": ops}])
    config = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
    s.query(
        "IncrementalAlterConfigs",
        1,
        resources=[{"resource_type": 32, "resource_name": new, "configs": [config]}],
    )
    return [topic, group, new]


def everything(s: GuestSession) -> set[str]:
    """Return the names of all topics, groups, quotas, configured groups and open transactions."""
    found = names_of_topics(s)
    found |= {each["group_id"] for each in s.query("ListGroups", 5)["groups"]}
    quotas = s.query("DescribeClientQuotas", 1, components=[])["entries"] or ()
    found |= {str(part["entity_name"]) for each in quotas for part in each["entity"]}
    configured = s.query("ListConfigResources", 1, resource_types=[32])["config_resources"]
    found |= {each["resource_name"] for each in configured}
    open_ones = s.query("ListTransactions", 1, state_filters=["Ongoing"])["transaction_states"]
    return found | {each["transactional_id"] for each in open_ones}


def test_a_run_that_is_interrupted_has_cleaned_up_and_has_a_card(host: Host) -> None:
    """The card has the results so far, and the rest is not run."""

    def interrupt(result: Result) -> None:
        if result.history == "produce/acks/1":
            raise KeyboardInterrupt

    made = CardRun(host, choose("produce/acks/*"), name="", progress=interrupt)
    made.begin(anyway=False)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    card = made.card()
    assert len(card.histories) == len(choose("produce/acks/*"))
    assert {why for each in card.histories if each.outcome == "not run" for why in each.why} == {
        "interrupted"
    }
    assert card.left == [] and card.counts()["kept"]


def test_a_broker_that_ends_in_the_middle_leaves_a_card(tmp_path: Path) -> None:
    """The card has the results so far, and the rest is not run because the broker is gone."""
    with brokers("raftlog") as (alone,):
        system = alone.get(Needs())

        def kill(result: Result) -> None:
            if result.history == "produce/acks/1":
                system.kill(1)

        card = card_of(
            host_with_versions(Host(system.servers())), "produce/acks/*,produce/shape/*", progress=kill
        )
    seen = [each.outcome for each in card.histories]
    first = seen.index("not run")
    assert first > 1 and set(seen[first:]) == {"not run"}
    assert card.gone and card.left
    assert {why for each in card.histories[first:] for why in each.why} == {GONE}
