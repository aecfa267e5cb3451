"""The coordinator of the transactional ids in one partition of `__transaction_state`.

Each id is a state machine over the partition's journal (`base.machine`): it answers once the partition's high watermark
has passed. An outcome (PrepareCommit, PrepareAbort) leaves as an effect when it is committed. A new coordinator derives
the effects of all outcomes again from its replay.

The coordinator does not know partitions, logs, brokers or clocks: `append`, `send` and `take_id` are injected, and the
moment `at` comes with each call. Its owner unloads it when it loses the partition.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from raftlog.base.config import NodeConfig
from raftlog.base.errors import InvalidTransactionTimeout, KafkaError, PolicyViolation
from raftlog.base.machine import Answer, Decision, Machines, Runner, ignore_reply
from raftlog.base.recurring_failures import FIRST_RETRY_S, Failures
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactions import decisions
from raftlog.coordinator.transactions.decisions import AllocateProducerId
from raftlog.coordinator.transactions.transaction import (
    PREPARED_STATES,
    ProducerIdAndEpoch,
    Transaction,
    TransactionChanged,
    TransactionState,
    apply,
    check_transactional_id,
)
from raftlog.coordinator.transactions.transaction_records import encode_all
from raftlog.coordinator.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    SendMarkers,
    VerifyPartitions,
)

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; a KafkaError means no append."""

IDS_PER_SWEEP: Final = 200
"""Ids that are checked for one kind of ending before the loop runs other tasks."""

TIMEOUTS: Final = "transaction_timeout"
COMPLETION: Final = "transaction_completion"
EXPIRY: Final = "transactional_id_expiry"
"""The recurring work, by its name among the failures."""

MIN_STALE_ENTRIES: Final = 1_000
"""Heap entries of transactions that ended in time which are never worth a clean-up."""

RETRY_S: Final = 0.5
"""A change that the journal refused is retried after this."""

TransactionRunner = Runner[Transaction]
T = TypeVar("T")


def _always(*asked: int) -> bool:
    return True


class TransactionCapacity(NamedTuple):
    """The capacity left in the broker: for one more id, and more partitions in open transactions."""

    may_add: Callable[[], bool] = _always
    may_open: Callable[[int], bool] = _always


