"""Every error of the Kafka wire, one class per code.

After `raise NotLeaderOrFollower()` anywhere the connection answers with code 6. The table is Apache Kafka's (protocol
guide, "Error Codes"); `retriable` says whether a client may send the same request again.
"""

from __future__ import annotations

from typing import ClassVar, Final

MESSAGE_CHARS: Final = 2_000
"""Longest message of an error: some repeat a client's text, and each has to fit into a string of the protocol."""


NONE: Final = 0
"""The wire's code for success."""

ERRORS: dict[int, type[KafkaError]] = {}
"""Every error class by its wire code."""


class KafkaError(Exception):
    """A failure that has a code on the wire. The message, when given, is sent to clients in versions with a message
    field.
    """

    code: ClassVar[int]
    retriable: ClassVar[bool]
    record_errors: tuple[tuple[int, str], ...] = ()
    """The invalid records of a produced batch: the index and error message of each (KIP-467)."""

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False) -> None:
        if code is not None:  # a class without a code is a special case of its parent's error
            cls.code = code
            cls.retriable = retriable
            ERRORS[code] = cls

    def __init__(self, message: str | None = None) -> None:
        self.message = message = None if message is None else message[:MESSAGE_CHARS]
        super().__init__(message or self.__class__.__name__)


class UnknownServerError(KafkaError, code=-1): ...


class OffsetOutOfRange(KafkaError, code=1): ...


class CorruptMessage(KafkaError, code=2, retriable=True): ...


class UnknownTopicOrPartition(KafkaError, code=3, retriable=True): ...


class LeaderNotAvailable(KafkaError, code=5, retriable=True): ...


class NotLeaderOrFollower(KafkaError, code=6, retriable=True): ...


class RequestTimedOut(KafkaError, code=7, retriable=True): ...


class BrokerNotAvailable(KafkaError, code=8): ...


class ReplicaNotAvailable(KafkaError, code=9, retriable=True): ...


class MessageTooLarge(KafkaError, code=10): ...


class OffsetMetadataTooLarge(KafkaError, code=12): ...


class Network(KafkaError, code=13, retriable=True): ...


class CoordinatorLoadInProgress(KafkaError, code=14, retriable=True): ...


class CoordinatorNotAvailable(KafkaError, code=15, retriable=True): ...


class NotCoordinator(KafkaError, code=16, retriable=True): ...


class InvalidTopic(KafkaError, code=17): ...


class RecordListTooLarge(KafkaError, code=18): ...


class NotEnoughReplicas(KafkaError, code=19, retriable=True): ...


class NotEnoughReplicasAfterAppend(KafkaError, code=20, retriable=True): ...


class InvalidRequiredAcks(KafkaError, code=21): ...


class IllegalGeneration(KafkaError, code=22): ...


class InconsistentGroupProtocol(KafkaError, code=23): ...


class InvalidGroupId(KafkaError, code=24): ...


class UnknownMemberId(KafkaError, code=25): ...


class InvalidSessionTimeout(KafkaError, code=26): ...


class RebalanceInProgress(KafkaError, code=27): ...


class InvalidCommitOffsetSize(KafkaError, code=28): ...


class TopicAuthorizationFailed(KafkaError, code=29): ...


class GroupAuthorizationFailed(KafkaError, code=30): ...


class ClusterAuthorizationFailed(KafkaError, code=31): ...


class InvalidTimestamp(KafkaError, code=32): ...


class UnsupportedSaslMechanism(KafkaError, code=33): ...


class IllegalSaslState(KafkaError, code=34): ...


class UnsupportedVersion(KafkaError, code=35): ...


class TopicAlreadyExists(KafkaError, code=36): ...


class InvalidPartitions(KafkaError, code=37): ...


class InvalidReplicationFactor(KafkaError, code=38): ...


class InvalidReplicaAssignment(KafkaError, code=39): ...


class InvalidConfig(KafkaError, code=40): ...


class NotController(KafkaError, code=41, retriable=True): ...


class InvalidRequest(KafkaError, code=42): ...


class PolicyViolation(KafkaError, code=44): ...


class OutOfOrderSequenceNumber(KafkaError, code=45): ...


class DuplicateSequenceNumber(KafkaError, code=46): ...


class InvalidProducerEpoch(KafkaError, code=47): ...


class InvalidTxnState(KafkaError, code=48): ...


class InvalidProducerIdMapping(KafkaError, code=49): ...


class InvalidTransactionTimeout(KafkaError, code=50): ...


class ConcurrentTransactions(KafkaError, code=51, retriable=True): ...


class TransactionCoordinatorFenced(KafkaError, code=52): ...


class TransactionalIdAuthorizationFailed(KafkaError, code=53): ...


class SecurityDisabled(KafkaError, code=54): ...


class OperationNotAttempted(KafkaError, code=55): ...


class KafkaStorageError(KafkaError, code=56, retriable=True): ...


MALFORMED: Final = "malformed"
"""The `reason` of a failed login with a message that is not of its mechanism."""


