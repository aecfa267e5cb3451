"""InitProducerId 0-6 for idempotent producers (KIP-98).

Transactions are not built: a transactional id is answered with UNSUPPORTED_VERSION, and a line in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, UnsupportedVersion
from raftlog.base.log import get_logger
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.protocol.shapes import build

API_KEY: Final = 22
FIRST_EPOCH: Final = 0

log = get_logger(__name__)


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Awaitable[Any]:
    """Give a new producer id with epoch 0, whatever the producer had before, as Kafka does without a transaction."""
    if message.transactional_id == "":
        raise InvalidRequest("the transactional id is empty")
    if message.transactional_id is not None:
        log.warning("transactional_producer_refused", client_id=request.client_id, peer=request.peer_host)
        raise UnsupportedVersion("raftlog has no transactions yet")
    return _give(broker, request)


async def _give(broker: BrokerContext, request: RequestContext) -> Any:
    assert broker.producer_ids is not None, "the broker server provides it"
    producer_id = await broker.producer_ids.next()
    return build(API_KEY, request.api_version, producer_id=producer_id, producer_epoch=FIRST_EPOCH)
