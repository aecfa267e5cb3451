"""Claims about brokers that leave: their progress, what holds it up, and where a person sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from raftlog.admin.native.decommissions import Decommission, progress_of
from raftlog.admin.native.health import _of_decommissions
from raftlog.admin.native.why import _broker_event
from raftlog.base.config import load_config
from raftlog.base.types import NO_BROKER
from raftlog.metadata.causes import Cause
from raftlog.metadata.history import History
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.metadata.metadata_records import DecommissionChanged
from tests.admin.test_restarts import broker
from tests.metadata.test_history import HistorySetup

VOTER = load_config(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": "/data",
    }
)


class NoTurns:
    """The turns of a call that is alone."""

    async def next(self) -> None:
        """Return at once."""


async def leaving(
    broker_id: int,
    *partitions: PartitionState,
    fenced: tuple[int, ...] = (),
    cordoned: tuple[int, ...] = (),
) -> Decommission:
    """Return the progress of a broker that leaves a cluster of four."""
    image = MetadataImage(
        topics={"t": TopicState("t", UUID(int=1), partitions)},
        brokers={each: broker(each, fenced=each in fenced) for each in (1, 2, 3, 4)},
        decommissions={broker_id: NO_BROKER},
        configs={("broker", str(each)): {"cordoned.log.dirs": "*"} for each in cordoned},
    )
    node = SimpleNamespace(image=lambda: image, config=VOTER, voters=lambda: {})
    call: Any = SimpleNamespace(node=node, turns=NoTurns())
    return await progress_of(call, broker_id)


def on(*replicas: int, leader: int = 0, **more: Any) -> PartitionState:
    return PartitionState(replicas, replicas, leader=leader or replicas[0], leader_epoch=1, **more)


async def test_partitions_that_an_operator_must_see_to_come_first_and_are_counted() -> None:
    """Moving, blocked by a broker that is down, and waiting for their turn."""
    moves = on(1, 2, 4, adding_replicas=(4,), removing_replicas=(1,))
    found = await leaving(1, on(1, 2), moves, on(1, 3), on(2, 4), fenced=(3,))
    assert (found.replicas, found.blocked, found.votes) == (3, 1, True)
    assert [(each.partition, each.to) for each in found.moving] == [(1, [4])]
    assert [(each.partition, each.blocked) for each in found.waiting] == [(2, True), (0, False)]
    assert found.waiting[0].reason == (
        "broker 3 has a replica that stays, and is not in service: start or decommission it"
    )
    assert found.waiting[1].reason == "its turn has not come"


async def test_partition_without_a_leader_or_a_receiver_is_blocked() -> None:
    """Their reasons say what to do."""
    found = await leaving(1, on(1, leader=NO_BROKER), on(1, 2, 3), fenced=(4,))
    assert [each.reason for each in found.waiting] == [
        "no broker leads it: start the brokers that have its records",
        "no other broker is in service that could take it: start or add one",
    ]
    assert found.blocked == 2


async def test_cordoned_brokers_hold_up_what_they_could_take() -> None:
    """A broker that is cordoned gets no replica of another that leaves."""
    found = await leaving(1, on(1, 2), on(1, 4), cordoned=(3, 4))
    assert [(each.partition, each.blocked) for each in found.waiting] == [(0, True), (1, False)]
    assert found.waiting[0].reason == (
        "the other brokers in service are cordoned: raftlog broker cordon --undo, or add one"
    )


async def test_health_says_that_a_broker_leaves_and_what_holds_it_up() -> None:
    """Green while it goes on, yellow for what does not."""
    goes_on = list(_of_decommissions([await leaving(1, on(1, 2))]))
    assert [(each.severity, each.code, each.count) for each in goes_on] == [("green", "brokers_leaving", 1)]
    _, blocked = _of_decommissions([await leaving(1, on(1, 2), on(1, 3), fenced=(3,))])
    assert (blocked.severity, blocked.code, blocked.count) == ("yellow", "decommission_blocked", 1)
    assert (blocked.brokers, blocked.partitions) == ([1], ["t-1"])
    assert "1 of its partitions cannot move, as t-1: broker 3 has a replica" in blocked.message


def test_why_of_a_broker_names_its_decommission_and_its_end() -> None:
    """With the user who asked for it."""
    told = HistorySetup(History())
    told.begin()
    for kind, ended in (("decommissioned", False), ("recommissioned", True)):
        told.tell(DecommissionChanged(1, NO_BROKER, ended), causes=(Cause(kind, 1, by="User:alice"),))
    began, stays = (_broker_event(1, each) for each in told.history.broker(1)[-2:])
    assert began.what == ["decommission_began"]
    assert began.because == "User:alice decommissioned broker 1"
    assert stays.what == ["decommission_ended"]
    assert [each.what for each in (_broker_event(2, it) for it in told.history.broker(2))] == [["registered"]]
