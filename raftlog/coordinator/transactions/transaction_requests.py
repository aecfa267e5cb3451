"""The requests to a transaction coordinator, and its effects. Values only; failures are KafkaErrors."""

from __future__ import annotations

import msgspec

from raftlog.base.types import TopicPartition
from raftlog.coordinator.transactions.transaction import (
    NO_PRODUCER,
    ClientTransactionVersion,
    ProducerIdAndEpoch,
)


class InitProducerId(msgspec.Struct, frozen=True):
    """Get a producer id and epoch. `producer` is the client's present identity, to bump its epoch (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer: ProducerIdAndEpoch = NO_PRODUCER


class AddPartitions(msgspec.Struct, frozen=True):
    """Add partitions to the open transaction, or begin a transaction with them."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    client_version: ClientTransactionVersion = ClientTransactionVersion.TV_0


class VerifyPartitions(msgspec.Struct, frozen=True):
    """Return the `partitions` that are not part of this producer's open transaction (KIP-890)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


class EndTransaction(msgspec.Struct, frozen=True):
    """Commit or abort the transaction. The response has the producer id and epoch of the next transaction."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    client_version: ClientTransactionVersion = ClientTransactionVersion.TV_0


class SendMarkers(msgspec.Struct, frozen=True):
    """An effect: every partition must get the marker, then the coordinator the completion."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: ClientTransactionVersion
