"""Takes records for a member of a share group from the partition leaders, and acknowledges them (KIP-932).

It has a share session with each leader, and at most one ShareFetch in flight in it. Acknowledgements go with the next
ShareFetch, or with the request that ends the session. Records that are not acknowledged by then are given back, and
another member gets them. A broken connection gives them back too.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raftlog.base.errors import (
    InvalidShareSessionEpoch,
    KafkaError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    from_code,
)
from raftlog.client.cluster import RETRY_S, Cluster, is_retriable
from raftlog.client.connection import Connection
from raftlog.client.errors import NotConnected
from raftlog.client.fetching import FETCH_BYTES, WholeBatch, decoded
from raftlog.client.metadata import PartitionKey
from raftlog.client.share_member import SharedPartition, ShareMember
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import Record, iter_headers
from raftlog.records.visible import visible_batches

GAP, ACCEPT, RELEASE, REJECT = range(4)
"""The types of an acknowledgement. GAP: there is no record at an offset."""
MAX_RECORDS: Final = 500
"""Records of a ShareFetch, as in Kafka's clients (max.poll.records)."""
FIRST_EPOCH, FINAL_EPOCH, MAX_EPOCH = 0, -1, 2**31 - 1
RECORD_LIMIT: Final = 1
"""The acquire mode in which max_records is exact (KIP-1206). Brokers without it deliver whole batches."""
SESSION_LOST: Final = (ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached)
_GRACE_S: Final = 30.0
"""The timeout of a ShareFetch, beyond its max wait."""
_CLOSE_S: Final = 5.0
"""The timeout of the last request of a session."""

Ack = tuple[int, int, int]
"""First offset, last offset, type."""
Acks = dict[SharedPartition, list[Ack]]


@dataclass(frozen=True, slots=True)
class ShareOptions:
    wait_ms: int = 500
    min_bytes: int = 1


class Taken(NamedTuple):
    """Records of one partition that the member holds, or an error that is not retriable."""

    at: PartitionKey
    partition: SharedPartition
    leader: int
    records: Iterator[tuple[int, int, Record]]
    """Decoded during iteration, each with its timestamp type and delivery count. Raises CorruptMessage."""
    error: KafkaError | None = None


class Lost(NamedTuple):
    """Acknowledgements that were not accepted: the records may be delivered again."""

    at: PartitionKey
    first_offset: int
    last_offset: int
    reason: str


@dataclass(slots=True)
class _Session:
    """A share session with one leader. `epoch` is that of the next request."""

    connection: Connection
    epoch: int = FIRST_EPOCH
    partitions: set[SharedPartition] = field(default_factory=set)
    pending: Acks = field(default_factory=dict)
    """Acknowledgements that the next request takes along."""
    sent: Acks | None = None
    """The acknowledgements of the request in flight; None without such a request."""
    sent_at: float = 0.0
    is_empty: bool = False
    """Whether its last response had no records."""


