"""Fetch sessions (KIP-227): the partitions of a fetching client, kept between requests, with their changes.

Both sessions and their partitions are bounded. A client without room for a session gets full responses, as in Kafka.
Sessions of brokers are always kept, and no client's session evicts them.

A session knows for each partition whether it is *dry*: read, found empty, and parked on the partition until that wakes
it. Only the others are read by the next fetch, so a fetch costs what moved, not what is subscribed. A fetch without a
session is a session that lives for one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from raftlog.base.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from raftlog.base.guard import Guard
from raftlog.base.log import get_logger
from raftlog.base.memory import Account
from raftlog.base.types import NO_BROKER
from raftlog.protocol.fetch import FIRST_TOPIC_ID_VERSION, FetchPartition, FetchRequest, TopicKey

if TYPE_CHECKING:
    from raftlog.metadata.image import MetadataImage
    from raftlog.replication.partition import Partition
    from raftlog.replication.replica_host import PartitionRead

NEVER: Final = float("-inf")
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
BROKEN_EPOCH: Final = -2
"""The epoch of a session that failed: no request continues it."""
_MAX_ID: Final = 2**31 - 1

EVICTION_S: Final = 120.0
"""Kafka's min.incremental.fetch.session.eviction.ms, in seconds. A session is safe from newer, larger sessions for
this long, and can be evicted by any after this idle time."""

ENTRY_BYTES: Final = 640
"""The approximate size of a partition in a session, in bytes."""

HIGH_WATERMARKS_S: Final = 0.1
"""The shortest interval between high watermark updates to a follower, for partitions without new records. A follower
needs them for little but to lead later, and then its own followers bring it up to date. A follower with readers gets
them at once.
"""

MAX_SHARE: Final = 4
"""A session may have at most this part, a fourth, of the partitions of all sessions."""

EntryKey = tuple[TopicKey, int]

log = get_logger(__name__)


class SessionPartition:
    """One partition of a session: the client's position in it, and what the last response said."""

    __slots__ = (
        "current_leader_epoch",
        "dry",
        "held",
        "image",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "moved",
        "offset",
        "parked",
        "partition",
        "read",
        "seen_bytes",
        "seen_role",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "wants_high_watermark",
    )

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        (
            self.index,
            self.current_leader_epoch,
            self.offset,
            self.last_fetched_epoch,
            self.log_start_offset,
            self.max_bytes,
        ) = wanted
        self.moved = True
        """Whether the client sent a new position since the last read."""
        self.partition: Partition | None = None
        self.image: MetadataImage | None = None
        self.parked = False
        self.dry = False
        self.held = False
        """Whether a replication quota throttles this partition at present."""
        self.read: PartitionRead | None = None
        self.seen_bytes = 0
        self.seen_role: object = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.wants_high_watermark = False
        """Whether this follower has readers, and so wants each new high watermark at once (KIP-1166)."""

    def update(self, wanted: FetchPartition) -> None:
        """Set the client's new position."""
        (
            _,
            self.current_leader_epoch,
            self.offset,
            self.last_fetched_epoch,
            self.log_start_offset,
            self.max_bytes,
        ) = wanted
        self.moved = True

    def differs(self, read: PartitionRead) -> bool:
        """Return whether a read without records has news for the client."""
        return (
            read.high_watermark != self.sent_high_watermark
            or read.log_start_offset != self.sent_log_start_offset
        )

    def is_news(self, read: PartitionRead) -> bool:
        """Return whether an incremental response must include this read; if so, note it as sent."""
        if read.error_code or read.diverging is not None or read.preferred_read_replica != NO_BROKER:
            self.sent_high_watermark = -1  # so that it is sent again once that is over
            return True
        if not read.records and not self.differs(read):
            return False
        self.sent_high_watermark = read.high_watermark
        self.sent_log_start_offset = read.log_start_offset
        return True


class WaitingFetch(Protocol):
    """The fetch that waits on a session."""

    @property
    def connection(self) -> Guard: ...

    def wake_soon(self) -> None:
        """Read again soon, because the session may have new data."""