class SaslAuthenticationFailed(KafkaError, code=58):
    """A failed login. The client gets only the message; `reason` is a word for metrics, `advice` for the operator."""

    def __init__(
        self, message: str | None = None, *, reason: str = "wrong_credentials", advice: str = ""
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.advice = advice


class ReassignmentInProgress(KafkaError, code=60): ...


class DelegationTokenAuthDisabled(KafkaError, code=61): ...


class DelegationTokenNotFound(KafkaError, code=62): ...


class DelegationTokenOwnerMismatch(KafkaError, code=63): ...


class DelegationTokenRequestNotAllowed(KafkaError, code=64): ...


class DelegationTokenAuthorizationFailed(KafkaError, code=65): ...


class DelegationTokenExpired(KafkaError, code=66): ...


class InvalidPrincipalType(KafkaError, code=67): ...


class NonEmptyGroup(KafkaError, code=68): ...


class GroupIdNotFound(KafkaError, code=69): ...


class FetchSessionIdNotFound(KafkaError, code=70, retriable=True): ...


class InvalidFetchSessionEpoch(KafkaError, code=71, retriable=True): ...


class ListenerNotFound(KafkaError, code=72, retriable=True): ...


class TopicDeletionDisabled(KafkaError, code=73): ...


class FencedLeaderEpoch(KafkaError, code=74, retriable=True): ...


class UnknownLeaderEpoch(KafkaError, code=75, retriable=True): ...


class UnsupportedCompressionType(KafkaError, code=76): ...


class StaleBrokerEpoch(KafkaError, code=77): ...


class OffsetNotAvailable(KafkaError, code=78, retriable=True): ...


class MemberIdRequired(KafkaError, code=79): ...


class PreferredLeaderNotAvailable(KafkaError, code=80, retriable=True): ...


class GroupMaxSizeReached(KafkaError, code=81): ...


class FencedInstanceId(KafkaError, code=82): ...


class EligibleLeadersNotAvailable(KafkaError, code=83, retriable=True): ...


class ElectionNotNeeded(KafkaError, code=84, retriable=True): ...


class NoReassignmentInProgress(KafkaError, code=85): ...


class GroupSubscribedToTopic(KafkaError, code=86): ...


class InvalidRecord(KafkaError, code=87): ...


class UnstableOffsetCommit(KafkaError, code=88, retriable=True): ...


class ThrottlingQuotaExceeded(KafkaError, code=89, retriable=True): ...


class ProducerFenced(KafkaError, code=90): ...


class ResourceNotFound(KafkaError, code=91): ...


class DuplicateResource(KafkaError, code=92): ...


class UnacceptableCredential(KafkaError, code=93): ...


class InvalidUpdateVersion(KafkaError, code=95): ...


class UnknownTopicId(KafkaError, code=100, retriable=True): ...


class DuplicateBrokerRegistration(KafkaError, code=101): ...


class BrokerIdNotRegistered(KafkaError, code=102): ...


class InconsistentTopicId(KafkaError, code=103, retriable=True): ...


class InconsistentClusterId(KafkaError, code=104): ...


class TransactionalIdNotFound(KafkaError, code=105): ...


class FetchSessionTopicIdError(KafkaError, code=106, retriable=True): ...


class IneligibleReplica(KafkaError, code=107): ...


class NewLeaderElected(KafkaError, code=108): ...


class FencedMemberEpoch(KafkaError, code=110): ...


class UnreleasedInstanceId(KafkaError, code=111): ...


class UnsupportedAssignor(KafkaError, code=112): ...


class StaleMemberEpoch(KafkaError, code=113): ...


class MismatchedEndpointType(KafkaError, code=114): ...


class UnsupportedEndpointType(KafkaError, code=115): ...


class UnknownSubscriptionId(KafkaError, code=117): ...


class TelemetryTooLarge(KafkaError, code=118): ...


class InvalidRegistration(KafkaError, code=119): ...


class TransactionAbortable(KafkaError, code=120): ...


class InvalidRecordState(KafkaError, code=121): ...


class ShareSessionNotFound(KafkaError, code=122, retriable=True): ...


class InvalidShareSessionEpoch(KafkaError, code=123, retriable=True): ...


class FencedStateEpoch(KafkaError, code=124): ...


class InvalidVoterKey(KafkaError, code=125): ...


class DuplicateVoter(KafkaError, code=126): ...


class VoterNotFound(KafkaError, code=127): ...


class InvalidRegularExpression(KafkaError, code=128): ...


class RebootstrapRequired(KafkaError, code=129): ...


class ShareSessionLimitReached(KafkaError, code=133, retriable=True): ...


_ONLY_RECEIVED: Final = (
    ("InvalidFetchSize", 4, False),
    ("StaleControllerEpoch", 11, False),
    ("UnsupportedForMessageFormat", 43, False),
    ("LogDirNotFound", 57, False),
    ("UnknownProducerId", 59, False),
    ("InconsistentVoterSet", 94, False),
    ("FeatureUpdateFailed", 96, False),
    ("PrincipalDeserializationFailure", 97, False),
    ("SnapshotNotFound", 98, False),
    ("PositionOutOfRange", 99, False),
    ("OffsetMovedToTieredStorage", 109, False),
    ("UnknownControllerId", 116, False),
    ("StreamsInvalidTopology", 130, False),
    ("StreamsInvalidTopologyEpoch", 131, False),
    ("StreamsTopologyFenced", 132, False),
)
"""Errors that raftlog neither raises nor handles by name: name, code, and whether it is retriable."""

for _name, _code, _retriable in _ONLY_RECEIVED:
    type(_name, (KafkaError,), {}, code=_code, retriable=_retriable)


def from_code(code: int, message: str | None = None) -> KafkaError:
    """Return the error for a wire code; UnknownServerError for an unknown code."""
    return ERRORS.get(code, UnknownServerError)(message)
