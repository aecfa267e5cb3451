"""The response of a fetch: encodes the reads of a session, applies throttles, and counts the bytes sent.

It has a hint at a leader that is elsewhere (KIP-951).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.base.disk import Buffer
from raftlog.base.memory import Account
from raftlog.broker.network.fetch_sessions import NO_SESSION, FetchSession, FetchSessions, SessionPartition
from raftlog.broker.partition_lookup import MOVED, current_leader, endpoints_of
from raftlog.broker.replicas.replication_quota import is_listed
from raftlog.protocol.codec import RequestHeader
from raftlog.protocol.fetch import (
    FetchedPartition,
    FetchRequest,
    TopicKey,
    encode_fetch_response,
    encode_throttled,
)
from raftlog.protocol.primitives import Endpoint
from raftlog.replication.follower_role import FollowerRole

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection
    from raftlog.broker.replicas.replicas import Replicas
    from raftlog.replication.partition import Partition
    from raftlog.replication.replica_host import PartitionRead, ReplicaId

FIRST_LEADER_HINT_VERSION = 12

SHARE_OF_ROOM: Final = 4
"""A response takes at most this part of the free response memory, or one batch."""

SMALL_BYTES: Final = 64 * 1024

_as_fetched = _as_answer = tuple.__new__
"""Spares the Python call of a NamedTuple's own `__new__`."""


class FetchAnswer(NamedTuple):
    """The partitions of a session's response, ready to be encoded."""

    topics: dict[TopicKey, list[FetchedPartition]]
    session_id: int
    endpoints: Sequence[Endpoint]
    throttle_ms: int = 0

    def encode(self, header: RequestHeader) -> list[Buffer]:
        """Return the frame."""
        if self.throttle_ms:
            return encode_throttled(
                header.api_version, header.correlation_id, self.session_id, self.throttle_ms
            )
        return encode_fetch_response(
            header.api_version,
            header.correlation_id,
            tuple(self.topics.items()),
            session_id=self.session_id,
            endpoints=self.endpoints,
        )


def encode_session(connection: Connection, version: int, session: FetchSession, *, full: bool) -> FetchAnswer:
    """Encode all partitions, or without `full` the changed partitions, and count that for the metrics.

    A partition that had records goes to the queue's end.
    """
    entries = _all_entries(session) if full else _changed_entries(session)
    topics: dict[TopicKey, list[FetchedPartition]] = {}
    leaders: set[int] = set()
    for entry in entries:
        read = entry.read
        assert read is not None
        error_code, high_watermark, stable, start, records, diverging, aborted, end_offset, preferred = read
        if entry.partition is not None:
            traffic = entry.partition.traffic
            traffic.fetches += 1
            if error_code:
                traffic.failed_fetches += 1
            elif records and session.replica:
                traffic.replica_bytes_out += len(records)
            elif records:
                traffic.messages_out += end_offset - entry.offset
                traffic.bytes_out += len(records)
                if type(entry.partition.role) is FollowerRole:
                    traffic.follower_fetches += 1
        leader = None
        if error_code in MOVED and version >= FIRST_LEADER_HINT_VERSION:
            leader = current_leader(connection.server.broker, entry.topic, entry.index)
            if leader is not None:
                leaders.add(leader[0])
        fetched = (
            entry.index,
            error_code,
            high_watermark,
            stable,
            start,
            records,
            aborted,
            preferred,
            diverging,
            leader,
        )
        topics.setdefault(entry.topic, []).append(_as_fetched(FetchedPartition, fetched))
        entry.read = None
    endpoints = endpoints_of(connection.server.broker, leaders, connection.listener) if leaders else ()
    return _as_answer(FetchAnswer, (topics, session.session_id, endpoints, 0))


def _all_entries(session: FetchSession) -> Iterable[SessionPartition]:
    entries = session.entries.values()
    if session.session_id != NO_SESSION:
        for entry in entries:
            assert entry.read is not None
            entry.is_news(entry.read)
            _end_turn(session, entry)
    return entries


def _changed_entries(session: FetchSession) -> Sequence[SessionPartition]:
    entries = []
    for entry in tuple(session.ready):
        if entry.read is None:
            continue  # it became ready after the reading
        if entry.is_news(entry.read):
            entries.append(entry)
        _end_turn(session, entry)
    return entries


def _end_turn(session: FetchSession, entry: SessionPartition) -> None:
    """Move an entry in the queue. A dry partition leaves it, and an entry with records goes to its end.

    An entry keeps its place if its records did not fit.
    """
    assert entry.read is not None
    if entry.dry:
        session.ready.pop(entry, None)
    elif entry.read.records:
        session.ready.pop(entry, None)
        session.ready[entry] = None


def count_throttled(session: FetchSession, replicas: Replicas) -> None:
    """Count records for throttled replicas, in sync or not."""
    for entry in session.ready:
        if entry.partition is None or entry.read is None or not entry.read.records:
            continue
        listed = entry.partition.config.leader_replication_throttled_replicas
        if is_listed(listed, entry.index, replicas.broker_id):
            replicas.sent.record(len(entry.read.records))


def holds_back(
    replicas: Replicas, follower: ReplicaId, entry: SessionPartition, partition: Partition
) -> bool:
    """Return whether a throttled replica in catch-up has to wait, since the quota is used up (KIP-73)."""
    listed = partition.config.leader_replication_throttled_replicas
    if not is_listed(listed, entry.index, replicas.broker_id):
        return False
    return partition.in_sync(follower.broker_id) is False and replicas.sent.wait_s() > 0


def leaves_records(session: FetchSession, end_of: Callable[[SessionPartition, PartitionRead], int]) -> bool:
    """Return whether a partition has records beyond what was read, in its next segment.

    Waiting would not bring more of them.

    Kafka responds immediately where the position is in an older segment than the log's end.
    """
    reads = ((entry, entry.read) for entry in session.ready)
    return any(
        read is not None and bool(read.records) and read.end_offset < end_of(entry, read)
        for entry, read in reads
    )


def encode_error(header: RequestHeader, error_code: int) -> list[Buffer]:
    """Return a response without partitions, with only the error of the request or session."""
    return encode_fetch_response(header.api_version, header.correlation_id, (), error_code=error_code)


def refuse_all(header: RequestHeader, request: FetchRequest, error_code: int) -> list[Buffer]:
    """Return a response with this error for each requested partition."""
    topics = [
        (topic, [FetchedPartition(wanted[0], error_code) for wanted in partitions])
        for topic, partitions in request.topics
    ]
    return encode_fetch_response(header.api_version, header.correlation_id, topics)


def throttled_answer(
    sessions: FetchSessions, session: FetchSession, throttle_ms: int, *, full: bool
) -> FetchAnswer:
    """Return a response without partitions (KIP-219). The records are read again with the next fetch.

    A client that named all its partitions names them again, so its session ends.
    """
    for entry in session.ready:
        entry.read = None
    if not full:
        return FetchAnswer({}, session.session_id, (), throttle_ms)
    if session.session_id == NO_SESSION:
        session.close()
    else:
        sessions.end(session.session_id)
    return FetchAnswer({}, NO_SESSION, (), throttle_ms)


def room_of_response(answers: Account) -> tuple[int, bool]:
    """Return how many bytes of records a client's response may have, and whether response memory is short."""
    room, is_short = max(0, answers.limit - answers.used), answers.used >= answers.plenty
    return min(room // SHARE_OF_ROOM, SMALL_BYTES if is_short else room), is_short
