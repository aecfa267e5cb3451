"""The requests to the active controller, and its replies: the messages between brokers and the controller.

Values only. They travel as MessagePack over the authenticated controller listener, or by call when both are one
node. A failure of the whole request is an `ErrorReply`; failures per item are `error_code` in the reply's items (0 is
none).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol
from uuid import UUID

import msgspec

from raftlog.base.types import NO_BROKER
from raftlog.metadata.broker_requests import (
    AllocateProducerIds,
    AlterPartition,
    AlterPartitionReply,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistration,
    ChargeMutations,
    MutationsCharged,
    ProducerIdBlock,
    RegisterBroker,
)
from raftlog.metadata.quorum_description import DescribeQuorum, QuorumDescription
from raftlog.security.acls import Acl, AclFilter
from raftlog.security.quotas import Entity
from raftlog.security.scram import ScramCredential


class ByClient(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a client. `by`: the principal, for the history; "" if the client is not authenticated."""

    by: str = ""


class NewTopic(msgspec.Struct, frozen=True):
    """-1 partitions or replication factor: the default. `assignments[p]`: the replicas of p; then both are -1.

    The sender chooses `topic_id`, so that a repeated request finds its own topic (`controller.requests`).
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: dict[int, tuple[int, ...]] = {}
    configs: dict[str, str | None] = {}
    topic_id: UUID | None = None


class CreateTopics(ByClient, frozen=True, tag="create_topics"):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class TopicCreation(msgspec.Struct, frozen=True):
    name: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1


class CreateTopicsReply(msgspec.Struct, frozen=True, tag="create_topics_reply"):
    results: tuple[TopicCreation, ...]


class TopicRef(msgspec.Struct, frozen=True):
    """A topic by name or by id; exactly one field is set."""

    name: str | None = None
    topic_id: UUID | None = None


class DeleteTopics(ByClient, frozen=True, tag="delete_topics"):
    topics: tuple[TopicRef, ...]


class TopicResult(msgspec.Struct, frozen=True):
    name: str | None
    topic_id: UUID | None = None
    error_code: int = 0
    error_message: str | None = None


class TopicResults(msgspec.Struct, frozen=True, tag="topic_results"):
    results: tuple[TopicResult, ...]


class NewPartitions(msgspec.Struct, frozen=True):
    """Grow a topic to `total` partitions; `assignments[i]` are the replicas of the i-th new partition, or None."""

    name: str
    total: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class CreatePartitions(ByClient, frozen=True, tag="create_partitions"):
    """Answered by TopicResults."""

    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""Config operations of IncrementalAlterConfigs (KIP-339)."""


class ConfigOp(msgspec.Struct, frozen=True):
    key: str
    value: str | None
    op: int = SET


class ConfigAlteration(msgspec.Struct, frozen=True):
    """`resource_type` is "topic", "broker" or "group"; broker name "" is the cluster default."""

    resource_type: str
    resource_name: str
    ops: tuple[ConfigOp, ...]


class AlterConfigs(ByClient, frozen=True, tag="alter_configs"):
    """`replace`: the ops are the complete new set (the old AlterConfigs API). Answered by ConfigResults."""

    alterations: tuple[ConfigAlteration, ...]
    replace: bool = False
    validate_only: bool = False


class ConfigResult(msgspec.Struct, frozen=True):
    resource_type: str
    resource_name: str
    error_code: int = 0
    error_message: str | None = None


class ConfigResults(msgspec.Struct, frozen=True, tag="config_results"):
    results: tuple[ConfigResult, ...]


PREFERRED, UNCLEAN = 0, 1


class ElectLeaders(ByClient, frozen=True, tag="elect_leaders"):
    """`partitions` None: all. Answered by ElectionResults."""

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


