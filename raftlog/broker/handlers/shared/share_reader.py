"""The reading half of ShareFetch: it reads the partitions of a share session, and acquires records for its member.

A pass reads every partition from its next available offset on, and acquires nothing until that is enough for a
response. It waits for a new high watermark, or until records become available again. While memory for responses is
short it reads little, as Fetch does. From its read to its acquiring a fetch has the share partition to itself
(`LedSharePartition.begin_read`). Otherwise fetches that wait for the disk would all read the same records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.disk import Buffer
from raftlog.base.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.base.types import NO_EPOCH, NO_OFFSET
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.led_share_partition import LedSharePartition, fetched_batches
from raftlog.broker.handlers.shared.fetch_reader import ColdRead
from raftlog.broker.handlers.shared.fetch_response import room_of_response
from raftlog.broker.handlers.shared.share_requests import refused_topics
from raftlog.broker.long_work.turns import each_part, together
from raftlog.broker.network.fetch_sessions import SessionPartition
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.protocol.fetch import FetchPartition
from raftlog.records.header import iter_headers
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import PartitionRead
from raftlog.sharing.delivery import Acquired, AcquireRequest
from raftlog.sharing.share_sessions import SharedPartition, ShareSession

PARTITION_MAX_BYTES: Final = 1 << 20
"""The most that is read of a partition at once, beside a larger batch. A member acquires few records at a time."""

PART_BYTES: Final = 1_024
"""Bytes of a read that count as a part: they may be a dozen batches, some 10 µs each to acquire or withhold."""

RECORD_LIMIT: Final = 1
"""The acquire mode in which `max_records` is exact (KIP-1206)."""


ANSWERED: Final = frozenset(
    error.code
    for error in (
        CorruptMessage,
        FencedLeaderEpoch,
        InvalidRequest,
        KafkaStorageError,
        NotLeaderOrFollower,
        TopicAuthorizationFailed,
        UnknownServerError,
        UnknownTopicId,
        UnknownTopicOrPartition,
    )
)
"""The errors of a partition that members know. With any other there are no records for now."""


Opened = LedSharePartition | KafkaError
"""A share partition that is in use, or the reason why it cannot be."""


class Found(NamedTuple):
    """The result of a ShareFetch for a partition: an error, or records and the offsets in them that were acquired."""

    error: KafkaError | None = None
    records: Buffer = b""
    acquired: Sequence[Acquired] = ()


class _Read(NamedTuple):
    """A partition that is being read."""

    partition: SharedPartition
    led: LedSharePartition
    offset: int
    read: PartitionRead
    cold: ColdRead | None


class ShareReader:
    """One ShareFetch, from its first pass to its response. It may be parked on partitions (`FetchWaiter`)."""

    def __init__(
        self, broker: BrokerContext, request: RequestContext, session: ShareSession, message: Any
    ) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self._max_wait_s: float = message.max_wait / 1_000
        self._asked = AcquireRequest(
            message.member_id,
            max(0, message.max_records),
            max(1, message.batch_size),
            getattr(message, "share_acquire_mode", 0) == RECORD_LIMIT,
        )
        """With as many records as may still be acquired."""
        self._min_bytes = max(1, message.min_bytes)
        self._most_bytes: int = min(max(0, message.max_bytes), broker.config.fetch_max_bytes)
        self.takes_records = self._most_bytes > 0 and message.max_records != 0
        """Whether the fetch asks for records. As in Apache Kafka, with a max_bytes or max_records of 0 it does not."""
        self._max_bytes = 0
        """The limit of a pass, from that and the memory for responses."""
        self._woken = asyncio.Event()
        self._news = set[Partition | None]()
        """The partitions that woke it since the last pass began; None: anything else did."""
        self._is_over = message.max_wait <= 0
        """Whether the time to wait is over."""
        self._parked: dict[Partition, LedSharePartition] = {}
        self._errors: dict[SharedPartition, KafkaError] = {}
        self._size_bytes = 0
        self._is_short = False
        """Whether memory for responses is short: not even a single batch may be larger than the room."""
        self._is_unsure = False
        """Whether the last pass did not see all: nothing wakes it when a state can be read, or a limit rises."""

    def wake(self, partition: Partition | None = None) -> None:
        """Read again: the high watermark of a partition moved, or its replica no longer serves.

        Without a partition, records became available again, another fetch has read, or the session has ended.
        """
        self._news.add(partition)
        self._woken.set()

    def _end_wait(self) -> None:
        self._is_over = True
        self._woken.set()

    async def read(self) -> dict[SharedPartition, Found]:
        """Return what has records for the member, which are locked, and what has an error.

        Raises ShareSessionNotFound if the session ends meanwhile.
        """
        self._session.at_end = self.wake
        timer = asyncio.get_running_loop().call_later(max(0.0, self._max_wait_s), self._end_wait)
        try:
            while True:
                self._begin_to_wait()
                found = await self._pass(is_last=self._is_over or not self._session.partitions)
                if found is not None:
                    return found
                if not await self._may_find_more():
                    return {}
        finally:
            timer.cancel()
            self._session.at_end = None
            for partition, led in self._parked.items():
                partition.unpark(self)
                self._broker.share_partitions.unwatch(led.key, self.wake)

    def _begin_to_wait(self) -> None:
        self._woken.clear()
        self._news.clear()

    async def _may_find_more(self) -> bool:
        """Wait, and return whether another pass may find more than the last; False once the time is over.

        A record wakes all members that wait for its partition, and the first of them acquires it.
        """
        while True:
            await self._woken.wait()
            if not all(map(self._has_nothing, self._news)):
                return True
            if self._is_over:
                return self._size_bytes > 0 or self._is_short or self._is_unsure
            self._begin_to_wait()

    def _has_nothing(self, partition: Partition | None) -> bool:
        led = None if partition is None else self._parked.get(partition)
        return partition is not None and led is not None and led.has_nothing_in(partition)

    # -- a pass over the partitions ------------------------------------------------------------------------

    async def _pass(self, *, is_last: bool) -> dict[SharedPartition, Found] | None:
        """Return what is worth a response, or None to wait for more."""
        self._check_session()
        env, partitions = self._broker.env, self._session.partitions
        self._errors, self._size_bytes, self._is_unsure = {}, 0, False
        self._max_bytes = self._room()
        refused = await refused_topics(self._broker, self._request, partitions)
        reads: list[_Read] = []
        try:
            at_hand = await each_part(env, partitions, partial(self._at_hand, refused))
            opened: list[tuple[SharedPartition, Any]] = list(zip(partitions, at_hand, strict=True))
            if None in at_hand:
                opened = [(part[0], led) for part, led in await together(env, opened, self._open)]
            await each_part(env, opened, lambda each: self._begin_read(*each, reads))
            reads = await self._read_cold(reads)
            self._check_session()
            size_bytes = sum(len(each.read.records or b"") for each in reads)
            if not (is_last or self._errors or size_bytes >= self._min_bytes):
                return None
            if self._is_throttled(size_bytes):
                return {}
            found = await each_part(env, reads, self._acquire, size_of=_parts_of)
        finally:
            for each in reads:
                each.led.end_read()
        taken = {each.partition: it for each, it in zip(reads, found, strict=True) if it is not None}
        self._session.fetched(taken)
        answer: dict[SharedPartition, Found] = {}
        await each_part(env, self._errors.items(), lambda each: answer.setdefault(each[0], Found(each[1])))
        answer |= taken
        return answer if answer or is_last else None

    def _room(self) -> int:
        """Return how many bytes of records a response may have now."""
        connection = self._request.connection
        if connection is None:
            return self._most_bytes
        room, self._is_short = room_of_response(connection.response_memory)
        quota = self._most_bytes if connection.limits is None else connection.limits.fetch_max_bytes
        return min(self._most_bytes, room, quota)

    def _is_throttled(self, size_bytes: int) -> bool:
        """Count the records of a response, unless its sender has used up its quota: then it gets none.

        Its connection is muted, and the response says for how long. Apache Kafka has locked the records by then, and
        the member never sees them.
        """
        connection = self._request.connection
        return bool(connection is not None and size_bytes and connection.count_fetch(size_bytes))

    async def _read_cold(self, reads: list[_Read]) -> list[_Read]:
        """Return all reads with their records, some of which the disk has. They count as response memory meanwhile."""
        cold = [each.cold for each in reads if each.cold is not None]
        if not cold:
            return reads
        connection = self._request.connection
        memory = None if connection is None else connection.response_memory
        if memory is not None:
            memory.acquire(self._size_bytes)
        try:
            done = iter(await self._broker.env.offload(lambda: [each.run() for each in cold]))
        finally:
            if memory is not None:
                memory.release(self._size_bytes)
        return [
            each if each.cold is None else each._replace(read=each.cold.finish(next(done))) for each in reads
        ]

    def _check_session(self) -> None:
        """Raise ShareSessionNotFound once the session is over: its member would never see the records."""
        sessions = self._broker.share_partitions.sessions
        if self._session not in sessions or not self._request.is_awaited:
            raise ShareSessionNotFound("the share session has ended")

    def _at_hand(self, refused: Mapping[UUID, KafkaError], partition: SharedPartition) -> Opened | None:
        """Return a share partition that is in use, or an error; None if its state is to be looked at first."""
        if partition[0] in refused:
            return refused[partition[0]]
        if not self._session.is_checked(partition):
            return None
        try:
            return self._broker.share_partitions.at_hand(self._key(partition))
        except KafkaError as error:
            return error.with_traceback(None)

    def _open(self, part: tuple[SharedPartition, Opened | None]) -> Any:
        return self._get(part[0]) if part[1] is None else part[1]

    async def _get(self, partition: SharedPartition) -> LedSharePartition:
        """Return a share partition. A member that is new here may come after an administrator has set its offsets."""
        is_new = not self._session.is_checked(partition)
        led = await self._broker.share_partitions.get(self._key(partition), checked=is_new)
        self._session.checked(partition)
        return led

    def _key(self, partition: SharedPartition) -> SharePartitionKey:
        return SharePartitionKey(self._session.key.group_id, *partition)

    def _begin_read(self, partition: SharedPartition, led: Opened, reads: list[_Read]) -> None:
        """Read a partition from its next available offset on, unless there is nothing to acquire."""
        try:
            if isinstance(led, KafkaError):
                raise led
            replica = self._broker.share_partitions.replica(self._key(partition))
            self._park(replica, led)
            machine = led.machine
            left = self._max_bytes - self._size_bytes
            if led.has_nothing_in(replica) or (left <= 0 and reads) or not self.takes_records:
                return
            if machine.is_full:
                self._is_unsure = True
                return
            if not led.begin_read(self.wake):
                return
            offset = machine.next_fetch_offset()
            limit, min_one = min(left, PARTITION_MAX_BYTES), not (reads or self._is_short)
            read = self._read(partition, replica, led, offset=offset, limit=limit, min_one=min_one)
        except KafkaError as error:
            self._fail(partition, error)
            return
        if read is None:
            led.end_read()
            return
        reads.append(read)
        self._size_bytes += PARTITION_MAX_BYTES if read.cold is not None else len(read.read.records or b"")

    def _read(
        self,
        partition: SharedPartition,
        replica: Partition,
        led: LedSharePartition,
        *,
        offset: int,
        limit: int,
        min_one: bool,
    ) -> _Read | None:
        """Return a read from an offset on; None without records."""
        read_committed = led.read_committed
        read = replica.read(
            offset,
            max(0, limit),
            min_one=min_one,
            current_leader_epoch=led.leader_epoch,
            read_committed=read_committed,
        )
        if read.error_code:
            self._fail(partition, from_code(read.error_code))
            return None
        if read.records is not None:
            return _Read(partition, led, offset, read, None) if read.records else None
        entry = SessionPartition(
            partition[0], FetchPartition(partition[1], NO_EPOCH, offset, NO_EPOCH, NO_OFFSET, limit)
        )
        entry.partition = replica
        end_offset = read.last_stable_offset if read_committed else read.high_watermark
        cold = ColdRead(entry, read, limit=limit, end_offset=end_offset, min_one=min_one, for_consumer=True)
        return _Read(partition, led, offset, read, cold)

    def _park(self, replica: Partition, led: LedSharePartition) -> None:
        if replica not in self._parked:
            replica.park(self)
            self._broker.share_partitions.watch(led.key, self.wake)
        self._parked[replica] = led

    def _fail(self, partition: SharedPartition, error: KafkaError) -> None:
        """Note an error for the response, if it is one that members know."""
        if error.code in ANSWERED:
            self._errors[partition] = error
        else:
            self._is_unsure = True

    def _acquire(self, each: _Read) -> Found | None:
        """Acquire records of a partition that was read; None if there are none."""
        if each.read.error_code or not each.read.records:
            return None
        self._check_session()  # the loop may have had a turn since the last partition
        try:
            aborted = each.read.aborted
            batches = fetched_batches(each.read.records, aborted, read_committed=aborted is not None)
            acquired = each.led.acquire(self._asked, batches, fetch_offset=each.offset)
        except KafkaError as error:
            self._fail(each.partition, error)
            return None
        if not acquired:
            if each.led.machine.next_fetch_offset() > each.offset:
                self.wake()  # what was read is not to be delivered, and more may follow
            return None
        left = self._asked.max_records - sum(it.last_offset - it.first_offset + 1 for it in acquired)
        self._asked = self._asked._replace(max_records=max(0, left))
        return Found(None, _cut(each.read.records, acquired), acquired)


def _parts_of(read: _Read) -> int:
    return 1 + len(read.read.records or b"") // PART_BYTES


def _cut(records: Buffer, acquired: Sequence[Acquired]) -> bytes:
    """Return the record batches that have acquired records, and those between."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    begins, ends, view = 0, 0, memoryview(records)
    for position, header in iter_headers(view):
        if header.base_offset > last_offset:
            break
        ends = position + header.length
        if header.last_offset < first_offset:
            begins = ends
    return bytes(view[begins:ends])
