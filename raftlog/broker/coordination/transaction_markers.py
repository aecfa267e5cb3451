"""Sends transaction outcomes to the partition leaders, until every partition has the marker on record (KIP-98).

Ordering law: an outcome comes here when it is committed. Its coordinator is notified once every partition has
committed the marker or was deleted. This state is not durable. A new coordinator sends all open outcomes again, and a
marker that is written twice has no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from raftlog.base.env import raise_failure
from raftlog.base.errors import NONE, InvalidProducerEpoch, KafkaError, RequestTimedOut
from raftlog.base.log import get_logger
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.broker.coordination.transaction_deadlines import MARKERS_ANSWERED_S
from raftlog.broker.coordination.transaction_shard import TransactionCoordinatorShard
from raftlog.broker.links.broker_links import LinkKey
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.partition_lookup import by_topic
from raftlog.coordinator.transactions.transaction_requests import SendMarkers
from raftlog.protocol.message_builders import request_builders

API_KEY: Final = 27
VERSION: Final = 2

MAX_MARKERS_PER_REQUEST: Final = 500
"""Transactions in one request."""

MAX_PARTITIONS_PER_REQUEST: Final = 2_000
"""Markers in one request, of all its transactions: each end takes some milliseconds to build or read it."""

DELETED_AFTER_S: Final = 2.0
"""A partition that the metadata lacks may be too new for it. After this many seconds it counts as deleted."""

RETRY_S: Final = 0.5
"""How often to retry partitions without a leader, if there is no new metadata."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0

log = get_logger(__name__)


class TransactionOutcome:
    """One transaction that was decided, and the partitions without its marker."""

    __slots__ = ("began_at", "markers", "shard", "unanswered", "unwritten")

    def __init__(self, shard: TransactionCoordinatorShard, markers: SendMarkers, began_at: float) -> None:
        self.shard = shard
        self.markers = markers
        self.began_at = began_at
        self.unwritten = set(markers.partitions)
        self.unanswered: dict[TopicPartition, bool] = {}
        """Partitions with an unanswered request, and whether it was sent on the slow link.

        A lost request may still take effect until its link is used again. So a partition stays on its link, or the old
        request could take effect after the next transaction has begun.
        """


OutcomePartitions = tuple[TransactionOutcome, list[TopicPartition]]


