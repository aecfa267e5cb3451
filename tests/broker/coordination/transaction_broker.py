"""A broker for tests of transactions: real logs of `__transaction_state`, and leaders that hear markers."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from raftlog.base.errors import BrokerNotAvailable, KafkaError
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from raftlog.broker.producer_ids import ProducerIds
from raftlog.metadata.broker_requests import ProducerIdBlock
from raftlog.metadata.image import PartitionState, TopicState
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog_chaos.simulator import Host, SimLoop, simulate
from tests.broker.coordination.group_broker import TOPIC, GroupBroker

FIRST_ID = 1000
OFFSETS = TopicState(CONSUMER_OFFSETS_TOPIC, TOPIC.topic_id, (PartitionState((2,), (2,), 2),) * 3)
TOPICS = {"t": TOPIC, CONSUMER_OFFSETS_TOPIC: OFFSETS}


class FakeBrokerLinks:
    """The leaders of the partitions that transactions write to, as a broker's links reach them.

    `answers`: for each request to come its error code, or what is raised; after them all is well.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.slow: list[bool] = []
        """Of each of them, whether it came on the slow connection."""
        self.answers: list[int | KafkaError] = []
        self.down: set[int] = set()

    async def ask(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        message: Any,
        *,
        timeout_s: float,
        is_slow: bool = False,
    ) -> Any:
        self.asked.append((broker_id, message))
        self.slow.append(is_slow)
        answer = self.answers.pop(0) if self.answers else 0
        if broker_id in self.down:
            raise BrokerNotAvailable
        if isinstance(answer, KafkaError):
            raise answer
        make = response_builders(api_key, version)
        return build_response(
            api_key,
            version,
            markers=tuple(
                make.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=tuple(
                        make.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                make.WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=answer
                                )
                                for index in topic.partition_indexes
                            ),
                        )
                        for topic in marker.topics
                    ),
                )
                for marker in message.markers
            ),
        )

    def told(self) -> list[tuple[int, bool, str, int]]:
        """The markers that were sent: (broker, commit, topic, partition)."""
        return [
            (broker, marker.transaction_result, topic.name, index)
            for broker, message in self.asked
            for marker in message.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


class TransactionBroker(GroupBroker):
    """One broker that coordinates transactions; broker 1 leads topic t, broker 2 the groups' offsets."""

    topic = TRANSACTION_STATE_TOPIC

    def __init__(self, host: Host, *, with_topic: bool = True, **settings: Any) -> None:
        super().__init__(host, with_topic=False, **settings)
        self.leaders = self.broker.links = FakeBrokerLinks()
        blocks = itertools.count(FIRST_ID, 1000)

        async def allocate() -> ProducerIdBlock:
            return ProducerIdBlock(next(blocks), 1000)

        self.broker.producer_ids = ProducerIds(allocate)
        if with_topic:
            self.publish()

    def publish(self, *, leader: int | None = None, topics: dict[str, TopicState] | None = None) -> None:
        super().publish(leader=leader, topics=TOPICS if topics is None else topics)


def run_scenario(
    scenario: Callable[[TransactionBroker], Awaitable[None]], *, with_topic: bool = True, **settings: Any
) -> None:
    """Play a scenario on one broker."""

    async def program(loop: SimLoop) -> None:
        async def life() -> None:
            node = TransactionBroker(host, with_topic=with_topic, **settings)
            await node.pass_time(0.1)
            await scenario(node)
            await node.transactions.close()

        host = loop.host("b1")
        await host.start(life())

    simulate(program)
