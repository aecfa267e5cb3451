"""A share partition whose log this broker leads: the machine, its writes, and the requests that wait (KIP-932).

It reads the state from the share coordinator before the first request, which fences the leader before. Acknowledgements
are answered after their write is committed. Later acknowledgements go with the next write, so a busy partition has a
single write under way. If several requests take part, the next write waits a little for the members just answered,
which mostly acknowledge their next record at once. Otherwise two members would take turns, with a write each.

Once another leader or state epoch has taken over, this object is finished: its owner drops it, and the next fetch makes
another.

It runs as its own guard: an exception costs this share partition, whose requests fail, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from itertools import islice
from math import inf
from typing import Final, Protocol

from raftlog.base.config import GroupConfig
from raftlog.base.env import timer_time
from raftlog.base.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRecordState,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from raftlog.base.guard import Guard
from raftlog.base.log import get_logger
from raftlog.base.types import NO_OFFSET
from raftlog.broker.coordination.letter_sender import LetterSender, LetterWriter
from raftlog.broker.coordination.share_group_configs import READ_COMMITTED, share_limits
from raftlog.broker.coordination.share_record import ShareRecord
from raftlog.broker.coordination.share_state_client import StoredState
from raftlog.coordinator.share_state.share_state import NO_COUNT, SharePartitionKey
from raftlog.records.batch import Buffer, iter_headers
from raftlog.replication.partition import Partition
from raftlog.sharing.dead_letter import DeadLetters
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireRequest,
    ByHand,
    DeliveryState,
    FetchedBatch,
    StateWrite,
)
from raftlog.sharing.in_flight_summary import InFlightSummary, summarize
from raftlog.sharing.share_partition import SharePartition

RETRY_S: Final = 0.5
"""Pause after a write that failed, when locks that were given up wait for another."""

GATHER_SHARE: Final = 0.25
GATHER_MAX_S: Final = 0.005
"""How long the next write waits for members that were just answered: a share of the last write's time, and at most."""

MOST_BATCHES: Final = 2_000
"""Record batches of a read that are looked at, in a turn of the loop. A later fetch goes on behind them."""

FENCED: Final = (FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, UnknownTopicOrPartition)
"""Errors of a share coordinator after which this broker's knowledge is void. InvalidRequest: the state is not
initialized, or no longer.
"""

log = get_logger(__name__)


class StateStore(Protocol):
    """The states of share partitions, as a leader uses them (`ShareStateClient`)."""

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> StoredState: ...

    async def write(
        self, key: SharePartitionKey, write: StateWrite, *, state_epoch: int, leader_epoch: int
    ) -> None: ...


