"""Records how far a consumer has read a partition, and has a new leader checked before the consumer reads on (KIP-320).

Real clients send it after every change of leader. If the response has an earlier end of the log, or an unknown epoch,
the client falls back to its reset policy. A read record was committed, so every later leader must have it.
"""

from __future__ import annotations

from raftlog.base.types import NO_EPOCH
from raftlog.records.header import BatchHeader
from raftlog_chaos.workloads.raw_client import OFFSET_FOR_LEADER_EPOCH, Client, shapes


class LastRead:
    """`offset` is behind the last batch read, which was written in `epoch` (-1: no batch was read yet)."""

    def __init__(self) -> None:
        self.offset = 0
        self.epoch = NO_EPOCH
        self._confirmed_by = NO_EPOCH
        """The newest leader epoch that is known to have it."""

    def note(self, batch: BatchHeader, leader_epoch: int) -> None:
        """Record a batch that the leader of that epoch served."""
        self._confirmed_by = max(self._confirmed_by, leader_epoch)
        if batch.end_offset > self.offset:
            self.offset, self.epoch = batch.end_offset, batch.leader_epoch

    def is_doubtful(self, leader_epoch: int) -> bool:
        """Return whether a leader of this epoch still has to be asked."""
        return self.epoch != NO_EPOCH and leader_epoch > self._confirmed_by

    async def ask(self, client: Client, topic: str, index: int) -> tuple[int, str]:
        """Ask the leader. Returns its error code, and the error in its answer, "" if there is none. Raises AWAY."""
        leader_epoch = client.leaders[topic, index].leader_epoch
        make = shapes(OFFSET_FOR_LEADER_EPOCH)
        wanted = make.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=leader_epoch, leader_epoch=self.epoch
        )
        request = make.OffsetForLeaderEpochRequest(
            replica_id=-1, topics=(make.OffsetForLeaderTopic(topic=topic, partitions=(wanted,)),)
        )
        response = await client.ask_leader(topic, index, OFFSET_FOR_LEADER_EPOCH, request)
        result = response.topics[0].partitions[0]
        code = int(result.error_code)
        if code:
            return code, ""
        if result.leader_epoch != self.epoch or result.end_offset < self.offset:
            return 0, (
                f"{topic}-{index}: leader epoch {leader_epoch} tells of epoch {self.epoch}, which was read up to "
                f"offset {self.offset}, that epoch {result.leader_epoch} ends at {result.end_offset}"
            )
        self._confirmed_by = max(self._confirmed_by, leader_epoch)
        return 0, ""