@dataclass(slots=True)
class OutcomeCounts:
    """Since this process began, over all coordinators. Aborted includes fenced and timed out."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    fenced: int = 0
    """Aborted because another producer took the id."""


@dataclass(slots=True)
class TransactionCounts:
    """The ids of one coordinator by state, and since when (wall clock ms) each transaction is open or being ended."""

    states: Counter[TransactionState] = field(default_factory=Counter)
    open_since: dict[str, int] = field(default_factory=dict)
    partitions: int = 0
    """In all transactions that are open or being ended."""

    def update(self, before: Transaction, after: Transaction) -> None:
        """Update an id after a decision or its load."""
        self.partitions += len(after.partitions) - len(before.partitions)
        if before.state is not after.state:
            self.states[before.state] -= 1
            self.states[after.state] += 1
            if after.state is TransactionState.ONGOING or after.state in PREPARED_STATES:
                self.open_since.setdefault(after.transactional_id, after.start_ms)
            else:
                self.open_since.pop(after.transactional_id, None)


class TransactionCoordinator:
    """The ids of one partition, from their load until the partition is lost.

    `send(markers)` starts sending an outcome; the sender calls `markers_written` once, when all partitions have the
    marker.
    """

    def __init__(
        self,
        config: NodeConfig,
        append: Append,
        *,
        send: Callable[[SendMarkers], None],
        take_id: AllocateProducerId,
        room: TransactionCapacity = TransactionCapacity(),  # noqa: B008 (a value)
        ended: OutcomeCounts | None = None,
    ) -> None:
        self._config = config
        self._append = append
        self._send = send
        self.counts = TransactionCounts()
        self._ended = OutcomeCounts() if ended is None else ended
        self._take_id = take_id
        self._room = room
        self._bound = (self._append_records, self._tell)  # once, not for each of very many ids
        self._machines: Machines[str, Transaction] = Machines(
            lambda transactional_id: self._runner(Transaction(transactional_id)), lambda tail: tail.exists
        )
        self._timeouts = Timeouts()
        self._unrecorded: dict[str, ProducerIdAndEpoch] = {}
        """The ids with all markers written, before that is recorded."""
        self._to_sweep: list[str] = []
        self._sweeps_at = 0.0
        self.failures = Failures()
        """Ids with failed timed work."""

    def __len__(self) -> int:
        return len(self._machines)

    def load(self, transactions: Sequence[Transaction], *, at: Moment) -> list[SendMarkers]:
        """Load some ids, all committed: their timers run. Call it until all are loaded, before any request.

        Return the outcomes to send (again) from then on.
        """
        for transaction in transactions:
            self._machines.load(transaction.transactional_id, self._runner(transaction))
            self.counts.update(Transaction(transaction.transactional_id), transaction)
            self._watch(transaction, at)
        self._sweeps_at = at.now + self._sweep_interval_s
        return [decisions.markers_of(each) for each in transactions if each.state in PREPARED_STATES]

    @property
    def _sweep_interval_s(self) -> float:
        return self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000

    def _runner(self, transaction: Transaction) -> TransactionRunner:
        append, tell = self._bound
        return Runner(transaction, apply, append, perform=tell)

    def _tell(self, markers: SendMarkers) -> None:
        """Send a committed outcome."""
        if markers.commit:
            self._ended.committed += 1
        else:
            self._ended.aborted += 1
        self._send(markers)

    def _append_records(self, records: tuple[TransactionChanged, ...]) -> int:
        return self._append(encode_all(records))

    def _decide(
        self, transactional_id: str, decide: Callable[[Transaction], Decision], answer: Answer
    ) -> TransactionRunner | None:
        """Run a decision about an id, release what is committed and note what is not."""
        if self._machines.lost is not None:
            answer(self._machines.lost)
            return None
        try:
            check_transactional_id(transactional_id)
        except KafkaError as error:
            answer(error)
            return None
        runner = self._machines.find(transactional_id)
        before = runner.tail
        runner.handle(decide, answer)
        self.counts.update(before, runner.tail)
        self._machines.settle(transactional_id, runner)
        return runner

    def _change(
        self,
        transactional_id: str,
        decide: Callable[[Transaction], Decision],
        answer: Answer,
        *,
        at: Moment,
    ) -> None:
        """Run a decision that may open or end a transaction."""
        runner = self._decide(transactional_id, decide, answer)
        if runner is not None and self._machines.lost is None:
            self._watch(runner.tail, at)

    def _watch(self, tail: Transaction, at: Moment) -> None:
        """Run a timer for an open transaction only. A wall clock that went back does not extend it."""
        transactional_id = tail.transactional_id
        if tail.state is not TransactionState.ONGOING:
            self._timeouts.cancel(transactional_id)
        elif transactional_id not in self._timeouts:
            left_ms = min(max(tail.start_ms + tail.timeout_ms - at.now_ms, 0), tail.timeout_ms)
            self._timeouts.set(transactional_id, at.now + left_ms / 1000)

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """Answer and send what waited for the high watermark `end_offset`."""
        self._machines.committed(end_offset)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting and further requests with `error`: the partition is lost."""
        self._machines.on_unloaded(error)

    # -- producers -----------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerId, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with the producer id and epoch, or a KafkaError."""
        longest_ms = self._config.transaction_max_timeout_ms
        if not 0 < request.timeout_ms <= longest_ms:
            answer(InvalidTransactionTimeout(f"the transaction timeout must be from 1 to {longest_ms} ms"))
            return

        def decide(tail: Transaction) -> Decision:
            if not tail.exists and not self._room.may_add():
                limit = self._config.raftlog_transaction_max_ids
                raise PolicyViolation(f"raftlog.transaction.max.ids is {limit}")
            return decisions.decide_init(tail, request, take_id=self._take_id, now_ms=at.now_ms)

        runner = self._machines.get(request.transactional_id)
        was_open = runner is not None and runner.tail.state is TransactionState.ONGOING
        self._change(request.transactional_id, decide, answer, at=at)
        if was_open and runner is not None and runner.tail.state is TransactionState.PREPARE_ABORT:
            self._ended.fenced += 1

    def add_partitions(self, request: AddPartitions, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with None once the partitions are added, or with a KafkaError."""

        def decide(tail: Transaction) -> Decision:
            decision = decisions.decide_add(tail, request=request, now_ms=at.now_ms)
            new = len(request.partitions - tail.partitions) if decision.records else 0
            if new and not self._room.may_open(new):
                limit = self._config.raftlog_transaction_max_partitions
                raise PolicyViolation(f"raftlog.transaction.max.partitions is {limit}")
            return decision

        self._change(request.transactional_id, decide, answer, at=at)

    def verify_partitions(self, request: VerifyPartitions, answer: Answer) -> None:
        """Call `answer` with the partitions that are not part of the transaction, or a KafkaError."""
        self._decide(request.transactional_id, partial(decisions.decide_verify, request=request), answer)

    def end_transaction(self, request: EndTransaction, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with the next producer id and epoch once the outcome is recorded, or with a KafkaError."""
        decide = partial(decisions.decide_end, request=request, take_id=self._take_id, now_ms=at.now_ms)
        self._change(request.transactional_id, decide, answer, at=at)

    def markers_written(self, transactional_id: str, producer: ProducerIdAndEpoch, *, now_ms: int) -> None:
        """Record that every partition has the marker of this producer's transaction."""
        if self._machines.lost is None:
            self._unrecorded[transactional_id] = producer
            try:
                self._complete(transactional_id, now_ms)
            except AssertionError:
                raise
            except Exception:
                return  # the next tick retries, and reports the failure

    def is_ending(self, transactional_id: str) -> bool:
        """Return whether a transaction's outcome is decided, but not yet recorded as complete."""
        runner = self._machines.get(transactional_id)
        return runner is not None and runner.tail.state in PREPARED_STATES

    def _complete(self, transactional_id: str, now_ms: int) -> None:
        producer = self._unrecorded[transactional_id]
        decide = partial(decisions.decide_complete, producer=producer, now_ms=now_ms)
        runner = self._decide(transactional_id, decide, ignore_reply)
        still = (
            runner is not None and runner.tail.state in PREPARED_STATES and runner.tail.producer == producer
        )
        if not still:
            del self._unrecorded[transactional_id]

    # -- time ----------------------------------------------------------------------------------------------

    def tick(self, at: Moment, *, most: int = IDS_PER_SWEEP) -> int:
        """Abort transactions after their timeout, and retry refused changes; return how many, at most `most`."""
        if self._machines.lost is not None:
            return 0
        due = self._timeouts.pop_due(at.now, most=most)
        for transactional_id in due:
            time_out = partial(self._time_out, transactional_id, at)
            if self._try(TIMEOUTS, transactional_id, at.now, time_out) is None:
                self._timeouts.set(transactional_id, at.now + FIRST_RETRY_S)
        unrecorded = list(islice(self._unrecorded, most - len(due)))
        for transactional_id in unrecorded:
            self._try(
                COMPLETION, transactional_id, at.now, partial(self._complete, transactional_id, at.now_ms)
            )
            if transactional_id in self._unrecorded:  # the others first
                self._unrecorded[transactional_id] = self._unrecorded.pop(transactional_id)
        return len(due) + len(unrecorded)

    def _time_out(self, transactional_id: str, at: Moment) -> bool:
        abort = partial(decisions.decide_timeout, now_ms=at.now_ms)
        runner = self._decide(transactional_id, abort, ignore_reply)
        if runner is not None and runner.tail.state is TransactionState.ONGOING:
            self._timeouts.set(transactional_id, at.now + RETRY_S)
        elif runner is not None:
            self._ended.timed_out += 1
        return True

    def sweep(self, at: Moment, *, most: int) -> int:
        """Expire unused ids among at most `most`, all ids once per check interval; return how many were checked."""
        if not self._to_sweep:
            if at.now < self._sweeps_at or self._machines.lost is not None:
                return 0
            self._sweeps_at = at.now + self._sweep_interval_s
            self._to_sweep = list(self._machines)
        batch, self._to_sweep = self._to_sweep[:most], self._to_sweep[most:]
        expiration_ms = self._config.transactional_id_expiration_ms
        expire = partial(decisions.decide_expire, now_ms=at.now_ms, expiration_ms=expiration_ms)
        for each in batch:
            if each in self._machines:
                self._try(EXPIRY, each, at.now, partial(self._decide, each, expire, ignore_reply))
        return len(batch)

    def _try(self, chore: str, transactional_id: str, now: float, work: Callable[[], T]) -> T | None:
        return self.failures.attempt(chore, transactional_id, now, work, raises=AssertionError)

    # -- reading -------------------------------------------------------------------------------------------

    def transactional_ids(self) -> list[str]:
        """Return the known ids."""
        return list(self._machines)

    def read(self, transactional_id: str, answer: Answer) -> None:
        """Call `answer` with the committed Transaction. Its `exists` is False for an unknown id."""
        self._decide(transactional_id, lambda tail: Decision(reply=tail), answer)


class Timeouts:
    """The deadline of each open transaction: soft state, so a new coordinator starts anew.

    Cancelled deadlines leave the heap when they come up, or are too many.
    """

    __slots__ = ("_due_at", "_heap")

    def __init__(self) -> None:
        self._due_at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._due_at

    def __len__(self) -> int:
        """Return how many heap entries there are, cancelled deadlines included."""
        return len(self._heap)

    def set(self, transactional_id: str, due_at: float) -> None:
        """Set a deadline in place of any other of this id."""
        self._due_at[transactional_id] = due_at
        heapq.heappush(self._heap, (due_at, transactional_id))
        if len(self._heap) > 2 * len(self._due_at) + MIN_STALE_ENTRIES:
            self._heap = [(at, each) for each, at in self._due_at.items()]
            heapq.heapify(self._heap)

    def cancel(self, transactional_id: str) -> None:
        """Cancel a deadline; it need not exist."""
        self._due_at.pop(transactional_id, None)

    def pop_due(self, now: float, *, most: int) -> list[str]:
        """Remove and return at most `most` ids with an expired deadline."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(found) < most:
            at, transactional_id = heapq.heappop(self._heap)
            if self._due_at.get(transactional_id) == at:
                del self._due_at[transactional_id]
                found.append(transactional_id)
        return found
