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
    """Answered with the next Producer. `producer`: the client's present identity, which it wants to continue
    (KIP-360).
    """

    transactional_id: str
    timeout_ms: int
    producer: ProducerIdAndEpoch = NO_PRODUCER


class AddPartitions(msgspec.Struct, frozen=True):
    """Answered with None once all of them are part of the transaction, which begins if none is open."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    client_version: ClientTransactionVersion = ClientTransactionVersion.TV_0


class VerifyPartitions(msgspec.Struct, frozen=True):
    """Answered with the `partitions` that are not part of this producer's open transaction (KIP-890)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


class EndTransaction(msgspec.Struct, frozen=True):
    """Answered with the Producer that may begin the next transaction, once the outcome is certain."""

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
