"""The requests to a transaction coordinator, and what leaves it. Values only; failures are KafkaErrors."""

from __future__ import annotations

import msgspec

from raftlog.base.types import TopicPartition
from raftlog.coordinator.transactions.transaction import (
    NO_PRODUCER,
    ClientTransactionVersion,
    ProducerIdAndEpoch,
)


class InitProducerId(msgspec.Struct, frozen=True):
    """Answered with the Producer to be. `producer`: who asks believes to be this one and wants to go on (KIP-360)."""

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
    """Answered with those of `partitions` that are not part of the open transaction of this producer (KIP-890)."""

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
    """An effect: every partition must hear of the outcome, then the coordinator that all have heard."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: ClientTransactionVersion
