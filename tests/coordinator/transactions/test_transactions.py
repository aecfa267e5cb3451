"""Decisions of a transaction coordinator: permission to write, the basis of an outcome, fencing, and failover."""

from __future__ import annotations

import struct

import msgspec
import pytest

from raftlog.base.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    PolicyViolation,
    ProducerFenced,
)
from raftlog.base.machine import Runner
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.transactions.transaction import (
    EXHAUSTED_EPOCH,
    MAX_PRODUCER_EPOCH,
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    Transaction,
    TransactionChanged,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_coordinator import TransactionCapacity
from raftlog.coordinator.transactions.transaction_records import encode_all
from raftlog.coordinator.transactions.transaction_requests import EndTransaction, SendMarkers
from tests.coordinator.transactions.transaction_coordinator_setup import (
    BUMPING,
    CLASSIC,
    FIRST_ID,
    TransactionCoordinatorSetup,
    topic_partitions,
)


def exhaust(bench: TransactionCoordinatorSetup) -> ProducerIdAndEpoch:
    """Bring id x to its last epoch for clients: a record in the journal skips all but a few."""
    producer = bench.init()
    record = bench.read()
    late = ProducerIdAndEpoch(producer.producer_id, EXHAUSTED_EPOCH - 3)
    bench.append(encode_all([TransactionChanged("x", msgspec.structs.replace(record, producer=late))]))
    bench.fail_over()
    while producer.epoch < EXHAUSTED_EPOCH:
        producer = bench.init()
    return producer


# -- a producer begins ------------------------------------------------------------------------------------


def test_each_initialisation_fences_the_one_before() -> None:
    """KIP-98: the same producer id, the next epoch; a producer with the old epoch is fenced."""
    bench = TransactionCoordinatorSetup()
    first, second = bench.init(), bench.init()
    assert (first, second) == (ProducerIdAndEpoch(FIRST_ID, 0), ProducerIdAndEpoch(FIRST_ID, 1))
    assert isinstance(bench.add(first, 0), ProducerFenced)
    assert isinstance(bench.end(first), ProducerFenced)
    assert bench.add(second, 0) is None


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    """INVALID_TRANSACTION_TIMEOUT, and no record is written."""
    bench = TransactionCoordinatorSetup()
    assert isinstance(bench.init(timeout_ms=timeout_ms), InvalidTransactionTimeout)
    assert not bench.batches


def test_an_id_that_is_empty_or_longer_than_a_key_can_be_is_refused() -> None:
    """INVALID_REQUEST, as for other things that no client sends."""
    bench = TransactionCoordinatorSetup()
    assert isinstance(bench.init(name=""), InvalidRequest)
    assert isinstance(bench.init(name="ü" * 16_384), InvalidRequest)


def test_ids_beyond_the_brokers_room_are_refused_and_known_ones_served() -> None:
    """raftlog.transaction.max.ids bounds the memory."""
    bench = TransactionCoordinatorSetup()
    bench.init()
    bench.coordinator._room = TransactionCapacity(may_add=lambda: False)
    assert isinstance(bench.init(name="y"), PolicyViolation)
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID, 1)


def test_partitions_beyond_the_brokers_room_are_refused_and_known_ones_served() -> None:
    """raftlog.transaction.max.partitions: all open transactions together; an end makes room, a failover does not."""
    bench = TransactionCoordinatorSetup()
    bench.coordinator._room = TransactionCapacity(
        may_open=lambda count: bench.coordinator.counts.partitions + count <= 3
    )
    producer, other = bench.init(), bench.init(name="y")
    assert bench.add(producer, 0) is None and bench.add(other, 0, name="y") is None
    assert bench.add(producer, 0, 1) is None, "one of them is part of it already"
    refused = bench.add(other, 0, 1, name="y")
    assert isinstance(refused, PolicyViolation) and "raftlog.transaction.max.partitions" in str(refused)
    bench.fail_over()
    assert bench.coordinator.counts.partitions == 3
    bench.end(producer)
    bench.markers_written()
    assert bench.coordinator.counts.partitions == 1


