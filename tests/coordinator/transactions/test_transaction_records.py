"""The records of `__transaction_state` are Apache Kafka's, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage
from raftlog.base.types import TopicPartition
from raftlog.coordinator.transactions.transaction import (
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    Transaction,
    TransactionChanged,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_records import TransactionReplay, decode, encode
from raftlog.records.batch import build_batch, new_record

texts = st.text(max_size=20)
int64s = st.integers(-(2**63), 2**63 - 1)
epochs = st.integers(-(2**15), 2**15 - 1)
topic_partitions = st.frozensets(st.builds(TopicPartition, texts, st.integers(0, 2**31 - 1)), max_size=5)
written = st.sampled_from(
    [
        each
        for each in TransactionState
        if each not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
    ]
)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(written)
    return Transaction(
        draw(texts),
        ProducerIdAndEpoch(draw(int64s), draw(epochs)),
        state,
        draw(st.integers(0, 2**31 - 1)),
        frozenset() if state is TransactionState.EMPTY else draw(topic_partitions),
        draw(int64s),
        draw(int64s),
        last_epoch=draw(epochs),
        previous_id=draw(st.just(-1) | st.integers(0, 2**63 - 1)),
        next_id=draw(st.just(-1) | st.integers(0, 2**63 - 1)),
        client_version=draw(st.sampled_from(ClientTransactionVersion)),
    )


@given(transactions())
def test_a_transaction_survives_the_round_trip(transaction: Transaction) -> None:
    """encode and decode are inverse: a coordinator answers exactly like its predecessor (KAFKA-20357)."""
    record = TransactionChanged(transaction.transactional_id, transaction)
    assert decode(*encode(record)) == record
    tombstone = TransactionChanged(transaction.transactional_id, None)
    assert decode(*encode(tombstone)) == tombstone


def test_the_bytes_are_kafkas() -> None:
    """TransactionLogKey v0 and TransactionLogValue v1, put together by hand from their schemas."""
    transaction = Transaction(
        "tx",
        ProducerIdAndEpoch(0x0102, 3),
        TransactionState.PREPARE_COMMIT,
        60_000,
        frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)}),
        start_ms=5,
        update_ms=6,
        last_epoch=8,
        previous_id=7,
        client_version=ClientTransactionVersion.TV_2,
    )
    key, value = encode(TransactionChanged("tx", transaction))
    assert key.hex(" ") == "00 00 00 02 74 78"
    assert value is not None
    assert value.hex(" ") == " ".join(
        (
            "00 01",  # version
            "00 00 00 00 00 00 01 02  00 03".replace("  ", " "),  # producer id and epoch
            "00 00 ea 60",  # timeout
            "02",  # PrepareCommit
            "03",  # two topics
            "02 61 03 00 00 00 00 00 00 00 02 00",  # a: two partitions, no tags
            "02 62 02 00 00 00 01 00",  # b
            "00 00 00 00 00 00 00 06",  # last update
            "00 00 00 00 00 00 00 05",  # start
            "03",  # three tags
            "00 08 00 00 00 00 00 00 00 07",  # the previous producer id
            "02 02 00 02",  # the client's transaction version
            "04 02 00 08",  # the last producer epoch
        )
    )


def test_values_of_version_0_are_read() -> None:
    """Records that Apache Kafka wrote before transaction.version 1: no compact fields, partitions may be null."""
    value = bytes.fromhex(
        "0000 0000000000000009 0001 00001388 01"
        "00000001 0001 74 00000002 00000000 00000004"
        "0000000000000002 0000000000000001"
    )
    record = decode(b"\x00\x00\x00\x01x", value)
    assert record is not None
    assert record.transaction == Transaction(
        "x",
        ProducerIdAndEpoch(9, 1),
        TransactionState.ONGOING,
        5_000,
        frozenset({TopicPartition("t", 0), TopicPartition("t", 4)}),
        start_ms=1,
        update_ms=2,
    )
    empty = bytes.fromhex("0000 0000000000000009 0001 00001388 00 ffffffff 0000000000000002 ffffffffffffffff")
    record = decode(b"\x00\x00\x00\x01x", empty)
    assert record is not None
    assert record.transaction is not None
    assert (record.transaction.state, record.transaction.partitions) == (TransactionState.EMPTY, frozenset())


def test_keys_of_other_types_are_skipped() -> None:
    """A newer Kafka may write records that are not known here."""
    assert decode(None, b"") is None
    assert decode(b"\x00\x01\x00\x01x", b"") is None


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0002" + 40 * "00",  # an unknown version
        "0001 0000000000000009 0001 00001388 06 00 0000000000000002 0000000000000001 00",  # Dead is in no record
        "0001 0000000000000009 0001 00001388 09 00 0000000000000002 0000000000000001 00",  # no such state
        "0001 0000000000000009 0001 00001388 01 ff ff ff ff 0f",  # more topics than bytes
        "0001 0000000000000009 0001 00001388 00 00 0000000000000002 0000000000000001 01 02 02 00 07",  # version 7
    ],
)
def test_damaged_values_are_refused_and_left_out_of_a_replay(value: str) -> None:
    """CORRUPT_MESSAGE; the other records of the partition are read all the same."""
    key = b"\x00\x00\x00\x01x"
    with pytest.raises(CorruptMessage):
        decode(key, bytes.fromhex(value))
    good = encode(
        TransactionChanged("y", Transaction("y", ProducerIdAndEpoch(1, 0), TransactionState.EMPTY, 1_000))
    )
    records = [
        new_record(each, content, timestamp=0) for each, content in ((key, bytes.fromhex(value)), good)
    ]
    replay = TransactionReplay()
    assert replay.feed(build_batch(records)) == 2
    assert replay.skipped == 1
    assert [each.transactional_id for each in replay.transactions()] == ["y"]


def test_the_last_word_on_an_id_counts() -> None:
    """A tombstone ends what came before it; holes that compaction left are passed over."""
    first = Transaction("x", ProducerIdAndEpoch(1, 0), TransactionState.EMPTY, 1_000)
    changes = [TransactionChanged("x", first), TransactionChanged("y", None), TransactionChanged("x", None)]
    batches = []
    for number, change in enumerate(changes):
        key, value = encode(change)
        batches.append(build_batch([new_record(key, value, timestamp=0)], base_offset=10 * number))
    replay = TransactionReplay()
    assert replay.feed(batches[0]) == 1
    assert [each.transactional_id for each in replay.transactions()] == ["x"]
    assert replay.feed(b"".join(batches[1:])) == 21
    assert not replay.transactions()


def test_of_an_id_the_last_word_that_can_be_understood_counts() -> None:
    """A damaged record is counted and left out, whatever is behind it or before it."""
    words = [
        Transaction("x", ProducerIdAndEpoch(1, epoch), TransactionState.EMPTY, 1_000) for epoch in range(3)
    ]
    (key, first), (_, second), (_, third) = (encode(TransactionChanged("x", each)) for each in words)
    for scenario, skipped in (((first, second, b"\x7f"), 1), ((b"\x7f", third, first, second), 0)):
        batch = build_batch([new_record(key, value, timestamp=0) for value in scenario])
        replay = TransactionReplay()
        replay.feed(batch)
        assert replay.transactions() == [words[1]]
        assert replay.skipped == skipped
