"""Idempotent producers' state (KIP-98, KIP-360; Kafka: ProducerStateManager, ProducerAppendInfo)."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
)
from raftlog.records.batch import EndTransactionMarker, build_end_marker, read_header
from raftlog.records.header import CONTROL_BIT, MAX_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from raftlog.storage.producers import (
    MAX_IDLE_PRODUCERS,
    AbortedTransaction,
    ProducerState,
)
from raftlog.storage.refused_batches import MAX_REFUSED_BATCHES

COMMIT, ABORT = EndTransactionMarker(True, 4), EndTransactionMarker(False, 4)


def header_of(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 9, attributes: int = 0
) -> BatchHeader:
    """Return the header of a producer's batch."""
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, 50, 50, producer_id, epoch, sequence, count)


def state_of(*batches: BatchHeader) -> ProducerState:
    """Return the state after some batches, in sequence from offset 100 on."""
    state, offset = ProducerState(), 100
    for header in batches:
        assert state.check_sequence(header) is None
        state.record(header, offset, header.max_timestamp)
        offset += header.record_count
    return state


def test_sequences_must_follow_each_other() -> None:
    """The next sequence is accepted, a gap or an overlap is OUT_OF_ORDER_SEQUENCE_NUMBER."""
    state = state_of(header_of(0, 3), header_of(3, 2))
    assert state.check_sequence(header_of(5)) is None
    for sequence, count in [(6, 1), (4, 1), (4, 2), (0, 2), (100, 1)]:
        with pytest.raises(OutOfOrderSequenceNumber):
            state.check_sequence(header_of(sequence, count))


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=9))
def test_each_of_the_last_five_batches_is_recognised(counts: list[int]) -> None:
    """A retry of any of the last five batches finds its original's offsets; an older batch is out of order."""
    headers, sequence = [], 0
    for count in counts:
        headers.append(header_of(sequence, count))
        sequence += count
    state = state_of(*headers)
    offset = 100
    for number, header in enumerate(headers):
        if number >= len(headers) - 5:
            original = state.check_sequence(header)
            assert original is not None
            assert (original.base_offset, original.last_offset) == (offset, offset + header.record_count - 1)
        else:
            with pytest.raises(OutOfOrderSequenceNumber):
                state.check_sequence(header)
        offset += header.record_count


