"""Which failures are certain, and that a reader knows its records again."""

from __future__ import annotations

import pytest

from raftlog.base import errors
from raftlog_chaos.workloads.port import FATES, Damaged, Fate, decode_value, encode_value, fate_of

UNCERTAIN = (
    errors.UnknownServerError,
    errors.NotLeaderOrFollower,
    errors.RequestTimedOut,
    errors.Network,
    errors.NotEnoughReplicasAfterAppend,
    errors.DuplicateSequenceNumber,
    errors.KafkaStorageError,
)
REFUSED_BEFORE_THE_APPEND = (
    errors.UnknownTopicOrPartition,
    errors.NotEnoughReplicas,
    errors.NotController,
    errors.BrokerNotAvailable,
    errors.InvalidProducerEpoch,
    errors.ProducerFenced,
)
NEVER = (
    errors.TopicAuthorizationFailed,
    errors.InvalidTopic,
    errors.InvalidReplicationFactor,
    errors.MessageTooLarge,
    errors.OutOfOrderSequenceNumber,
)


@pytest.mark.parametrize(
    ("fate", "refusals"),
    [(Fate.UNKNOWN, UNCERTAIN), (Fate.NOT_THIS_TIME, REFUSED_BEFORE_THE_APPEND), (Fate.NEVER, NEVER)],
    ids=lambda each: each.name if isinstance(each, Fate) else "",
)
def test_the_audited_codes(fate: Fate, refusals: tuple[type[errors.KafkaError], ...]) -> None:
    """Jepsen's client rules; NOT_LEADER_OR_FOLLOWER is no certain failure (KAFKA-13574)."""
    assert {each.__name__: fate_of(each.code) for each in refusals} == dict.fromkeys(
        (each.__name__ for each in refusals), fate
    )


def test_an_unaudited_code_is_uncertain() -> None:
    """A wrong accusation is worse than a missed fault."""
    assert 12345 not in FATES and fate_of(12345) is Fate.UNKNOWN


def test_every_audited_code_exists() -> None:
    """A row about no error of Kafka's would be a slip of the pen."""
    assert set(FATES) <= set(errors.ERRORS)


@pytest.mark.parametrize("value", [1, 2, 33, 1_000_003])
def test_a_record_is_known_again_by_every_byte(value: int) -> None:
    """It says its value and key, so that a record of another topic, cut off or changed is seen."""
    data = encode_value("log1-0", value)
    assert decode_value("log1-0", data) == value
    for wrong in (None, b"", data[:-1], data + b".", data.replace(b"log1", b"log2"), b"x" + data):
        with pytest.raises(Damaged):
            decode_value("log1-0", wrong)


def test_records_differ_in_size() -> None:
    """Equal sizes would hide mistakes about lengths."""
    assert len({len(encode_value("log0-0", value)) for value in range(200)}) > 50
