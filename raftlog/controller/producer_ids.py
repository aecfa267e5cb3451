"""Producer ids, given to brokers in blocks that never overlap (KIP-730)."""

from __future__ import annotations

from typing import Final

from raftlog.base.machine import Decision
from raftlog.controller.brokers import check_broker_epoch
from raftlog.metadata.controller_api import AllocateProducerIds, ProducerIdBlock
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import ProducerIdsAllocated

BLOCK_SIZE: Final = 1_000
"""Producer ids in one block."""


def decide_allocate_producer_ids(image: MetadataImage, request: AllocateProducerIds) -> Decision:
    """Allocate the next block to a broker; a block in a lost reply is never allocated again."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsAllocated(request.broker_id, first + BLOCK_SIZE)
    return Decision((record,), ProducerIdBlock(first, BLOCK_SIZE))