def test_sequences_wrap_to_zero() -> None:
    """After 2^31-1 comes 0, also inside a batch."""
    state = state_of(header_of(2**31 - 2, 3))
    assert state.check_sequence(header_of(1)) is None
    retried = state.check_sequence(header_of(2**31 - 2, 3))
    assert retried is not None and retried.last_sequence == 0
    assert state_of(header_of(2**31 - 1)).check_sequence(header_of(0)) is None


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    """A bumped epoch starts anew at 0; any other sequence is out of order, an older epoch is fenced."""
    state = state_of(header_of(0, 5, epoch=3))
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check_sequence(header_of(5, epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        state.check_sequence(header_of(5, epoch=2))
    first = header_of(0, epoch=4)
    assert state.check_sequence(first) is None
    state.record(first, 200, 50)
    with pytest.raises(InvalidProducerEpoch):
        state.check_sequence(header_of(5, epoch=3))


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """State may have expired or been deleted with its records: any first sequence is accepted (KIP-360)."""
    assert ProducerState().check_sequence(header_of(1234)) is None


def test_admitting_changes_nothing() -> None:
    """Only what is in the log counts: after a failed write the same batch is new again."""
    state = state_of(header_of(0))
    assert state.check_sequence(header_of(1)) is None
    assert state.check_sequence(header_of(1)) is None


ENTRIES = st.dictionaries(
    st.integers(0, 2**40), st.tuples(st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(1, 9))
)


@given(entries=ENTRIES)
def test_a_snapshot_comes_back(entries: dict[int, tuple[int, int, int]]) -> None:
    """decode(encode(state)) knows each producer's epoch and last batch."""
    state = ProducerState()
    for producer_id, (epoch, sequence, count) in entries.items():
        state.record(header_of(sequence, count, epoch=epoch, producer_id=producer_id), 500, 77)
    read = ProducerState.decode(state.encode())
    assert len(read) == len(entries)
    for producer_id in entries:
        ours, theirs = state.get(producer_id), read.get(producer_id)
        assert ours is not None and theirs is not None
        assert (theirs.epoch, list(theirs.batches)) == (ours.epoch, list(ours.batches))


def test_a_snapshot_has_kafkas_schema() -> None:
    """Version 1: version i16, crc u32 of the rest, then the entries of Kafka's PRODUCER_SNAPSHOT_ENTRY_SCHEMA."""
    state = state_of(header_of(0, 3), header_of(3, 2))
    entries = struct.pack(">iqhiqiqiq", 1, 9, 0, 4, 104, 1, 50, -1, -1)
    assert state.encode() == struct.pack(">hI", 1, crc32c(entries)) + entries


def test_a_damaged_snapshot_is_a_value_error() -> None:
    """A snapshot cut at any byte or with any byte changed is refused, so that recovery replays the log instead."""
    whole = state_of(header_of(0, 3)).encode()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x40
        for damaged in (whole[:position], bytes(changed)):
            with pytest.raises(ValueError):
                ProducerState.decode(damaged)


def test_idle_producers_expire_by_the_brokers_clock() -> None:
    """Records may carry old timestamps: a producer expires when looks `idle_ms` apart see no new batch (KIP-854)."""
    state = state_of(header_of(0))
    assert state.expire(1_000, idle_ms=100) == 0
    state.record(header_of(1), 101, 50)
    assert state.expire(1_150, idle_ms=100) == 0
    assert state.expire(1_249, idle_ms=100) == 0
    assert state.expire(1_250, idle_ms=100) == 1
    assert 9 not in state


def test_an_open_transaction_holds_the_stable_offset_until_its_marker_is_committed() -> None:
    """The first unstable offset is the oldest open transaction's, or that of an ended transaction with an unreplicated
    marker.
    """
    state = ProducerState()
    data = header_of(0, 2, attributes=TRANSACTIONAL_BIT)
    state.record(data, 10, 50)
    other = header_of(0, 1, producer_id=8, attributes=TRANSACTIONAL_BIT)
    state.record(other, 12, 50)
    assert state.first_unstable_offset == 10
    marker = read_header(build_end_marker(9, 0, marker=ABORT))
    assert marker.attributes & CONTROL_BIT
    assert state.end_transaction(marker, ABORT, 13) == AbortedTransaction(9, 10, 13, 12)
    assert state.first_unstable_offset == 10
    state.on_high_watermark_updated(13)
    assert state.first_unstable_offset == 10
    state.on_high_watermark_updated(14)
    assert state.first_unstable_offset == 12
    committed = read_header(build_end_marker(8, 0, marker=COMMIT))
    assert state.end_transaction(committed, COMMIT, 14) is None
    state.on_high_watermark_updated(15)
    assert state.first_unstable_offset is None


def test_an_operators_abort_fits_only_the_transaction_that_the_operator_was_shown() -> None:
    """Neither a transaction that grew since, nor another of the same producer: these have a coordinator."""
    state = state_of(header_of(0, 2, attributes=TRANSACTIONAL_BIT))
    state.check_open_transaction(9, 100, 1, 50)
    for offset, last_sequence, last_timestamp in ((101, 1, 50), (100, 0, 50), (100, 1, 49)):
        with pytest.raises(InvalidTxnState):
            state.check_open_transaction(9, offset, last_sequence, last_timestamp)
    state.record(header_of(2, attributes=TRANSACTIONAL_BIT), 102, 50)
    with pytest.raises(InvalidTxnState):
        state.check_open_transaction(9, 100, 1, 50)


def test_an_open_transaction_survives_a_snapshot_and_does_not_expire() -> None:
    """The first offset of the open transaction is part of the snapshot; a producer with an open transaction is kept."""
    state = ProducerState()
    state.record(header_of(0, attributes=TRANSACTIONAL_BIT), 10, 50)
    read = ProducerState.decode(state.encode())
    assert read.first_unstable_offset == 10
    assert read.expire(0, idle_ms=1) == 0
    assert read.expire(10_000, idle_ms=1) == 0


def test_a_marker_of_a_bumped_epoch_resets_the_sequence() -> None:
    """After a marker with a newer epoch the producer begins with sequence 0 (KIP-890)."""
    state = ProducerState()
    state.record(header_of(0, 3, attributes=TRANSACTIONAL_BIT), 10, 50)
    state.end_transaction(read_header(build_end_marker(9, 1, marker=COMMIT)), COMMIT, 13)
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check_sequence(header_of(3, epoch=1))
    assert state.check_sequence(header_of(0, epoch=1)) is None


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 1), (1, 0), (5, 0)])
def test_a_plain_batch_in_an_open_transaction_is_refused(epoch: int, sequence: int) -> None:
    """A newer epoch would fence the marker: the transaction stayed open, or ended as the next does."""
    state = ProducerState()
    state.record(header_of(0, attributes=TRANSACTIONAL_BIT), 10, 50)
    with pytest.raises(InvalidTxnState):
        state.check_sequence(header_of(sequence, epoch=epoch))
    state.end_transaction(read_header(build_end_marker(9, 0, marker=COMMIT)), COMMIT, 11)
    assert state.check_sequence(header_of(sequence, epoch=epoch)) is None


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=9), kept=st.integers(0, 9))
def test_a_cut_is_rolled_back_in_memory_while_a_batch_before_it_is_remembered(
    counts: list[int], kept: int
) -> None:
    """The same sequences are next, and the same retries recognised, as if the cut batches had never come."""
    headers, sequence = [], 0
    for count in counts:
        headers.append(header_of(sequence, count))
        sequence += count
    state = state_of(*headers)
    end_offset = 100 + sum(counts[:kept])
    remembered = kept > len(counts) - 5 and kept > 0
    assert state.try_truncate(end_offset) == remembered
    if not remembered:
        assert state.encode() == state_of(*headers).encode()
        return
    expected = state_of(*headers[:kept])
    assert state.encode() == expected.encode()
    for header in headers[max(len(headers) - 5, 0) : kept]:
        assert state.check_sequence(header) == expected.check_sequence(header)


