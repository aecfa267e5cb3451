"""Fetch 4-18: records of many partitions, waiting for them if there are too few (KIP-74, 227, 320, 516, 595, 951).

A consumer sees committed records. A replica, only on a connection authenticated as that broker, reads up to the log
end. Its fetch offset says what it has flushed. Records that are not in memory are read by `env.offload`.

A response to a client takes at most a part of the free response memory, so it may be smaller than requested. While
that memory is short, a response has at most 64 KiB of records. A fetch waits if its next batch is larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.base.disk import Buffer
from raftlog.base.errors import KafkaError, TopicAuthorizationFailed
from raftlog.base.turns import run_steps
from raftlog.broker.api import Api, NoChange
from raftlog.broker.handlers.shared.fetch_reader import PARTITIONS_AT_ONCE, FetchReader
from raftlog.broker.handlers.shared.fetch_response import (
    FetchAnswer,
    count_throttled,
    encode_error,
    encode_session,
    refuse_all,
    throttled_answer,
)
from raftlog.broker.network.fetch_sessions import ENTRY_BYTES, INITIAL_EPOCH, NO_SESSION, FetchSession
from raftlog.broker.network.responses import Slot
from raftlog.broker.rights import TOPIC, note_refusal, refused_topic
from raftlog.protocol.codec import RequestHeader
from raftlog.protocol.fetch import FetchRequest, decode_fetch
from raftlog.protocol.primitives import MAX_PRODUCE_ELEMENTS
from raftlog.protocol.reader import NO_LIMIT, TooManyElements
from raftlog.replication.replica_host import PartitionRead, ReplicaId
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

API_KEY: Final = 1
NOTHING: Final = -1
REFUSED: Final = PartitionRead(TopicAuthorizationFailed.code, -1, -1, -1, b"", aborted=())
FIRST_TOP_LEVEL_ERROR_VERSION: Final = 7

NOT_OPEN: Final = FetchSession(replica=False, by_id=False)
"""The session of a fetch before it opens its own."""


class Phase(Enum):
    """The phase of a pending fetch. It responds at the end of one of the three phases that read."""

    READING = auto()
    """Reads its partitions. Other events may come between two slices of many partitions."""
    READING_AGAIN = auto()
    """Reads, and then reads again, since new data arrived in a partition that may have been read already."""
    READING_LAST = auto()
    """Reads, and then responds even if that is less than the client's min bytes."""
    WAITING = auto()
    """Waits for its partitions, for memory for responses, or for its deadline."""
    WOKEN = auto()
    """Reads again in the next iteration of the loop."""