def test_an_id_without_a_producer_id_at_hand_comes_again() -> None:
    """Producer ids come from the controller, which may be away."""
    bench = TransactionCoordinatorSetup()
    bench.no_ids = True
    assert isinstance(bench.init(), CoordinatorLoadInProgress)
    assert not bench.read().exists


def test_a_producer_that_goes_on_after_an_error_is_recognised_once_more() -> None:
    """KIP-360: with its own epoch it gets the next, asked twice the same; an older epoch is fenced."""
    bench = TransactionCoordinatorSetup()
    before = bench.init()
    after = bench.init(before)
    assert after == ProducerIdAndEpoch(FIRST_ID, 1)
    assert bench.init(before) == after
    assert bench.init(after) == ProducerIdAndEpoch(FIRST_ID, 2)
    assert isinstance(bench.init(before), ProducerFenced)
    assert isinstance(bench.init(ProducerIdAndEpoch(7, 0)), ProducerFenced)


def test_a_retried_bump_is_answered_by_the_next_coordinator() -> None:
    """KAFKA-20357: the answer was lost with the coordinator that gave it."""
    bench = TransactionCoordinatorSetup()
    before = bench.init()
    after = bench.init(before)
    bench.fail_over()
    assert bench.init(before) == after
    last = exhaust(bench)
    fresh = bench.init(last)
    bench.fail_over()
    assert bench.init(last) == fresh


def test_an_older_producer_is_fenced_after_an_initialisation_without_an_epoch() -> None:
    """KIP-360: an initialisation without an epoch ends the memory of the last."""
    bench = TransactionCoordinatorSetup()
    before = bench.init()
    bench.init(before)
    bench.init()
    assert isinstance(bench.init(before), ProducerFenced)


def test_an_exhausted_producer_id_is_replaced() -> None:
    """The last epoch is never given out; a repeated request for the new id gets the same id (KIP-360)."""
    bench = TransactionCoordinatorSetup()
    last = exhaust(bench)
    fresh = bench.init(last)
    assert fresh == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert bench.init(last) == fresh
    assert isinstance(bench.init(ProducerIdAndEpoch(FIRST_ID, 5)), ProducerFenced)


def test_beginning_anew_aborts_what_the_one_before_had_open() -> None:
    """The caller retries; the epoch of the markers fences its predecessor, and the caller's is one above that."""
    bench = TransactionCoordinatorSetup()
    zombie = bench.init()
    bench.add(zombie, 0, 1)
    assert isinstance(bench.init(), ConcurrentTransactions)
    (markers,) = bench.sent
    assert (markers.producer, markers.commit, markers.partitions) == (
        ProducerIdAndEpoch(FIRST_ID, 1),
        False,
        topic_partitions(0, 1),
    )
    assert isinstance(bench.init(), ConcurrentTransactions), "its partitions have not all heard"
    assert isinstance(bench.end(zombie), ProducerFenced)
    bench.markers_written()
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID, 2)
    assert len(bench.sent) == 1


def test_only_the_epoch_in_force_may_abort_by_beginning_anew() -> None:
    """A late request of an old incarnation must not end the transaction of its successor."""
    bench = TransactionCoordinatorSetup()
    old = bench.init()
    current = bench.init(old)
    bench.add(current, 0)
    assert isinstance(bench.init(old), ProducerFenced)
    assert bench.read().state is TransactionState.ONGOING
    assert isinstance(bench.init(current), ConcurrentTransactions)
    assert bench.read().state is TransactionState.PREPARE_ABORT


