"""Claims about the versions that a broker serves, and about comparing responses in an older version."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.protocol.apis import ApiKey
from raftlog_chaos.conformance.card.versions import (
    Lowered,
    NotServed,
    Versions,
    as_in_older_versions,
    versions_of,
)

SERVED = Versions({ApiKey.PRODUCE: (3, 7)})


def test_the_newest_version_of_both_sides_is_asked_in() -> None:
    """A history that names no version is asked in what the broker has; none in common is not served."""
    assert SERVED.newest(ApiKey.PRODUCE, 12) == 7
    assert SERVED.newest(ApiKey.PRODUCE, 5) == 5
    with pytest.raises(NotServed, match="Produce up to v2: the broker serves v3 to v7"):
        SERVED.newest(ApiKey.PRODUCE, 2)
    with pytest.raises(NotServed, match="Fetch: "):
        SERVED.newest(ApiKey.FETCH, 12)


def test_a_version_that_a_history_names_is_never_replaced() -> None:
    """Its claim is about that version."""
    SERVED.require(ApiKey.PRODUCE, 7)
    with pytest.raises(NotServed, match="Produce v8: the broker serves v3 to v7"):
        SERVED.require(ApiKey.PRODUCE, 8)


def test_a_request_is_not_asked_in_a_version_that_lacks_its_fields() -> None:
    """Without the id and the epoch that it claims, a producer asks for another thing."""
    lowered = Lowered(ApiKey.INIT_PRODUCER_ID, 4, 1)
    lowered.require_fields(["transactional_id", "transaction_timeout"])
    with pytest.raises(NotServed, match="InitProducerId v1 has no producer_epoch and no producer_id"):
        lowered.require_fields(["transactional_id", "producer_id", "producer_epoch"])


def test_fields_that_an_older_version_lacks_are_taken_out_of_kafkas_answer() -> None:
    """record_errors came with version 8; what both versions have must be equal."""
    answer: Any = {"responses": [{"partition_responses": [{"error_code": "NONE", "record_errors": [1]}]}]}
    step: dict[str, Any] = {"asked": "Produce v12", "fields": {"acks": -1}, "answer": answer}
    (older, kept) = as_in_older_versions([step, step], {0: Lowered(ApiKey.PRODUCE, 12, 7)})
    assert older == {
        "asked": "Produce v7",
        "fields": {"acks": -1},
        "answer": {"responses": [{"partition_responses": [{"error_code": "NONE"}]}]},
    }
    assert kept == step


def test_an_older_version_has_the_error_of_its_time() -> None:
    """PRODUCER_FENCED is not known before InitProducerId 4 (KIP-588)."""
    step = {"asked": "InitProducerId v5", "answer": {"error_code": "PRODUCER_FENCED"}}
    for version, error in ((3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")):
        (older,) = as_in_older_versions([step], {0: Lowered(ApiKey.INIT_PRODUCER_ID, 5, version)})
        assert older["answer"] == {"error_code": error}


@pytest.mark.parametrize("where", ["supported_features", "finalized_features"])
def test_raftlog_is_known_by_its_own_feature(where: str) -> None:
    """The intended differences are reported for raftlog only."""
    keys = [{"api_key": 0, "min_version": 3, "max_version": 13}]
    found = versions_of({"api_keys": keys, where: [{"name": "raftlog.metadata.version"}]})
    assert found.is_raftlog and found.ranges == {0: (3, 13)}
    assert not versions_of({"api_keys": keys, where: [{"name": "metadata.version"}]}).is_raftlog
