"""Bugs of eligible leaders (KIP-966): replicas that lack records count, and a leader commits alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.machine import Decision
from raftlog.controller import (
    alter_partition,
    brokers,
    controller,
    eligible_leaders,
    leader_and_isr,
    reassignment,
)
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.leader_and_isr import NO_LOST_REPLICAS, LostReplicas, PartitionUpdates
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import PartitionChanged
from raftlog.metadata.record_replay import changed
from raftlog_chaos.scenarios.eligible_leaders import eligible_leaders as play
from raftlog_chaos.scenarios.late_damage import late_damage
from tests.planted.plant import Plant

UNIT = "tests/controller/test_eligible_leaders.py"


def take_all_replicas_for_eligible(patch: pytest.MonkeyPatch) -> None:
    """Below min.insync.replicas, all replicas out of the ISR are eligible."""
    add = eligible_leaders.with_eligible_leaders

    def add_all(before: PartitionState, record: PartitionChanged, *rest: Any) -> PartitionChanged:
        if record.isr is not None and record.eligible is None:
            record = replace(record, eligible=before.replicas)
        return add(before, record, *rest)

    for module in (eligible_leaders, alter_partition):
        patch.setattr(module, "with_eligible_leaders", add_all)


def trust_a_new_disk(patch: pytest.MonkeyPatch) -> None:
    """An eligible leader stays eligible when it comes back with another disk, or with a damaged log."""
    update = leader_and_isr.update_leader_and_isr

    def trusting(
        topic_id: Any,
        index: int,
        state: PartitionState,
        *,
        lost_replicas: LostReplicas = NO_LOST_REPLICAS,
        **rest: Any,
    ) -> PartitionChanged | None:
        if lost_replicas.broker_id in state.eligible:
            lost_replicas = NO_LOST_REPLICAS
        return update(topic_id, index, state, lost_replicas=lost_replicas, **rest)

    patch.setattr(leader_and_isr, "update_leader_and_isr", trusting)


def keep_unregistered_brokers(patch: pytest.MonkeyPatch) -> None:
    """A broker that is unregistered stays eligible, or becomes so, and may come back with any disk."""
    patch.setattr(brokers, "_replaceable", lambda *_: NO_LOST_REPLICAS)


def commit_beside_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    """The high watermark rises again as soon as min.insync.replicas is lowered, though others may still be elected."""

    def is_under(state: PartitionState, min_insync: int, isr: tuple[int, ...] | None = None) -> bool:
        return len(state.isr if isr is None else isr) < state.effective_min_isr(min_insync)

    patch.setattr(PartitionState, "is_under_min_isr", is_under)


def commit_with_a_lost_isr(patch: pytest.MonkeyPatch) -> None:
    """A leader for reading only whose log is sound commits, although an unclean election may follow."""
    is_under_min_isr = PartitionState.is_under_min_isr

    def is_under(state: PartitionState, min_insync: int, isr: tuple[int, ...] | None = None) -> bool:
        return is_under_min_isr(replace(state, isr_lost=False), min_insync, isr)

    patch.setattr(PartitionState, "is_under_min_isr", is_under)


def release_while_the_isr_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A change of min.insync.replicas ends the eligibility where a damaged replica leads for reading."""
    release = eligible_leaders._released

    def released(image: MetadataImage, min_insync: Any, index: Any) -> Iterator[PartitionChanged]:
        yield from release(image, min_insync, index)
        for name in sorted(index.at(image).with_eligible):
            topic = image.topics[name.topic]
            state = topic.partitions[name.partition]
            if state.isr_lost and min_insync(name.topic, state.leader) <= len(state.isr):
                yield PartitionChanged(topic.topic_id, name.partition, eligible=())

    add = eligible_leaders.with_eligible_leaders

    def as_recorded(before: PartitionState, record: PartitionChanged, *rest: Any) -> PartitionChanged:
        return record if record.eligible == () and before.isr_lost else add(before, record, *rest)

    patch.setattr(eligible_leaders, "_released", released)
    patch.setattr(eligible_leaders, "with_eligible_leaders", as_recorded)