def test_a_bump_within_a_transaction_aborts_it_and_its_retry_gets_the_next_epoch() -> None:
    """The holder of the epoch asked for the bump, so the fence is not for it (Kafka 4.3 answers the retry)."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0)
    assert isinstance(bench.init(producer), ConcurrentTransactions)
    bench.markers_written()
    assert bench.init(producer) == ProducerIdAndEpoch(FIRST_ID, 1)


def test_a_bump_within_a_transaction_gives_out_no_epoch_after_the_last() -> None:
    """No client gets the epoch that fences an exhausted id."""
    bench = TransactionCoordinatorSetup()
    last = exhaust(bench)
    bench.add(last, 0)
    assert isinstance(bench.init(last), ConcurrentTransactions)
    bench.markers_written()
    assert isinstance(bench.init(last), ProducerFenced)


# -- partitions -------------------------------------------------------------------------------------------


def test_partitions_are_added_once_and_only_by_the_producer() -> None:
    """INVALID_PRODUCER_ID_MAPPING for a client with another id; known partitions are not written again."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    assert isinstance(bench.add(producer, 0, name="y"), InvalidProducerIdMapping)
    assert isinstance(bench.add(ProducerIdAndEpoch(7, 0), 0), InvalidProducerIdMapping)
    assert isinstance(bench.add(ProducerIdAndEpoch(FIRST_ID, 1), 0), ProducerFenced)
    bench.add(producer, 0)
    written = len(bench.batches)
    assert bench.add(producer, 0) is None
    assert len(bench.batches) == written
    bench.add(producer, 1)
    assert bench.read().partitions == topic_partitions(0, 1)


def test_verification_names_what_is_not_part_of_the_open_transaction() -> None:
    """KIP-890: neither before it began, nor of another partition, nor once it is being ended."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    assert bench.verify(producer, 0) == topic_partitions(0)
    bench.add(producer, 0)
    assert bench.verify(producer, 0, 1) == topic_partitions(1)
    assert isinstance(bench.verify(ProducerIdAndEpoch(FIRST_ID, 1), 0), ProducerFenced)
    bench.end(producer)
    assert isinstance(bench.verify(producer, 0), ConcurrentTransactions)
    bench.markers_written()
    assert bench.verify(producer, 0) == topic_partitions(0)


# -- the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_an_outcome_is_sent_to_every_partition_and_then_complete(commit: bool) -> None:
    """The answer comes when the outcome is certain; the next transaction waits until all have heard."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0, 1)
    assert bench.end(producer, commit=commit) == producer
    (markers,) = bench.sent
    assert (markers.producer, markers.commit, markers.partitions) == (
        producer,
        commit,
        topic_partitions(0, 1),
    )
    assert isinstance(bench.add(producer, 2), ConcurrentTransactions)
    assert isinstance(bench.end(producer, commit=commit), ConcurrentTransactions)
    assert isinstance(bench.end(producer, commit=not commit), InvalidTxnState)
    bench.markers_written()
    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    assert (bench.read().state, bench.read().partitions) == (complete, frozenset())
    assert bench.end(producer, commit=commit) == producer, "who did not hear the answer asks again"
    assert isinstance(bench.end(producer, commit=not commit), InvalidTxnState)
    assert bench.add(producer, 2) is None


@pytest.mark.parametrize("commit", [True, False])
def test_a_classic_client_cannot_end_what_it_did_not_begin(commit: bool) -> None:
    """INVALID_TXN_STATE, and INVALID_PRODUCER_ID_MAPPING for an unknown id."""
    bench = TransactionCoordinatorSetup()
    assert isinstance(bench.end(ProducerIdAndEpoch(1, 0), commit=commit), InvalidProducerIdMapping)
    producer = bench.init()
    assert isinstance(bench.end(producer, commit=commit), InvalidTxnState)
    assert isinstance(bench.end(ProducerIdAndEpoch(7, 0), commit=commit), InvalidProducerIdMapping)


def test_neither_answers_nor_markers_leave_before_the_outcome_is_committed() -> None:
    """No response may contain state that a lost tail could take back."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0)
    bench.autocommit = False
    assert bench.end(producer) == "waits"
    assert not bench.sent
    bench.commit()
    assert len(bench.sent) == 1


def test_an_outcome_that_was_not_written_did_not_happen() -> None:
    """The producer hears the journal's error, and may ask again."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0)
    bench.refuses = NotEnoughReplicas()
    assert isinstance(bench.end(producer), NotEnoughReplicas)
    assert bench.read().state is TransactionState.ONGOING
    bench.refuses = None
    assert bench.end(producer) == producer