class ElectionResult(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    error_code: int = 0
    error_message: str | None = None


class ElectionResults(msgspec.Struct, frozen=True, tag="election_results"):
    results: tuple[ElectionResult, ...]


class Reassignment(msgspec.Struct, frozen=True):
    """Reassign a partition to `replicas`, in this order of preference; None cancels a running reassignment
    (KIP-455).
    """

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class AlterReassignments(ByClient, frozen=True, tag="alter_reassignments"):
    """Answered by PartitionResults."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


class PartitionResult(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    error_code: int = 0
    error_message: str | None = None


class PartitionResults(msgspec.Struct, frozen=True, tag="partition_results"):
    results: tuple[PartitionResult, ...]


class ListReassignments(msgspec.Struct, frozen=True, tag="list_reassignments"):
    """`partitions` None: all. A partition that does not exist or is not reassigned is skipped."""

    partitions: tuple[tuple[str, int], ...] | None = None


class OngoingReassignment(msgspec.Struct, frozen=True):
    """The replicas of a partition at present, and which of them come and go (see PartitionState)."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class OngoingReassignments(msgspec.Struct, frozen=True, tag="ongoing_reassignments"):
    reassignments: tuple[OngoingReassignment, ...]


class LeadershipTransfer(msgspec.Struct, frozen=True):
    """Have `leader`, an in-sync replica in service, lead a partition."""

    topic: str
    partition: int
    leader: int


class TransferLeaderships(ByClient, frozen=True, tag="transfer_leaderships"):
    """Answered by PartitionResults; it is a success if the replica leads already."""

    transfers: tuple[LeadershipTransfer, ...]


class DrainBroker(ByClient, frozen=True, tag="drain_broker"):
    """Have a broker lead only what no other can, through restarts too; or end that. Answered by BrokerDrain."""

    broker_id: int
    draining: bool = True


class BrokerDrain(msgspec.Struct, frozen=True, tag="broker_drain"):
    """`leaderships`: what the broker still leads, since no other replica is in sync. A repeated request counts anew."""

    broker_id: int
    draining: bool
    leaderships: int


class DecommissionBroker(ByClient, frozen=True, tag="decommission_broker"):
    """Move a broker's replicas to `replace_with` or any broker, then unregister it; or end that. Answered by Done."""

    broker_id: int
    replace_with: int = NO_BROKER
    ended: bool = False


class UnregisterBroker(ByClient, frozen=True, tag="unregister_broker"):
    """Answered by Done."""

    broker_id: int


UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """Set a feature's level; only a request marked as a downgrade may lower it (KIP-778)."""

    name: str
    level: int
    upgrade_type: int = UPGRADE


class UpdateFeatures(ByClient, frozen=True, tag="update_features"):
    """All updates are carried out, or none. Answered by FeatureResults."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class FeatureResult(msgspec.Struct, frozen=True):
    name: str
    error_code: int = 0
    error_message: str | None = None


class FeatureResults(msgspec.Struct, frozen=True, tag="feature_results"):
    """`features_epoch`: of the metadata that has the levels asked for."""

    results: tuple[FeatureResult, ...]
    features_epoch: int


class PartResult(msgspec.Struct, frozen=True):
    """The outcome of one part of a request. Results come in the order of the parts."""

    error_code: int = 0
    error_message: str | None = None


class PartResults(msgspec.Struct, frozen=True, tag="part_results"):
    results: tuple[PartResult, ...]


class CreateAcls(ByClient, frozen=True, tag="create_acls"):
    acls: tuple[Acl, ...]


class DeleteAcls(ByClient, frozen=True, tag="delete_acls"):
    filters: tuple[AclFilter, ...]


class AclDeletion(msgspec.Struct, frozen=True):
    """The rules that one filter matched, all of which are gone."""

    matches: tuple[Acl, ...]


class AclDeletions(msgspec.Struct, frozen=True, tag="acl_deletions"):
    results: tuple[AclDeletion, ...]


class ScramAlteration(msgspec.Struct, frozen=True):
    """A user's new credential for one mechanism; None removes the present credential."""

    user: str
    mechanism: str
    credential: ScramCredential | None


class AlterScramCredentials(ByClient, frozen=True, tag="alter_scram_credentials"):
    """Its results are by user, in the order in which users first appear."""

    alterations: tuple[ScramAlteration, ...]


class CreateToken(msgspec.Struct, frozen=True, tag="create_token"):
    """Create a delegation token. The sender chooses `token_id`, so that a repeated request finds its own token.

    `max_lifetime_ms` up to 0: as the settings say. Answered by TokenTimes, as the next two.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int


class RenewToken(msgspec.Struct, frozen=True, tag="renew_token"):
    """Extend a token by `period_ms` from now; up to 0: as configured. `principal` requests it."""

    token_id: str
    principal: str
    period_ms: int


class ExpireToken(msgspec.Struct, frozen=True, tag="expire_token"):
    """Expire a token in `period_ms` from now, at once if negative. `principal` requests it."""

    token_id: str
    principal: str
    period_ms: int


class TokenTimes(msgspec.Struct, frozen=True, tag="token_times"):
    """Wall milliseconds by the controller's clock. `expires_ms` -1: it has expired at an unknown time."""

    issued_ms: int
    expires_ms: int
    max_ms: int


class QuotaAlteration(msgspec.Struct, frozen=True):
    """Changes of some quotas of one entity; None removes a quota."""

    entity: Entity
    values: tuple[tuple[str, float | None], ...]


class AlterClientQuotas(msgspec.Struct, frozen=True, tag="alter_client_quotas"):
    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


class AddVoter(ByClient, frozen=True, tag="add_voter"):
    """Make an observer with a metadata log a voter (KIP-853). `host` and `port`: its controller listener.

    `until_committed`: the reply comes at the commit, otherwise once appended (Kafka's AckWhenCommitted).
    """

    voter_id: int
    directory_id: UUID
    host: str
    port: int
    timeout_ms: int = 30_000
    until_committed: bool = True


class RemoveVoter(ByClient, frozen=True, tag="remove_voter"):
    """Make a voter an observer (KIP-853)."""

    voter_id: int
    directory_id: UUID
    timeout_ms: int = 30_000


class UpdateVoter(ByClient, frozen=True, tag="update_voter"):
    """A voter has moved to another address with its directory (KIP-853). `host` and `port`: its controller listener."""

    voter_id: int
    directory_id: UUID
    host: str
    port: int
    timeout_ms: int = 30_000


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class ErrorReply(msgspec.Struct, frozen=True, tag="error"):
    """The whole request failed; the sender retries NOT_CONTROLLER at the new controller. `is_done`: all is as requested
    already, so for a retry the first attempt succeeded.
    """

    error_code: int
    message: str | None = None
    is_done: bool = False


Request = (
    RegisterBroker
    | BrokerHeartbeat
    | AlterPartition
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | ElectLeaders
    | AlterReassignments
    | ListReassignments
    | TransferLeaderships
    | DrainBroker
    | DecommissionBroker
    | AllocateProducerIds
    | UnregisterBroker
    | UpdateFeatures
    | CreateAcls
    | DeleteAcls
    | AlterScramCredentials
    | CreateToken
    | RenewToken
    | ExpireToken
    | AlterClientQuotas
    | ChargeMutations
    | DescribeQuorum
    | AddVoter
    | RemoveVoter
    | UpdateVoter
)
Reply = (
    BrokerRegistration
    | BrokerHeartbeatReply
    | AlterPartitionReply
    | CreateTopicsReply
    | TopicResults
    | ConfigResults
    | ElectionResults
    | PartitionResults
    | OngoingReassignments
    | BrokerDrain
    | ProducerIdBlock
    | FeatureResults
    | PartResults
    | MutationsCharged
    | AclDeletions
    | TokenTimes
    | QuorumDescription
    | Done
    | ErrorReply
)


class Submit(Protocol):
    """Send a request to the active controller. Raise KafkaError (retriable when no majority answers in time)."""

    def __call__(self, request: Request, *, timeout: float | None = None) -> Awaitable[Reply]: ...


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    return _encoder.encode(message)


def decode_request(data: bytes | memoryview) -> Request:
    return _request_decoder.decode(data)


def decode_reply(data: bytes | memoryview) -> Reply:
    return _reply_decoder.decode(data)
