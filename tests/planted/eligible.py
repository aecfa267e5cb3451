"""Bugs of eligible leaders (KIP-966): replicas that lack records count, and a leader commits alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.machine import Decision
from raftlog.controller import alter_partition, brokers, controller, eligible_leaders, leader_and_isr
from raftlog.controller.leader_and_isr import NO_LOST_REPLICAS, LostReplicas
from raftlog.metadata.image import PartitionState
from raftlog.metadata.metadata_records import PartitionChanged
from raftlog_chaos.scenarios.eligible_leaders import eligible_leaders as play
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


def never_release(patch: pytest.MonkeyPatch) -> None:
    """A change of min.insync.replicas does not end the eligibility, so the leader never commits."""
    patch.setattr(controller, "decide_release", lambda *_: Decision())


PLANTS = [
    Plant("all-replicas-eligible", "KIP-966", play, take_all_replicas_for_eligible),
    Plant("eligible-with-a-new-disk", "KIP-966", play, trust_a_new_disk),
    Plant("eligible-unregistered-disk", "KIP-966", play, keep_unregistered_brokers),
    Plant("commits-beside-eligible", "KIP-966", play, commit_beside_eligible_leaders),
    Plant(
        "eligible-never-released",
        "KIP-966",
        play,
        never_release,
        test=f"{UNIT}::test_lower_min_insync_replicas_end_the_eligibility",
    ),
]