class FetchSession(Guard):
    """The partitions of a session, in round-robin order. Partitions wake it as a `FetchWaiter`.

    Partitions wake it during other connections' requests. So a failure ends only the session and the fetch that waits
    on it.
    """

    __slots__ = (
        "by_id",
        "by_partition",
        "changed_high_watermarks",
        "counted",
        "created_at",
        "entries",
        "epoch",
        "fetch",
        "high_watermarks_sent_at",
        "isolation_level",
        "owner",
        "ready",
        "replica",
        "rules",
        "session_id",
        "used_at",
    )

    def __init__(self, *, replica: bool, by_id: bool, owner: str = "") -> None:
        self.session_id = NO_SESSION
        self.owner = owner
        """The principal and address of the client that opened the session. Only that client may continue or end it."""
        self.epoch = INITIAL_EPOCH
        self.replica = replica
        self.by_id = by_id
        self.entries: dict[EntryKey, SessionPartition] = {}
        self.ready: dict[SessionPartition, None] = {}
        """Entries that may have changed, in the order of their turns."""
        self.changed_high_watermarks: dict[SessionPartition, None] = {}
        """For a follower: entries with only a new high watermark, sent together (HIGH_WATERMARKS_S)."""
        self.high_watermarks_sent_at = NEVER
        self.by_partition: dict[Partition, SessionPartition] = {}
        self.fetch: WaitingFetch | None = None
        self.isolation_level = 0
        """The isolation level with which its partitions were found dry."""
        self.rules: object = None
        """The ACLs at the last check of all its partitions."""
        self.created_at = self.used_at = 0.0
        self.counted = 0
        """The number of its partitions that are counted in the account of all sessions."""

    def crash(self, what: str) -> None:
        fetch = self.fetch
        self.abort()
        if fetch is None:
            log.exception("fetch_session_crashed", what=what, session_id=self.session_id)
        else:
            fetch.connection.crash(f"fetch session: {what}")

    def abort(self) -> None:
        self.epoch = BROKEN_EPOCH
        with suppress(Exception):  # a broken partition may break again
            self.close()

    def want(self, request: FetchRequest) -> None:
        """Add the partitions of a request, or update their positions."""
        entries, ready = self.entries, self.ready
        if (
            request.isolation_level != self.isolation_level
        ):  # what is dry for one level has records for another
            self.isolation_level = request.isolation_level
            for each in entries.values():
                each.dry = False
            ready.update(dict.fromkeys(entries.values()))
        for topic, partitions in request.topics:
            for wanted in partitions:
                entry = entries.get((topic, wanted[0]))
                if entry is None:
                    entry = entries[topic, wanted[0]] = SessionPartition(topic, wanted)
                else:
                    entry.update(wanted)
                    if self.replica:  # with two fetches in flight it may have dropped a response
                        entry.sent_high_watermark = -1
                        entry.wants_high_watermark = False
                ready[entry] = None
        if self.replica and request.high_watermarks:
            self._want_high_watermarks(request.high_watermarks)

    def _want_high_watermarks(self, known: Mapping[EntryKey, int]) -> None:
        for key, high_watermark in known.items():
            entry = self.entries.get(key)
            if entry is not None:
                entry.sent_high_watermark, entry.wants_high_watermark = high_watermark, True

    def forget(self, forgotten: Iterable[tuple[TopicKey, Iterable[int]]]) -> None:
        """Drop partitions. A request that begins a session drops none, as in Kafka."""
        for topic, indexes in forgotten:
            for index in indexes:
                self._forget(topic, index)

    def _forget(self, topic: TopicKey, index: int) -> None:
        entry = self.entries.pop((topic, index), None)
        if entry is not None:
            self.ready.pop(entry, None)
            if self.changed_high_watermarks:
                self.changed_high_watermarks.pop(entry, None)
            self.attach(entry, None)

    def attach(self, entry: SessionPartition, partition: Partition | None) -> None:
        """Set the replica that serves the entry from now on."""
        if entry.partition is not None:
            if entry.parked:
                self._unpark(entry, entry.partition)
            self.by_partition.pop(entry.partition, None)
        entry.partition = partition
        if partition is not None:
            self.by_partition[partition] = entry

    def park(self, entry: SessionPartition) -> None:
        """Register this session with a partition, to be woken by new data there."""
        partition = entry.partition
        if partition is not None and not entry.parked:
            entry.parked = True
            self.by_partition[partition] = entry
            if self.replica:
                partition.park_replica(self)
            else:
                partition.park(self)

    def park_ready(self) -> None:
        """Register this session with the partitions that had data too, and release the records read from them."""
        # The dry ones are parked already, unless this is the first wait of a session that is not kept.
        is_first = self.session_id == NO_SESSION and self.fetch is None
        for entry in self.entries.values() if is_first else self.ready:
            self.park(entry)
        for entry in self.ready:
            entry.read = None

    def _unpark(self, entry: SessionPartition, partition: Partition) -> None:
        entry.parked = False
        partition.unpark(self)

    def wake(self, partition: Partition) -> None:
        """Note that a partition has more data, or is no longer served.

        A session without a waiting fetch is woken only once.
        """
        try:
            entry = self.by_partition.get(partition)
            if entry is None:
                return
            self._unpark(entry, partition)
            entry.dry = False  # also for a fetch that has read it already, but is not completed yet
            self.ready[entry] = None
            if self.fetch is not None:
                self.fetch.wake_soon()
        except Exception:
            self.crash("wake")

    def high_watermark_moved(self, partition: Partition) -> None:
        """Note a new high watermark.

        A follower with readers gets it at once. Others get it with the partition's next records, or with all other
        changed high watermarks.
        """
        try:
            entry = self.by_partition.get(partition)
            if entry is None:
                return
            if not entry.wants_high_watermark:
                self.changed_high_watermarks[entry] = None
                return
            entry.dry = False
            self.ready[entry] = None
            if self.fetch is not None:
                self.fetch.wake_soon()
        except Exception:
            self.crash("high_watermark_moved")

    def include_high_watermarks(self, now: float) -> bool:
        """Include all changed high watermarks in the next response, if the last update is HIGH_WATERMARKS_S ago."""
        if now - self.high_watermarks_sent_at < HIGH_WATERMARKS_S:
            return False
        if self.changed_high_watermarks:
            for entry in self.changed_high_watermarks:
                entry.dry = False
            self.ready.update(self.changed_high_watermarks)
            self.changed_high_watermarks.clear()
        return True

    def log_start_moved(self, partition: Partition) -> None:
        """Include the new log start offset in a follower's next response."""
        try:
            entry = self.by_partition.get(partition)
            if entry is not None:
                entry.dry = False
                self.ready[entry] = None
        except Exception:
            self.crash("log_start_moved")

    def detach(self, partition: Partition) -> None:
        """Let go of a replica that left this broker: an idle session would hold its log. A waiting fetch is woken."""
        entry = self.by_partition.get(partition)
        if entry is not None:
            self.wake(partition)
            self.attach(entry, None)

    def estimate_new_bytes(self, enough: int) -> int:
        """Return the approximate size of new data in `ready`, or `enough` if a partition there has a new role."""
        total = 0
        for entry in self.ready:
            partition = entry.partition
            if partition is None or partition.role is not entry.seen_role:
                return enough
            total += max(0, partition.log.size_bytes - entry.seen_bytes)
        return total

    def close(self) -> None:
        """Unregister this session from all partitions."""
        for entry in self.entries.values():
            self.attach(entry, None)
        self.entries.clear()
        self.ready.clear()
        self.changed_high_watermarks.clear()
        self.fetch = None


