"""Claims about the risks of restarts, and about a restarted node that has caught up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native import restarts
from raftlog.admin.native.health import BrokerHealth, State
from raftlog.admin.native.probes import WhichReadiness, get_ready
from raftlog.admin.native.quorum import Quorum, QuorumMember
from raftlog.admin.native.restarts import (
    MOST_NAMED,
    CaughtUp,
    Margin,
    RestartRisks,
    caught_up,
    get_own_restart_risks,
    get_restart_risks,
    restart_risks,
    risk_of,
)
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


class World:
    """The quorum as its leader knows it, and the brokers that do not answer."""

    def __init__(self) -> None:
        self.quorum = quorum(n1="leads", n2="follows", n3="follows")
        self.silent: set[int] = set()
        self.asked = 0

    async def known(self, _node: NodeView) -> Quorum:
        self.asked += 1
        return self.quorum

    async def health(self, _asker: object, broker: BrokerState) -> BrokerHealth:
        answers = broker.broker_id not in self.silent
        state: State = "in_service" if answers else "silent"
        if broker.fenced:
            state = "fenced" if answers else "down"
        elif broker.in_controlled_shutdown:
            state = "stopping"
        return BrokerHealth(broker.broker_id, state, [])


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Have every voter keep up, and every broker answer."""
    made = World()
    monkeypatch.setattr(restarts, "quorum_of", made.known)
    monkeypatch.setattr(restarts, "broker_health", made.health)
    return made


async def judged(node: NodeView, broker_id: int, margin: int = 0) -> RestartRisks:
    asker: Any = None
    return await restart_risks(node, asker, broker_id, margin)


def codes(risks: list[restarts.Risk]) -> list[str]:
    return [each.code for each in risks]


RISKS = [
    # replicas, isr, min.insync.replicas, margin, what a restart of broker 1 would bring; "!": it blocks
    (ALL, ALL, 1, 0, ""),
    (ALL, ALL, 2, 0, "at_min_isr"),
    (ALL, (1, 2), 2, 0, "under_min_isr!"),
    (ALL, (1, 2), 1, 0, "at_min_isr"),
    (ALL, (1,), 1, 0, "offline!"),
    (ALL, (1,), 2, 0, "offline!"),
    # what waiting cannot change
    ((1,), (1,), 1, 0, "only_replica"),
    ((1,), (1,), 2, 0, "only_replica"),
    ((1, 2), (1, 2), 2, 0, "always_under_min_isr"),
    ((1, 2), (1, 2), 3, 0, "always_under_min_isr"),
    (ALL, ALL, 3, 0, "always_under_min_isr"),
    # a margin, where the partition can have it
    (ALL, ALL, 1, 1, ""),
    (ALL, (1, 2), 1, 1, "below_margin!"),
    (ALL, ALL, 2, 1, "at_min_isr"),
    ((1, 2, 3, 4), (1, 2, 3), 2, 1, "below_margin!"),
]


@pytest.mark.parametrize(("replicas", "isr", "min_insync", "margin", "code"), RISKS)
def test_a_partition_is_at_risk_by_what_stays_in_sync(
    replicas: tuple[int, ...], isr: tuple[int, ...], min_insync: int, margin: int, code: str
) -> None:
    """Only what passes by waiting blocks."""
    state = PartitionState(replicas, isr, isr[0])
    found = risk_of(state, 1, min_insync=min_insync, staying=(1, 2, 3, 4), margin=margin)
    assert f"{found}{'!' if found in restarts.BLOCKING else ''}" == code


def test_a_reassignment_brings_replicas_that_are_worth_waiting_for() -> None:
    """A replica that is being added, or a partition whose replica on this broker is being added."""
    grows = PartitionState((1, 2), (1,), 1, adding_replicas=(2,))
    assert risk_of(grows, 1, min_insync=1, staying=(1, 2), margin=0) == "offline"
    joins = PartitionState((2, 1), (1,), 1, adding_replicas=(1,))
    assert risk_of(joins, 1, min_insync=1, staying=(1, 2), margin=0) == "offline"