class LedSharePartition(Guard):
    """`config` returns the group's configs at the time. `changed` is called when records may have become available.

    `record` is what operators see of it later.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        store: StateStore,
        *,
        config: Callable[[], GroupConfig],
        changed: Callable[[], None],
        record: ShareRecord | None = None,
    ) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.over: KafkaError | None = None
        """Why this object is finished; None while it is in use."""
        self.is_retired = False
        """Whether the group has no member here any more. Another object is made from the state once this is idle."""
        self._store = store
        self._config = config
        self._changed = changed
        self.record = record or ShareRecord()
        self.letters: LetterWriter | None = None
        """Where dead letters go; set by the owner."""
        self.letters_failed = ""
        """Why the last attempt to write dead letters failed; empty if it did not."""
        self._letters_task: asyncio.Task[None] | None = None
        self.state_epoch = -1
        """The epoch of the state that was read: it rises when an administrator sets the start offset."""
        self._machine: SharePartition | None = None
        self._limits_of: GroupConfig | None = None
        """The configs from which the machine has its limits."""
        self._loading = asyncio.Lock()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        """The requests that wait for each write."""
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_being_read = False
        self._readers: dict[Callable[[], None], None] = {}

    async def load(self, first_offset: Callable[[], Awaitable[int]]) -> None:
        """Read the state back, once. `first_offset` is called if no leader has set a start offset yet.

        Raises what the share coordinator answers, and `first_offset`. The object is finished if that cannot pass.
        """
        async with self._loading:
            if self._machine is not None:
                return
            try:
                stored = await self._store.read(self.key, leader_epoch=self.leader_epoch)
                self.state_epoch, start_offset = stored.state_epoch, stored.start_offset
                if start_offset < 0:
                    start_offset = await first_offset()
                    await self._write_start(start_offset)
            except FENCED as error:
                self.end(error)
                raise
            self._machine = SharePartition(
                start_offset,
                stored.batches,
                limits=share_limits(self._config()),
                counts=self.record.counts.of(self.key.group_id),
                letters=stored.letters,
            )
            self._settle()

    async def _write_start(self, start_offset: int) -> None:
        """Write where the group begins. Another leader would begin at its own end, and skip what came before it."""
        write = StateWrite(0, start_offset, (), 0, (), ())
        await self._store.write(self.key, write, state_epoch=self.state_epoch, leader_epoch=self.leader_epoch)

    async def check(self) -> None:
        """Finish if an administrator has set or deleted the state since it was read. Raises errors that may pass.

        A leader that does not write would not learn it: an empty write is fenced as any other.
        """
        error = await self._write(StateWrite(0, NO_OFFSET, (), NO_COUNT, (), ()))
        if error is not None and self.over is None:
            raise error

    @property
    def is_loaded(self) -> bool:
        """Whether it has its state, and is in use."""
        return self._machine is not None and self.over is None

    @property
    def machine(self) -> SharePartition:
        """The machine, with the limits of now. Raises why this object is finished."""
        if self.over is not None:
            raise type(self.over)(self.over.message)
        assert self._machine is not None, "load it first"
        config = self._config()
        if config is not self._limits_of:
            self._limits_of, self._machine.limits = config, share_limits(config)
        return self._machine

    def summary(self) -> InFlightSummary | None:
        """Return what is in flight, in numbers; None unless it is in use."""
        return summarize(self._machine) if self._machine is not None and self.over is None else None

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are not delivered."""
        return self._config().share_isolation_level == READ_COMMITTED

    @property
    def is_idle(self) -> bool:
        """Whether it may be dropped, as it holds no more than what is written, and has no dead letters to write."""
        return self._letters_task is None and self._is_written

    @property
    def can_make_room(self) -> bool:
        """Whether it may be dropped for another: it is idle, or waits only for a dead-letter topic that fails.

        The next object for it goes on with the letters from the state.
        """
        return self._is_written and (self._letters_task is None or self.letters_failed != "")

    @property
    def _is_written(self) -> bool:
        if self._loading.locked() or self._is_being_read or self._writer is not None or self._waiting:
            return False
        return self._machine is None or not any(each.is_held or each.pending for each in self._machine.ranges)

    # -- reading the log -----------------------------------------------------------------------------------

    def has_nothing_in(self, replica: Partition) -> bool:
        """Return whether a log has no record after those in flight, and none of these is available.

        False unless this belongs to the leadership of now: then a fetch has to look.
        """
        machine = self._machine
        if machine is None or self.over is not None:
            return False
        if not replica.is_leader or replica.leader_epoch != self.leader_epoch:
            return False
        end_offset = replica.last_stable_offset if self.read_committed else replica.high_watermark
        return machine.next_fetch_offset() >= end_offset

    def begin_read(self, wake: Callable[[], None]) -> bool:
        """Let a fetch have this to itself, from reading the log to acquiring. If another has it, call `wake` later."""
        if self._is_being_read:
            self._readers[wake] = None
            return False
        self._is_being_read = True
        return True

    def end_read(self) -> None:
        """Let others read, in their turn."""
        self._is_being_read = False
        readers, self._readers = self._readers, {}
        for wake in readers:
            wake()

    # -- requests ------------------------------------------------------------------------------------------

    def acquire(
        self, request: AcquireRequest, batches: Sequence[FetchedBatch], *, fetch_offset: int
    ) -> list[Acquired]:
        """Give a member the locks of available records among `batches`, which were read from `fetch_offset` on."""
        found = self.machine.acquire(request, batches, fetch_offset=fetch_offset, now=self._now())
        self._settle()
        return found

    async def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Return once a member's acknowledgements are committed.

        Raises InvalidRecordState and InvalidRequest, and what the share coordinator answers to the write.
        """
        renews = any(AcknowledgeType.RENEW in each.types for each in acknowledgements)
        if renews and not self._config().share_renew_acknowledge_enable:
            raise InvalidRecordState("share.renew.acknowledge.enable is false for this group")
        number = self.machine.acknowledge(member_id, acknowledgements, now=self._now())
        self._settle()
        if number is not None:
            await self._written(number)

    async def acknowledge_by_hand(
        self, type_: AcknowledgeType, first_offset: int, last_offset: int
    ) -> ByHand:
        """Release or reject records for an operator, and return once that is committed. Raises as `acknowledge`.

        After an error the change may still be written later.
        """
        found, number = self.machine.acknowledge_by_hand(type_, first_offset, last_offset, now=self._now())
        if found.released or found.archived:
            self._changed()
        self._settle()
        if number is not None:
            await self._written(number)
        return found

    async def _written(self, number: int) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, []).append(waiter)
        await waiter

    def release_members(self, member_ids: Container[str | None]) -> None:
        """Give up the locks of members whose sessions ended."""
        if self.machine.release_members(member_ids):
            self._changed()
        self._settle()

    async def write_letters(self, letters: DeadLetters) -> None:
        """Return once the state has the letters: from now on they may be produced. Raises as `acknowledge`."""
        number = self.machine.plan_letters(letters)
        self._settle()
        await self._written(number)

    def letters_written(self, letters: DeadLetters) -> None:
        """Archive the records whose letters are in the dead-letter topic."""
        self.skip_letters(letters.first_offset, letters.last_offset + 1)

    def skip_letters(self, first_offset: int, end_offset: int) -> None:
        """Archive the records of these offsets that wait for letters."""
        self.machine.settle_letters(first_offset, end_offset)
        self._settle()
        self._changed()

    def give_up_letters(self) -> int:
        """Archive all records that wait for letters, without these; return how many."""
        machine = self.machine
        spans = [
            (each.first_offset, each.end_offset)
            for each in machine.ranges
            if each.state is DeliveryState.ARCHIVING
        ]
        for span in spans:
            machine.settle_letters(*span)
        self._settle()
        self._changed()
        return sum(end_offset - first_offset for first_offset, end_offset in spans)

    def advance_log_start(self, log_start_offset: int) -> None:
        """Drop what the log no longer has."""
        if self.machine.advance_log_start(log_start_offset):
            self._changed()
            self._settle()

    def end(self, error: KafkaError) -> None:
        """Answer all waiting and further requests with `error`. The object is finished."""
        if self.over is not None:
            return
        self.over = error
        if self._machine is not None:
            self._machine.give_up_all()
            self._remember(self._machine)
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._writer, self._letters_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        for number in tuple(self._waiting):
            self._answer(number, error)
        self._changed()

    # -- the guard -----------------------------------------------------------------------------------------

    def crash(self, what: str) -> None:
        """Log the exception being handled, and finish: the next fetch begins from the written state."""
        self.end(UnknownServerError("the share partition failed"))
        log.exception("share_partition_crashed", key=str(self.key), what=what)

    def abort(self) -> None:
        self.end(NotLeaderOrFollower())

    # -- writes and time -----------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _settle(self) -> None:
        """Begin to write what has changed, and watch the locks."""
        machine = self._machine
        if machine is None or self.over is not None:
            return
        self._remember(machine)
        if self._writer is None and machine.has_changes:
            self._writer = asyncio.get_running_loop().create_task(self.guarded_task(self._write_all(machine)))
        self._send_letters(machine)
        self._watch_locks()

    def _send_letters(self, machine: SharePartition) -> None:
        """Begin to send dead letters, if records wait for them. A task may be left from when the group had some."""
        if self._letters_task is None and machine.next_archiving(1) is not None:
            if self.letters is None or not machine.limits.has_dead_letters:
                self.give_up_letters()
                return
            sending = self._send_all_letters(self.letters, machine)
            self._letters_task = asyncio.get_running_loop().create_task(self.guarded_task(sending))

    async def _send_all_letters(self, letters: LetterWriter, machine: SharePartition) -> None:
        await LetterSender(self, letters).run(machine)
        self._letters_task = None

    async def _write_all(self, machine: SharePartition) -> None:
        """Write until all is written. After a failure its requests are answered, and given-up locks are retried."""
        while (write := machine.take_write()) is not None:
            began_at = self._now()
            error = await self._write(write)
            if self.over is not None:
                return
            was_full = machine.is_full
            machine.complete(write, is_written=error is None)
            self._remember(machine)
            self._send_letters(machine)
            self._watch_locks()  # a lock that was taken back may have expired meanwhile
            wait_s = min((self._now() - began_at) * GATHER_SHARE, GATHER_MAX_S)
            requests = sum(map(len, self._waiting.values()))
            self._answer(write.number, error)
            if was_full or machine.has_available:  # else every wait would look again for nothing
                self._changed()
            if error is not None or requests > 1:
                await asyncio.sleep(wait_s if error is None else RETRY_S)
        self._writer = None

    async def _write(self, write: StateWrite) -> KafkaError | None:
        """Return None once the write is committed, otherwise its error. Finish if the error cannot pass."""
        began_at = self._now()
        try:
            await self._store.write(
                self.key, write, state_epoch=self.state_epoch, leader_epoch=self.leader_epoch
            )
            self.record.write_seconds.observe(self._now() - began_at)
        except FENCED as error:
            self.end(error)
            return error
        except KafkaError as error:
            return error
        return None

    def _remember(self, machine: SharePartition) -> None:
        """Remember the deliveries that ended just now."""
        for each in machine.take_ended():
            self.record.remember(self.key, each, now=self._now())

    def _answer(self, number: int, error: KafkaError | None) -> None:
        for waiter in self._waiting.pop(number, ()):
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _watch_locks(self) -> None:
        """Set the timer for the next lock that expires."""
        assert self._machine is not None
        at = self._machine.next_expiry_at
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = asyncio.get_running_loop().call_at(timer_time(at), self.guarded(self._expire))

    def _expire(self) -> None:
        self._timer, self._timer_at = None, inf
        self.machine.expire(self._now())
        self._changed()  # also if a request has come first, and has given up the locks
        self._settle()


def fetched_batches(
    records: Buffer, aborted: Sequence[tuple[int, int]] | None, *, read_committed: bool
) -> list[FetchedBatch]:
    """Return the first record batches that a fetch has read. `aborted`: producer id and first offset, in any order.

    With `read_committed`, aborted and control batches are withheld. Without, members skip control batches themselves.
    """
    found: list[FetchedBatch] = []
    waiting = sorted(aborted or (), key=lambda each: each[1], reverse=True)
    open_aborted = set[int]()
    for _, header in islice(iter_headers(memoryview(records)), MOST_BATCHES):
        last_offset = header.end_offset - 1
        while waiting and waiting[-1][1] <= last_offset:
            open_aborted.add(waiting.pop()[0])
        is_aborted = header.is_transactional and header.producer_id in open_aborted
        if header.is_control:
            open_aborted.discard(header.producer_id)
        is_withheld = read_committed and (header.is_control or is_aborted)
        found.append(FetchedBatch(header.base_offset, last_offset, is_withheld))
    return found
