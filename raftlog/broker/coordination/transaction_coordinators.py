"""This broker's transaction coordinators: one for each partition of `__transaction_state` that it leads.

Request handlers build on it; it does not know the wire protocol. The marker sender writes outcomes to the partitions.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import ConcurrentTransactions
from raftlog.base.recurring_failures import Failure
from raftlog.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.coordination.shards import CoordinatorShards
from raftlog.broker.coordination.transaction_markers import MarkerSender
from raftlog.broker.coordination.transaction_shard import TransactionCoordinatorShard
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactions.transaction import (
    RECORDED,
    ProducerIdAndEpoch,
    Transaction,
    check_transactional_id,
)
from raftlog.coordinator.transactions.transaction_coordinator import (
    IDS_PER_SWEEP,
    OutcomeCounts,
    TransactionCapacity,
    TransactionCoordinator,
)
from raftlog.coordinator.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    VerifyPartitions,
)
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from raftlog.broker.coordination.hanging_transactions import TransactionSurvey

TICK_S: Final = 0.5
"""The maximum delay between a transaction's timeout and its abort, in seconds."""

SOON_S: Final = 0.05
"""Seconds until the next tick, when this tick had more work than its limit."""

MARKERS_AWAITED_S: Final = 0.1
"""How long a client's request waits for the markers of the previous transaction, in seconds. Usually they take
milliseconds. A client that gets CONCURRENT_TRANSACTIONS retries only after its backoff: KafkaJS after 300 ms,
kafka-python after 100 ms."""


