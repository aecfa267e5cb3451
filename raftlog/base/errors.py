"""Every error of the Kafka wire, one class per code.

`raise NotLeaderOrFollower()` deep inside and the connection answers with code 6. The table is Apache Kafka's
(protocol guide, "Error Codes"); `retriable` says whether a client may send the same request again.
"""

from __future__ import annotations

from typing import ClassVar, Final

MESSAGE_CHARS: Final = 2_000
"""Longest message of an error: some repeat what a client named, and each has to fit into a string of the protocol."""


class KafkaError(Exception):
    """A failure that has a code on the wire. The message, when given, reaches clients that can read one."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    record_errors: tuple[tuple[int, str], ...] = ()
    """Of a produced batch, the records at fault: their numbers and what is wrong with each (KIP-467)."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message = None if message is None else message[:MESSAGE_CHARS]
        super().__init__(message or self.__class__.__name__)


class UnknownServerError(KafkaError):
    code = -1
    retriable = False


class OffsetOutOfRange(KafkaError):
    code = 1
    retriable = False


class CorruptMessage(KafkaError):
    code = 2
    retriable = True


class UnknownTopicOrPartition(KafkaError):
    code = 3
    retriable = True


class InvalidFetchSize(KafkaError):
    code = 4
    retriable = False


class LeaderNotAvailable(KafkaError):
    code = 5
    retriable = True


class NotLeaderOrFollower(KafkaError):
    code = 6
    retriable = True


class RequestTimedOut(KafkaError):
    code = 7
    retriable = True


class BrokerNotAvailable(KafkaError):
    code = 8
    retriable = False


class ReplicaNotAvailable(KafkaError):
    code = 9
    retriable = True


class MessageTooLarge(KafkaError):
    code = 10
    retriable = False


class StaleControllerEpoch(KafkaError):
    code = 11
    retriable = False


class OffsetMetadataTooLarge(KafkaError):
    code = 12
    retriable = False


class Network(KafkaError):
    code = 13
    retriable = True


class CoordinatorLoadInProgress(KafkaError):
    code = 14
    retriable = True


class CoordinatorNotAvailable(KafkaError):
    code = 15
    retriable = True


class NotCoordinator(KafkaError):
    code = 16
    retriable = True


class InvalidTopic(KafkaError):
    code = 17
    retriable = False


class RecordListTooLarge(KafkaError):
    code = 18
    retriable = False


class NotEnoughReplicas(KafkaError):
    code = 19
    retriable = True


class NotEnoughReplicasAfterAppend(KafkaError):
    code = 20
    retriable = True


class InvalidRequiredAcks(KafkaError):
    code = 21
    retriable = False


class IllegalGeneration(KafkaError):
    code = 22
    retriable = False


class InconsistentGroupProtocol(KafkaError):
    code = 23
    retriable = False


class InvalidGroupId(KafkaError):
    code = 24
    retriable = False


class UnknownMemberId(KafkaError):
    code = 25
    retriable = False


class InvalidSessionTimeout(KafkaError):
    code = 26
    retriable = False


class RebalanceInProgress(KafkaError):
    code = 27
    retriable = False


class InvalidCommitOffsetSize(KafkaError):
    code = 28
    retriable = False


class TopicAuthorizationFailed(KafkaError):
    code = 29
    retriable = False


class GroupAuthorizationFailed(KafkaError):
    code = 30
    retriable = False


class ClusterAuthorizationFailed(KafkaError):
    code = 31
    retriable = False


class InvalidTimestamp(KafkaError):
    code = 32
    retriable = False


class UnsupportedSaslMechanism(KafkaError):
    code = 33
    retriable = False


class IllegalSaslState(KafkaError):
    code = 34
    retriable = False


class UnsupportedVersion(KafkaError):
    code = 35
    retriable = False


class TopicAlreadyExists(KafkaError):
    code = 36
    retriable = False


class InvalidPartitions(KafkaError):
    code = 37
    retriable = False


class InvalidReplicationFactor(KafkaError):
    code = 38
    retriable = False