class MarkerSender:
    """One request at a time on each link, with all outcomes queued by then."""

    def __init__(self, broker: LocalBroker, written: Callable[[str], None]) -> None:
        """`written(transactional_id)` is called when a coordinator was notified that all markers are written."""
        self._broker = broker
        self._written = written
        self._queues: dict[LinkKey, dict[TransactionOutcome, list[TopicPartition]]] = {}
        self._pauses: dict[LinkKey, float] = {}
        self._tasks: dict[LinkKey, asyncio.Task[None]] = {}
        self._slow: set[TopicPartition] = set()
        """Partitions that did not commit their last marker in time."""
        self._timers: set[asyncio.TimerHandle] = set()
        self._leaderless: dict[TransactionOutcome, list[TopicPartition]] = {}
        self._retry_timer: asyncio.TimerHandle | None = None
        self._open = 0

    def __len__(self) -> int:
        """Return the number of outcomes that are not written everywhere."""
        return self._open

    def send(self, shard: TransactionCoordinatorShard, markers: SendMarkers) -> None:
        """Send an outcome; the shard's coordinator is notified when that is done."""
        self._open += 1
        loop = asyncio.get_running_loop()
        # Later, since the caller is in the midst of a decision.
        loop.call_soon(self._begin, TransactionOutcome(shard, markers, loop.time()))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for timer in self._timers:
            timer.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()

    def on_metadata(self) -> None:
        """Retry, since some partition may have a leader again."""
        waiting, self._leaderless = self._leaderless, {}
        for outcome, partitions in waiting.items():
            self._route(outcome, partitions)

    def _wait_for_metadata(self, outcome: TransactionOutcome, partitions: list[TopicPartition]) -> None:
        """Wait for metadata that names a leader. The next metadata image shows whether a partition was deleted."""
        self._leaderless.setdefault(outcome, []).extend(partitions)
        if self._retry_timer is None:
            self._retry_timer = asyncio.get_running_loop().call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.on_metadata()

    def _begin(self, outcome: TransactionOutcome) -> None:
        if outcome.unwritten:
            self._route(outcome, sorted(outcome.unwritten))
        else:
            self._finish(outcome)

    def _route(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> None:
        """Queue partitions for their leaders, except for deleted partitions."""
        if outcome.shard.is_over:
            self._abandon(outcome)
            return
        image = self._broker.image()
        is_old = asyncio.get_running_loop().time() - outcome.began_at >= DELETED_AFTER_S
        leaderless: list[TopicPartition] = []
        gone: list[TopicPartition] = []
        for each in partitions:
            state = image.partition(each.topic, each.partition)
            if state is None and is_old:
                gone.append(each)
            elif state is None or state.leader == NO_BROKER:
                leaderless.append(each)
            else:
                is_slow = outcome.unanswered.get(each, each in self._slow)
                self._queue(LinkKey(state.leader, is_slow), outcome).append(each)
        if leaderless:
            self._wait_for_metadata(outcome, leaderless)
        self._slow.difference_update(gone)
        self._markers_written(outcome, gone)

    def _queue(self, link: LinkKey, outcome: TransactionOutcome) -> list[TopicPartition]:
        queue = self._queues.setdefault(link, {})
        if link not in self._tasks:
            self._tasks[link] = task = asyncio.get_running_loop().create_task(self._work_off(link))
            task.add_done_callback(raise_failure)
        return queue.setdefault(outcome, [])

    async def _work_off(self, link: LinkKey) -> None:
        queue = self._queues[link]
        try:
            while queue:
                batch = [entry for entry in _take(queue) if not self._is_void(entry[0])]
                if batch:
                    await self._send_batch(link, batch)
        finally:
            del self._tasks[link]

    def _is_void(self, outcome: TransactionOutcome) -> bool:
        if outcome.shard.is_over:
            self._abandon(outcome)
            return True
        return False

    async def _send_batch(self, link: LinkKey, batch: list[OutcomePartitions]) -> None:
        try:
            response = await self._broker.links.ask(
                link.broker_id,
                API_KEY,
                VERSION,
                _request(batch),
                timeout_s=MARKERS_ANSWERED_S,
                is_slow=link.is_slow,
            )
        except KafkaError as error:
            for outcome, partitions in batch:
                outcome.unanswered.update(dict.fromkeys(partitions, link.is_slow))
            self._try_later(link, batch)
            log.info("markers_not_sent", leader=link.broker_id, transactions=len(batch), reason=str(error))
            return
        codes = [_codes(each) for each in response.markers]
        failed: list[OutcomePartitions] = []

        def record(entry: OutcomePartitions, answered: Any) -> None:
            again = self._record_codes(*entry, answered)
            if again:
                failed.append((entry[0], again))

        await each_part(self._broker.env, zip(batch, codes, strict=False), lambda row: record(*row))
        failed += batch[len(codes) :]
        if failed:
            self._try_later(link, failed)
        else:
            self._pauses.pop(link, None)

    def _record_codes(
        self, outcome: TransactionOutcome, partitions: list[TopicPartition], codes: dict[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Note which partitions have the marker, and return the partitions to retry."""
        again: list[TopicPartition] = []
        done: list[TopicPartition] = []
        for each in partitions:
            outcome.unanswered.pop(each, None)
            code = codes.get(each)
            if code == InvalidProducerEpoch.code:
                # The log is past this transaction: `ProducerState.check_marker` raises this only if none is open.
                log.warning("marker_outdated", partition=str(each), **_facts(outcome))
            if code == RequestTimedOut.code:
                self._slow.add(each)
            else:
                self._slow.discard(each)
            (done if code in (NONE, InvalidProducerEpoch.code) else again).append(each)
        self._markers_written(outcome, done)
        return again

    def _markers_written(self, outcome: TransactionOutcome, partitions: list[TopicPartition]) -> None:
        if partitions and outcome.unwritten:
            outcome.unwritten.difference_update(partitions)
            if not outcome.unwritten:
                self._finish(outcome)

    def _finish(self, outcome: TransactionOutcome) -> None:
        self._open -= 1
        shard, markers = outcome.shard, outcome.markers
        if not shard.is_over and shard.coordinator is not None:
            now_ms = self._broker.env.ages.latest_ms()
            shard.coordinator.markers_written(markers.transactional_id, markers.producer, now_ms=now_ms)
            self._written(markers.transactional_id)

    def _abandon(self, outcome: TransactionOutcome) -> None:
        """Stop: another broker coordinates the id now, and sends its outcome."""
        if outcome.unwritten:
            outcome.unwritten.clear()
            self._open -= 1

    def _try_later(self, link: LinkKey, batch: list[OutcomePartitions]) -> None:
        pause = self._pauses.get(link, FIRST_PAUSE_S)
        self._pauses[link] = min(2 * pause, LONGEST_PAUSE_S)
        loop = asyncio.get_running_loop()

        def again() -> None:
            self._timers.discard(timer)
            for outcome, partitions in batch:
                self._route(outcome, partitions)

        timer = loop.call_later(pause, again)
        self._timers.add(timer)


def _facts(outcome: TransactionOutcome) -> dict[str, object]:
    markers = outcome.markers
    return {
        "transactional_id": markers.transactional_id,
        "producer_id": markers.producer.producer_id,
        "producer_epoch": markers.producer.epoch,
    }


def _take(queue: dict[TransactionOutcome, list[TopicPartition]]) -> list[OutcomePartitions]:
    """Take the outcomes for one request; the rest of a transaction stays first in the queue."""
    batch: list[OutcomePartitions] = []
    left = MAX_PARTITIONS_PER_REQUEST
    while queue and left and len(batch) < MAX_MARKERS_PER_REQUEST:
        outcome, partitions = next(iter(queue.items()))
        batch.append((outcome, partitions[:left]))
        if len(partitions) > left:
            queue[outcome] = partitions[left:]
        else:
            del queue[outcome]
        left -= len(batch[-1][1])
    return batch


def _request(batch: list[OutcomePartitions]) -> Any:
    make = request_builders(API_KEY, VERSION)
    return make.WriteTxnMarkersRequest(
        markers=tuple(
            make.WritableTxnMarker(
                producer_id=outcome.markers.producer.producer_id,
                producer_epoch=outcome.markers.producer.epoch,
                transaction_result=outcome.markers.commit,
                topics=tuple(
                    make.WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(indexes))
                    for topic, indexes in by_topic(partitions).items()
                ),
                coordinator_epoch=outcome.shard.leader_epoch,
                transaction_version=outcome.markers.client_version.value,
            )
            for outcome, partitions in batch
        )
    )


def _codes(result: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in result.topics
        for each in topic.partitions
    }