class TransactionCoordinators:
    """The transaction coordinators of one broker. Client requests fail with KafkaErrors, mostly retriable."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._shards = CoordinatorShards(broker, TRANSACTION_STATE_TOPIC, self._new_shard)
        self.markers = MarkerSender(broker, self._markers_written)
        self.ended = OutcomeCounts()
        """The transactions that ended here; for the metrics."""
        self._awaiting: dict[str, list[asyncio.Future[None]]] = {}
        """The requests that wait for its markers, by transactional id."""
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0

    # -- the metadata and time -----------------------------------------------------------------------------

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Begin to coordinate partitions that this broker now leads, and stop for partitions that it no longer leads.

        Called after the replicas have applied the image.
        """
        self._shards.on_metadata(old, new)
        if new.topics is not old.topics:
            self.markers.on_metadata()
        if len(self._shards) and self._timer is None:
            self._schedule_tick()

    async def close(self) -> None:
        """Complete all pending requests with NOT_COORDINATOR and stop."""
        if self._timer is not None:
            self._timer.cancel()
        self._shards.close()
        self.markers.close()

    def __len__(self) -> int:
        """Return the number of transactional ids that this broker coordinates."""
        return sum(map(len, self._active()))

    @property
    def requests_awaiting_markers(self) -> int:
        return sum(map(len, self._awaiting.values()))

    def failures(self) -> list[Failure]:
        """Return the errors of single ids."""
        return [failure for each in self._active() for failure in each.failures]

    def states(self) -> dict[str, int]:
        """Return the number of ids in each state, by Kafka's names."""
        censuses = [each.counts.states for each in self._active()]
        return {state.value: sum(each[state] for each in censuses) for state in RECORDED}

    def oldest_open_ms(self) -> int | None:
        """Return when the oldest open or ending transaction began, by the wall clock, or None without any."""
        oldest = (min(each.counts.open_since.values()) for each in self._active() if each.counts.open_since)
        return min(oldest, default=None)

    def survey(self) -> TransactionSurvey:
        """Return a survey of the whole cluster's transactions. Its module is imported at its first use."""
        from raftlog.broker.coordination.hanging_transactions import TransactionSurvey

        return TransactionSurvey(self._broker)

    def _new_shard(self, index: int, leader_epoch: int) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(
            (index, leader_epoch),
            broker=self._broker,
            find=self._shards.replica,
            send=self.markers.send,
            room=TransactionCapacity(self._may_add, self._may_open),
            ended=self.ended,
        )

    def _may_add(self) -> bool:
        return len(self) < self._broker.config.raftlog_transaction_max_ids

    def _may_open(self, partitions: int) -> bool:
        in_use = sum(each.counts.partitions for each in self._active())
        return in_use + partitions <= self._broker.config.raftlog_transaction_max_partitions

    def _active(self) -> list[TransactionCoordinator]:
        return [each.coordinator for each in self._shards.all() if each.coordinator and not each.is_over]

    def _schedule_tick(self, after_s: float = TICK_S) -> None:
        self._timer = asyncio.get_running_loop().call_later(after_s, self._tick)

    def _tick(self) -> None:
        at = self._shards.moment()
        by_age = Moment(at.now, self._broker.env.ages.now_ms())
        ends = sweeps = IDS_PER_SWEEP
        coordinators = self._active()
        self._ticks += 1
        first = self._ticks % max(
            len(coordinators), 1
        )  # an id that cannot be written must not starve the others
        for coordinator in coordinators[first:] + coordinators[:first]:
            ends -= coordinator.tick(at, most=ends)
            sweeps -= coordinator.sweep(by_age, most=sweeps)
        self._schedule_tick(TICK_S if ends else SOON_S)

    # -- where an id is ------------------------------------------------------------------------------------

    async def find(self, transactional_id: str) -> int:
        """Return the broker that coordinates an id. Raises CoordinatorNotAvailable, InvalidRequest."""
        check_transactional_id(transactional_id)
        return await self._shards.find(transactional_id)

    def _coordinator(self, transactional_id: str) -> TransactionCoordinator:
        """Raises NotCoordinator, CoordinatorLoadInProgress, InvalidRequest."""
        check_transactional_id(transactional_id)
        coordinator = self._shards.of(transactional_id).coordinator
        assert coordinator is not None
        return coordinator

    # -- requests ------------------------------------------------------------------------------------------

    async def init_producer(self, request: InitProducerId) -> ProducerIdAndEpoch:
        """Return the producer id and epoch to use from now on."""
        assert self._broker.producer_ids is not None, "the broker server provides it"
        self._coordinator(request.transactional_id)
        await self._broker.producer_ids.prepare()
        producer: ProducerIdAndEpoch = await self._change(TransactionCoordinator.init_producer_id, request)
        return producer

    async def add_partitions(self, request: AddPartitions) -> None:
        """Add partitions to a client's transaction."""
        await self._change(TransactionCoordinator.add_partitions, request)

    async def add_partitions_for_broker(self, request: AddPartitions, *, within_s: float) -> None:
        """Add partitions for clients of another broker. Raises CoordinatorNotAvailable after the timeout.

        The broker then retries, to learn whether they were added. This does not wait for markers, since other clients
        of the broker wait for the response too.
        """
        await self._ask(TransactionCoordinator.add_partitions, request, within_s=within_s)

    async def end(self, request: EndTransaction) -> ProducerIdAndEpoch:
        """Return the producer id and epoch for the next transaction."""
        producer: ProducerIdAndEpoch = await self._change(TransactionCoordinator.end_transaction, request)
        return producer

    async def _change(self, call: Any, request: Any) -> Any:
        """Send a request to the id's coordinator; retry once if the last transaction ends within MARKERS_AWAITED_S."""
        try:
            return await self._ask(call, request)
        except ConcurrentTransactions:
            if not await self._has_ended(request.transactional_id):
                raise
        return await self._ask(call, request)

    async def _has_ended(self, transactional_id: str) -> bool:
        """Return whether the markers of a transaction were all written, after a moment at most."""
        if not self._coordinator(transactional_id).is_ending(transactional_id):
            return True
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        waiting = self._awaiting.setdefault(transactional_id, [])
        waiting.append(ended)
        timer = loop.call_later(MARKERS_AWAITED_S, ended.cancel)
        try:
            await asyncio.wait([ended])
        finally:
            timer.cancel()
            waiting.remove(ended)
            if not waiting and self._awaiting.get(transactional_id) is waiting:
                del self._awaiting[transactional_id]
        return not ended.cancelled()

    def _markers_written(self, transactional_id: str) -> None:
        for each in self._awaiting.get(transactional_id, ()):
            if not each.done():
                each.set_result(None)

    async def _ask(self, call: Any, request: Any, *, within_s: float | None = None) -> Any:
        coordinator = self._coordinator(request.transactional_id)
        at = self._shards.moment()
        return await self._shards.ask(
            lambda answer: call(coordinator, request, answer, at=at), within_s=within_s
        )

    async def verify(
        self, request: VerifyPartitions, *, within_s: float | None = None
    ) -> frozenset[TopicPartition]:
        """Return the partitions that are not part of the open transaction of the request's producer."""
        coordinator = self._coordinator(request.transactional_id)
        missing: frozenset[TopicPartition] = await self._shards.ask(
            lambda answer: coordinator.verify_partitions(request, answer), within_s=within_s
        )
        return missing

    async def read(self, transactional_id: str) -> Transaction:
        """Return the committed state of an id."""
        coordinator = self._coordinator(transactional_id)
        found: Transaction = await self._shards.ask(lambda answer: coordinator.read(transactional_id, answer))
        return found

    async def read_all(self, *, wholly: bool = False) -> list[Transaction]:
        """Return all ids that this broker coordinates. Raises as `CoordinatorShards.check_loaded` does."""
        self._shards.check_loaded(wholly=wholly)
        found: list[Transaction] = []
        for coordinator in self._active():
            ids = coordinator.transactional_ids()
            found += await each_part(self._broker.env, ids, partial(self._read_of, coordinator))
        return [each for each in found if each.exists]

    async def _read_of(self, coordinator: TransactionCoordinator, transactional_id: str) -> Transaction:
        found: Transaction = await self._shards.ask(lambda answer: coordinator.read(transactional_id, answer))
        return found