class InvalidReplicaAssignment(KafkaError):
    code = 39
    retriable = False


class InvalidConfig(KafkaError):
    code = 40
    retriable = False


class NotController(KafkaError):
    code = 41
    retriable = True


class InvalidRequest(KafkaError):
    code = 42
    retriable = False


class UnsupportedForMessageFormat(KafkaError):
    code = 43
    retriable = False


class PolicyViolation(KafkaError):
    code = 44
    retriable = False


class OutOfOrderSequenceNumber(KafkaError):
    code = 45
    retriable = False


class DuplicateSequenceNumber(KafkaError):
    code = 46
    retriable = False


class InvalidProducerEpoch(KafkaError):
    code = 47
    retriable = False


class InvalidTxnState(KafkaError):
    code = 48
    retriable = False


class InvalidProducerIdMapping(KafkaError):
    code = 49
    retriable = False


class InvalidTransactionTimeout(KafkaError):
    code = 50
    retriable = False


class ConcurrentTransactions(KafkaError):
    code = 51
    retriable = True


class TransactionCoordinatorFenced(KafkaError):
    code = 52
    retriable = False


class TransactionalIdAuthorizationFailed(KafkaError):
    code = 53
    retriable = False


class SecurityDisabled(KafkaError):
    code = 54
    retriable = False


class OperationNotAttempted(KafkaError):
    code = 55
    retriable = False


class KafkaStorageError(KafkaError):
    code = 56
    retriable = True


class LogDirNotFound(KafkaError):
    code = 57
    retriable = False


class SaslAuthenticationFailed(KafkaError):
    code = 58
    retriable = False


class UnknownProducerId(KafkaError):
    code = 59
    retriable = False


class ReassignmentInProgress(KafkaError):
    code = 60
    retriable = False


class DelegationTokenAuthDisabled(KafkaError):
    code = 61
    retriable = False


class DelegationTokenNotFound(KafkaError):
    code = 62
    retriable = False


class DelegationTokenOwnerMismatch(KafkaError):
    code = 63
    retriable = False


class DelegationTokenRequestNotAllowed(KafkaError):
    code = 64
    retriable = False


class DelegationTokenAuthorizationFailed(KafkaError):
    code = 65
    retriable = False


class DelegationTokenExpired(KafkaError):
    code = 66
    retriable = False


class InvalidPrincipalType(KafkaError):
    code = 67
    retriable = False


class NonEmptyGroup(KafkaError):
    code = 68
    retriable = False


class GroupIdNotFound(KafkaError):
    code = 69
    retriable = False


class FetchSessionIdNotFound(KafkaError):
    code = 70
    retriable = True


class InvalidFetchSessionEpoch(KafkaError):
    code = 71
    retriable = True


class ListenerNotFound(KafkaError):
    code = 72
    retriable = True


class TopicDeletionDisabled(KafkaError):
    code = 73
    retriable = False


class FencedLeaderEpoch(KafkaError):
    code = 74
    retriable = True


class UnknownLeaderEpoch(KafkaError):
    code = 75
    retriable = True


class UnsupportedCompressionType(KafkaError):
    code = 76
    retriable = False


class StaleBrokerEpoch(KafkaError):
    code = 77
    retriable = False


class OffsetNotAvailable(KafkaError):
    code = 78
    retriable = True


class MemberIdRequired(KafkaError):
    code = 79
    retriable = False


class PreferredLeaderNotAvailable(KafkaError):
    code = 80
    retriable = True


class GroupMaxSizeReached(KafkaError):
    code = 81
    retriable = False


class FencedInstanceId(KafkaError):
    code = 82
    retriable = False


class EligibleLeadersNotAvailable(KafkaError):
    code = 83
    retriable = True


class ElectionNotNeeded(KafkaError):
    code = 84
    retriable = True


class NoReassignmentInProgress(KafkaError):
    code = 85
    retriable = False


class GroupSubscribedToTopic(KafkaError):
    code = 86
    retriable = False


class InvalidRecord(KafkaError):
    code = 87
    retriable = False


class UnstableOffsetCommit(KafkaError):
    code = 88
    retriable = True


