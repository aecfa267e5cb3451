"""Bugs of reassignment: when it ends, what cancelling leaves, and when a replica's log may go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.machine import Decision
from raftlog.broker.replicas import replicas
from raftlog.broker.replicas.replicas import Replicas
from raftlog.controller import (
    alter_partition,
    brokers,
    decommissions,
    leader_and_isr,
    reassignment,
    replica_placer,
)
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.metadata import loader, snapshot
from raftlog.metadata.controller_api import UnregisterBroker
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import UNCHANGED_LEADER, PartitionChanged
from raftlog_chaos.scenarios.decommissions import decommissions as leaving
from raftlog_chaos.scenarios.reassignment import reassignment as moves
from tests.planted.plant import Plant


def _end(topic_id: Any, index: int, state: PartitionState, isr: tuple[int, ...]) -> PartitionChanged:
    return PartitionChanged(
        topic_id,
        index,
        leader=UNCHANGED_LEADER if state.leader in isr else isr[0],
        isr=isr,
        replicas=state.target_replicas,
        adding_replicas=(),
        removing_replicas=(),
    )


def _plant_completion(patch: pytest.MonkeyPatch, completion: Any) -> None:
    for module in (alter_partition, reassignment, leader_and_isr):
        patch.setattr(module, "complete_reassignment", completion)


def end_with_the_first_in_sync(patch: pytest.MonkeyPatch) -> None:
    """A reassignment ends once any replica that stays is in sync, not all of them."""

    def completion(
        topic_id: Any, index: int, state: PartitionState, availability: BrokerAvailability
    ) -> PartitionChanged | None:
        isr = tuple(each for each in state.target_replicas if each in state.isr)
        return _end(topic_id, index, state, isr) if state.is_reassigned and isr else None

    _plant_completion(patch, completion)


def take_the_target_for_in_sync(patch: pytest.MonkeyPatch) -> None:
    """A reassignment ends at once, with replicas in the ISR that have not caught up."""

    def completion(
        topic_id: Any, index: int, state: PartitionState, availability: BrokerAvailability
    ) -> PartitionChanged | None:
        here = set(state.target_replicas) <= availability.alive
        return _end(topic_id, index, state, state.target_replicas) if state.is_reassigned and here else None

    _plant_completion(patch, completion)


def keep_what_was_added(patch: pytest.MonkeyPatch) -> None:
    """Cancelling ends the reassignment, and leaves the replicas that it added."""

    def cancelled(found: Any, availability: BrokerAvailability) -> PartitionChanged:
        return PartitionChanged(found.topic.topic_id, found.number, adding_replicas=(), removing_replicas=())

    patch.setattr(reassignment, "_cancelled", cancelled)


def delete_while_it_still_counts(patch: pytest.MonkeyPatch) -> None:
    """A broker deletes its replica when it hears that it shall go, not when it is gone."""
    changed, on_metadata = replicas.changed_partitions, Replicas.on_metadata

    def take(self: Replicas, old: MetadataImage, new: MetadataImage) -> None:
        def gone_already(old: MetadataImage, new: MetadataImage) -> Iterator[Any]:
            for name, topic, was, state in changed(old, new):
                goes = state is not None and self.broker_id in state.removing_replicas
                yield name, topic, was, None if goes else state

        with pytest.MonkeyPatch.context() as within:
            within.setattr(replicas, "changed_partitions", gone_already)
            on_metadata(self, old, new)

    patch.setattr(Replicas, "on_metadata", take)


def keep_the_log(patch: pytest.MonkeyPatch) -> None:
    """A broker that is no replica any more goes on with its log."""
    remove = Replicas._remove

    def only_deleted_topics(self: Replicas, name: Any, **why: Any) -> None:
        if not why.get("elsewhere"):
            remove(self, name, **why)

    patch.setattr(Replicas, "_remove", only_deleted_topics)


def unregister_before_it_is_empty(patch: pytest.MonkeyPatch) -> None:
    """A decommissioned broker is unregistered once it leads nothing, though it still has replicas."""

    def moves(image: MetadataImage, **given: Any) -> Decision:
        broker_id = next(iter(image.decommissions))
        return brokers.decide_unregister(image, UnregisterBroker(broker_id), **given)

    patch.setattr(decommissions, "decide_moves", moves)


def drop_the_replica_that_leaves(patch: pytest.MonkeyPatch) -> None:
    """A move off a decommissioned broker begins without the replica that leaves, before the new one has caught up."""

    def begin(found: Any, target: tuple[int, ...], _availability: Any) -> tuple[PartitionChanged, ...]:
        isr = tuple(each for each in found.state.isr if each in target) or target[:1]
        leader = found.state.leader if found.state.leader in isr else isr[0]
        change = PartitionChanged(found.topic.topic_id, found.number, leader=leader, isr=isr, replicas=target)
        return (change,)

    patch.setattr(decommissions, "begin_reassignment", begin)


def forget_the_decommission_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot of the metadata lacks the decommissions, so nodes that load it end them."""
    decode = snapshot.decode_image

    def without(data: Any) -> MetadataImage:
        return replace(decode(data), decommissions={})

    for module in (snapshot, loader):
        patch.setattr(module, "decode_image", without)


