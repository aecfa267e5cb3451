"""A replica that was named leader but must not lead: records that may have been acknowledged are missing or bad here.

Serving would have the followers truncate their good copies to this bad one. So it serves nobody (clients retry), and
asks the controller, as an ISR change that leaves itself out, to choose another leader, whom it then refetches from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.base.errors import KafkaStorageError
from raftlog.metadata.image import PartitionState
from raftlog.metadata.requests import IsrChange, IsrMember
from raftlog.replication.role import Role

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition


class Resigning(Role):
    """This replica is named leader by `state`, and gives that up to another member of the ISR."""

    __slots__ = ("state",)

    def __init__(self, partition: Partition, state: PartitionState) -> None:
        super().__init__(partition, KafkaStorageError)
        self.leader_epoch = state.leader_epoch
        self.state = state

    def begin(self) -> None:
        partition = self.partition
        damage = partition.log.damage
        assert damage is not None
        partition.host.happened(
            "leadership_refused", partition, offset=damage.offset, until_offset=damage.until_offset
        )
        partition.host.isr_change_due(partition)

    def update(self, state: PartitionState) -> None:
        self.state = state
        self.partition.host.isr_change_due(self.partition)

    def isr_proposal(self) -> IsrChange:
        """Everybody but this replica; nobody, if it was the only one in sync."""
        partition = self.partition
        me = partition.host.broker_id
        others = tuple(IsrMember(member) for member in self.state.isr if member != me)
        return IsrChange(
            partition.topic_id, partition.index, self.leader_epoch, partition.partition_epoch, others
        )