class ShareFetcher:
    """Takes records in the caller's thread. All work is done inside `poll` and `close`."""

    def __init__(
        self, member: ShareMember, cluster: Cluster, topics: tuple[str, ...], options: ShareOptions
    ) -> None:
        self.lost: list[Lost] = []
        """To be emptied by the caller."""
        self.first_lock_ends_at = math.inf
        """When the lock of the first records ends at the earliest, as time.monotonic() counts."""
        self._member, self._cluster, self._topics, self._options = member, cluster, topics, options
        self._names: dict[SharedPartition, str] = {}
        self._leaders: dict[SharedPartition, int] = {}
        self._sessions: dict[int, _Session] = {}
        self._retry_leaders_at = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether every leader of the assigned partitions had no records in its last response."""
        leaders = {self._leaders.get(each, -1) for each in self._member.assigned}
        return bool(leaders) and all(
            leader in self._sessions and self._sessions[leader].is_empty for leader in leaders
        )

    def acknowledge(self, taken: Taken, first_offset: int, last_offset: int, type_: int) -> None:
        """Have the next request acknowledge records. They are lost with the session that delivered them."""
        session = self._sessions.get(taken.leader)
        if session is None or taken.partition not in session.partitions:
            self._lose({taken.partition: [(first_offset, last_offset, type_)]}, "the leader changed")
            return
        acks = session.pending.setdefault(taken.partition, [])
        if acks and acks[-1][2] == type_ and acks[-1][1] + 1 == first_offset:
            first_offset = acks.pop()[0]
        acks.append((first_offset, last_offset, type_))

    def poll(self, timeout_s: float, *, most: int = 0) -> list[Taken]:
        """Return what arrives within the timeout. `most`: take no more records at once; 0 is MAX_RECORDS.

        Raise KafkaError for a group that cannot be read, Unreachable or Refused if no broker returns metadata.
        """
        self._send(most)
        found: list[Taken] = []
        for leader in self._readable(timeout_s):
            session = self._sessions[leader]
            try:
                answer = session.connection.receive()
            except OSError:
                self._end(leader, "the connection was lost")
                continue
            found += self._read(leader, session, answer)
        return found

    def close(self) -> None:
        """Send what is acknowledged, give all other records back, and end the sessions."""
        for leader, session in tuple(self._sessions.items()):
            self._finish(leader, session)

    # Sending.

    def _send(self, most: int) -> None:
        self._find_leaders()
        wanted: dict[int, set[SharedPartition]] = {}
        for each in self._member.assigned:
            if (leader := self._leaders.get(each, -1)) >= 0:
                wanted.setdefault(leader, set()).add(each)
        for leader in tuple(self._sessions.keys() - wanted.keys()):
            self._finish(leader, self._sessions[leader])
        for leader, partitions in wanted.items():
            try:
                session = self._session(leader)
                if session.sent is None:
                    self._send_fetch(session, partitions, most)
            except (OSError, NotConnected):
                self._end(leader, "the connection was lost")

    def _find_leaders(self) -> None:
        unknown = [each for each in self._member.assigned if self._leaders.get(each, -1) < 0]
        if not unknown or time.monotonic() < self._retry_leaders_at:
            return
        self._retry_leaders_at = time.monotonic() + RETRY_S
        for topic in self._cluster.metadata(self._topics).topics.values():
            if topic.id is None:
                continue
            for number, each in topic.partitions.items():
                self._names[topic.id, number] = topic.name
                self._leaders[topic.id, number] = each.leader

    def _session(self, leader: int) -> _Session:
        found = self._sessions.get(leader)
        if found is None:
            connection = self._cluster.open(leader, time.monotonic() + self._cluster.timeout_s)
            connection.set_timeout(self._options.wait_ms / 1000 + _GRACE_S)
            found = self._sessions[leader] = _Session(connection)
        return found

    def _send_fetch(self, session: _Session, partitions: set[SharedPartition], most: int) -> None:
        """Send a ShareFetch: the partitions that the session does not have, and what is acknowledged."""
        version = session.connection.version_of(ApiKey.SHARE_FETCH)
        make = request_builders(ApiKey.SHARE_FETCH, version)
        acks, session.pending = session.pending, {}
        session.sent, session.sent_at = acks, time.monotonic()
        added, forgotten = partitions - session.partitions, session.partitions - partitions
        session.partitions = set(partitions)
        message = make.ShareFetchRequest(
            group_id=self._member.group,
            member_id=self._member.id,
            share_session_epoch=session.epoch,
            max_wait=self._options.wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=FETCH_BYTES,
            max_records=min(most or MAX_RECORDS, MAX_RECORDS),
            batch_size=MAX_RECORDS,
            share_acquire_mode=RECORD_LIMIT if most else 0,
            topics=tuple(
                make.FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        make.FetchPartition(
                            partition_index=number,
                            acknowledgement_batches=_ack_batches(make, acks.get((topic_id, number), ())),
                        )
                        for number in numbers
                    ),
                )
                for topic_id, numbers in _by_topic(added | acks.keys())
            ),
            forgotten_topics_data=tuple(
                make.ForgottenTopic(topic_id=topic_id, partitions=tuple(numbers))
                for topic_id, numbers in _by_topic(forgotten)
            ),
        )
        session.connection.send(ApiKey.SHARE_FETCH, version, message)

    # Receiving.

    def _readable(self, timeout_s: float) -> list[int]:
        """Return the leaders with a response to read, after at most `timeout_s`."""
        waiting = {leader: each for leader, each in self._sessions.items() if each.sent is not None}
        if ready := [leader for leader, each in waiting.items() if each.connection.has_response()]:
            return ready
        if not waiting:
            time.sleep(min(timeout_s, RETRY_S))
            return []
        poller = select.poll()
        by_descriptor = {each.connection.fileno(): leader for leader, each in waiting.items()}
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        return [by_descriptor[descriptor] for descriptor, _ in poller.poll(timeout_s * 1000)]

    def _read(self, leader: int, session: _Session, answer: Any) -> Iterator[Taken]:
        if answer.error_code:
            error = from_code(answer.error_code, answer.error_message)
            self._end(leader, _reason(error))
            if not (error.retriable or isinstance(error, SESSION_LOST)):
                raise error
            return
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        self._note_refused(session, answer, "acknowledge_error_code", "acknowledge_error_message")
        session.is_empty = True
        for topic in answer.responses:
            for part in topic.partitions:
                partition = (topic.topic_id, part.partition_index)
                if part.error_code or part.acquired_records:
                    session.is_empty = False
                if part.acquired_records:  # after the request was sent
                    ends_at = session.sent_at + answer.acquisition_lock_timeout / 1000
                    self.first_lock_ends_at = min(self.first_lock_ends_at, ends_at)
                if (found := self._read_partition(leader, partition, part)) is not None:
                    yield found

    def _read_partition(self, leader: int, partition: SharedPartition, part: Any) -> Taken | None:
        at = self._at(partition)
        if part.error_code:
            error = from_code(part.error_code, part.error_message)
            if is_retriable(part.error_code):
                self._leaders.pop(partition, None)
                return None
            return Taken(at, partition, leader, iter(()), error)
        if not part.acquired_records:
            return None
        taken = Taken(at, partition, leader, iter(()))
        return taken._replace(records=self._records(taken, part))

    def _records(self, taken: Taken, part: Any) -> Iterator[tuple[int, int, Record]]:
        """Yield the records at the acquired offsets, and acknowledge the offsets that have none as gaps."""
        received = memoryview(part.records or b"")
        whole = [
            WholeBatch(header, received[position : position + header.length])
            for position, header in iter_headers(received)
        ]
        records = iter(decoded(visible_batches(whole, ()), part.acquired_records[0].first_offset))
        found = next(records, None)
        for span in part.acquired_records:
            next_offset = span.first_offset
            while found is not None and found[1].offset <= span.last_offset:
                kind, record = found
                if record.offset >= span.first_offset:
                    if record.offset > next_offset:
                        self.acknowledge(taken, next_offset, record.offset - 1, GAP)
                    next_offset = record.offset + 1
                    yield kind, span.delivery_count, record
                found = next(records, None)
            if next_offset <= span.last_offset:
                self.acknowledge(taken, next_offset, span.last_offset, GAP)

    def _at(self, partition: SharedPartition) -> PartitionKey:
        return self._names.get(partition, str(partition[0])), partition[1]

    def _note_refused(self, session: _Session, answer: Any, code: str, message: str) -> None:
        """Note the acknowledgements in flight that an answer refuses."""
        acks, session.sent = session.sent or {}, None
        for topic in answer.responses:
            for part in topic.partitions:
                refused = acks.get((topic.topic_id, part.partition_index), ())
                if refused and (error_code := getattr(part, code)):
                    error = from_code(error_code, getattr(part, message))
                    self._lose({(topic.topic_id, part.partition_index): refused}, _reason(error))

    def _lose(self, acks: Acks, reason: str) -> None:
        for partition, spans in acks.items():
            self.lost += [
                Lost(self._at(partition), first, last, reason) for first, last, type_ in spans if type_ != GAP
            ]

    # The end of a session.

    def _end(self, leader: int, reason: str) -> None:
        """Drop a session: its acknowledgements are lost, and the leaders are looked up again."""
        session = self._sessions.pop(leader, None)
        for each, known in tuple(self._leaders.items()):
            if known == leader:
                del self._leaders[each]
        if session is not None:
            session.connection.close()
            self._lose(session.sent or {}, reason)
            self._lose(session.pending, reason)

    def _finish(self, leader: int, session: _Session) -> None:
        """End a session with its last acknowledgements; its leader releases the rest."""
        if session.epoch == FIRST_EPOCH and session.sent is None:
            self._end(leader, "")
            return
        connection = session.connection
        try:
            connection.set_timeout(_CLOSE_S)
            version = connection.version_of(ApiKey.SHARE_ACKNOWLEDGE)
            connection.send(ApiKey.SHARE_ACKNOWLEDGE, version, self._final_request(version, session))
            if session.sent is not None:
                answer = connection.receive()  # records in it are given back with the session
                if not answer.error_code:
                    self._note_refused(session, answer, "acknowledge_error_code", "acknowledge_error_message")
            answer = connection.receive()
        except OSError:
            self._end(leader, "the connection was lost")
            return
        if answer.error_code:
            self._end(leader, _reason(from_code(answer.error_code, answer.error_message)))
            return
        session.sent, session.pending = session.pending, {}
        self._note_refused(session, answer, "error_code", "error_message")
        self._end(leader, "")

    def _final_request(self, version: int, session: _Session) -> Any:
        make = request_builders(ApiKey.SHARE_ACKNOWLEDGE, version)
        return make.ShareAcknowledgeRequest(
            group_id=self._member.group,
            member_id=self._member.id,
            share_session_epoch=FINAL_EPOCH,
            topics=tuple(
                make.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        make.AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=_ack_batches(make, session.pending[topic_id, number]),
                        )
                        for number in numbers
                    ),
                )
                for topic_id, numbers in _by_topic(session.pending)
            ),
        )


def _ack_batches(make: Any, acks: Iterable[Ack]) -> tuple[Any, ...]:
    return tuple(
        make.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(type_,))
        for first, last, type_ in sorted(acks)
    )


def _by_topic(partitions: Iterable[SharedPartition]) -> Iterable[tuple[Any, list[int]]]:
    topics: dict[Any, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return topics.items()


def _reason(error: KafkaError) -> str:
    return error.message or type(error).__name__