def test_the_end_of_telling_is_written_when_the_journal_takes_it_again() -> None:
    """No marker is written twice: the coordinator remembers that all are written."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0)
    bench.end(producer)
    bench.refuses = NotEnoughReplicas()
    bench.markers_written()
    bench.pass_time(1)
    assert bench.read().state is TransactionState.PREPARE_COMMIT
    bench.refuses = None
    bench.pass_time(1)
    assert bench.read().state is TransactionState.COMPLETE_COMMIT


# -- version 2: each end brings the next epoch ------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_each_end_brings_the_next_epoch(commit: bool) -> None:
    """KIP-890: the markers have it already, so no late request can belong to the next transaction."""
    bench = TransactionCoordinatorSetup()
    first = bench.init()
    bench.add(first, 0, version=BUMPING)
    second = bench.end(first, commit=commit, version=BUMPING)
    assert second == ProducerIdAndEpoch(FIRST_ID, 1)
    assert (bench.sent[0].producer, bench.sent[0].client_version) == (second, BUMPING)
    assert isinstance(bench.end(first, commit=commit, version=BUMPING), ConcurrentTransactions)
    assert isinstance(bench.add(second, 0, version=BUMPING), ConcurrentTransactions)
    bench.markers_written()
    assert bench.end(first, commit=commit, version=BUMPING) == second, "it asks again"
    refusal = InvalidTxnState if commit else ProducerFenced  # a commit too late: its time may have been up
    assert isinstance(bench.end(first, commit=not commit, version=BUMPING), refusal)
    assert bench.add(second, 0, version=BUMPING) is None
    assert isinstance(bench.end(first, commit=commit, version=BUMPING), ProducerFenced)


def test_a_transaction_without_partitions_can_be_aborted_and_not_committed() -> None:
    """A client of version 2 does not know whether its first write arrived; its epoch moves on all the same."""
    bench = TransactionCoordinatorSetup()
    first = bench.init()
    assert isinstance(bench.end(first, version=BUMPING), InvalidTxnState)
    second = bench.end(first, commit=False, version=BUMPING)
    assert second == ProducerIdAndEpoch(FIRST_ID, 1)
    assert not bench.sent[0].partitions
    bench.markers_written()
    assert bench.read().state is TransactionState.COMPLETE_ABORT
    third = bench.end(second, commit=False, version=BUMPING)
    assert third == ProducerIdAndEpoch(FIRST_ID, 2)


def test_an_end_with_the_last_epoch_brings_another_producer_id() -> None:
    """The marker has the epoch that no client gets; a repeated request gets the new id."""
    bench = TransactionCoordinatorSetup()
    last = exhaust(bench)
    bench.add(last, 0, version=BUMPING)
    fresh = bench.end(last, version=BUMPING)
    assert fresh == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert bench.sent[0].producer == ProducerIdAndEpoch(FIRST_ID, MAX_PRODUCER_EPOCH)
    assert isinstance(bench.add(fresh, 1, version=BUMPING), ConcurrentTransactions)
    assert isinstance(bench.end(last, version=BUMPING), ConcurrentTransactions)
    bench.fail_over()
    bench.markers_written()
    assert bench.end(last, version=BUMPING) == fresh
    assert bench.add(fresh, 1, version=BUMPING) is None


def test_an_end_of_version_2_that_came_late_changes_nothing() -> None:
    """KAFKA-17754: an EndTxn that was delayed hit the next transaction, which lost its writes."""
    bench = TransactionCoordinatorSetup()
    first = bench.init()
    bench.add(first, 0, version=BUMPING)
    second = bench.end(first, version=BUMPING)
    bench.markers_written()
    bench.add(second, 1, version=BUMPING)
    assert isinstance(bench.end(first, version=BUMPING), ProducerFenced)
    assert isinstance(bench.end(first, commit=False, version=BUMPING), ProducerFenced)
    assert bench.read().state is TransactionState.ONGOING


# -- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    version: ClientTransactionVersion,
) -> None:
    """The epoch of the markers belongs to no client, so later requests of the producer are refused."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init(timeout_ms=10_000)
    bench.add(producer, 0, version=version)
    bench.pass_time(9)
    assert bench.read().state is TransactionState.ONGOING
    bench.pass_time(2)
    assert bench.read().state is TransactionState.PREPARE_ABORT
    assert bench.sent[0].producer == ProducerIdAndEpoch(FIRST_ID, 1)
    for _ in ("while partitions are told", "after that"):
        assert isinstance(bench.add(producer, 0, version=version), ProducerFenced)
        assert isinstance(bench.verify(producer, 0), ProducerFenced)
        assert isinstance(bench.end(producer, version=version), ProducerFenced)
        assert isinstance(bench.end(producer, commit=False, version=CLASSIC), ProducerFenced)
        bench.markers_written()
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID, 2)
    assert isinstance(bench.init(producer), ProducerFenced), "another producer has the id"
    assert isinstance(bench.end(producer, commit=False, version=version), ProducerFenced)


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_a_producer_whose_transaction_took_too_long_gets_the_next_epoch_when_it_asks(
    version: ClientTransactionVersion,
) -> None:
    """KIP-360, as Kafka 4.3 answers: no other producer has the id. Its client would stop for ever if it were fenced."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init(timeout_ms=10_000)
    bench.add(producer, 0, version=version)
    bench.pass_time(11)
    assert isinstance(bench.init(producer), ConcurrentTransactions)
    bench.markers_written()
    assert bench.init(producer) == ProducerIdAndEpoch(FIRST_ID, 1)
    assert bench.init(producer) == ProducerIdAndEpoch(FIRST_ID, 1), "asked again"


def test_a_producer_whose_id_was_taken_over_within_a_transaction_gets_no_epoch() -> None:
    """Only the holder's own bump leaves it the next epoch: between both requests of the newcomer it is fenced too."""
    bench = TransactionCoordinatorSetup()
    former = bench.init()
    bench.add(former, 0)
    assert isinstance(bench.init(), ConcurrentTransactions)
    bench.markers_written()
    assert isinstance(bench.init(former), ProducerFenced)
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID, 2)
    assert isinstance(bench.init(former), ProducerFenced)