def test_transactions_are_not_rolled_back_in_memory() -> None:
    """Only the log shows where a transaction was open before the cut."""
    state = state_of(header_of(0), header_of(1), header_of(2, attributes=TRANSACTIONAL_BIT))
    assert not state.try_truncate(102)


def test_the_oldest_open_transaction_is_the_first_whatever_the_order_of_a_snapshot() -> None:
    """A producer that is known for long may have begun its transaction last."""
    state = ProducerState()
    for offset, producer_id in ((10, 9), (11, 8)):
        state.record(header_of(0, producer_id=producer_id, attributes=TRANSACTIONAL_BIT), offset, 50)
    state.end_transaction(read_header(build_end_marker(9, 0, marker=COMMIT)), COMMIT, 12)
    state.on_high_watermark_updated(13)
    state.record(header_of(1, producer_id=9, attributes=TRANSACTIONAL_BIT), 13, 50)
    again = ProducerState.decode(state.encode())
    assert state.first_unstable_offset == again.first_unstable_offset == 11
    again.end_transaction(read_header(build_end_marker(8, 0, marker=COMMIT)), COMMIT, 14)
    again.on_high_watermark_updated(15)
    assert again.first_unstable_offset == 13


def write(
    state: ProducerState, producer_id: int, offset: int, *, sequence: int = 0, attributes: int = 0
) -> None:
    """Take in a batch of one record."""
    state.record(header_of(sequence, producer_id=producer_id, attributes=attributes), offset, 50)


def known_to(state: ProducerState) -> list[int]:
    return [each.producer_id for each in state.active()]


def test_made_up_producers_push_out_the_one_that_was_silent_longest() -> None:
    """A producer that writes meanwhile is known for ever; each id costs its place, not a kilobyte for a day."""
    state = ProducerState()
    for number in range(2 * MAX_IDLE_PRODUCERS):
        write(state, number + 1_000, 2 * number)
        write(state, 9, 2 * number + 1, sequence=number)
    assert len(state) == MAX_IDLE_PRODUCERS
    assert known_to(state)[0] == 1_000 + MAX_IDLE_PRODUCERS + 1 and known_to(state)[-1] == 9
    retried = header_of(2 * MAX_IDLE_PRODUCERS - 1)
    assert state.check_sequence(retried) is not None
    assert len(ProducerState.decode(state.encode())) == MAX_IDLE_PRODUCERS


def test_a_producer_that_was_pushed_out_goes_on_with_any_sequence() -> None:
    """Kafka's way since KIP-360: its state is gone as if it had expired; a retry is taken for new."""
    state = ProducerState()
    state.set_max_idle_producers(1)
    write(state, 9, 0, sequence=5)
    write(state, 8, 1)
    assert state.check_sequence(header_of(6)) is None
    assert state.check_sequence(header_of(5)) is None


def test_an_open_transaction_is_never_pushed_out() -> None:
    """Its marker has yet to come, and until then it holds the last stable offset."""
    state = ProducerState()
    state.set_max_idle_producers(2)
    for number in range(10):
        write(state, number, number, attributes=TRANSACTIONAL_BIT)
    for number in range(10, 15):
        write(state, number, number)
    assert len(state) == 12 and state.first_unstable_offset == 0
    for number in range(10):
        state.end_transaction(read_header(build_end_marker(number, 0, marker=COMMIT)), COMMIT, 15 + number)
    assert known_to(state) == [8, 9]


def test_a_snapshot_of_very_many_producers_is_read_up_to_the_limit() -> None:
    """A process without the limit may have written it."""
    state = ProducerState()
    state.set_max_idle_producers(MAX_IDLE_PRODUCERS + 100)
    for number in range(MAX_IDLE_PRODUCERS + 100):
        write(state, number, number)
    assert known_to(ProducerState.decode(state.encode())) == [*range(100, MAX_IDLE_PRODUCERS + 100)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 6)),
        st.tuples(st.just("transact"), st.integers(0, 6)),
        st.tuples(st.just("end"), st.integers(0, 6)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(1, 6)),
    ),
    max_size=40,
)
Entry = tuple[str, int]


