"""A leader obeys the eligible leaders that the metadata names, and damage of such a replica counts as a member's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from raftlog.base.errors import NotEnoughReplicas
from raftlog.broker.controller_session import may_be_led_elsewhere
from raftlog.broker.replicas.damaged_replicas import DamagedReplicas
from raftlog.metadata.broker_requests import IsrChangeResult
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.replication.leader_role import LeaderRole
from tests.replication.replica_cluster import ReplicaCluster
from tests.replication.test_damage import VALUES, log_of, produced

TOPIC_ID = UUID(int=1)


class Damaged:
    """A replica with a damaged log."""

    log = SimpleNamespace(damage=(1, 2))
    failure = None
    topic, topic_id, index = "t", TOPIC_ID, 0


def test_leader_commits_no_record_between_the_answer_and_the_metadata() -> None:
    """By its own min.insync.replicas it is enough, but the controller may elect the replica that left."""
    cluster = ReplicaCluster(2, min_isr=1)
    cluster[1].produce("a", acks=1)
    cluster[1].host.flush()
    cluster[1].host.clock += 60
    cluster[1].partition.maybe_shrink_isr()
    change = cluster[1].partition.pending_isr_change()
    assert change is not None
    fields = {"leader": 1, "leader_epoch": change.leader_epoch, "partition_epoch": change.partition_epoch + 1}
    answer = IsrChangeResult(change.topic_id, 0, 0, isr=(1,), eligible=(2,), **fields)
    cluster[1].partition.complete_isr_change(change, answer)
    assert cluster[1].partition.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        cluster[1].produce("b")
    cluster.change(isr=(1,), eligible=(2,))
    cluster.change(isr=(1,), tell=(1,))
    assert cluster[1].partition.high_watermark == 1


def test_leader_of_a_lost_isr_commits_nothing() -> None:
    """Although its log is sound, as after a report of damage that came late. What it held is read on."""
    cluster = ReplicaCluster(2, min_isr=1)
    cluster[1].produce("a", acks=1)
    cluster.change(isr=(1,), lost=True, tell=(1,))
    cluster[1].host.flush()
    assert cluster[1].partition.high_watermark == 1
    with pytest.raises(NotEnoughReplicas):
        cluster[1].produce("b")
    cluster.change(leader=1, isr=(1,), tell=(1,))
    cluster[1].produce("b")


def test_leader_that_is_cut_off_expects_an_eligible_leader_to_lead() -> None:
    """So it refuses clients once its session is over and that replica is silent."""
    cluster = ReplicaCluster(2, min_isr=2)
    cluster.change(isr=(1,), eligible=(2,), tell=(1,))
    role = cluster[1].partition.role
    assert isinstance(role, LeaderRole)
    assert role.may_lead_next == (1, 2)
    assert may_be_led_elsewhere(cluster.state, 1, frozenset({2}))


def test_damage_of_an_eligible_leader_is_not_repaired_before_it_is_known() -> None:
    """It may be elected until then, so it must not look whole: it is still trusted."""
    cluster = produced(*VALUES)
    cluster[2].corrupt_batch(1)
    cluster[2].reboot()
    cluster.change(isr=(1,), eligible=(2,), tell=(2,))
    cluster.change(isr=(1, 2), tell=(2,))
    assert log_of(cluster, 2).damage == (1, 5)
    cluster.change(isr=(1,), tell=(2,))
    cluster.change(isr=(1, 2), tell=(2,))
    assert log_of(cluster, 2).damage is None


@pytest.mark.parametrize(("isr", "eligible"), [((1, 2), ()), ((1,), (2,)), ((1,), ())])
def test_damage_of_a_trusted_replica_is_reported(isr: tuple[int, ...], eligible: tuple[int, ...]) -> None:
    """With each heartbeat, as long as the metadata counts on the replica."""
    state = PartitionState((1, 2), isr, 1, eligible=eligible)
    image = MetadataImage(topics={"t": TopicState("t", TOPIC_ID, (state,))})
    damaged = DamagedReplicas(lambda: image, broker_id=2)
    partition: Any = Damaged()
    damaged.add(partition)
    assert damaged.counted() == (((TOPIC_ID, 0),) if 2 in (*isr, *eligible) else ())
