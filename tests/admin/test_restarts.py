"""Claims about the risks of restarts, and about a restarted node that has caught up."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftlog.admin.cluster_summary import MOST_RISKS_NAMED
from raftlog.admin.errors import ApiError
from raftlog.admin.native import restarts
from raftlog.admin.native.quorum import Quorum, QuorumMember
from raftlog.admin.native.restarts import caught_up, restart_risks, risk_of
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.base.types import TopicPartition
from raftlog.metadata.image import BrokerState, MetadataImage, PartitionState, TopicState

ID = UUID(int=1)
ALL = (1, 2, 3)


def quorum(**states: str) -> Quorum:
    """Return a quorum of voters in these states: `n1="leads"`."""
    voters = [
        QuorumMember(int(name[1:]), state, None, None, None, None) for name, state in sorted(states.items())
    ]
    return Quorum(True, 1, 1, 1, len(voters) // 2 + 1, voters, [])


def broker(number: int, **state: Any) -> BrokerState:
    return BrokerState(number, number, UUID(int=number), (), fenced=state.pop("fenced", False), **state)


def image_of(
    *partitions: PartitionState, min_insync: int = 2, brokers: tuple[BrokerState, ...] | None = None
) -> MetadataImage:
    """Return a cluster of three brokers with one topic `t`."""
    return MetadataImage(
        topics={"t": TopicState("t", ID, partitions)},
        topic_names={ID: "t"},
        configs={("topic", "t"): {"min.insync.replicas": str(min_insync)}},
        brokers={each.broker_id: each for each in brokers or tuple(map(broker, ALL))},
    )


def view(image: MetadataImage, unready: tuple[str, ...] = ()) -> NodeView:
    return NodeView(load_config({"node.id": "1"}), lambda: image, lambda: list(unready), lambda: 5.0)


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every voter keep up."""
    set_quorum(monkeypatch, quorum(n1="leads", n2="follows", n3="follows"))


def set_quorum(monkeypatch: pytest.MonkeyPatch, found: Quorum) -> None:
    async def known(_node: NodeView) -> Quorum:
        return found

    monkeypatch.setattr(restarts, "quorum_of", known)


def codes(risks: list[restarts.Risk]) -> list[str]:
    return [each.code for each in risks]


RISKS = [
    # replicas, isr, min.insync.replicas, margin, what a restart of broker 1 would bring
    (ALL, ALL, 1, 0, ""),
    (ALL, ALL, 2, 0, "at_min_isr"),
    (ALL, (1, 2), 2, 0, "under_min_isr"),
    (ALL, (1, 2), 1, 0, "at_min_isr"),
    (ALL, (1,), 1, 0, "offline"),
    (ALL, (1,), 2, 0, "offline"),
    # what waiting cannot change
    ((1,), (1,), 1, 0, "only_replica"),
    ((1,), (1,), 2, 0, "only_replica"),
    ((1, 2), (1, 2), 2, 0, "always_under_min_isr"),
    ((1, 2), (1, 2), 3, 0, "always_under_min_isr"),
    (ALL, ALL, 3, 0, "always_under_min_isr"),
    # a margin, where the partition can have it
    (ALL, ALL, 1, 1, ""),
    (ALL, (1, 2), 1, 1, "below_margin"),
    (ALL, ALL, 2, 1, "at_min_isr"),
    ((1, 2, 3, 4), (1, 2, 3), 2, 1, "below_margin"),
]


@pytest.mark.parametrize(("replicas", "isr", "min_insync", "margin", "code"), RISKS)
def test_a_partition_is_at_risk_by_what_stays_in_sync(
    replicas: tuple[int, ...], isr: tuple[int, ...], min_insync: int, margin: int, code: str
) -> None:
    """Only what passes by waiting blocks."""
    state = PartitionState(replicas, isr, isr[0])
    assert risk_of(state, 1, min_insync, (1, 2, 3, 4), margin) == code
    blocks = {"offline", "under_min_isr", "below_margin"}
    assert (code in restarts.BLOCKING) == (code in blocks)


async def test_a_replica_in_sync_whose_broker_is_going_is_not_counted_on() -> None:
    """It is in the ISR until the controller has removed it."""
    state = PartitionState(ALL, ALL, 1)
    for going in (broker(2, in_controlled_shutdown=True), broker(2, fenced=True)):
        found = await restart_risks(view(image_of(state, brokers=(broker(1), going, broker(3)))), 1)
        assert codes(found.blocking) == ["quorum_majority", "under_min_isr"]
        assert not found.safe


async def test_a_broker_that_is_not_in_sync_risks_nothing() -> None:
    """Its restart takes no replica away from the ISR; the restart of another does."""
    node = view(image_of(PartitionState(ALL, (2, 3), 2)))
    assert (await restart_risks(node, 1)).safe
    assert not (await restart_risks(node, 2)).safe