def test_a_version_2_producer_may_abort_and_continue_after_its_transaction_timed_out() -> None:
    """As in Apache Kafka: it gets the next epoch, unless another client took the id meanwhile."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init(timeout_ms=10_000)
    bench.add(producer, 0, version=BUMPING)
    bench.pass_time(11)
    assert isinstance(bench.end(producer, commit=False, version=BUMPING), ConcurrentTransactions)
    bench.markers_written()
    bench.fail_over()
    following = bench.end(producer, commit=False, version=BUMPING)
    assert following == ProducerIdAndEpoch(FIRST_ID, 1)
    assert bench.add(following, 0, version=BUMPING) is None
    assert isinstance(bench.end(producer, commit=False, version=BUMPING), ProducerFenced)


def test_the_clock_of_a_transaction_ends_with_it_and_further_partitions_do_not_wind_it() -> None:
    """Each transaction has its own time."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init(timeout_ms=10_000)
    bench.add(producer, 0)
    bench.pass_time(6)
    bench.add(producer, 1)
    bench.end(producer)
    bench.markers_written()
    bench.add(producer, 0)
    bench.pass_time(6)
    assert bench.read().state is TransactionState.ONGOING
    bench.add(producer, 1)
    bench.pass_time(5)
    assert bench.read().state is TransactionState.PREPARE_ABORT