def go_offline_with_a_damaged_last_log(patch: pytest.MonkeyPatch) -> None:
    """A damaged last member does not lead for reading if another replica has all that is committed."""
    decide = brokers.decide_heartbeat

    def decide_offline(*args: Any, reads_on: bool, **rest: Any) -> Decision:
        return decide(*args, **rest, reads_on=False)

    patch.setattr(brokers, "decide_heartbeat", decide_offline)


def forget_the_last_eligible_leader(patch: pytest.MonkeyPatch) -> None:
    """A broker that is unregistered is no eligible leader any more, though no other replica has all records."""
    replaceable = brokers._replaceable

    def with_all_eligible(image: MetadataImage, broker_id: int, *rest: Any) -> LostReplicas:
        known = frozenset(
            (topic.topic_id, number)
            for topic in image.topics.values()
            for number, state in enumerate(topic.partitions)
            if broker_id in state.eligible
        )
        return LostReplicas(broker_id, known | (replaceable(image, broker_id, *rest).damaged or frozenset()))

    patch.setattr(brokers, "_replaceable", with_all_eligible)


def hide_the_damage_of_an_eligible_leader(patch: pytest.MonkeyPatch) -> None:
    """An eligible leader that reports damage is elected in the same record, so that the election looks clean."""
    update = leader_and_isr.update_leader_and_isr

    def at_once(
        topic_id: Any, index: int, state: PartitionState, *, unclean: bool, **rest: Any
    ) -> PartitionChanged | None:
        lost, members = rest.get("lost_replicas", NO_LOST_REPLICAS), state.eligible if state.isr_lost else ()
        change = update(topic_id, index, state, unclean=unclean, **rest)
        if change is not None and unclean and lost.affects(topic_id, index, members):
            leader = leader_and_isr._unclean_leader(state, rest["availability"])
            change = replace(change, leader=leader, isr=(leader,), isr_lost=False, eligible=())
        return change

    patch.setattr(leader_and_isr, "update_leader_and_isr", at_once)


def keep_what_is_no_replica_eligible(patch: pytest.MonkeyPatch) -> None:
    """The records of an unclean election and of a reassignment's end name no eligible leaders by themselves."""
    update, complete = leader_and_isr.update_leader_and_isr, leader_and_isr.complete_reassignment

    def unnamed(topic_id: Any, index: int, state: PartitionState, **rest: Any) -> PartitionChanged | None:
        change = update(topic_id, index, state, **rest)
        uncleanly = change is not None and change.leader >= 0 and changed(state, change).unclean_epoch >= 0
        return replace(change, eligible=None) if change is not None and uncleanly else change

    def ended(*given: Any) -> PartitionChanged | None:
        end = complete(*given)
        return None if end is None else replace(end, eligible=None)

    patch.setattr(leader_and_isr, "update_leader_and_isr", unnamed)
    patch.setattr(leader_and_isr, "complete_reassignment", ended)


def cancel_to_a_damaged_replica(patch: pytest.MonkeyPatch) -> None:
    """A reassignment is cancelled while only the added replicas have all records."""
    cancelled = reassignment._cancelled

    def of_sound(found: Any, availability: Any) -> PartitionChanged:
        record = cancelled(found._replace(state=replace(found.state, isr_lost=False)), availability)
        return replace(record, eligible=()) if found.state.isr_lost else record

    patch.setattr(reassignment, "_cancelled", of_sound)


def trust_a_damaged_last_log(patch: pytest.MonkeyPatch) -> None:
    """A replica that led for reading only counts as eligible once another leads, though its log has a hole."""
    update = leader_and_isr.update_leader_and_isr

    def trusting(topic_id: Any, index: int, state: PartitionState, **rest: Any) -> PartitionChanged | None:
        change = update(topic_id, index, state, **rest)
        if change is not None and state.isr_lost and change.isr_lost is False:
            change = replace(change, eligible=(*(change.eligible or ()), *state.isr))
        return change

    patch.setattr(leader_and_isr, "update_leader_and_isr", trusting)


def never_release(patch: pytest.MonkeyPatch) -> None:
    """A change of min.insync.replicas does not end the eligibility, so the leader never commits."""
    patch.setattr(controller, "decide_release", lambda *_: Decision())


