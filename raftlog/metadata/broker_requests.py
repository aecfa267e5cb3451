"""Requests that a broker itself makes of the active controller, and the replies: registration, heartbeats, ISR changes
and blocks of producer ids.

`controller_api` lists them with the requests of clients.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from raftlog.base.record_ages import ClockState, OtherClocks
from raftlog.metadata.image import Endpoint, SupportedFeature


class PreviousOpening(msgspec.Struct, frozen=True):
    """The processes that had a log directory open before, as the directory itself names them.

    `clean_epoch`: the broker epoch in the clean-shutdown marker, -1 without one. `incarnations`: the ids written there,
    which include the last registered incarnation.
    """

    clean_epoch: int = -1
    incarnations: tuple[UUID, ...] = ()


class RegisterBroker(msgspec.Struct, frozen=True, tag="register_broker"):
    """`previous`: an opening for each log directory, in their order; none from releases before 0.4.0 (KIP-966)."""

    broker_id: int
    incarnation_id: UUID
    cluster_id: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directory_ids: tuple[UUID, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    previous: tuple[PreviousOpening, ...] = ()


class BrokerRegistration(msgspec.Struct, frozen=True, tag="broker_registration"):
    """`went_back`: the log directories that are older copies, so that the broker's records do not count."""

    broker_epoch: int
    went_back: tuple[UUID, ...] = ()


class BrokerHeartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent every broker.heartbeat.interval.ms. `metadata_offset`: the offset of the sender's published image.

    `damaged`: (topic id, partition) of the sender's replicas that are in the ISR but lack records they once had.
    `late_ms`: the lateness of the sender's event loop, which extends its session. `lacks_room`: a log directory is
    full, so the sender shall lead only what no other broker can lead. `cordoned`: it gets no new replicas (KIP-1066).
    `wall_clock_ms`, `clock_state`: its clock and its trust in it. Releases before 0.4.0 omit these three.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    failed_directory_ids: tuple[UUID, ...] = ()
    damaged: tuple[tuple[UUID, int], ...] = ()
    late_ms: int = 0
    lacks_room: bool = False
    wall_clock_ms: int = 0
    clock_state: int = ClockState.UNSAID
    cordoned: bool = False


class BrokerHeartbeatReply(msgspec.Struct, frozen=True, tag="heartbeat_reply"):
    """`clocks`: the other brokers' clocks, compared with the sender's; None from releases before 0.4.0."""

    is_caught_up: bool
    is_fenced: bool
    should_shutdown: bool
    clocks: OtherClocks | None = None


class IsrMember(msgspec.Struct, frozen=True):
    broker_id: int
    broker_epoch: int = -1


class IsrChange(msgspec.Struct, frozen=True):
    """The ISR a leader asks for (KIP-497), fenced by leader and partition epoch, members by broker epoch (KIP-903)."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


class AlterPartition(msgspec.Struct, frozen=True, tag="alter_partition"):
    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class IsrChangeResult(msgspec.Struct, frozen=True):
    topic_id: UUID
    partition: int
    error_code: int
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    eligible: tuple[int, ...] = ()


class AlterPartitionReply(msgspec.Struct, frozen=True, tag="alter_partition_reply"):
    results: tuple[IsrChangeResult, ...]


class AllocateProducerIds(msgspec.Struct, frozen=True, tag="allocate_producer_ids"):
    broker_id: int
    broker_epoch: int


class ProducerIdBlock(msgspec.Struct, frozen=True, tag="producer_id_block"):
    first_id: int
    count: int


class ChargeMutations(msgspec.Struct, frozen=True, tag="charge_mutations"):
    """Charge partitions that a client is about to create or delete (KIP-599). `sizes`: of each part of its request."""

    user: str
    client_id: str
    sizes: tuple[int, ...]
    strict: bool


class MutationsCharged(msgspec.Struct, frozen=True, tag="mutations_charged"):
    """The parts that may go on, and the client's throttle time."""

    allowed: tuple[bool, ...]
    throttle_ms: int = 0
