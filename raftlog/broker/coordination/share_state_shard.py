"""One leadership of one partition of `__share_group_state`: the states of share partitions, from log to coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from raftlog.base.errors import KafkaError
from raftlog.broker.coordination.shard import CoordinatorShard
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import run_steps
from raftlog.coordinator.share_state.share_state_coordinator import ShareStateCoordinator
from raftlog.coordinator.share_state.share_state_replay import ShareStateReplay

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition


class ShareStateShard(CoordinatorShard[ShareStateCoordinator, ShareStateReplay]):
    """Reads states back, and deletes the records before them that no longer count."""

    what: ClassVar = "share_state"
    topics_checked: object = None
    """The topics of the image with which no state of a deleted topic was found."""
    checked_at: float = 0.0
    """When the states were last compared with the topics, in loop seconds."""

    def _new_replay(self) -> ShareStateReplay:
        return ShareStateReplay()

    def __init__(
        self, index: int, leader_epoch: int, *, broker: LocalBroker, find: Callable[[int], Partition]
    ) -> None:
        super().__init__(index, leader_epoch, env=broker.env, find=find)
        self._updates_per_snapshot = broker.config.share_coordinator_snapshot_update_records_per_snapshot

    async def _take_up(self, replay: ShareStateReplay, end_offset: int) -> tuple[ShareStateCoordinator, int]:
        await run_steps(self._env, replay.merge(), at_once=1)
        coordinator = ShareStateCoordinator(self._append, updates_per_snapshot=self._updates_per_snapshot)
        coordinator.load(replay.states, replay.snapshot_offsets)
        coordinator.committed(end_offset)
        return coordinator, len(replay.states)

    def prune(self) -> None:
        """Delete the redundant records at the start of the log; the next call retries what could not be deleted."""
        partition, coordinator = self._partition, self.coordinator
        if partition is None or coordinator is None or self.is_over or not self._leads(partition):
            return
        try:
            partition.delete_records(coordinator.redundant_before)
        except KafkaError:
            return
