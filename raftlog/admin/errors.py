"""Errors of the admin API: HTTP status, error code as in Confluent's REST API v3, and message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    DuplicateResource,
    DuplicateVoter,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedStateEpoch,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidTxnState,
    KafkaError,
    MessageTooLarge,
    NonEmptyGroup,
    NoReassignmentInProgress,
    OffsetOutOfRange,
    PolicyViolation,
    PreferredLeaderNotAvailable,
    ReassignmentInProgress,
    RecordListTooLarge,
    ResourceNotFound,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    TransactionalIdNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
    VoterNotFound,
    from_code,
)

INVALID: Final = 40002
UNAUTHENTICATED: Final = 40101
FORBIDDEN: Final = 40301
UNKNOWN_PARTITION: Final = 40403
"""An unknown topic or partition."""


class Error(msgspec.Struct):
    """The body of an error response. `error_code` is the HTTP status, or 100 times the status plus a detail."""

    error_code: int
    message: str


class ApiError(Exception):
    """Raised by handlers. The response has its status, with an `Error` as its body."""

    def __init__(
        self, status: int, message: str, *, code: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = Error(code or status, message)


def not_found(what: str) -> ApiError:
    return ApiError(404, f"{what} does not exist")


NOT_THERE: Final = (
    BrokerIdNotRegistered,
    GroupIdNotFound,
    NoReassignmentInProgress,
    OffsetOutOfRange,
    ResourceNotFound,
    TransactionalIdNotFound,
    VoterNotFound,
)
"""The resource that a request names does not exist."""

IN_THE_WAY: Final = (
    DuplicateResource,
    DuplicateVoter,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedStateEpoch,
    GroupSubscribedToTopic,
    InvalidTxnState,
    NonEmptyGroup,
    PolicyViolation,
    PreferredLeaderNotAvailable,
    ReassignmentInProgress,
    TopicAlreadyExists,
    TopicDeletionDisabled,
)
"""The request is valid, but conflicts with the current state or a limit."""


def of_kafka(error: KafkaError, about: str = "") -> ApiError:
    """Return the HTTP error for a broker's error.

    404 if missing, 409 for a conflict, 413 if too large, 503 if temporary; 400 for all others.
    """
    message = ": ".join(part for part in (about, str(error)) if part)
    if isinstance(error, UnknownTopicOrPartition | UnknownTopicId):
        return ApiError(404, message, code=UNKNOWN_PARTITION)
    if isinstance(error, NOT_THERE):
        return ApiError(404, message)
    if isinstance(error, IN_THE_WAY):
        return ApiError(409, message)
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return ApiError(413, message)
    if error.retriable:
        return ApiError(503, message)
    return ApiError(400, message, code=INVALID)


def no_room_for_bodies(limit_bytes: int) -> ApiError:
    """Return the error for a request that arrives while other requests use all the memory for bodies."""
    return ApiError(503, f"bodies that are arriving may have {limit_bytes} bytes together, and have them")


def check(error_code: int, message: str | None = None, *, about: str = "") -> None:
    """Raise ApiError unless a broker's error code is 0."""
    if error_code:
        raise of_kafka(from_code(error_code, message), about)
