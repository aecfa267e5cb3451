"""AddOffsetsToTxn 0-4: a transaction will commit offsets of a group (KIP-98)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidGroupId, KafkaError
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.fenced_producer import error_for_version
from raftlog.coordinator.groups import check_group_id
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.transactions.transaction import ProducerIdAndEpoch
from raftlog.coordinator.transactions.transaction_requests import AddPartitions
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.ADD_OFFSETS_TO_TXN

FIRST_FENCED_VERSION: Final = 2
"""Earlier versions return INVALID_PRODUCER_EPOCH to a fenced producer."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Add the partition of the group's offsets, and respond once that is committed."""
    if not message.group_id:
        raise InvalidGroupId("a group id must not be empty")
    check_group_id(message.group_id)
    topic = await broker.groups.offsets_topic()
    index = partition_for(message.group_id, len(topic.partitions))
    wanted = AddPartitions(
        message.transactional_id,
        ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
        frozenset({TopicPartition(CONSUMER_OFFSETS_TOPIC, index)}),
    )
    await broker.transactions.add_partitions(wanted)
    return build_response(API_KEY, request.api_version)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error response in the client's version."""
    shown = error_for_version(error, request.api_version, first_fenced_version=FIRST_FENCED_VERSION)
    return build_response(API_KEY, request.api_version, error_code=shown.code)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=Demanded(
        (
            Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
            Right(Operation.READ, ResourceType.GROUP, "group_id"),
        )
    ),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
    prepared=(4,),
)
