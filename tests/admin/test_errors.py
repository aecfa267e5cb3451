"""Claims about a broker's errors over HTTP: the status shows whether the caller or the node is at fault."""

from __future__ import annotations

import pytest

from raftlog.admin.errors import INVALID, UNKNOWN_PARTITION, of_kafka
from raftlog.base import errors
from raftlog.base.errors import KafkaError


@pytest.mark.parametrize(
    ("status", "code", "names"),
    [
        (404, UNKNOWN_PARTITION, "UnknownTopicOrPartition UnknownTopicId"),
        (
            404,
            404,
            "BrokerIdNotRegistered GroupIdNotFound NoReassignmentInProgress OffsetOutOfRange TransactionalIdNotFound",
        ),
        (
            409,
            409,
            "TopicAlreadyExists ReassignmentInProgress NonEmptyGroup PolicyViolation ElectionNotNeeded InvalidTxnState",
        ),
        (413, 413, "MessageTooLarge RecordListTooLarge"),
        (503, 503, "NotController RequestTimedOut LeaderNotAvailable CoordinatorLoadInProgress"),
        (
            400,
            INVALID,
            "InvalidConfig InvalidTopic InvalidReplicaAssignment InvalidRequest InvalidPartitions",
        ),
    ],
)
def test_a_status_says_what_is_wrong(status: int, code: int, names: str) -> None:
    """404: it is not there. 409: something stands in the way. 413: too large. 503: ask again. 400: ask differently."""
    for name in names.split():
        kind: type[KafkaError] = getattr(errors, name)
        failure = of_kafka(kind("why"), "t-0")
        assert (failure.status, failure.body.error_code) == (status, code), name
        assert failure.body.message == "t-0: why"