async def test_risks_are_counted_and_the_first_are_named() -> None:
    """All of them are counted; the leaderships that move are a note."""
    found = await restart_risks(view(image_of(*[PartitionState(ALL, (1, 2), 1)] * (MOST_RISKS_NAMED + 5))), 1)
    (risk,) = found.blocking
    assert (risk.count, len(risk.partitions), risk.partitions[1]) == (
        MOST_RISKS_NAMED + 5,
        MOST_RISKS_NAMED,
        "t-1",
    )
    assert [(each.code, each.count) for each in found.notes] == [("leads", MOST_RISKS_NAMED + 5)]


async def test_a_majority_of_voters_must_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one silent voter of three no other may go; with two voters none ever could, which is a note."""
    node = view(image_of())
    for states, blocking, notes in (
        ({"n1": "leads", "n2": "follows", "n3": "silent"}, ["quorum_majority"], []),
        ({"n1": "leads", "n2": "lags", "n3": "follows"}, ["quorum_majority"], []),
        ({"n1": "silent", "n2": "leads", "n3": "follows"}, [], []),
        ({"n2": "leads", "n3": "follows", "n4": "silent"}, [], []),
        ({"n1": "leads", "n2": "follows"}, [], ["few_voters"]),
        ({"n1": "leads"}, [], ["few_voters"]),
    ):
        set_quorum(monkeypatch, quorum(**states))
        found = await restart_risks(node, 1)
        assert (codes(found.blocking), codes(found.notes)) == (blocking, notes), states
    set_quorum(monkeypatch, quorum(n1="leads", n2="follows", n3="follows"))
    for going in (broker(3, fenced=True), broker(3, in_controlled_shutdown=True)):
        fenced = view(image_of(brokers=(broker(1), broker(2), going)))
        assert codes((await restart_risks(fenced, 1)).blocking) == ["quorum_majority"], "it is not missed yet"
    lost = Quorum(False, None, 0, 0, 2, [], [])
    set_quorum(monkeypatch, lost)
    assert codes((await restart_risks(node, 1)).blocking) == ["no_controller"]


async def test_the_restart_of_an_unknown_node_is_not_judged() -> None:
    """Answered with 404: a wrong number is not safe."""
    with pytest.raises(ApiError) as raised:
        await restart_risks(view(image_of()), 9)
    assert raised.value.status == 404


async def test_partitions_are_visited_once_for_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may ask as often as they like; another image is another answer, and the old one is not kept."""
    visits: list[object] = []

    def visited(*given: object) -> str:
        visits.append(given)
        return ""

    monkeypatch.setattr(restarts, "risk_of", visited)
    image = image_of(PartitionState(ALL, ALL, 1))
    node = view(image)
    for _ in range(3):
        await restart_risks(node, 1)
        await caught_up(node)
    assert len(visits) == 1
    newer = image_of(PartitionState(ALL, ALL, 1))
    node.image = lambda: newer
    await restart_risks(node, 1)
    assert len(visits) == 2
    assert [each.image for each in node.restart_risks.values()] == [newer]


async def test_a_node_has_caught_up_once_all_its_replicas_were_in_sync() -> None:
    """What is not in sync later does not take that back, until the next start."""
    node = view(image_of(PartitionState(ALL, ALL, 1), PartitionState(ALL, (2, 3), 2)))
    found = await caught_up(node)
    assert (found.caught_up, found.replicas, found.in_sync, found.in_sync_percent) == (False, 2, 1, 50)
    assert found.reasons == ["1 of 2 replicas are not in sync"]
    full, less = image_of(PartitionState(ALL, ALL, 1)), node.image()
    node.image = lambda: full
    assert (await caught_up(node)).caught_up
    node.image = lambda: less
    again = await caught_up(node)
    assert (again.caught_up, again.in_sync_percent) == (True, 50)


async def test_a_node_that_does_not_take_part_has_not_caught_up() -> None:
    """Its metadata may be empty or old, in which nothing is behind."""
    found = await caught_up(view(MetadataImage(), unready=("it is fenced",)))
    assert (found.caught_up, found.reasons) == (False, ["it is fenced"])


async def test_replicas_that_are_added_or_have_stopped_for_good_are_not_awaited() -> None:
    """The first has a reassignment to wait for, the second a person."""

    class Facts:
        def failed_replicas(self) -> dict[TopicPartition, str]:
            return {TopicPartition("t", 1): "it would cut committed records"}

    added = PartitionState((2, 3, 1), (2, 3), 2, adding_replicas=(1,))
    node = view(image_of(added, PartitionState(ALL, (2, 3), 2), PartitionState(ALL, ALL, 1)))
    assert not (await caught_up(node)).caught_up
    node.facts = Facts()  # type: ignore[assignment]
    found = await caught_up(node)
    assert (found.caught_up, found.replicas, found.in_sync) == (True, 1, 1)