def cancel_to_any_replica(patch: pytest.MonkeyPatch) -> None:
    """A cancelled reassignment has any original replica lead that runs, when all of them are out of sync."""
    elect = reassignment.elect_leader
    patch.setattr(
        reassignment,
        "elect_leader",
        lambda replicas, _isr, availability: elect(replicas, replicas, availability),
    )


def stop_without_a_hand_over(patch: pytest.MonkeyPatch) -> None:
    """A broker that leads alone stops at once, though an eligible leader is about to be in sync."""
    patch.setattr(brokers, "_waits_for_another", lambda *_: False)


def unfence_before_the_damaged_have_left(patch: pytest.MonkeyPatch) -> None:
    """A broker is unfenced with one batch, however many damaged replicas it reports: the next batch elects the rest."""
    update = leader_and_isr.update_all_partitions

    def update_at_once(
        image: MetadataImage, availability: BrokerAvailability, *rest: Any, **more: Any
    ) -> Any:
        lost = more.get("lost_replicas", NO_LOST_REPLICAS)
        if lost.damaged and image.brokers[lost.broker_id].fenced and lost.broker_id not in availability.alive:
            return PartitionUpdates((), (), True)
        return update(image, availability, *rest, **more)

    patch.setattr(brokers, "update_all_partitions", update_at_once)


PLANTS = [
    Plant("all-replicas-eligible", "KIP-966", play, take_all_replicas_for_eligible),
    Plant("eligible-with-a-new-disk", "KIP-966", play, trust_a_new_disk),
    Plant("eligible-unregistered-disk", "KIP-966", play, keep_unregistered_brokers),
    Plant("commits-beside-eligible", "KIP-966", play, commit_beside_eligible_leaders),
    Plant(
        "commits-with-a-lost-isr",
        "a leader outside of its ISR",
        late_damage,
        commit_with_a_lost_isr,
    ),
    Plant("eligible-released-while-lost", "KIP-966", play, release_while_the_isr_is_lost),
    Plant("damaged-last-goes-offline", "KIP-966", play, go_offline_with_a_damaged_last_log),
    Plant(
        "damaged-beyond-a-batch",
        "more damaged replicas than a batch has records",
        play,
        unfence_before_the_damaged_have_left,
        test="tests/controller/test_small_batches.py::test_a_broker_is_unfenced_with_no_damaged_replica_in_sync",
    ),
    Plant("last-eligible-is-forgotten", "KIP-966", play, forget_the_last_eligible_leader),
    Plant(
        "damaged-eligible-looks-clean",
        "KIP-966 unclean_epoch",
        play,
        hide_the_damage_of_an_eligible_leader,
        test=f"{UNIT}::test_damaged_eligible_leader_of_a_lost_isr_is_elected_as_unclean",
    ),
    Plant(
        "eligible-beyond-the-replicas",
        "KIP-966 broken invariant",
        play,
        keep_what_is_no_replica_eligible,
        test=f"{UNIT}::test_unregistration_survives_an_unclean_election_that_ends_a_reassignment",
    ),
    Plant(
        "cancelled-to-a-damaged-replica",
        "KIP-455 committed records lost",
        play,
        cancel_to_a_damaged_replica,
        test=f"{UNIT}::test_reassignment_is_not_cancelled_while_only_added_replicas_are_eligible_in_a_lost_isr",
    ),
    Plant(
        "damaged-last-stays-eligible",
        "KIP-966",
        play,
        trust_a_damaged_last_log,
        test=f"{UNIT}::test_damaged_last_member_leads_for_reading_until_an_eligible_leader_comes_back",
    ),
    Plant(
        "cancelled-to-any-replica",
        "KIP-455 committed records lost",
        play,
        cancel_to_any_replica,
        test=f"{UNIT}::test_cancelled_reassignment_goes_back_to_an_eligible_leader",
    ),
    Plant(
        "stops-without-a-hand-over",
        "KIP-966",
        play,
        stop_without_a_hand_over,
        test=f"{UNIT}::test_controlled_shutdown_waits_for_an_eligible_leader_in_service",
    ),
    Plant(
        "eligible-never-released",
        "KIP-966",
        play,
        never_release,
        test=f"{UNIT}::test_lower_min_insync_replicas_end_the_eligibility",
    ),
]