def test_a_timeout_that_cannot_be_written_is_tried_again() -> None:
    """A transaction that is never ended would block all readers of committed records."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init(timeout_ms=1_000)
    bench.add(producer, 0)
    bench.refuses = NotEnoughReplicas()
    bench.pass_time(3)
    assert bench.read().state is TransactionState.ONGOING
    bench.refuses = None
    bench.pass_time(1)
    assert bench.read().state is TransactionState.PREPARE_ABORT


def test_a_timeout_with_the_last_epoch_of_version_2_fences_its_client_too() -> None:
    """Only a client that begins anew gets another producer id."""
    bench = TransactionCoordinatorSetup()
    last = exhaust(bench)
    bench.add(last, 0, version=BUMPING)
    bench.pass_time(61)
    assert bench.sent[0].producer == ProducerIdAndEpoch(FIRST_ID, MAX_PRODUCER_EPOCH)
    bench.markers_written()
    assert isinstance(bench.end(last, commit=False, version=BUMPING), ProducerFenced)
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert isinstance(bench.end(last, commit=False, version=BUMPING), InvalidProducerIdMapping)


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_fenced_client_of_version_2_cannot_end_its_way_back(fails_over: bool) -> None:
    """It would otherwise get the next epoch, begin again, and lock out the client that took the id over."""
    bench = TransactionCoordinatorSetup()
    old = bench.init()
    bench.add(old, 0, version=BUMPING)
    assert isinstance(bench.init(), ConcurrentTransactions)
    for told in (False, True):
        if told:
            bench.markers_written()
        if fails_over:
            bench.fail_over()
        for commit in (False, True):
            assert isinstance(bench.end(old, commit=commit, version=BUMPING), ProducerFenced)
    new = bench.init()
    assert new == ProducerIdAndEpoch(FIRST_ID, 2)
    assert isinstance(bench.end(old, commit=False, version=BUMPING), ProducerFenced)


@pytest.mark.parametrize("commit", [False, True])
def test_an_end_of_version_2_is_no_repetition_of_what_a_classic_client_ended(commit: bool) -> None:
    """Its epoch is lower because it was fenced: with the epoch in force, two producers would share it."""
    bench = TransactionCoordinatorSetup()
    old, new = bench.init(), bench.init()
    bench.add(new, 0)
    bench.end(new, commit=commit)
    assert isinstance(bench.end(old, commit=commit, version=BUMPING), ProducerFenced)
    bench.markers_written()
    assert isinstance(bench.end(old, commit=commit, version=BUMPING), ProducerFenced)


def test_a_classic_producer_fenced_at_the_last_epoch_gets_another_id_when_it_begins_anew() -> None:
    """No client gets the epoch of the markers."""
    bench = TransactionCoordinatorSetup()
    last = exhaust(bench)
    bench.add(last, 0)
    assert isinstance(bench.init(), ConcurrentTransactions)
    assert bench.sent[0].producer == ProducerIdAndEpoch(FIRST_ID, MAX_PRODUCER_EPOCH)
    bench.markers_written()
    assert isinstance(bench.init(last), ProducerFenced)
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID + 1, 0)


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_a_producer_that_claims_the_last_epoch_is_refused(version: ClientTransactionVersion) -> None:
    """No epoch would be left to fence it with, neither here nor for the next coordinator."""
    bench = TransactionCoordinatorSetup()
    last = exhaust(bench)
    bench.add(last, 0)
    bench.pass_time(61)
    bench.markers_written()
    made_up = ProducerIdAndEpoch(last.producer_id, MAX_PRODUCER_EPOCH)
    assert bench.read().producer == made_up
    assert isinstance(bench.add(made_up, 0, version=version), ProducerFenced)
    assert isinstance(bench.verify(made_up, 0), ProducerFenced)
    assert isinstance(bench.end(made_up, commit=False, version=version), ProducerFenced)
    assert isinstance(bench.end(last, commit=False, version=version), ProducerFenced)
    assert isinstance(bench.init(made_up), ProducerFenced)
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID + 1, 0)


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_a_transaction_open_at_an_epoch_without_a_client_is_aborted_when_its_time_is_up(
    version: ClientTransactionVersion,
) -> None:
    """Such a record must not end one coordinator after the other."""
    bench = TransactionCoordinatorSetup()
    epoch = ProducerIdAndEpoch(FIRST_ID, MAX_PRODUCER_EPOCH)
    record = Transaction(
        "x",
        epoch,
        TransactionState.ONGOING,
        1000,
        topic_partitions(0),
        bench.now_ms,
        bench.now_ms,
        client_version=version,
    )
    bench.take_over(record)
    assert isinstance(bench.init(epoch), ProducerFenced)
    bench.pass_time(2)
    assert bench.sent[0] == SendMarkers("x", epoch, False, topic_partitions(0), CLASSIC)
    bench.markers_written()
    assert bench.init().epoch == 0


def test_an_unused_id_expires() -> None:
    """transactional.id.expiration.ms, by a tombstone; an id with an open transaction stays."""
    bench = TransactionCoordinatorSetup(
        transactional_id_expiration_ms=100_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
    )
    bench.init()
    used = bench.init(name="y", timeout_ms=800_000)
    bench.add(used, 0, name="y")
    bench.pass_time(99)
    assert bench.read().exists
    bench.pass_time(3)
    assert not bench.read().exists
    assert len(bench.coordinator) == 1
    assert set(bench.replayed()) == {"y"}
    assert bench.init() == ProducerIdAndEpoch(FIRST_ID + 2, 0), (
        "one of the same name begins with another producer id"
    )


# -- failover ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_whatever_was_answered_survives_a_failover_at_each_step(version: ClientTransactionVersion) -> None:
    """A client that repeats each step gets the earlier response; a decided outcome is sent again."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.fail_over()
    assert bench.add(producer, 0, 1, version=version) is None
    bench.fail_over()
    assert bench.verify(producer, 0, 1) == frozenset()
    after = bench.end(producer, version=version)
    bench.fail_over()
    (markers,) = bench.sent
    assert (markers.producer, markers.commit, markers.partitions) == (after, True, topic_partitions(0, 1))
    assert markers.client_version is version
    assert isinstance(bench.end(producer, version=version), ConcurrentTransactions)
    bench.markers_written()
    bench.fail_over()
    assert not bench.sent
    assert bench.end(producer, version=version) == after
    assert bench.add(after, 0, version=version) is None


