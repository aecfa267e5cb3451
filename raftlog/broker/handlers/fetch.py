"""Fetch 4-18: records of many partitions, waiting for them if there are too few (KIP-74, 227, 320, 516, 595, 951).

A consumer sees committed records. A replica, only on a connection authenticated as that broker, reads up to the log
end. Its fetch offset says what it has flushed. Records that are not in memory are read by `env.offload`.

A response to a client takes at most a part of the free response memory, so it may be smaller than requested. While
that memory is short, a response has at most 64 KiB of records. A fetch waits if its next batch is larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.base.disk import Buffer
from raftlog.base.errors import KafkaError, TopicAuthorizationFailed
from raftlog.broker.api import Api, NoChange
from raftlog.broker.handlers.fetch_cold_read import ColdRead
from raftlog.broker.handlers.fetch_response import (
    FetchAnswer,
    count_throttled,
    encode_error,
    encode_session,
    holds_back,
    leaves_records,
    refuse_all,
    room_of_response,
    throttled_answer,
)
from raftlog.broker.handlers.fetch_rights import REFUSED, replica_of, take_back
from raftlog.broker.network.fetch_sessions import (
    ENTRY_BYTES,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
)
from raftlog.broker.network.response_slots import Slot
from raftlog.broker.partition_lookup import locate
from raftlog.broker.rights import TOPIC, connection_may, refusal
from raftlog.protocol.codec import RequestHeader
from raftlog.protocol.fetch import FetchRequest, decode_fetch
from raftlog.protocol.primitives import MAX_PRODUCE_ELEMENTS
from raftlog.protocol.reader import NO_LIMIT, TooManyElements
from raftlog.replication.replica_host import PartitionRead, ReplicaId
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

API_KEY: Final = 1
READ_COMMITTED: Final = 1
NOTHING: Final = -1
FIRST_TOP_LEVEL_ERROR_VERSION: Final = 7

PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions that one fetch reads between two turns of the loop, some 10 µs each."""

NOT_OPEN: Final = FetchSession(replica=False, by_id=False)
"""The session of a fetch before it opens its own."""