async def test_a_replica_whose_broker_stops_or_does_not_answer_is_not_counted_on(world: World) -> None:
    """It is in the ISR until the controller has removed it, and its voter keeps up until the leader misses it."""
    state = PartitionState(ALL, ALL, 1)
    for going in (broker(2, in_controlled_shutdown=True), broker(2, fenced=True), broker(2)):
        world.silent = set() if going.in_controlled_shutdown else {2}
        found = await judged(view(image_of(state, brokers=(broker(1), going, broker(3)))), 1)
        assert codes(found.blocking) == ["quorum_majority", "under_min_isr"]
        assert not found.safe


async def test_a_broker_that_is_fenced_and_runs_votes() -> None:
    """It lost its log directory, say, and would otherwise hold up the restarts of all others."""
    state = PartitionState((1, 3), (1, 3), 1)
    found = await judged(
        view(image_of(state, min_insync=1, brokers=(broker(1), broker(2, fenced=True), broker(3)))), 1
    )
    assert found.safe


async def test_a_broker_that_is_not_in_sync_or_out_of_service_risks_nothing() -> None:
    """Its restart takes no replica away from the ISR; the restart of another does."""
    node = view(image_of(PartitionState(ALL, (2, 3), 2)))
    assert (await judged(node, 1)).safe
    assert not (await judged(node, 2)).safe
    fenced = view(
        image_of(PartitionState(ALL, (1,), 1), brokers=(broker(1, fenced=True), broker(2), broker(3)))
    )
    assert (await judged(fenced, 1)).safe


async def test_risks_are_counted_and_the_first_are_named() -> None:
    """All of them are counted; the leaderships that move are a note."""
    found = await judged(view(image_of(*[PartitionState(ALL, (1, 2), 1)] * (MOST_NAMED + 5))), 1)
    (risk,) = found.blocking
    assert (risk.count, len(risk.partitions), risk.partitions[1]) == (MOST_NAMED + 5, MOST_NAMED, "t-1")
    assert [(each.code, each.count) for each in found.notes] == [("leads", MOST_NAMED + 5)]


async def test_a_majority_of_voters_must_stay(world: World) -> None:
    """With one silent voter of three no other may go; with two voters none ever could, which is a note."""
    for states, blocking, notes in (
        ({"n1": "leads", "n2": "follows", "n3": "silent"}, ["quorum_majority"], []),
        ({"n1": "leads", "n2": "lags", "n3": "follows"}, ["quorum_majority"], []),
        ({"n1": "silent", "n2": "leads", "n3": "follows"}, [], []),
        ({"n2": "leads", "n3": "follows", "n4": "silent"}, [], []),
        ({"n1": "leads", "n2": "follows"}, [], ["few_voters"]),
        ({"n1": "leads"}, [], ["few_voters"]),
    ):
        world.quorum = quorum(**states)
        found = await judged(view(image_of()), 1)
        assert (codes(found.blocking), codes(found.notes)) == (blocking, notes), states
    world.quorum = Quorum(False, None, 0, 0, 2, [], [])
    assert codes((await judged(view(image_of()), 1)).blocking) == ["no_controller"]


async def test_the_restart_of_an_unknown_node_is_not_judged() -> None:
    """Answered with 404: a wrong number is not safe."""
    with pytest.raises(ApiError) as raised:
        await judged(view(image_of()), 9)
    assert raised.value.status == 404