@given(steps=STEPS)
def test_replicas_forget_the_same_producers_whatever_happens_to_them(steps: list[Entry]) -> None:
    """Snapshots, restarts and cuts on one replica: it knows the same producers, in the same order, as a reader of the
    log.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerState, "default_max_idle_producers", 3)
        log: list[Entry] = []
        state = ProducerState()
        for kind, number in steps:
            if kind == "restart":
                offset = len(log)
                state = ProducerState.decode(state.encode())
                state.markers_known_from = offset
                state.on_high_watermark_updated(offset)
            elif kind == "cut":
                del log[-number:]
                if not state.try_truncate(len(log)):
                    state = replayed(log)
            else:
                log.append((kind, number))
                take_in(state, len(log) - 1, log[-1])
        assert [(each.producer_id, each.txn_first_offset) for each in state.active()] == [
            (each.producer_id, each.txn_first_offset) for each in replayed(log).active()
        ]


def replayed(log: list[Entry]) -> ProducerState:
    """The state of a replica that reads the whole log."""
    state = ProducerState()
    for offset, entry in enumerate(log):
        take_in(state, offset, entry)
    return state


def take_in(state: ProducerState, offset: int, entry: Entry) -> None:
    kind, producer_id = entry
    known = state.get(producer_id)
    sequence = known.last_sequence + 1 if known else 0
    if kind == "end":
        marker = read_header(build_end_marker(producer_id, 0, marker=COMMIT))
        state.end_transaction(marker, COMMIT, offset)
        state.on_high_watermark_updated(offset + 1)
    else:
        attributes = TRANSACTIONAL_BIT if kind == "transact" else 0
        write(state, producer_id, offset, sequence=sequence, attributes=attributes)


def test_the_successor_of_a_refused_batch_gets_the_same_error() -> None:
    """Not that the disk is broken, where a transaction could not be verified: clients then asked for metadata."""
    state = state_of(header_of(0))
    state.refused_batches.note(header_of(1), NotEnoughReplicas("the transaction could not be verified"))
    with pytest.raises(
        NotEnoughReplicas, match="sequence 2 waits for 1, which was refused: the transaction could"
    ):
        state.check_sequence(header_of(2))
    assert state.check_sequence(header_of(1)) is None
    state.record(header_of(1), 101, 50)
    assert state.check_sequence(header_of(2)) is None


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 3, 1_000])
def test_a_made_up_epoch_takes_no_place_from_the_right_one(epoch: int, is_first: bool) -> None:
    """A batch of another epoch was refused, too: the second batch of the right producer is not taken for its first."""
    state = ProducerState()
    for each in (epoch, 2) if is_first else (2, epoch):
        state.note_refused_batch(header_of(0, epoch=each), NotEnoughReplicas())
    with pytest.raises(NotEnoughReplicas):
        state.check_sequence(header_of(1, epoch=2))
    state.record(header_of(0, epoch=2), 101, 50)
    assert state.check_sequence(header_of(1, epoch=2)) is None


@pytest.mark.parametrize("epoch, sequence", [(2, 0), (2, 5), (1, 7)])
def test_no_batch_waits_for_one_that_is_behind_the_log(epoch: int, sequence: int) -> None:
    """Anybody may send it and have it refused. None of the producer's batches after it could be written any more."""
    state = ProducerState()
    for each in range(8):
        state.record(header_of(each, epoch=2), 100 + each, 50)
    state.note_refused_batch(header_of(sequence, epoch=epoch), NotEnoughReplicas())
    assert state.check_sequence(header_of(8, epoch=2)) is None
    assert not state.refused_batches


def test_the_first_of_refused_batches_is_awaited_whichever_was_noted_first() -> None:
    """After sequence 2^31-1 comes 0."""
    last = MAX_SEQUENCE - 1
    for sequences in ((last, 1), (1, last)):
        state = ProducerState()
        for sequence in sequences:
            state.note_refused_batch(header_of(sequence), NotEnoughReplicas())
        for sequence in (MAX_SEQUENCE, 0, 1):
            with pytest.raises(NotEnoughReplicas, match=f"waits for {last}"):
                state.check_sequence(header_of(sequence))
        assert state.check_sequence(header_of(last)) is None


def test_made_up_refusals_take_the_place_of_the_oldest_only() -> None:
    """A producer that has yet to send a batch again is not forgotten because others were refused too."""
    state = ProducerState()
    for producer_id in range(MAX_REFUSED_BATCHES + 1):
        state.refused_batches.note(header_of(0, producer_id=producer_id), NotEnoughReplicas())
    assert state.check_sequence(header_of(1, producer_id=0)) is None
    for producer_id in (1, MAX_REFUSED_BATCHES):
        with pytest.raises(NotEnoughReplicas):
            state.check_sequence(header_of(1, producer_id=producer_id))
