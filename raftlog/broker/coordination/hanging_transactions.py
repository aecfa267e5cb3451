"""Lists the transactions of the whole cluster for operators, and aborts hanging transactions.

A transaction hangs if it is open in a partition but unknown to every coordinator. It never ends, and the last stable
offset stands still. Clients may not write markers, so an operator must choose the transaction to abort. A transaction
that a coordinator knows is left to it. To abort it here could contradict a commit that its producer sees as
successful.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from heapq import merge
from itertools import chain
from typing import Any, Final

import msgspec

from raftlog.base.env import Env
from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTxnState,
    LeaderNotAvailable,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.base.transaction_listing import DescribedId, Hanging, TransactionalId, WrittenTo
from raftlog.base.types import NO_BROKER, TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.coordination.shards import transaction_coordinator
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import batches, each_part
from raftlog.broker.partition_lookup import by_topic
from raftlog.coordinator.transactions.transaction import PREPARED_STATES, TransactionState
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import MessageBuilders, request_builders

VERSIONS: Final = {
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
}
MAX_IDS_PER_REQUEST: Final = 2_000
"""Transactional ids that are described, or sorted, at once."""

IS_OPEN: Final = frozenset(each.value for each in (TransactionState.ONGOING, *PREPARED_STATES))

Known = dict[tuple[int, str, int], DescribedId]
"""Transactions that have not ended, by producer id, topic and partition."""

PARTITIONS_PER_REQUEST: Final = 1_000
"""The maximum number of partitions in one DescribeProducers request to a broker."""

log = get_logger(__name__)


class TransactionSurvey:
    """Sends requests to all brokers. Raises KafkaError if a broker that is needed does not respond."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker

    async def all(self, *, producer_ids: Collection[int] = ()) -> list[TransactionalId]:
        """Return the transactional ids of all coordinators, or only those of certain producer ids."""
        make = _shapes(ApiKey.LIST_TRANSACTIONS)
        found: list[TransactionalId] = []
        before = self._coordinators()
        for broker_id in sorted({leader for leader, _ in before}):
            asked = make.ListTransactionsRequest(state_filters=(), producer_id_filters=tuple(producer_ids))
            answer = await self._ask(broker_id, ApiKey.LIST_TRANSACTIONS, asked)
            if answer.error_code:
                raise from_code(answer.error_code)
            states = answer.transaction_states
            found += await each_part(self._broker.env, states, partial(_id_at, broker_id))
        if self._coordinators() != before:
            raise CoordinatorNotAvailable("the coordinators of transactional ids changed during this request")
        return await _sorted(self._broker.env, found)

    def _coordinators(self) -> list[tuple[int, int]]:
        """The leaders of the ids and their epochs. Raises CoordinatorNotAvailable if some ids have none."""
        topic = self._broker.image().topics.get(TRANSACTION_STATE_TOPIC)
        led = [(each.leader, each.leader_epoch) for each in topic.partitions] if topic else []
        if any(leader == NO_BROKER for leader, _ in led):
            raise CoordinatorNotAvailable("some transactional ids currently have no coordinator")
        return led

    async def one(self, transactional_id: str) -> DescribedId:
        """Return the coordinator's state of an id. Raises TransactionalIdNotFound."""
        if not self._coordinators():
            raise TransactionalIdNotFound("no transactional id was ever used here")
        coordinator = transaction_coordinator(self._broker.image(), transactional_id)
        (found,) = await self._described(coordinator, [transactional_id])
        if found.error_code:
            raise from_code(found.error_code)
        return DescribedId(
            transactional_id,
            coordinator,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout,
            found.transaction_start_time,
            sorted(WrittenTo(topic.topic, index) for topic in found.topics for index in topic.partitions),
        )

    async def open(self, listed: Iterable[TransactionalId]) -> dict[str, tuple[int, int]]:
        """Return (start ms, timeout ms) of the transactions that are open, of ids just listed, by id."""
        by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
        for each in listed:
            if each.state in IS_OPEN:
                by_coordinator[each.coordinator].append(each.transactional_id)
        return {
            each.transactional_id: (each.transaction_start_time, each.transaction_timeout)
            for coordinator, ids in by_coordinator.items()
            for each in await self._described(coordinator, ids)
            if not each.error_code  # it has expired, or has moved, since
        }

    async def _described(self, coordinator: int, transactional_ids: Sequence[str]) -> list[Any]:
        """Describe the transactions in batches.

        Request again what a response had no room for, while each response describes some.
        """
        make = _shapes(ApiKey.DESCRIBE_TRANSACTIONS)
        found: list[Any] = []
        left = list(transactional_ids)
        while left:
            ids, left = left[:MAX_IDS_PER_REQUEST], left[MAX_IDS_PER_REQUEST:]
            asked = make.DescribeTransactionsRequest(transactional_ids=tuple(ids))
            answer = await self._ask(coordinator, ApiKey.DESCRIBE_TRANSACTIONS, asked)
            again = {each.transactional_id for each in answer.transaction_states if _is_left_out(each)}
            if len(again) == len(ids):
                again = set()  # it has room for these, so there is another reason
            found += [each for each in answer.transaction_states if each.transactional_id not in again]
            left += sorted(again)
        return found

    async def hanging(self, topic: str | None = None, *, unused_ms: int) -> list[Hanging]:
        """Return the transactions open in partitions (of a topic) for some time but unknown to every coordinator."""
        image = self._broker.image()
        if topic is not None and topic not in image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {topic}")
        names = image.topics if topic is None else (topic,)
        topic_partitions = (
            TopicPartition(name, index)
            for name in names
            for index in range(len(image.topics[name].partitions))
        )
        before_ms = self._broker.env.wall_clock_ms() - unused_ms
        old = [each for each in await self._open_in(topic_partitions) if each.last_timestamp <= before_ms]
        known = await self._known({each.producer_id for each in old})
        return [each for each in old if _coordinated(each, known) is None]

    async def end_hanging(self, tp: TopicPartition, start_offset: int) -> Hanging:
        """Abort the transaction that is open there since an offset.

        Return its description once the marker is committed.

        Its producer may be alive. As the leader writes the marker, it checks that the transaction is still open, has
        not grown, and is not the next transaction. Raises TransactionalIdNotFound if no transaction is open since
        then.

        Raises InvalidTxnState if a coordinator knows the transaction, or if it ended or was written to meanwhile.
        """
        at_offset = [each for each in await self._open_in([tp]) if each.start_offset == start_offset]
        if not at_offset:
            raise TransactionalIdNotFound(f"no transaction is open in {tp} since offset {start_offset}")
        (found,) = at_offset
        owner = _coordinated(found, await self._known({found.producer_id}))
        if owner is not None:
            raise InvalidTxnState(
                f"it does not hang: {owner.transactional_id} is {owner.state}, and broker {owner.coordinator} "
                f"ends it{self._when(owner)}"
            )
        await self._write_marker(tp, found)
        log.warning("hanging_transaction_aborted", **msgspec.structs.asdict(found))
        return found

    def _when(self, owner: DescribedId) -> str:
        """Return a message with the seconds until a coordinator ends it, or "" if it is about to."""
        if owner.state != TransactionState.ONGOING.value or owner.start_ms < 0:
            return ""
        left_ms = owner.start_ms + owner.timeout_ms - self._broker.env.wall_clock_ms()
        return f" in {max(0, math.ceil(left_ms / 1000))} s, when its timeout is over"

    # -- asking ----------------------------------------------------------------------------------------------

    async def _ask(self, broker_id: int, api_key: ApiKey, message: Any) -> Any:
        return await self._broker.links.ask(broker_id, api_key, VERSIONS[api_key], message)

    def _leader(self, tp: TopicPartition, image: MetadataImage | None = None) -> int:
        state = (image or self._broker.image()).partition(*tp)
        if state is None:
            raise UnknownTopicOrPartition(f"there is no {tp}")
        if state.leader == NO_BROKER:
            raise LeaderNotAvailable(f"{tp} has no leader")
        return state.leader

    async def _open_in(self, topic_partitions: Iterable[TopicPartition]) -> list[Hanging]:
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        image = self._broker.image()  # one for all, since topics may be deleted meanwhile
        await each_part(
            self._broker.env,
            topic_partitions,
            lambda each: by_leader[self._leader(each, image)].append(each),
        )
        found: list[Hanging] = []
        for leader, led in by_leader.items():
            portions = batches(led, PARTITIONS_PER_REQUEST)
            ask = partial(self._open_at, leader)
            found += chain.from_iterable(await each_part(self._broker.env, portions, ask, at_once=1))
        return found

    async def _open_at(self, leader: int, led: Sequence[TopicPartition]) -> list[Hanging]:
        make = _shapes(ApiKey.DESCRIBE_PRODUCERS)
        topics = tuple(
            make.TopicRequest(name=name, partition_indexes=tuple(indexes))
            for name, indexes in by_topic(led).items()
        )
        asked = make.DescribeProducersRequest(topics=topics)
        answer = await self._ask(leader, ApiKey.DESCRIBE_PRODUCERS, asked)
        return [
            each
            for topic in answer.topics
            for partition in topic.partitions
            for each in _open_of(topic.name, partition)
        ]

    async def _known(self, producer_ids: Collection[int]) -> Known:
        """The coordinators' state of transactions of these producers that have not ended."""
        if not producer_ids:
            return {}
        listed = await self.all(producer_ids=producer_ids)
        found = [await self.one(each.transactional_id) for each in listed if each.state in IS_OPEN]
        return {
            (each.producer_id, tp.topic_name, tp.partition_id): each
            for each in found
            for tp in each.partitions
        }

    async def _write_marker(self, tp: TopicPartition, found: Hanging) -> None:
        make = _shapes(ApiKey.WRITE_TXN_MARKERS)
        topic = make.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=(tp.partition,))
        marker = make.WritableTxnMarker(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=max(found.coordinator_epoch, 0),
        )
        asked = make.WriteTxnMarkersRequest(
            markers=(marker,),
            open_since=found.start_offset,
            last_sequence=found.last_sequence,
            last_timestamp=found.last_timestamp,
        )
        answer = await self._ask(self._leader(tp), ApiKey.WRITE_TXN_MARKERS, asked)
        ((code,),) = (
            tuple(each.error_code for topic in result.topics for each in topic.partitions)
            for result in answer.markers
        )
        if code == InvalidTxnState.code:
            raise InvalidTxnState(
                f"it has ended since, or its producer goes on: {tp} has none that is open since offset "
                f"{found.start_offset} and was not written to while its coordinator was looked for"
            )
        if code:
            raise from_code(code)