def handle(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    """Respond now, or when there are records to read. Raises InvalidRequest for malformed bytes."""
    try:
        parts_max = NO_LIMIT if connection.is_follower else MAX_PRODUCE_ELEMENTS
        request = decode_fetch(frame, position, header.api_version, parts_max=parts_max)
    except TooManyElements as error:
        if header.api_version < FIRST_TOP_LEVEL_ERROR_VERSION:
            raise
        connection.respond(encode_error(header, error.code))
        return
    fetch = PendingFetch(connection, header, request)
    if request.parts > PARTITIONS_AT_ONCE:
        connection.hold(fetch)
        fetch.begin_later()
        return
    try:
        buffers = fetch.begin()
    except Exception:
        fetch.abandoned()
        raise
    connection.hold(fetch) if buffers is None else connection.respond(buffers)


class PendingFetch(Slot):
    """One fetch, from its first read of the partitions to its response."""

    __slots__ = (
        "_cold",
        "_counted_bytes",
        "_gathered_bytes",
        "_has_enough",
        "_is_last_look",
        "_is_taking_turns",
        "_reserved_bytes",
        "_tells_high_watermarks",
        "_ticket",
        "_wake_due",
        "_withheld",
        "full",
        "header",
        "max_bytes",
        "min_bytes",
        "read_committed",
        "replica",
        "request",
        "session",
    )

    def __init__(self, connection: Connection, header: RequestHeader, request: FetchRequest) -> None:
        super().__init__(connection)
        self.header = header
        self.request = request
        self.session = NOT_OPEN
        self.replica: ReplicaId | None = None
        self.full = True
        self.read_committed = request.isolation_level == READ_COMMITTED
        self.max_bytes = min(max(0, request.max_bytes), connection.server.fetch_max_bytes)
        if connection.limits is not None:
            self.max_bytes = min(self.max_bytes, connection.limits.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self._gathered_bytes = 0
        self._has_enough = False
        self._reserved_bytes = 0
        self._counted_bytes = 0
        self._withheld = False  # records left out of the response only for lack of memory
        self._cold: list[ColdRead] = []
        self._ticket = NOTHING
        self._wake_due = False
        self._is_taking_turns = False
        self._is_last_look = False
        """Whether this responds with whatever the read in turns finds."""
        self._tells_high_watermarks = True
        """Whether the last read included partitions with only a new high watermark."""

    # -- its course ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Buffer] | None:
        """Return the response if there is enough data or the client does not wait, otherwise None: it comes later."""
        refused = self._open()
        if refused is not None:
            return refused
        if len(self.session.ready) > PARTITIONS_AT_ONCE:
            self._take_turns(is_last=self._does_not_wait())
            return None
        for _ in self._gathering():
            pass
        if self._has_enough or self._does_not_wait():
            told = self._tell()
            return None if told is None else told.encode(self.header)
        self._wait()
        return None

    def begin_later(self) -> None:
        """Begin in a separate turn, since decoding the request took one turn."""
        self._is_taking_turns = True
        self._count_entries(self.request.parts)
        self._spawn(self._begin_in_turns())

    async def _begin_in_turns(self) -> None:
        await self.connection.server.broker.env.turns.next()
        if not self.connection.is_open:
            return
        refused = self._open()
        if refused is not None:
            self.answer(refused)
            return
        self.session.fetch = self
        self._count_uncounted()
        self._is_last_look |= self._does_not_wait()
        await self._look_in_turns()

    def _open(self) -> list[Buffer] | None:
        """Open or continue the session; return the error response if that fails."""
        connection, request = self.connection, self.request
        server = connection.server
        if server.broker.replicas.to_wake:
            # uvloop reads from sockets before it runs callbacks. A producer could see its record acknowledged, but not
            # find it in its session.
            server.broker.replicas.wake_now()
        try:
            replica = self.replica = None if request.replica_id < 0 else replica_of(connection, request)
            if replica is not None and server.broker.session is not None:
                server.broker.session.fetched_at[replica.broker_id] = server.loop.time()
            session = server.sessions.open(
                request,
                self.header.api_version,
                replica=replica is not None,
                now=server.loop.time(),
                owner=f"{connection.principal} {connection.peer_host}"
                if replica is None
                else f"Broker:{replica.broker_id}",
            )
        except TopicAuthorizationFailed as error:
            return refuse_all(self.header, request, error.code)
        except KafkaError as error:
            return encode_error(self.header, error.code)
        self.session = session
        if request.session_epoch > INITIAL_EPOCH:
            self._take_back()
        self.full = request.session_epoch <= INITIAL_EPOCH or session.session_id == NO_SESSION
        if replica is not None and session.session_id not in (NO_SESSION, *connection.session_ids):
            connection.session_ids += (session.session_id,)  # the session ends with the connection
        waiting = session.fetch
        if isinstance(waiting, PendingFetch):
            waiting.connection.run_guarded(waiting.give_up)  # the client came back on another connection
        return None

    def _does_not_wait(self) -> bool:
        """Return whether to respond at once. A wait without a kept session needs memory."""
        session = self.session
        if self.request.max_wait_ms <= 0 or not session.entries:
            return True
        return session.session_id == NO_SESSION and self.connection.server.requests.is_full

    # -- turns --------------------------------------------------------------------------------------------------

    def _take_turns(self, *, is_last: bool) -> None:
        """Read very many partitions a slice at a time; other events wait for the end of that."""
        self._is_taking_turns = True
        self._is_last_look = is_last
        self.session.fetch = self
        self._count_uncounted()
        self._spawn(self._look_in_turns())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self.connection.spawn(self._conclude(work))

    async def _conclude(self, work: Coroutine[None, None, None]) -> None:
        try:
            await self.connection.server.long_turns.timed(API_KEY, work, self.connection.took)
        finally:
            if self.buffers is not None or not self.connection.is_open:
                self._stop_waiting()

    async def _look_in_turns(self) -> None:
        turns = self.connection.server.broker.env.turns
        while True:
            self._wake_due = False
            for _ in self._gathering():
                await turns.next()
                if self._is_over():
                    return
            if self._has_enough or self._is_last_look:
                await turns.next()  # collecting the results is a turn, and so is encoding them
                if self._is_over():
                    return
                self._is_taking_turns = False
                self._stop_waiting()
                self._take_back()
                told = self._tell()
                await turns.next()
                if told is not None and self.buffers is None and self.connection.is_open:
                    self.answer(told.encode(self.header))
                return
            if not self._wake_due:
                break  # partitions that had been checked brought no records
        self._is_taking_turns = False
        if self._ticket == NOTHING:
            self._wait()
        else:
            self._park_ready()

    def _is_over(self) -> bool:
        """Return whether this was completed or abandoned meanwhile. If its session has ended, complete it here."""
        if self.buffers is not None or not self.connection.is_open:
            return True
        if self.session.fetch is not self:
            self.answer(encode_error(self.header, 0))
            return True
        return False

    def wake_soon(self) -> None:
        """Read again in the next loop iteration, only once however many partitions woke the session."""
        if self._is_taking_turns:
            self._wake_due = True
        elif not self._wake_due:
            self._wake_due = True
            connection = self.connection
            connection.server.loop.call_soon(connection.guarded(self._timed, self._look_again))

    def memory_freed(self) -> None:
        """Continue, since there is memory for responses again."""
        self.wake_soon()

    def expired(self) -> None:
        """Complete, since the client's max wait is over."""
        self._timed(self._finish_waiting)

    def _timed(self, step: Callable[[], None]) -> None:
        """Take a step and record how long it holds the loop, which is measured nowhere else."""
        server = self.connection.server
        began_at = server.stopwatch()
        try:
            step()
        finally:
            self.connection.took(API_KEY, server.stopwatch() - began_at)

    def _finish_waiting(self) -> None:
        if self._is_taking_turns:
            self._is_last_look = True
            return
        self._stop_waiting()
        if len(self.session.ready) > PARTITIONS_AT_ONCE:
            self._take_turns(is_last=True)
            return
        self._gather()
        self._answer()

    def hurry(self) -> None:
        """Complete, since the client has sent another request and does not wait any longer."""
        if self._is_taking_turns or self.session.fetch is self:
            self.expired()

    def abandoned(self) -> None:
        self._stop_waiting()
        if self.session.session_id == NO_SESSION:
            self.session.close()

    def give_up(self) -> None:
        """Complete with no new data."""
        self._stop_waiting()
        self.answer(encode_error(self.header, 0))

    def _wait(self) -> None:
        session = self.session
        session.fetch = self
        # The dry entries of a kept session are parked already, and all others are ready.
        waiting = session.entries.values() if session.session_id == NO_SESSION else session.ready
        for entry in waiting:
            if not entry.parked:
                session.attach(entry, entry.partition)
                session.park(entry)
        for entry in session.ready:
            entry.read = None  # not kept while waiting: it is read again
        self._count_uncounted()
        self._ticket = self.connection.server.deadlines.add(self, self.request.max_wait_ms)
        self._wait_for_memory()

    def _wait_for_memory(self) -> None:
        if self._withheld:
            self.connection.server.memory.answers.wait(self)

    def _stop_waiting(self) -> None:
        if self.session.fetch is self:
            self.session.fetch = None
        if self._ticket != NOTHING:
            self.connection.server.deadlines.remove(self, self._ticket)
            self._ticket = NOTHING
        self.connection.server.memory.answers.leave(self)
        if self._counted_bytes:
            self._count_entries(0)

    def _count_uncounted(self) -> None:
        """Count the partitions of a session that is not kept, since no other code does."""
        session = self.session
        if session.session_id == NO_SESSION:
            self._count_entries(len(session.entries))
        elif self._counted_bytes:
            self._count_entries(0)

    def _count_entries(self, count: int) -> None:
        """Count the memory that waits here, beside the kept sessions, in the account for requests."""
        requests, size = self.connection.server.requests, count * ENTRY_BYTES
        requests.give(self._counted_bytes)
        requests.take(size)
        self._counted_bytes = size

    def _look_again(self) -> None:
        self._wake_due = False
        session = self.session
        if session.fetch is not self or self._is_taking_turns:
            return
        wanted = self.min_bytes - self._gathered_bytes
        if self.min_bytes > 1 and not self._withheld and session.estimate_new_bytes(wanted) < wanted:
            for entry in session.ready:
                session.park(entry)
        elif len(session.ready) > PARTITIONS_AT_ONCE:
            self._take_turns(is_last=False)
        elif self._gather():
            self._stop_waiting()
            self._answer()
        else:
            self._park_ready()

    def _park_ready(self) -> None:
        for entry in self.session.ready:
            entry.read = None
            self.session.park(entry)
        self._wait_for_memory()

    def _answer(self) -> None:
        self._take_back()
        told = self._tell()
        if told is not None:
            self.answer(told.encode(self.header))

    def _tell(self) -> FetchAnswer | None:
        """Return the gathered response, or None if the disk must be read first."""
        if self._cold:
            self._read_cold()
            return None
        session, limits = self.session, self.connection.limits
        if limits is not None:
            throttle_ms = limits.fetched(self.connection, self._gathered_bytes)
            if throttle_ms:
                return throttled_answer(self.connection.server.sessions, session, throttle_ms, full=self.full)
        if self.replica is not None and self.connection.server.broker.replicas.sent.is_limited:
            count_throttled(session, self.connection.server.broker.replicas)
        told = encode_session(self.connection, self.header.api_version, session, full=self.full)
        if self._tells_high_watermarks:
            session.high_watermarks_told_at = self.connection.server.loop.time()
        if session.session_id == NO_SESSION and session.by_partition:
            session.close()
        return told

    def _take_back(self) -> None:
        """Refuse the partitions that the client may not read any more, even without news."""
        if self.replica is None and self.connection.server.broker.authorizer is not None:
            take_back(self.connection, self.session)
            self._cold = [each for each in self._cold if each.entry.read is not REFUSED]

    # -- reading ------------------------------------------------------------------------------------------------

    def _gather(self) -> bool:
        """Read every partition that is not dry; return whether that is worth a response now."""
        for _ in self._gathering():
            pass
        return self._has_enough

    def _gathering(self) -> Iterator[None]:
        """Gather, and stop after every PARTITIONS_AT_ONCE. At the end, `_has_enough` decides whether to respond."""
        session = self.session
        most = self.max_bytes
        is_short = withheld = False
        if session.replica:
            self._tells_high_watermarks = session.tell_high_watermarks(self.connection.server.loop.time())
        if self.replica is None:
            room, is_short = room_of_response(self.connection.server.memory.answers)
            most = min(most, room)
        left, total, looked_at = most, 0, 0
        urgent = False
        self._cold.clear()
        for entry in tuple(session.ready):
            looked_at += 1
            if looked_at == PARTITIONS_AT_ONCE:
                looked_at = 0
                yield
            limit = left if left < entry.max_bytes else entry.max_bytes
            min_one = total == 0 and not is_short
            read = entry.read = self._read(entry, limit, min_one=min_one)
            records = read.records
            entry.dry = False
            if records is None:
                cold = partial(ColdRead, entry, read, limit=limit, end_offset=self.end_of(entry, read))
                self._cold.append(cold(min_one=min_one, for_consumer=self.replica is None))
                total += limit
            elif records:
                total += len(records)
            elif entry.held and not read.error_code and read.diverging is None:
                continue  # read again with the next fetch
            elif is_short and self._has_more(entry, read):
                withheld = True
            elif not read.error_code and read.diverging is None and self._is_dry(entry, read):
                self._note_dry(entry, read)
            else:
                urgent = True  # an error, a point to truncate to, or records that do not fit any more
            left = most - total if total < most else 0
        self._gathered_bytes = total
        self._withheld = withheld
        self._has_enough = urgent or bool(self._cold) or total >= min(self.min_bytes, max(most, 1))
        if total and not self._has_enough:
            self._has_enough = leaves_records(session, self.end_of)

    def _note_dry(self, entry: SessionPartition, read: PartitionRead) -> None:
        """Have the partition wake the session, and leave the entry out of the response if it has no news."""
        session = self.session
        entry.dry = True
        if session.session_id != NO_SESSION:
            session.park(entry)
        elif self._is_taking_turns:
            session.attach(entry, entry.partition)  # it may be woken before the last entry is read
            session.park(entry)
        if self.full or not entry.differs(read):
            del session.ready[entry]
        elif not self._tells_high_watermarks:
            del session.ready[entry]
            session.untold[entry] = None

    def _read(self, entry: SessionPartition, max_bytes: int, *, min_one: bool) -> PartitionRead:
        partition = entry.partition
        broker = self.connection.server.broker
        image = broker.image()
        # A session keeps references to replica objects, so a fetch of a thousand partitions needs no lookups. Every
        # new image may have moved, deleted or recreated any of them, so each entry is looked up once after that.
        is_doubted = broker.silent_members and self.replica is None
        if partition is None or entry.image is not image or is_doubted:
            try:
                if broker.authorizer is not None and not connection_may(
                    self.connection, Operation.READ, entry.topic
                ):
                    raise refusal(TOPIC)
                partition = locate(broker, entry.topic, entry.index, for_follower=self.replica is not None)
            except KafkaError as error:
                self.session.attach(entry, None)
                return PartitionRead(error.code, -1, -1, -1, b"", aborted=())
            entry.image = image
            if self.session.session_id == NO_SESSION and not self.session.by_partition:
                entry.partition = partition  # if it has to wait, it is attached then
            elif partition is not entry.partition:
                self.session.attach(entry, partition)
        # Noted at each read, not when the wait begins: later appends count towards min.bytes.
        if self.min_bytes > 1:
            entry.seen_bytes = partition.log.size_bytes
        # DeleteRecords waits for the least log start of all replicas (KIP-107). A follower sends its own as it
        # fetches.
        replica = self.replica
        is_new = entry.moved
        if replica is not None and is_new:
            partition.note_log_start(replica, entry.log_start_offset)
        entry.held = (
            replica is not None
            and broker.replicas.sent.is_limited
            and holds_back(broker.replicas, replica, entry, partition)
        )
        # A throttled follower gets no records, but its fetch is noted: the leader learns the follower's position from
        # it.
        read = partition.read(
            entry.offset,
            0 if entry.held else max_bytes,
            min_one=min_one and not entry.held,
            current_leader_epoch=entry.current_leader_epoch,
            last_fetched_epoch=entry.last_fetched_epoch,
            read_committed=self.read_committed,
            replica=replica,
            is_new=is_new,
        )
        if read.error_code:
            entry.image = None  # perhaps another replica object serves it by now
        else:
            entry.moved = False
        return read

    def _is_dry(self, entry: SessionPartition, read: PartitionRead) -> bool:
        return entry.offset >= self.end_of(entry, read)

    def _has_more(self, entry: SessionPartition, read: PartitionRead) -> bool:
        """Return whether only the limits of this response leave out records of a partition."""
        return not read.error_code and read.diverging is None and not self._is_dry(entry, read)

    def end_of(self, entry: SessionPartition, read: PartitionRead) -> int:
        """Return the offset that this reader may not read past."""
        if self.replica is not None and entry.partition is not None:
            return entry.partition.log.log_end_offset
        return read.last_stable_offset if self.read_committed else read.high_watermark

    def _read_cold(self) -> None:
        cold = tuple(self._cold)
        self._reserve(self._gathered_bytes)
        future = self.connection.server.broker.env.offload(lambda: [each.run() for each in cold])
        future.add_done_callback(self.connection.guarded(self._cold_read))

    def _reserve(self, size: int) -> None:
        """Count records that are being read. Afterwards they count as part of a response."""
        answers = self.connection.server.memory.answers
        before, self._reserved_bytes = self._reserved_bytes, size
        answers.take(size)
        answers.give(before)

    def _cold_read(self, future: asyncio.Future[list[PartitionRead]]) -> None:
        """Back on the loop."""
        self._reserve(0)
        if not self.connection.is_open:
            self.abandoned()
        reads = future.result()
        if self.connection.is_open:
            self._timed(partial(self._take_cold, reads))

    def _take_cold(self, reads: list[PartitionRead]) -> None:
        for cold, read in zip(self._cold, reads, strict=True):
            cold.entry.read = cold.finish(read)
        self._cold.clear()
        reads = [each.read for each in self.session.ready if each.read is not None]
        self._gathered_bytes = sum(len(read.records) for read in reads if read.records)
        self._answer()


API: Final = Api(
    key=API_KEY,
    handle=None,
    needs=DemandedPerPart((Right(Operation.READ, ResourceType.TOPIC),)),
    max_parts=MAX_PRODUCE_ELEMENTS,
    audit=NoChange(),
    controllers=False,
    prepared=(18,),
)
