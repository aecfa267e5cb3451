"""Producer ids, given to brokers in blocks that never overlap (KIP-730)."""

from __future__ import annotations

from typing import Final

from raftlog.base.machine import Decision
from raftlog.controller.brokers import current_broker
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import ProducerIdsAllocated
from raftlog.metadata.requests import AllocateProducerIds, ProducerIdBlock

BLOCK_SIZE: Final = 1_000
"""Producer ids in one block."""


def decide_allocate_producer_ids(image: MetadataImage, request: AllocateProducerIds) -> Decision:
    """Give the next block to a broker; what a lost reply gave is never given again."""
    current_broker(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsAllocated(request.broker_id, first + BLOCK_SIZE)
    return Decision((record,), ProducerIdBlock(first, BLOCK_SIZE))