async def _sorted(env: Env, listed: list[TransactionalId]) -> list[TransactionalId]:
    runs: list[list[TransactionalId]] = await each_part(
        env, batches(listed, MAX_IDS_PER_REQUEST), sorted, at_once=1
    )
    return await each_part(env, merge(*runs), lambda each: each)


def _id_at(broker_id: int, state: Any) -> TransactionalId:
    return TransactionalId(
        state.transactional_id, broker_id, state.producer_id, state.transaction_state, -1, -1
    )


def _shapes(api_key: ApiKey) -> MessageBuilders:
    return request_builders(api_key, VERSIONS[api_key])


def _is_left_out(described: Any) -> bool:
    return bool(described.error_code == CoordinatorLoadInProgress.code)


def _open_of(topic: str, partition: Any) -> list[Hanging]:
    if partition.error_code:
        raise from_code(partition.error_code, partition.error_message)
    return [
        Hanging(
            topic,
            partition.partition_index,
            each.current_txn_start_offset,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_timestamp,
            each.last_sequence,
        )
        for each in partition.active_producers
        if each.current_txn_start_offset >= 0
    ]


def _coordinated(open_there: Hanging, known: Known) -> DescribedId | None:
    """Return the coordinator's state of a transaction, or None if it hangs."""
    return known.get((open_there.producer_id, open_there.topic, open_there.partition))
