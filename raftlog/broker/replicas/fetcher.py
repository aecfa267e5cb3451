"""Follows one leader broker: all partitions that it leads and we replicate, in one fetch at a time (KIP-227 sessions).

In a round, the response is appended to every log it names, then flushed once. The offsets of the next fetch prove to
the leader what is on disk here. A fetch names only what changed since the previous fetch.

If partitions come or go while a fetch waits at the leader, a second fetch follows at once. So a new leader does not
wait for its followers until the long poll ends. A response to a superseded fetch is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from raftlog.base.errors import (
    CorruptMessage,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRange,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.broker.replicas.replication_quota import ReplicationQuota, is_listed
from raftlog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from raftlog.protocol.fetch_client import FetchResponse, decode_fetch_response, encode_fetch_request
from raftlog.replication.follower_progress import NEVER
from raftlog.replication.follower_role import READERS_S, FollowerRole

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig
    from raftlog.broker.links.peer_channel import PeerChannel
    from raftlog.replication.partition import Partition

FETCH_VERSION = 18
MIN_BACKOFF = 0.02
"""Seconds before the first retry, of a connection or of one partition; doubles up to replica.fetch.backoff.ms."""
REFUSALS_SAID_FROM = 0.1
"""Seconds of backoff from which a partition's errors are logged, since a new leader may be a little late."""
REQUESTS_UNDER_WAY = 2
HELD_BACK_S = 0.5
"""The longest interval, in seconds, in which a throttled replica checks whether it may continue."""
SESSION_ERRORS = frozenset(
    {FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code}
)

log = get_logger(__name__)

Key = tuple[UUID, int]

_new = tuple.__new__
"""Spares the Python call of a NamedTuple's own `__new__`."""


class FetcherHost(Protocol):
    """The callbacks of a fetcher to its broker."""

    quota: ReplicationQuota
    """The rate at which throttled replicas may fetch as long as they catch up."""

    def broker_epoch(self) -> int: ...

    def connect(self, leader: int, *, on_lost: Callable[[Exception | None], None]) -> Awaitable[PeerChannel]:
        """Open an authenticated connection to another broker. Raises OSError or KafkaError."""

    def leader_lost(self, leader: int) -> None:
        """Handle the end of the connection to a leader, if this broker did not close it."""

    def flush(self, then: Callable[[], None]) -> bool:
        """Call `then` once all that was appended is durable; False: it is already."""