def give_the_leaving_broker_new_replicas(patch: pytest.MonkeyPatch) -> None:
    """A decommissioned broker is a receiver for the replicas of another."""
    receiver = decommissions.MovePlan._receiver

    def any_broker(self: Any, broker_id: int, target: list[int], state: PartitionState) -> int | None:
        leaving = sorted(self._leaving.keys() - {broker_id, *target, *state.replicas})
        return leaving[0] if leaving else receiver(self, broker_id, target, state)

    patch.setattr(decommissions.MovePlan, "_receiver", any_broker)


def wait_for_the_dead(patch: pytest.MonkeyPatch) -> None:
    """A move to a broker that died, or that leaves as well by now, is waited for."""
    patch.setattr(decommissions.MovePlan, "_is_gone", lambda *_: False)


def move_beside_the_dead(patch: pytest.MonkeyPatch) -> None:
    """A second broker that leaves holds up the moves of the first while it is dead."""

    def target(self: Any, state: PartitionState) -> tuple[int, ...] | None:
        away = [each for each in state.replicas if not self._availability.is_unfenced(each)]
        return None if away else target_of(self, state)

    target_of = decommissions.MovePlan._target
    patch.setattr(decommissions.MovePlan, "_target", target)


def give_cordoned_brokers_new_replicas(patch: pytest.MonkeyPatch) -> None:
    """No broker counts as cordoned."""
    for module in (decommissions, replica_placer):
        patch.setattr(module, "cordoned_brokers", lambda *_: frozenset())


PLANTS = [
    Plant("move-ends-early", "KIP-455 completion", moves, end_with_the_first_in_sync),
    Plant("move-trusts-newcomers", "KIP-455 completion", moves, take_the_target_for_in_sync),
    Plant("cancel-keeps-added", "KIP-455 cancellation", moves, keep_what_was_added),
    Plant("removed-before-its-time", "KIP-455 removal", moves, delete_while_it_still_counts),
    Plant("removed-log-stays", "KIP-455 removal", moves, keep_the_log),
    Plant("unregistered-too-soon", "decommission", leaving, unregister_before_it_is_empty),
    Plant("leaving-replica-dropped", "decommission", leaving, drop_the_replica_that_leaves),
    Plant("decommission-forgotten", "decommission", leaving, forget_the_decommission_in_snapshots),
    Plant("dead-receiver-awaited", "decommission", leaving, wait_for_the_dead),
    Plant("dead-broker-holds-up", "decommission", leaving, move_beside_the_dead),
    Plant(
        "leaving-broker-receives",
        "decommission",
        leaving,
        give_the_leaving_broker_new_replicas,
        test="tests/controller/test_decommissions.py::test_two_brokers_leave_together",
    ),
    Plant(
        "cordoned-broker-receives",
        "KIP-1066",
        leaving,
        give_cordoned_brokers_new_replicas,
        test="tests/controller/test_cordoned_brokers.py::test_replicas_of_a_leaving_broker_do_not_move_to_it",
    ),
]
