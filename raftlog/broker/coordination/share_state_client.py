"""Reads and writes the states of share partitions, for the leaders of the partitions on this broker (KIP-932).

A request has the state of a single partition, as Apache Kafka's share coordinators demand. A read from a coordinator on
this broker takes no wire (`BrokerLinks.ask`). A write to it, which each acknowledgement needs, is a plain call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from raftlog.base.config import NodeConfig
from raftlog.base.errors import NONE, BrokerNotAvailable, CorruptMessage, from_code
from raftlog.broker.coordination.shards import share_coordinator
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import WriteState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.sharing.dead_letter import DeadLetters, decode_dead_letters
from raftlog.sharing.delivery import DeliveryState, StateBatch, StateWrite

READ_VERSION: Final = 0
WRITE_VERSION: Final = 1


GRACE_S: Final = 1.0
"""How much longer a broker waits for an answer than the share coordinator waits for the commit. The coordinator answers
with an error then. Without an answer the connection is closed, and all other requests on it fail."""


def answer_timeout_s(config: NodeConfig) -> float:
    """Return how long a broker waits for a share coordinator's answer, in seconds."""
    return config.share_coordinator_write_timeout_ms / 1000 + GRACE_S


class StoredState(NamedTuple):
    """A share partition's state as its leader reads it. `start_offset` is -1 until a leader has set it."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    letters: DeadLetters | None = None
    """The last dead letters, which may be written or not."""


class ShareStateClient:
    """The share coordinators of the cluster, as a broker's leaders reach them.

    `write_here` writes to a share coordinator on this broker.
    """

    def __init__(self, broker: LocalBroker, write_here: Callable[[WriteState], Awaitable[None]]) -> None:
        self._broker = broker
        self._write_here = write_here

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> StoredState:
        """Return a state, and fence all leaders of lower epochs.

        Raises InvalidRequest for an uninitialized state, FencedLeaderEpoch, and errors that may pass.
        """
        make = request_builders(ApiKey.READ_SHARE_GROUP_STATE, READ_VERSION)
        partition = make.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = make.ReadStateData(topic_id=key.topic_id, partitions=(partition,))
        message = make.ReadShareGroupStateRequest(group_id=key.group_id, topics=(topic,))
        answer, found = await self._ask(
            self._coordinator(key), key, ApiKey.READ_SHARE_GROUP_STATE, READ_VERSION, message
        )
        batches = await each_part(self._broker.env, found.state_batches, _state_batch)
        letters = decode_dead_letters(answer.letters)
        return StoredState(int(found.state_epoch), int(found.start_offset), tuple(batches), letters)

    async def write(
        self, key: SharePartitionKey, write: StateWrite, *, state_epoch: int, leader_epoch: int
    ) -> None:
        """Write a change of a state; it is committed when this returns.

        Raises FencedLeaderEpoch or FencedStateEpoch if another leader or an administrator has taken over. After any
        other error the change may have been written or not.
        """
        coordinator = self._coordinator(key)
        if coordinator == self._broker.config.node_id:
            epochs, complete = (state_epoch, leader_epoch), write.delivery_complete_count
            await self._write_here(
                WriteState(key, *epochs, write.start_offset, write.batches, complete, write.letters)
            )
            return
        make = request_builders(ApiKey.WRITE_SHARE_GROUP_STATE, WRITE_VERSION)
        partition = make.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=tuple(
                await each_part(
                    self._broker.env,
                    write.batches,
                    lambda each: make.StateBatch(
                        first_offset=each.first_offset,
                        last_offset=each.last_offset,
                        delivery_state=int(each.state),
                        delivery_count=each.delivery_count,
                    ),
                )
            ),
        )
        topic = make.WriteStateData(topic_id=key.topic_id, partitions=(partition,))
        letters = b"" if write.letters is None else write.letters.encode()
        message = make.WriteShareGroupStateRequest(group_id=key.group_id, topics=(topic,), letters=letters)
        await self._ask(coordinator, key, ApiKey.WRITE_SHARE_GROUP_STATE, WRITE_VERSION, message)

    async def _ask(
        self, coordinator: int, key: SharePartitionKey, api_key: ApiKey, version: int, message: Any
    ) -> tuple[Any, Any]:
        """Return the response, and its part for the partition. Raises the error of that."""
        timeout_s = answer_timeout_s(self._broker.config)
        answer = await self._broker.links.ask(coordinator, api_key, version, message, timeout_s=timeout_s)
        parts = [
            each
            for topic in answer.results
            if topic.topic_id == key.topic_id
            for each in topic.partitions
            if each.partition == key.partition
        ]
        if len(parts) != 1:
            raise BrokerNotAvailable("the share coordinator answered something else")
        if parts[0].error_code != NONE:
            raise from_code(int(parts[0].error_code), parts[0].error_message)
        return answer, parts[0]

    def _coordinator(self, key: SharePartitionKey) -> int:
        return share_coordinator(self._broker.image(), str(key))


def _state_batch(each: Any) -> StateBatch:
    try:
        state = DeliveryState(each.delivery_state)
    except ValueError:
        raise CorruptMessage(f"delivery state {each.delivery_state} is unknown") from None
    return StateBatch(int(each.first_offset), int(each.last_offset), state, int(each.delivery_count))