class FollowedPartition:
    """One partition as this fetcher requests it. `asked_*` is the state that the leader's session holds of it."""

    __slots__ = (
        "asked_epoch",
        "asked_in",
        "asked_offset",
        "backoff",
        "heard_at",
        "in_session",
        "key",
        "partition",
        "paused",
    )

    def __init__(self, key: Key, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.asked_offset = -1
        self.asked_epoch = -1
        self.asked_in = 0
        self.heard_at = NEVER
        """When the leader last served it, except by the answers that had no news of it."""
        self.in_session = False
        self.paused: asyncio.TimerHandle | None = None
        self.backoff = MIN_BACKOFF


@dataclass(slots=True)
class _Session:
    """The epoch of the session with the leader. Epoch 0 begins a new session."""

    session_id: int = 0
    epoch: int = 0

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1


class LeaderFetcher:
    """The follower's end of one leader broker; lives as long as there is something to follow."""

    def __init__(
        self, leader: int, *, peers: FetcherHost, config: NodeConfig, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.leader = leader
        self._peers = peers
        self._config = config
        self._loop = loop
        self._followed: dict[Key, FollowedPartition] = {}
        self._changed: dict[FollowedPartition, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._session = _Session()
        self._under_way: deque[int] = deque()
        self._last_request = 0
        self._urgent = False
        self._advance_due = False
        self._flushing = False
        self._sessionless = False
        self._channel: PeerChannel | None = None
        self._error: Exception | None = None
        self._hung_up = False
        self._event: asyncio.Future[None] | None = None
        self._answered_at = 0.0
        self._heard_at, self._answered = NEVER, 0
        """When the last answer came, and the number of its request."""
        # A response is due after the wait. A connection that was cut may stay silent long after the network has
        # recovered.
        due_ms = config.replica_fetch_wait_max_ms + config.broker_session_timeout_ms
        self._silence_most = min(config.replica_socket_timeout_ms, due_ms) / 1000
        self._backoff_most = config.replica_fetch_backoff_ms / 1000
        self._task: asyncio.Task[None] = loop.create_task(self._run())
        self.fetches = 0
        self.answers = 0

    # -- what to follow -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, partition: Partition) -> None:
        """Fetch this partition from now on, or from its new position and leader epoch."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            followed = self._followed[key] = FollowedPartition(key, partition)
        self._resume(followed)
        self._hurry()

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching it; no effect if it is not followed."""
        followed = self._followed.pop((partition.topic_id, partition.index), None)
        if followed is None:
            return
        self._leave_session(followed)
        if followed.paused is not None:
            followed.paused.cancel()
        self._hurry()

    def fetch_soon(self, partition: Partition) -> None:
        """Fetch a partition once more; no effect if it is not followed, or is paused."""
        followed = self._followed.get((partition.topic_id, partition.index))
        if followed is not None and followed.paused is None:
            self._ask_again(followed)
            self._hurry()

    def heard_at(self, partition: Partition) -> float:
        """Return when the leader last served a partition: by records, or by an answer without news of it."""
        followed = self._followed.get((partition.topic_id, partition.index))
        return NEVER if followed is None else self._note_heard(followed)

    def _note_heard(self, followed: FollowedPartition) -> float:
        if followed.in_session and followed.asked_in <= self._answered:
            followed.heard_at = self._heard_at
        return followed.heard_at

    def leader_changed(self) -> None:
        """Retry now, since the leader's registration changed (it is back, or moved)."""
        self._signal()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for followed in self._followed.values():
            if followed.paused is not None:
                followed.paused.cancel()

    def reconnect(self) -> None:
        """Begin again on a new connection."""
        if self._channel is not None:
            self._hung_up = True
            self._channel.close()

    def _hurry(self) -> None:
        """Fetch soon, once for all changes of this loop iteration, even behind a fetch that waits."""
        self._urgent = True
        if not self._advance_due:
            self._advance_due = True
            self._loop.call_soon(self._advance)

    def _leave_session(self, followed: FollowedPartition) -> None:
        self._changed.pop(followed, None)
        if followed.in_session:
            self._note_heard(followed)
            followed.in_session = False
            self._forgotten[followed.key] = None

    def _pause(self, followed: FollowedPartition) -> None:
        """Skip a partition for a while: its leader does not serve it (yet), or its disk is full."""
        self._leave_session(followed)
        if followed.paused is None:
            followed.paused = self._loop.call_later(followed.backoff, self._resume_paused, followed)
            followed.backoff = min(2 * followed.backoff, self._backoff_most)

    def _is_held_back(self, followed: FollowedPartition, fetched: FetchedPartition, count: int) -> bool:
        """KIP-73: count the bytes of a throttled replica. It pauses while it catches up and the quota is used up."""
        quota, partition = self._peers.quota, followed.partition
        listed = partition.config.follower_replication_throttled_replicas
        if not is_listed(listed, partition.index, self._config.node_id):
            return False
        quota.record(count)
        if quota.wait_s() <= 0 or fetched.high_watermark <= partition.log_end_offset:
            return False
        self._leave_session(followed)
        if followed.paused is None:
            self._hold_back(followed)
        return True

    def _hold_back(self, followed: FollowedPartition) -> None:
        """Until the quota allows more; the rate may be raised meanwhile."""
        wait_s = self._peers.quota.wait_s()
        if wait_s > 0:
            followed.paused = self._loop.call_later(min(wait_s, HELD_BACK_S), self._hold_back, followed)
        else:
            self._resume_paused(followed)

    def _resume_paused(self, followed: FollowedPartition) -> None:
        followed.paused = None
        self._resume(followed)
        self._hurry()

    def _resume(self, followed: FollowedPartition) -> None:
        if followed.paused is not None:
            followed.paused.cancel()
            followed.paused = None
        self._ask_again(followed)

    def _ask_again(self, followed: FollowedPartition) -> None:
        self._note_heard(followed)  # before it counts only with the next answer
        self._changed[followed] = None

    # -- the connection -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = MIN_BACKOFF
        while True:
            answers = self.answers
            try:
                self._error = None
                self._hung_up = False
                self._channel = await self._peers.connect(self.leader, on_lost=self._lost)
                await self._fetch_on(self._channel)
            except (OSError, KafkaError, TimeoutError) as error:
                log.info("leader_unreachable", leader=self.leader, reason=repr(error))
            except Exception:
                log.exception("fetcher_failed", leader=self.leader)
            finally:
                self._drop_channel()
            if self.answers != answers:
                backoff = MIN_BACKOFF
            await self._wait(backoff)
            backoff = min(2 * backoff, self._backoff_most)

    def _drop_channel(self) -> None:
        self._hung_up = True
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _lost(self, error: Exception | None) -> None:
        self._error = error or ConnectionResetError("the leader closed the connection")
        if not self._hung_up:
            self._peers.leader_lost(self.leader)
        self._signal()

    def _begin_session(self) -> None:
        """The next fetch names everything."""
        self._session = _Session()
        self._under_way.clear()
        self._forgotten.clear()
        for followed in self._followed.values():
            self._note_heard(followed)
            followed.in_session = False
            if followed.paused is None:
                self._changed[followed] = None

    # -- rounds -------------------------------------------------------------------------------------------------

    async def _fetch_on(self, channel: PeerChannel) -> None:
        """Wait until the connection ends. Each response triggers the next fetch."""
        channel.on_frame = self._take_answer
        self._sessionless = False
        self._begin_session()
        self._answered_at = self._loop.time()
        self._advance()
        while self._error is None:
            await self._wait(self._silence_most)
            self._check_silence()
        raise self._error

    def _advance(self) -> None:
        """Send the next fetch if it is time and everything before its offsets is on disk, otherwise when it is."""
        self._advance_due = False
        channel = self._channel
        if channel is None or self._error is not None or self._flushing or not self._may_send():
            return
        self._flushing = self._make_durable()
        if not self._flushing:
            self._send(channel)

    def _flushed(self) -> None:
        self._flushing = False
        self._advance()

    def _may_send(self) -> bool:
        """Return whether a fetch may be sent.

        There is one at a time, or a second within a session while the first may wait long.
        """
        if not self._under_way:
            return True
        return self._urgent and bool(self._session.session_id) and len(self._under_way) < REQUESTS_UNDER_WAY

    def _make_durable(self) -> bool:
        """Have `_flushed` called when everything is on disk; return False if it is already.

        A fetch offset promises that everything before it is durable here.
        """
        dirty = False
        for followed in self._changed:
            if _is_dirty(followed.partition):
                followed.partition.host.request_flush(followed.partition)
                dirty = True
        return dirty and self._peers.flush(self._flushed)

    def _check_silence(self) -> None:
        silent = self._loop.time() - self._answered_at
        if self._under_way and silent >= self._silence_most:
            raise TimeoutError(f"no response for {silent:.1f} s")

    async def _wait(self, seconds: float) -> None:
        """Wait for an event, at most `seconds`."""
        self._event = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._signal)
        try:
            await self._event
        finally:
            timer.cancel()
            self._event = None

    def _signal(self) -> None:
        if self._event is not None and not self._event.done():
            self._event.set_result(None)

    def _send(self, channel: PeerChannel) -> None:
        """Send a fetch for what changed.

        Send no fetch if there are no partitions to follow, or if no partition changed since a fetch that still waits.
        """
        self._urgent = False
        config, session = self._config, self._session
        if (self._under_way or not session.session_id) and not self._changed and not self._forgotten:
            return
        self._last_request += 1
        request = FetchRequest()
        request.topics = self._questions(request.high_watermarks)
        request.forgotten = self._take_forgotten()
        if not session.session_id and not request.topics:
            return
        request.replica_id = config.node_id
        request.replica_epoch = self._peers.broker_epoch()
        # The response that opens the session comes immediately, since a second fetch may follow only within a session.
        waits = session.session_id or self._sessionless
        request.max_wait_ms = config.replica_fetch_wait_max_ms if waits else 0
        request.min_bytes = config.replica_fetch_min_bytes
        request.max_bytes = config.replica_fetch_response_max_bytes
        request.session_id, request.session_epoch = session.session_id, session.epoch
        if session.session_id:
            session.advance()
        self._under_way.append(self._last_request)
        self.fetches += 1
        channel.send(encode_fetch_request(FETCH_VERSION, self._last_request, request))

    def _questions(
        self, high_watermarks: dict[tuple[str | UUID, int], int]
    ) -> list[tuple[str | UUID, list[FetchPartition]]]:
        """Return the partitions that changed. Where consumers read here, add the high watermark that they see."""
        changed, self._changed = self._changed, {}
        by_topic: dict[str | UUID, list[FetchPartition]] = {}
        has_readers_since = self._loop.time() - READERS_S
        most = self._config.replica_fetch_max_bytes
        for followed in changed:
            role = followed.partition.role
            if type(role) is not FollowerRole:
                continue  # the metadata has not arrived yet
            topic_id, index = followed.key
            if role.read_at > has_readers_since or followed.partition.waiting_consumers:
                high_watermarks[followed.key] = followed.partition.high_watermark
            offset, last_epoch, log_start = role.fetch_position()
            followed.asked_in = self._last_request
            followed.asked_epoch, followed.asked_offset = role.leader_epoch, offset
            followed.in_session = True
            if self._forgotten:
                self._forgotten.pop(followed.key, None)
            fields = (index, role.leader_epoch, offset, last_epoch, log_start, most)
            question = _new(FetchPartition, fields)
            by_topic.setdefault(topic_id, []).append(question)
        return list(by_topic.items())

    def _take_forgotten(self) -> list[tuple[str | UUID, tuple[int, ...]]]:
        if not self._forgotten:
            return []
        forgotten, self._forgotten = self._forgotten, {}
        by_topic: dict[str | UUID, list[int]] = {}
        for topic_id, index in forgotten:
            by_topic.setdefault(topic_id, []).append(index)
        return [(topic_id, tuple(indexes)) for topic_id, indexes in by_topic.items()]

    # -- answers ------------------------------------------------------------------------------------------------

    def _take_answer(self, frame: memoryview) -> None:
        """Append the records inside the call that received them, since the frame is gone afterwards."""
        self._answered_at = self._loop.time()
        try:
            self._take_response(decode_fetch_response(frame))
        except KafkaError as error:
            self._error = error
            self._signal()
        self._advance()

    def _take_response(self, response: FetchResponse) -> None:
        if not self._under_way or response.correlation_id != self._under_way[0]:
            return  # requested in a session that has ended
        request = self._under_way.popleft()
        self.answers += 1
        if response.error_code in SESSION_ERRORS:
            self._begin_session()
            return
        if response.error_code:
            raise from_code(response.error_code)
        if not self._session.session_id and response.session_id:
            self._session = _Session(response.session_id, 1)
        for topic_id, results in response.topics:
            for fetched in results:
                followed = self._followed.get((topic_id, fetched.partition))
                if followed is not None and followed.in_session and followed.asked_in <= request:
                    self._apply_if_current(followed, fetched)
        self._heard_at, self._answered = self._answered_at, request
        if not response.session_id:
            self._sessionless = True
            self._begin_session()  # a leader without a session for us gets a full fetch each time

    def _apply_if_current(self, followed: FollowedPartition, fetched: FetchedPartition) -> None:
        """Apply one partition's part of a response: append, truncate, start over, or skip the partition for a while."""
        partition = followed.partition
        role = partition.role
        if type(role) is not FollowerRole:
            return
        if role.leader_epoch != followed.asked_epoch or partition.log.log_end_offset != followed.asked_offset:
            self._ask_again(followed)  # requested with the previous position
            return
        try:
            self._apply(followed, role, fetched)
            followed.heard_at = self._answered_at
        except OSError as error:
            partition.storage_failed(error)
            self._pause(followed)
        except KafkaError as error:
            if followed.backoff >= REFUSALS_SAID_FROM:
                # a leader checks its log when it gets the same fetch again and again
                event = "leader_batch_refused" if isinstance(error, CorruptMessage) else "fetch_refused"
                partition.host.log_event(event, partition, offset=followed.asked_offset, reason=str(error))
            self._pause(followed)

    def _apply(self, followed: FollowedPartition, role: FollowerRole, fetched: FetchedPartition) -> None:
        epoch = followed.asked_epoch
        if fetched.error_code == OffsetOutOfRange.code and fetched.log_start_offset >= 0:
            role.restart_at(fetched.log_start_offset, leader_epoch=epoch)
        elif fetched.error_code:
            raise from_code(fetched.error_code)
        elif fetched.diverging_epoch is not None:
            role.truncate_to(
                fetched.diverging_epoch, leader_epoch=epoch, log_start_offset=fetched.log_start_offset
            )
        else:
            records, log = fetched.records or b"", followed.partition.log
            log_start_before = log.log_start_offset
            role.append_fetched(
                memoryview(records),
                leader_epoch=epoch,
                high_watermark=fetched.high_watermark,
                log_start_offset=fetched.log_start_offset,
            )
            followed.backoff = MIN_BACKOFF
            if not records and log.log_start_offset == log_start_before:
                return
            if records and log.log_end_offset == followed.asked_offset:
                raise CorruptMessage("the leader sent an incomplete batch")
            if self._peers.quota.is_limited and self._is_held_back(followed, fetched, len(records)):
                return
        self._changed[followed] = None


def _is_dirty(partition: Partition) -> bool:
    return (
        type(partition.role) is FollowerRole and partition.durable_end_offset < partition.log.log_end_offset
    )