class ThrottlingQuotaExceeded(KafkaError):
    code = 89
    retriable = True


class ProducerFenced(KafkaError):
    code = 90
    retriable = False


class ResourceNotFound(KafkaError):
    code = 91
    retriable = False


class DuplicateResource(KafkaError):
    code = 92
    retriable = False


class UnacceptableCredential(KafkaError):
    code = 93
    retriable = False


class InconsistentVoterSet(KafkaError):
    code = 94
    retriable = False


class InvalidUpdateVersion(KafkaError):
    code = 95
    retriable = False


class FeatureUpdateFailed(KafkaError):
    code = 96
    retriable = False


class PrincipalDeserializationFailure(KafkaError):
    code = 97
    retriable = False


class SnapshotNotFound(KafkaError):
    code = 98
    retriable = False


class PositionOutOfRange(KafkaError):
    code = 99
    retriable = False


class UnknownTopicId(KafkaError):
    code = 100
    retriable = True


class DuplicateBrokerRegistration(KafkaError):
    code = 101
    retriable = False


class BrokerIdNotRegistered(KafkaError):
    code = 102
    retriable = False


class InconsistentTopicId(KafkaError):
    code = 103
    retriable = True


class InconsistentClusterId(KafkaError):
    code = 104
    retriable = False


class TransactionalIdNotFound(KafkaError):
    code = 105
    retriable = False


class FetchSessionTopicIdError(KafkaError):
    code = 106
    retriable = True


class IneligibleReplica(KafkaError):
    code = 107
    retriable = False


class NewLeaderElected(KafkaError):
    code = 108
    retriable = False


class OffsetMovedToTieredStorage(KafkaError):
    code = 109
    retriable = False


class FencedMemberEpoch(KafkaError):
    code = 110
    retriable = False


class UnreleasedInstanceId(KafkaError):
    code = 111
    retriable = False


class UnsupportedAssignor(KafkaError):
    code = 112
    retriable = False


class StaleMemberEpoch(KafkaError):
    code = 113
    retriable = False


class MismatchedEndpointType(KafkaError):
    code = 114
    retriable = False


class UnsupportedEndpointType(KafkaError):
    code = 115
    retriable = False


class UnknownControllerId(KafkaError):
    code = 116
    retriable = False


class UnknownSubscriptionId(KafkaError):
    code = 117
    retriable = False


class TelemetryTooLarge(KafkaError):
    code = 118
    retriable = False


class InvalidRegistration(KafkaError):
    code = 119
    retriable = False


class TransactionAbortable(KafkaError):
    code = 120
    retriable = False


class InvalidRecordState(KafkaError):
    code = 121
    retriable = False


class ShareSessionNotFound(KafkaError):
    code = 122
    retriable = True


class InvalidShareSessionEpoch(KafkaError):
    code = 123
    retriable = True


class FencedStateEpoch(KafkaError):
    code = 124
    retriable = False


class InvalidVoterKey(KafkaError):
    code = 125
    retriable = False


class DuplicateVoter(KafkaError):
    code = 126
    retriable = False


class VoterNotFound(KafkaError):
    code = 127
    retriable = False


class InvalidRegularExpression(KafkaError):
    code = 128
    retriable = False


class RebootstrapRequired(KafkaError):
    code = 129
    retriable = False


class StreamsInvalidTopology(KafkaError):
    code = 130
    retriable = False


class StreamsInvalidTopologyEpoch(KafkaError):
    code = 131
    retriable = False


class StreamsTopologyFenced(KafkaError):
    code = 132
    retriable = False


class ShareSessionLimitReached(KafkaError):
    code = 133
    retriable = True


NONE = 0
"""The wire's code for success."""

ERRORS: dict[int, type[KafkaError]] = {error.code: error for error in KafkaError.__subclasses__()}
"""Every error class by its wire code."""


def from_code(code: int, message: str | None = None) -> KafkaError:
    """Return the error for a wire code; an unknown code gives UnknownServerError."""
    return ERRORS.get(code, UnknownServerError)(message)