async def test_concurrent_requests_share_one_judgement(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may ask as often as they like. Another broker or margin is another question, and old answers go."""
    node = view(image_of(PartitionState(ALL, ALL, 1)))
    found = await asyncio.gather(*(judged(node, 1) for _ in range(20)))
    assert (world.asked, len({id(each) for each in found})) == (1, 1)
    await judged(node, 1, margin=1)
    assert (world.asked, len(node.judged_restarts)) == (2, 2)
    monkeypatch.setattr(restarts, "JUDGED_S", -1.0)
    node.judged_restarts = {key: (0.0, each) for key, (_, each) in node.judged_restarts.items()}
    await judged(node, 2)
    assert (world.asked, list(node.judged_restarts)) == (3, [(2, 0)])


async def test_a_node_has_caught_up_once_each_replica_has_been_in_sync() -> None:
    """Not all at the same time. What is not in sync later does not take that back, until the next start."""
    first, second = PartitionState(ALL, (2, 3), 2), PartitionState(ALL, ALL, 1)
    images = [
        image_of(first, first),
        image_of(second, first),
        image_of(first, second),
        image_of(first, first),
    ]
    node = view(images[0])
    seen = []
    for image in images:
        node.image = lambda image=image: image  # type: ignore[misc]
        found = await caught_up(node)
        seen.append((found.caught_up, found.in_sync_percent, found.reasons))
    assert seen == [
        (False, 0, ["2 of 2 replicas are not in sync yet"]),
        (False, 50, ["1 of 2 replicas are not in sync yet"]),
        (True, 100, []),
        (True, 100, []),
    ]


async def test_a_node_that_does_not_take_part_has_not_caught_up() -> None:
    """Its metadata may be empty or old, in which every replica is in sync."""
    node = view(MetadataImage(), unready=("it is fenced",))
    assert await caught_up(node) == CaughtUp(False, 0, ["it is fenced"])
    node.unready_reasons = list
    assert (await caught_up(node)).caught_up


async def test_replicas_that_cannot_get_in_sync_are_not_awaited() -> None:
    """A new replica waits for its reassignment, a replica without a leader waits for that leader, a stopped replica for
    an operator.
    """

    class Facts:
        def failed_replicas(self) -> dict[TopicPartition, str]:
            return {TopicPartition("t", 2): "it would cut committed records"}

    added = PartitionState((2, 3, 1), (2, 3), 2, adding_replicas=(1,))
    leaderless, behind = PartitionState(ALL, (3,)), PartitionState(ALL, (2, 3), 2)
    image = image_of(added, leaderless, behind)
    assert (await caught_up(view(image))).reasons == ["1 of 2 replicas are not in sync yet"]
    node = view(image)
    node.facts = Facts()  # type: ignore[assignment]
    assert (await caught_up(node)).caught_up


async def test_names_of_partitions_are_for_callers_with_a_right() -> None:
    """Anyone may ask a node about itself: for them the partitions are counted."""
    node = view(image_of(PartitionState(ALL, (1, 2), 1)))
    call: Any = SimpleNamespace(node=node, asker=None, query=Margin(), path={"broker_id": 1})
    anyone, allowed = await get_own_restart_risks(call), await get_restart_risks(call)
    named = {each.code: each.partitions for each in (*allowed.blocking, *allowed.notes)}
    counted = {each.code: (each.count, each.partitions) for each in (*anyone.blocking, *anyone.notes)}
    assert named == {"under_min_isr": ["t-0"], "leads": ["t-0"]}
    assert counted == {"under_min_isr": (1, []), "leads": (1, [])}


async def test_a_node_that_has_not_caught_up_is_unready_on_request() -> None:
    """A rollout waits for it; clients of a node that copies yet need not."""
    node = view(image_of(PartitionState(ALL, (2, 3), 2)))
    usual: Any = SimpleNamespace(node=node, query=WhichReadiness())
    rollout: Any = SimpleNamespace(node=node, query=WhichReadiness(caught_up=True))
    assert [(await get_ready(each))[0] for each in (usual, rollout)] == [200, 503]
    assert (await get_ready(rollout))[1].reasons == ["1 of 1 replicas are not in sync yet"]