def handle(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    """Respond now, or when there are records to read. Raises InvalidRequest for malformed bytes."""
    try:
        parts_max = NO_LIMIT if connection.is_follower else MAX_PRODUCE_ELEMENTS
        request = decode_fetch(frame, position, header.api_version, parts_max=parts_max)
    except TooManyElements as error:
        if header.api_version < FIRST_TOP_LEVEL_ERROR_VERSION:
            raise
        connection.responses.add(encode_error(header, error.code))
        return
    fetch = PendingFetch(connection, header, request)
    if request.parts > PARTITIONS_AT_ONCE:
        connection.responses.hold(fetch)
        fetch.begin_later()
        return
    try:
        buffers = fetch.begin()
    except Exception:
        fetch.abandoned()
        raise
    connection.responses.hold(fetch) if buffers is None else connection.responses.add(buffers)


class PendingFetch(Slot):
    """One fetch, from its first read of the partitions to its response."""

    __slots__ = ("_counted_bytes", "_phase", "_ticket", "header", "reader", "request", "session")

    reader: FetchReader
    """Set once the session is open."""

    def __init__(self, connection: Connection, header: RequestHeader, request: FetchRequest) -> None:
        self.connection = connection
        self.buffers = None
        self.overlaps = False
        self.header = header
        self.request = request
        self.session = NOT_OPEN
        self._phase = Phase.READING
        self._ticket = NOTHING
        self._counted_bytes = 0

    # -- beginning and waiting ----------------------------------------------------------------------------------

    def begin(self) -> list[Buffer] | None:
        """Return the response if there is enough data or the client does not wait, otherwise None."""
        refused = self._open()
        if refused is not None:
            return refused
        if len(self.session.ready) > PARTITIONS_AT_ONCE:
            if self._does_not_wait():
                self._phase = Phase.READING_LAST
            self._read_in_turns()
            return None
        for _ in self.reader.slices():
            pass
        if self.reader.has_enough or self._does_not_wait():
            answer = self._collect()
            return None if answer is None else answer.encode(self.header)
        self._wait()
        return None

    def begin_later(self) -> None:
        """Begin in the loop's next turn, since decoding the request took this turn."""
        self._count_entries(self.request.parts)
        self._spawn(self._begin_in_turns())

    async def _begin_in_turns(self) -> None:
        env = self.connection.server.broker.env
        if await run_steps(env, self._beginning(), goes_on=lambda: self.connection.is_open):
            await self._read_slices()

    def _beginning(self) -> Generator[None, None, bool]:
        """Open or continue the session in a slice of its own; return whether to read."""
        yield
        refused = self._open()
        if refused is not None:
            self.answer(refused)
            return False
        self._occupy_session()
        if self._does_not_wait():
            self._phase = Phase.READING_LAST
        return True

    def _open(self) -> list[Buffer] | None:
        """Open or continue the session; return the error response if that fails."""
        connection, request = self.connection, self.request
        server = connection.server
        if server.broker.replicas.to_wake:
            # uvloop reads from sockets before it runs callbacks. A producer could see its record acknowledged, but not
            # find it in its session.
            server.broker.replicas.wake_now()
        try:
            replica = None if request.replica_id < 0 else replica_of(connection, request)
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
        self.reader = FetchReader(connection, request, session, replica, version=self.header.api_version)
        if request.session_epoch > INITIAL_EPOCH:
            self._refuse_revoked()
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

    def _wait(self) -> None:
        is_woken = self._phase is Phase.READING_AGAIN
        self._phase = Phase.WAITING
        self.session.park_ready()
        self._occupy_session()
        server = self.connection.server
        if self._ticket == NOTHING:
            self._ticket = server.deadlines.add(self, self.request.max_wait_ms)
        if self.reader.is_withheld:
            server.memory.answers.add_waiter(self)
        if is_woken:
            self.wake_soon()

    def _occupy_session(self) -> None:
        """Have the session wake this fetch. The partitions of a session that is not kept are counted here."""
        session = self.session
        session.fetch = self
        self._count_entries(len(session.entries) if session.session_id == NO_SESSION else 0)

    def _count_entries(self, count: int) -> None:
        """Count the memory that waits here, beside the kept sessions, in the account for requests."""
        requests, size = self.connection.server.requests, count * ENTRY_BYTES
        if size != self._counted_bytes:
            requests.release(self._counted_bytes)
            requests.acquire(size)
            self._counted_bytes = size

    def _stop_waiting(self) -> None:
        server = self.connection.server
        if self.session.fetch is self:
            self.session.fetch = None
        if self._ticket != NOTHING:
            server.deadlines.remove(self, self._ticket)
            self._ticket = NOTHING
        server.memory.answers.remove_waiter(self)
        self._count_entries(0)

    # -- events -------------------------------------------------------------------------------------------------

    def wake_soon(self) -> None:
        """Read again in the next loop iteration, only once however many partitions woke the session."""
        if self._phase is Phase.READING:
            self._phase = Phase.READING_AGAIN
        elif self._phase is Phase.WAITING:
            self._phase = Phase.WOKEN
            connection = self.connection
            connection.server.loop.call_soon(connection.guarded(self._timed, self._read_again))

    memory_freed = wake_soon
    """Called when the account of responses has free memory again."""

    def expired(self) -> None:
        """Respond with the available data, since the client's max wait is over."""
        if self._phase in (Phase.READING, Phase.READING_AGAIN):
            self._phase = Phase.READING_LAST
        elif self._phase in (Phase.WAITING, Phase.WOKEN):
            self._phase = Phase.READING_LAST
            self._timed(self._read)

    def complete_now(self) -> None:
        """Respond now, since the client has sent another request on this connection."""
        self.expired()

    def abandoned(self) -> None:
        self._stop_waiting()
        if self.session.session_id == NO_SESSION:
            self.session.close()

    def give_up(self) -> None:
        """Respond without data."""
        self._stop_waiting()
        self.answer(encode_error(self.header, 0))

    def _timed(self, step: Callable[[], None]) -> None:
        """Run a callback and record its time, since the pipeline measures only the first turn of a request."""
        server = self.connection.server
        began_at = server.stopwatch()
        try:
            step()
        finally:
            self.connection.record_turn(API_KEY, server.stopwatch() - began_at)

    # -- reading ------------------------------------------------------------------------------------------------

    def _read_again(self) -> None:
        session, reader = self.session, self.reader
        if self._phase is not Phase.WOKEN or session.fetch is not self:
            return
        self._phase = Phase.READING
        missing = reader.min_bytes - reader.size_bytes
        if reader.min_bytes > 1 and not reader.is_withheld and session.estimate_new_bytes(missing) < missing:
            self._wait()
        else:
            self._read()

    def _read(self) -> None:
        if len(self.session.ready) > PARTITIONS_AT_ONCE:
            self._read_in_turns()
        elif self.reader.read_all() or self._phase is Phase.READING_LAST:
            self._stop_waiting()
            self._respond()
        else:
            self._wait()

    def _read_in_turns(self) -> None:
        """Read many partitions in slices, with a turn of the loop for each."""
        self._occupy_session()
        self._spawn(self._read_slices())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self.connection.spawn(self._conclude(work))

    async def _conclude(self, work: Coroutine[None, None, None]) -> None:
        try:
            await self.connection.server.long_turns.timed(API_KEY, work, self.connection.record_turn)
        finally:
            if self.buffers is not None or not self.connection.is_open:
                self._stop_waiting()

    async def _read_slices(self) -> None:
        env = self.connection.server.broker.env
        if await run_steps(env, self._reading(), goes_on=lambda: not self._is_over()):
            await run_steps(env, self._responding(), goes_on=self._is_unanswered)

    def _reading(self) -> Generator[None, None, bool]:
        """Read; yield after each slice. Return True to respond, False to wait for more."""
        while True:
            if self._phase is Phase.READING_AGAIN:
                self._phase = Phase.READING
            yield from self.reader.slices()
            if self.reader.has_enough or self._phase is Phase.READING_LAST:
                break
            if self._phase is Phase.READING:
                self._wait()
                return False
        yield
        return True

    def _responding(self) -> Iterator[None]:
        """Collect the results in one slice, and encode them in the next."""
        self._stop_waiting()
        self._refuse_revoked()
        answer = self._collect()
        yield
        if answer is not None:
            self.answer(answer.encode(self.header))

    def _is_unanswered(self) -> bool:
        return self.buffers is None and self.connection.is_open

    def _is_over(self) -> bool:
        """Return whether this fetch is completed or abandoned. Complete it here if its session was closed meanwhile."""
        if not self._is_unanswered():
            return True
        if self.session.fetch is not self:
            self.answer(encode_error(self.header, 0))
            return True
        return False

    # -- the response -------------------------------------------------------------------------------------------

    def _respond(self) -> None:
        self._refuse_revoked()
        answer = self._collect()
        if answer is not None:
            self.answer(answer.encode(self.header))

    def _refuse_revoked(self) -> None:
        """Refuse partitions whose ACLs were removed during the wait, also partitions without new data."""
        reader = self.reader
        if reader.replica is None and self.connection.server.broker.authorizer is not None:
            refuse_revoked(self.connection, self.session)
            reader.cold = [each for each in reader.cold if each.entry.read is not REFUSED]

    def _collect(self) -> FetchAnswer | None:
        """Return the response, or None if some records must be read from the disk first."""
        session, reader, connection = self.session, self.reader, self.connection
        if reader.cold:
            self._read_cold()
            return None
        server, limits = connection.server, connection.limits
        if limits is not None:
            throttle_ms = limits.count_fetch(connection, reader.size_bytes)
            if throttle_ms:
                return throttled_answer(server.sessions, session, throttle_ms, full=reader.full)
        if reader.replica is not None and server.broker.replicas.sent.is_limited:
            count_throttled(session, server.broker.replicas)
        answer = encode_session(connection, self.header.api_version, session, full=reader.full)
        if reader.has_high_watermarks:
            session.high_watermarks_sent_at = server.loop.time()
        if session.session_id == NO_SESSION and session.by_partition:
            session.close()
        return answer

    def _read_cold(self) -> None:
        """Read from the disk in a thread. The size counts as response memory from now on."""
        cold, size = tuple(self.reader.cold), self.reader.size_bytes
        server = self.connection.server
        server.memory.answers.acquire(size)
        future = server.broker.env.offload(lambda: [each.run() for each in cold])
        future.add_done_callback(self.connection.guarded(self._cold_read, size))

    def _cold_read(self, size: int, future: asyncio.Future[list[PartitionRead]]) -> None:
        """Complete the response with the records from the disk. Runs on the loop."""
        self.connection.server.memory.answers.release(size)
        if not self.connection.is_open:
            self.abandoned()
        reads = future.result()
        if self.connection.is_open:
            self._timed(partial(self._respond_with, reads))

    def _respond_with(self, reads: list[PartitionRead]) -> None:
        self.reader.finish_cold(reads)
        self._respond()


def refuse_revoked(connection: Connection, session: FetchSession) -> None:
    """Refuse the partitions that the client may not read any more, if ACLs have changed since the last check.

    A fetch checks ACLs as it reads, and may then wait. ACLs change meanwhile, and a partition without news is not read
    at all.
    """
    rules = connection.server.broker.image().acls
    if session.rules is rules:
        return
    session.rules = rules
    image, denied = connection.server.broker.image(), set()
    for entry in session.entries.values():
        if entry.image is None or entry.image is image:
            continue  # it is refused already, or was checked by these ACLs
        name = refused_topic(connection, Operation.READ, entry.topic)
        if name is not None:
            session.attach(entry, None)
            entry.image, entry.dry, entry.read = None, False, REFUSED
            session.ready[entry] = None
            denied.add(name)
    if denied:
        note_refusal(connection, Operation.READ, TOPIC, denied)


def replica_of(connection: Connection, request: FetchRequest) -> ReplicaId:
    """Return the id of the replica that fetches.

    Raises TopicAuthorizationFailed for a client that only claims to be a replica.
    """
    peer = connection.peer
    if peer is None or not connection.is_follower or peer.broker_id != request.replica_id:
        raise TopicAuthorizationFailed()
    if request.replica_epoch >= 0 and request.replica_epoch != peer.broker_epoch:
        raise TopicAuthorizationFailed()
    return peer


API: Final = Api(
    key=API_KEY,
    handle=None,
    needs=DemandedPerPart((Right(Operation.READ, ResourceType.TOPIC),)),
    max_parts=MAX_PRODUCE_ELEMENTS,
    audit=NoChange(),
    controllers=False,
    prepared=(18,),
)
