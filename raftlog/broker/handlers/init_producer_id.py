"""InitProducerId 0-5: a producer id and epoch, for idempotent producers and for transactional ids (KIP-98, 360)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.fenced_producer import producer_error_response
from raftlog.broker.rights import CLUSTER, TOPIC, TRANSACTIONAL_ID, demand, may_any
from raftlog.coordinator.transactions.transaction import ProducerIdAndEpoch
from raftlog.coordinator.transactions.transaction_requests import InitProducerId
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.INIT_PRODUCER_ID
FIRST_EPOCH: Final = 0

FIRST_FENCED_VERSION: Final = 4
"""Earlier versions return INVALID_PRODUCER_EPOCH to a fenced producer."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Give a producer its id and epoch. Without a transactional id it is always a new id, whatever its previous id."""
    if message.transactional_id is not None:
        demand(broker, request, Operation.WRITE, TRANSACTIONAL_ID, message.transactional_id)
    elif not may_any(broker, request, Operation.WRITE, TOPIC):
        demand(broker, request, Operation.IDEMPOTENT_WRITE, CLUSTER)
    before = ProducerIdAndEpoch(
        getattr(message, "producer_id", NO_PRODUCER_ID), getattr(message, "producer_epoch", NO_EPOCH)
    )
    if (before.producer_id == NO_PRODUCER_ID) != (before.epoch == NO_EPOCH):
        raise InvalidRequest("set both producer id and epoch, or neither")
    producer = await (
        _new_producer(broker) if message.transactional_id is None else _init(broker, message, before)
    )
    return build_response(
        API_KEY,
        request.api_version,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


async def _new_producer(broker: BrokerContext) -> ProducerIdAndEpoch:
    assert broker.producer_ids is not None, "the broker server provides it"
    return ProducerIdAndEpoch(await broker.producer_ids.next(), FIRST_EPOCH)


async def _init(broker: BrokerContext, message: Any, before: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    request = InitProducerId(message.transactional_id, message.transaction_timeout, before)
    found: ProducerIdAndEpoch = await broker.transactions.init_producer(request)
    return found


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error response in the client's version."""
    return producer_error_response(API_KEY, request, error, first_fenced_version=FIRST_FENCED_VERSION)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=DemandedPerPart(
        (
            Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
            Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
            Right(Operation.WRITE, ResourceType.TOPIC),
        )
    ),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
    prepared=(5, 4),
)