def test_the_clock_goes_on_in_the_next_coordinator() -> None:
    """The time that passed before counts; a wall clock that went back gives at most the whole time again."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init(timeout_ms=10_000)
    bench.add(producer, 0)
    bench.pass_time(6)
    bench.fail_over()
    bench.pass_time(5)
    assert bench.read().state is TransactionState.PREPARE_ABORT
    bench.markers_written()
    producer = bench.init(timeout_ms=10_000)
    bench.add(producer, 0)
    replayed = list(bench.replayed().values())
    bench.coordinator = bench.new_coordinator()
    bench.take_over(*replayed, now_ms=bench.now_ms - 3_600_000)
    bench.pass_time(11)
    assert bench.read().state is TransactionState.PREPARE_ABORT


def test_current_and_later_requests_get_not_coordinator_after_the_partition_is_lost() -> None:
    """NOT_COORDINATOR sends clients to the next coordinator; no more markers leave for partitions."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0)
    bench.autocommit = False
    answers: list[object] = []
    bench.coordinator.end_transaction(EndTransaction("x", producer, True), answers.append, at=bench.moment)
    bench.coordinator.on_unloaded(NotCoordinator())
    assert [type(each) for each in answers] == [NotCoordinator]
    assert isinstance(bench.add(producer, 0), NotCoordinator)
    bench.coordinator.committed(bench.end_offset)
    bench.pass_time(100)
    assert not bench.sent


def test_a_lost_tail_takes_back_the_outcome_and_the_successor_decides_anew() -> None:
    """The commit was never answered, so an abort is as good."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.add(producer, 0)
    written = len(bench.batches)
    bench.autocommit = False
    assert bench.end(producer) == "waits"
    bench.autocommit = True
    bench.fail_over(batches=written)
    assert bench.end(producer, commit=False) == producer
    assert not bench.sent[0].commit


def test_a_commit_looks_at_what_it_releases_and_not_at_all_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The high watermark moves often, and thousands may wait."""
    bench = TransactionCoordinatorSetup(autocommit=False)
    for number in range(500):
        assert bench.init(name=f"id{number}") == "waits"
    looks = []
    committed = Runner.committed

    def counted(runner: Runner[Transaction], end_offset: int) -> None:
        looks.append(end_offset)
        committed(runner, end_offset)

    monkeypatch.setattr(Runner, "committed", counted)
    bench.coordinator.committed(2)
    assert len(looks) <= 4
    bench.coordinator.committed(bench.end_offset)
    assert len(looks) < 2000
    bench.autocommit = True
    assert bench.read("id499").state is TransactionState.EMPTY