class FetchSessions:
    """The sessions of one broker: at most `slots` sessions of clients, and those of authenticated brokers.

    A broker's sessions end with its connection, so they are bounded by the connections.
    """

    __slots__ = ("_memory", "_random", "_sessions", "_slots", "evicted", "of_clients")

    def __init__(self, slots: int, random: Random, memory: Account) -> None:
        """`memory` is the memory for partitions in sessions, ENTRY_BYTES each."""
        self._slots = slots
        self._random = random
        self._memory = memory
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.of_clients = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def open(
        self, request: FetchRequest, version: int, *, replica: bool, now: float, owner: str = ""
    ) -> FetchSession:
        """Return the session that a request continues or starts, updated by the request.

        `owner` is the client's principal and address. A session of another owner is treated as missing. Raises
        FetchSessionIdNotFound, InvalidFetchSessionEpoch or FetchSessionTopicIdError.
        """
        known = self._sessions.get(request.session_id)
        if known is not None and known.owner != owner:
            known = None
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._continue(known, request, version, now)
        if known is not None:
            self.end(request.session_id)
        session = FetchSession(replica=replica, by_id=version >= FIRST_TOPIC_ID_VERSION, owner=owner)
        session.want(request)
        if request.session_epoch == INITIAL_EPOCH:
            self._register(session, now)
        return session

    def end(self, session_id: int) -> None:
        """Remove a session; no effect if there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._free_memory(session)
            session.close()

    def detach(self, partition: Partition) -> None:
        """Have every session let go of a replica that left this broker."""
        for session in self._sessions.values():
            session.detach(partition)

    def _continue(
        self, session: FetchSession | None, request: FetchRequest, version: int, now: float
    ) -> FetchSession:
        if session is None:
            raise FetchSessionIdNotFound()
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch()
        if session.by_id != (version >= FIRST_TOPIC_ID_VERSION):
            raise FetchSessionTopicIdError()
        session.want(request)
        if request.forgotten:
            session.forget(request.forgotten)
        if not self._count(session):
            self.end(request.session_id)
            raise FetchSessionIdNotFound()  # the client names all partitions again, without a session
        session.epoch = 1 if session.epoch == _MAX_ID else session.epoch + 1
        session.used_at = now
        del self._sessions[request.session_id]
        if session.entries:
            self._sessions[request.session_id] = session
        else:
            self._free_memory(session)
            session.session_id = NO_SESSION
        return session

    def _register(self, session: FetchSession, now: float) -> None:
        """Give the session an id if there is room, or if KIP-227 allows the eviction of another session."""
        while not self._has_room(session):
            if not self._evict(session, now):
                return
        self._count(session)
        self.of_clients += not session.replica
        session.created_at = session.used_at = now
        session.epoch = INITIAL_EPOCH + 1
        while session.session_id == NO_SESSION or session.session_id in self._sessions:
            session.session_id = self._random.randint(1, _MAX_ID)
        self._sessions[session.session_id] = session

    def _has_room(self, session: FetchSession) -> bool:
        """Return whether a new session can be kept beside the others."""
        return session.replica or (
            self.of_clients < self._slots
            and self._may_grow_to(len(session.entries))
            and self._memory.used + len(session.entries) * ENTRY_BYTES <= self._memory.limit
        )

    def _may_grow_to(self, entries: int) -> bool:
        return entries * ENTRY_BYTES <= self._memory.limit // MAX_SHARE

    def _count(self, session: FetchSession) -> bool:
        """Count the partitions of a session in the account. Return False if a client's session has too many."""
        more = len(session.entries) - session.counted
        if more < 0:
            self._memory.release(-more * ENTRY_BYTES)
        elif more > 0:
            is_too_much = (
                self._memory.used + more * ENTRY_BYTES > self._memory.limit
                or not self._may_grow_to(len(session.entries))
            )
            if is_too_much and not session.replica:
                return False
            self._memory.acquire(more * ENTRY_BYTES)
        session.counted += more
        return True

    def _free_memory(self, session: FetchSession) -> None:
        """Forget a session that ended, and free its memory."""
        self.of_clients -= not session.replica
        self._memory.release(session.counted * ENTRY_BYTES)
        session.counted = 0

    def _evict(self, newcomer: FetchSession, now: float) -> bool:
        """KIP-227: evict the longest idle; else the smallest old session, if smaller than the new session."""
        others = [session for session in self if not session.replica]
        if not others or not self._may_grow_to(len(newcomer.entries)):
            return False
        loser = others[0]
        if now - loser.used_at <= EVICTION_S:
            had_their_time = [each for each in others if now - each.created_at > EVICTION_S]
            if not had_their_time:
                return False
            loser = min(had_their_time, key=lambda each: len(each.entries))
            if len(loser.entries) >= len(newcomer.entries):
                return False
        self.end(loser.session_id)
        self.evicted += 1
        return True
