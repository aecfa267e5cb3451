"""The share coordinator of one partition of `__share_group_state`.

Each share partition is a state machine over the journal (`base.machine`): a request is answered once the partition's
high watermark has passed its record. Snapshots let the journal be pruned: `redundant_before` is the offset before which
no record counts, and the owner deletes the records there.

It knows no partitions, logs, brokers or clocks: `append` is injected, and the moment `at` comes with each call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from raftlog.base.errors import KafkaError
from raftlog.base.machine import Answer, Decision, Machines, Runner, ignore_reply
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.share_state import decisions
from raftlog.coordinator.share_state.share_state import (
    UNINITIALIZED,
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
    apply,
)
from raftlog.coordinator.share_state.share_state_records import encode_all
from raftlog.coordinator.share_state.share_state_requests import (
    DeleteState,
    InitializeState,
    ReadState,
    WriteState,
)
from raftlog.coordinator.timer import Moment

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; a KafkaError means no append."""


class ShareStateCoordinator:
    """The share partitions of one partition, from their load until the partition is lost."""

    def __init__(self, append: Append, *, updates_per_snapshot: int) -> None:
        self._append = append
        self._updates_per_snapshot = updates_per_snapshot
        self._machines: Machines[SharePartitionKey, ShareState] = Machines(
            lambda _: self._runner(UNINITIALIZED), lambda state: state.exists
        )
        self._snapshots: dict[SharePartitionKey, int] = {}
        """The offset of the last committed snapshot of each state, the oldest first."""
        self._new_snapshots: deque[tuple[int, ShareSnapshot]] = deque()
        """The snapshots and tombstones that are not committed, with their offsets."""

    def __len__(self) -> int:
        return len(self._machines)

    def __contains__(self, key: SharePartitionKey) -> bool:
        """Return whether a share partition has a state, including uncommitted changes."""
        return key in self._machines

    def states(self) -> list[SharePartitionKey]:
        """Return the share partitions with a state, including uncommitted changes."""
        return list(self._machines)

    def committed_states(self) -> Iterator[tuple[SharePartitionKey, ShareState]]:
        """Yield the states that no change is under way of."""
        for key in self._machines:
            runner = self._machines.get(key)
            if runner is not None and not runner.parked:
                yield key, runner.tail

    def load(
        self,
        states: Mapping[SharePartitionKey, ShareState],
        snapshot_offsets: Mapping[SharePartitionKey, int],
    ) -> None:
        """Load the states of the journal, all committed."""
        for key, state in states.items():
            self._machines.load(key, self._runner(state))
        self._snapshots = dict(sorted(snapshot_offsets.items(), key=lambda each: each[1]))

    def _runner(self, state: ShareState) -> Runner[ShareState]:
        return Runner(state, apply, self._append_records)

    def _append_records(self, records: tuple[ShareRecord, ...]) -> int:
        end_offset = self._append(encode_all(records))
        for each in records:
            if isinstance(each, ShareSnapshot):
                self._new_snapshots.append((end_offset - len(records), each))
        return end_offset

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """Answer what waited for the high watermark `end_offset`."""
        while self._new_snapshots and self._new_snapshots[0][0] < end_offset:
            offset, snapshot = self._new_snapshots.popleft()
            self._snapshots.pop(snapshot.key, None)
            if snapshot.state is not None:
                self._snapshots[snapshot.key] = offset
        self._machines.committed(end_offset)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting and further requests with `error`: the partition is lost."""
        self._machines.on_unloaded(error)

    @property
    def redundant_before(self) -> int:
        """The offset before which no record counts: that of the oldest snapshot, or the high watermark without any.

        Only a committed snapshot makes its predecessor redundant: another may vanish with its leader.
        """
        return next(iter(self._snapshots.values()), self._machines.committed_offset)

    # -- requests ------------------------------------------------------------------------------------------

    def initialize(self, request: InitializeState, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with None once the state is there, or with a KafkaError."""
        self._decide(request, partial(decisions.decide_initialize, request=request, now_ms=at.now_ms), answer)

    def read(self, request: ReadState, answer: Answer) -> None:
        """Call `answer` with the committed ShareState, or with a KafkaError."""
        self._decide(request, partial(decisions.decide_read, request=request), answer)

    def write(self, request: WriteState, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with None once the change is committed, or with a KafkaError."""
        decide = partial(
            decisions.decide_write,
            request=request,
            updates_per_snapshot=self._updates_per_snapshot,
            now_ms=at.now_ms,
        )
        self._decide(request, decide, answer)

    def delete(self, request: DeleteState, answer: Answer) -> None:
        """Call `answer` with None once the state is gone, or was begun after the request."""
        self._decide(request, partial(decisions.decide_delete, request=request), answer)

    def summary(self, key: SharePartitionKey, answer: Answer) -> None:
        """Call `answer` with the committed ShareState, without fencing a leader. Its `exists` may be False."""
        self._machines.decide(key, lambda state: Decision(reply=state), answer)

    def _decide(
        self,
        request: InitializeState | ReadState | WriteState | DeleteState,
        decide: Callable[[ShareState], Decision],
        answer: Answer,
    ) -> None:
        self._machines.decide(request.key, decide, answer)

    def snapshot_oldest(self, *, before_ms: int, at: Moment, most: int) -> int:
        """Write snapshots of the states with the oldest, if these are older than `before_ms`; return how many."""
        cold: list[SharePartitionKey] = []
        for key in self._snapshots:
            runner = self._machines.get(key)
            if len(cold) == most or runner is None or runner.tail.write_timestamp_ms >= before_ms:
                break
            cold.append(key)
        for key in cold:
            decide = partial(decisions.decide_snapshot, key=key, now_ms=at.now_ms)
            self._machines.decide(key, decide, ignore_reply)
        return len(cold)