def test_a_transaction_is_complete_when_its_own_markers_are_written() -> None:
    """A report of the previous outcome, which came twice, has no effect on it."""
    bench = TransactionCoordinatorSetup()
    first = bench.init()
    bench.add(first, 0, version=BUMPING)
    second = bench.end(first, version=BUMPING)
    bench.markers_written()
    before = bench.sent[-1].producer
    bench.add(second, 0, version=BUMPING)
    bench.end(second, version=BUMPING)
    bench.coordinator.markers_written("x", before, now_ms=bench.now_ms)
    bench.commit()
    assert bench.read().state is TransactionState.PREPARE_COMMIT


def test_only_the_last_holder_of_the_id_before_is_let_on() -> None:
    """KIP-360: a client with an older epoch was fenced long before, though the new id has the same epoch again."""
    bench = TransactionCoordinatorSetup()
    fresh = bench.init(exhaust(bench))
    assert fresh == ProducerIdAndEpoch(FIRST_ID + 1, 0)
    assert isinstance(bench.init(ProducerIdAndEpoch(FIRST_ID, 0)), ProducerFenced)
    assert bench.read().producer == fresh


def test_an_abort_without_partitions_began_when_it_was_asked_for() -> None:
    """DescribeTransactions returns the start time."""
    bench = TransactionCoordinatorSetup()
    producer = bench.init()
    bench.pass_time(5)
    bench.end(producer, commit=False, version=BUMPING)
    assert bench.read().start_ms == bench.now_ms


# -- one id that cannot be written stops no other -------------------------------------------------------------


class FailingTransactionWrites(TransactionCoordinatorSetup):
    """A setup with a journal that cannot encode records of ids called bad."""

    is_broken = False

    def append(self, records: tuple[KeyValue, ...]) -> int:
        if self.is_broken and any(b"bad" in key for key, _ in records):
            raise struct.error("argument out of range")
        return super().append(records)

    def failing(self) -> list[tuple[str, str]]:
        return [(each.chore, each.subject) for each in self.coordinator.failures]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.tick(self.moment)
        self.coordinator.sweep(self.moment, most=200)
        self.commit()


def test_a_transaction_that_cannot_be_aborted_in_time_stops_no_other() -> None:
    """Its time is up again a while later; an exception there once ended the broker."""
    bench = FailingTransactionWrites()
    for name in ("a", "bad", "z"):
        bench.add(bench.init(name=name), 0, name=name)
    bench.is_broken = True
    bench.pass_time(61.0)
    states = {name: bench.read(name).state for name in ("a", "bad", "z")}
    assert states == {
        "a": TransactionState.PREPARE_ABORT,
        "bad": TransactionState.ONGOING,
        "z": TransactionState.PREPARE_ABORT,
    }
    assert bench.failing() == [("transaction_timeout", "bad")]
    bench.is_broken = False
    bench.pass_time(31.0)
    assert bench.read("bad").state is TransactionState.PREPARE_ABORT and not bench.failing()


def test_an_id_that_cannot_expire_stops_no_other() -> None:
    """Nor does it end the sweep: those behind it go."""
    bench = FailingTransactionWrites()
    for name in ("a", "bad", "z"):
        bench.init(name=name)
    bench.is_broken = True
    bench.pass_time(8 * 86_400.0)
    assert bench.coordinator.transactional_ids() == ["bad"]
    assert bench.failing() == [("transactional_id_expiry", "bad")]
    bench.is_broken = False
    bench.pass_time(3_601.0)
    assert bench.coordinator.transactional_ids() == [] and not bench.failing()


def test_outcomes_that_cannot_be_recorded_do_not_starve_others() -> None:
    """However many they are: each tick begins behind the outcomes of the last."""
    bench = FailingTransactionWrites()
    names = [f"bad{number}" for number in range(5)] + ["good"]
    for name in names:
        producer = bench.init(name=name)
        bench.add(producer, 0, name=name)
        bench.end(producer, name=name)
    bench.is_broken = True
    bench.refuses = NotEnoughReplicas()
    for markers in bench.sent:
        bench.coordinator.markers_written(markers.transactional_id, markers.producer, now_ms=bench.now_ms)
    bench.refuses = None
    for _ in range(4):
        bench.now += 0.5
        bench.coordinator.tick(bench.moment, most=2)
        bench.commit()
    assert bench.read("good").state is TransactionState.COMPLETE_COMMIT
    assert len(bench.failing()) == 5
