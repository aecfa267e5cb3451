"""EndTxn 0-5: commit or abort a transaction (KIP-98); version 5 returns the next epoch (KIP-890)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.fenced_producer import producer_error_response
from raftlog.coordinator.transactions.transaction import ClientTransactionVersion, ProducerIdAndEpoch
from raftlog.coordinator.transactions.transaction_requests import EndTransaction
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.END_TXN

FIRST_FENCED_VERSION: Final = 2
"""Earlier versions return INVALID_PRODUCER_EPOCH to a fenced producer."""

FIRST_BUMPING_VERSION: Final = 5


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once the outcome is certain. The markers are written after that."""
    version = request.api_version
    bumps = version >= FIRST_BUMPING_VERSION
    wanted = EndTransaction(
        message.transactional_id,
        ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
        message.committed,
        ClientTransactionVersion.TV_2 if bumps else ClientTransactionVersion.TV_0,
    )
    producer = await broker.transactions.end(wanted)
    return build_response(API_KEY, version, producer_id=producer.producer_id, producer_epoch=producer.epoch)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error response in the client's version."""
    return producer_error_response(API_KEY, request, error, first_fenced_version=FIRST_FENCED_VERSION)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=Demanded((Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),)),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
    prepared=(5,),
)
