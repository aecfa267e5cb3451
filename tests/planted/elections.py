"""Bugs of the controller: eligible leaders, replicas in sync, and fenced requests."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.types import NO_BROKER
from raftlog.controller import alter_partition, brokers, leader_and_isr
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata import record_replay
from raftlog.metadata.broker_requests import IsrChange
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import PartitionChanged
from raftlog.replication.leader_role import LeaderRole
from raftlog_chaos.scenarios.last_replica import last_replica
from raftlog_chaos.scenarios.pause_kill import pause_kill
from raftlog_chaos.scenarios.relay import relay
from raftlog_chaos.scenarios.wiped import wiped
from tests.planted.plant import Plant


def elect_uncleanly(patch: pytest.MonkeyPatch) -> None:
    """unclean.leader.election.enable counts as set everywhere."""
    settle = leader_and_isr.update_leader_and_isr

    def settle_uncleanly(*arguments: Any, **rest: Any) -> PartitionChanged | None:
        return settle(*arguments, **{**rest, "unclean": True})

    patch.setattr(leader_and_isr, "update_leader_and_isr", settle_uncleanly)


def empty_the_isr(patch: pytest.MonkeyPatch) -> None:
    """When the last ISR member is fenced, the ISR becomes every live replica."""
    settle = leader_and_isr.update_leader_and_isr

    def settle_anew(
        topic_id: Any, index: int, state: PartitionState, *, availability: BrokerAvailability, **rest: Any
    ) -> PartitionChanged | None:
        alive = tuple(each for each in state.replicas if each in availability.alive)
        if alive and not any(each in group for each in state.isr for group in availability):
            return PartitionChanged(topic_id, index, leader=alive[0], isr=alive)
        return settle(topic_id, index, state, availability=availability, **rest)

    patch.setattr(leader_and_isr, "update_leader_and_isr", settle_anew)


def keep_the_new_incarnation(patch: pytest.MonkeyPatch) -> None:
    """A broker that registers anew keeps its places in ISRs and its leaderships."""
    register = brokers.decide_register

    def register_only(image: MetadataImage, request: Any, **rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(
                brokers,
                "update_all_partitions",
                lambda *arguments, **_: leader_and_isr.PartitionUpdates((), (), True),
            )
            return register(image, request, **rest)

    patch.setattr(brokers, "decide_register", register_only)


def trust_another_disk(patch: pytest.MonkeyPatch) -> None:
    """A broker that comes back with other directories is taken for its former self."""
    register = brokers.decide_register

    def register_trusting(image: MetadataImage, request: Any, **rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(brokers, "LostReplicas", lambda broker_id: leader_and_isr.NO_LOST_REPLICAS)
            return register(image, request, **rest)

    patch.setattr(brokers, "decide_register", register_trusting)


def ignore_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    """KIP-903: an ISR change may name a life of a broker that is over."""
    check = alter_partition._check_isr

    def check_without(image: MetadataImage, state: PartitionState, change: IsrChange) -> None:
        isr = tuple(type(each)(each.broker_id, -1) for each in change.isr)
        check(
            image,
            state,
            IsrChange(change.topic_id, change.partition, change.leader_epoch, change.partition_epoch, isr),
        )

    patch.setattr(alter_partition, "_check_isr", check_without)
    patch.setattr(LeaderRole, "_may_join_isr", _is_unfenced)


def _is_unfenced(leading: LeaderRole, progress: Any) -> bool:
    broker = leading.host.brokers().get(progress.broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def take_in_the_fenced(patch: pytest.MonkeyPatch) -> None:
    """KIP-841: a fenced broker may come into an ISR."""
    check = alter_partition._check_isr

    def check_without(image: MetadataImage, state: PartitionState, change: IsrChange) -> None:
        unfenced = {each: replace(broker, fenced=False) for each, broker in image.brokers.items()}
        check(replace(image, brokers=unfenced), state, change)

    patch.setattr(alter_partition, "_check_isr", check_without)
    patch.setattr(LeaderRole, "_may_join_isr", lambda leading, progress: True)


def shrink_without_a_new_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    """An ISR that became smaller looks as new as the larger ISR."""
    changed = record_replay.changed

    def change(state: PartitionState, record: PartitionChanged) -> PartitionState:
        after = changed(state, record)
        shrunk = len(after.isr) < len(state.isr) and after.leader_epoch == state.leader_epoch
        return replace(after, partition_epoch=state.partition_epoch) if shrunk else after

    patch.setattr(record_replay, "changed", change)


def elect_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Leaders are elected outside the ISR while it has members that are alive."""

    def elect(replicas: tuple[int, ...], isr: tuple[int, ...], availability: BrokerAvailability) -> int:
        alive = [each for each in replicas if each in availability.alive]
        return alive[-1] if alive and any(each in isr for each in alive) else NO_BROKER

    patch.setattr(leader_and_isr, "elect_leader", elect)


def index_no_member_that_joins(patch: pytest.MonkeyPatch) -> None:
    """The controller finds a broker's partitions by the ISRs that it was in when they were created."""
    sort = PartitionIndex._sort

    def sort_created_only(
        index: PartitionIndex, name: Any, was: PartitionState | None, state: PartitionState | None
    ) -> None:
        known = {each for each in (was.isr if was else ()) if name in index._in_sync[each]}
        sort(index, name, was, state)
        for broker_id in set(state.isr) - known if was and state else ():
            index._in_sync[broker_id].discard(name)

    patch.setattr(PartitionIndex, "_sort", sort_created_only)


PLANTS = [
    Plant("unclean-election", "unclean election", last_replica, elect_uncleanly),
    Plant("last-isr-member-fenced", "last replica", last_replica, empty_the_isr),
    Plant(
        "new-incarnation-stays",
        "rebooted replica",
        relay,
        keep_the_new_incarnation,
        test=(
            "tests/controller/test_brokers.py"
            "::test_new_incarnation_leaves_isr_and_leadership_in_the_same_batch"
        ),
    ),
    Plant("other-disk-trusted", "wiped replica", wiped, trust_another_disk),
    Plant(
        "broker-epoch-ignored",
        "KIP-903",
        wiped,
        ignore_broker_epochs,
        test="tests/replication/test_partition.py::test_an_ineligible_follower_does_not_join",
    ),
    Plant("fenced-broker-joins", "KIP-841", last_replica, take_in_the_fenced),
    Plant(
        "joined-member-not-indexed",
        "fenced leader",
        relay,
        index_no_member_that_joins,
        note="A broker that came back and leads again is fenced, and nobody takes its leaderships over.",
    ),
    Plant("shrink-keeps-epoch", "partition epoch", pause_kill, shrink_without_a_new_partition_epoch),
]
