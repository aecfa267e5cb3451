"""Which transactions may begin in a log, and which markers end them (KIP-890)."""

from __future__ import annotations

import pytest

from raftlog.base.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from raftlog.records.batch import EndTransactionMarker, build_end_marker, read_header
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.storage import verification
from raftlog.storage.producers import ProducerState
from tests.storage.test_producers import header_of

PRODUCER = 9


def write(state: ProducerState, sequence: int, *, epoch: int = 0, offset: int = 100) -> None:
    """A transactional batch that is in the log."""
    header = header_of(sequence, epoch=epoch, attributes=TRANSACTIONAL_BIT)
    state.check_in_transaction(header)
    assert state.check_sequence(header) is None
    state.record(header, offset, 50)


def end(
    state: ProducerState, *, epoch: int = 0, coordinator_epoch: int = 4, version: int = 0, offset: int = 200
) -> bool:
    """A marker, as a leader takes it; says whether it was written."""
    is_needed = state.check_marker(
        PRODUCER, epoch, coordinator_epoch=coordinator_epoch, transaction_version=version
    )
    state.end_verifications(PRODUCER, epoch, transaction_version=version)
    if not is_needed:
        return False
    marker = EndTransactionMarker(True, coordinator_epoch)
    state.end_transaction(read_header(build_end_marker(PRODUCER, epoch, marker=marker)), marker, offset)
    return True


def confirm(state: ProducerState, epoch: int = 0) -> None:
    asked = state.begin_verification(PRODUCER, epoch)
    assert asked is not None
    asked.confirm()


def test_a_transaction_begins_only_when_it_was_confirmed() -> None:
    """The marker that ends it would otherwise never be written: INVALID_TXN_STATE."""
    state = ProducerState()
    with pytest.raises(InvalidTxnState):
        write(state, 0)
    asked = state.begin_verification(PRODUCER, 0)
    assert asked is not None
    with pytest.raises(InvalidTxnState):
        write(state, 0)
    asked.confirm()
    write(state, 0)
    assert state.begin_verification(PRODUCER, 0) is None
    write(state, 1)


def test_an_epoch_fences_no_other_until_it_is_confirmed() -> None:
    """A producer with an invented epoch would shut out the right producer with a lower epoch, while the coordinator is
    away.
    """
    state = ProducerState()
    made_up = state.begin_verification(PRODUCER, 5)
    confirm(state, 0)
    assert state.begin_verification(PRODUCER, 5) is made_up
    write(state, 0)


def test_what_is_confirmed_is_not_over_because_a_newer_epoch_is_asked_about() -> None:
    """Anybody can ask about one between a producer's confirmation and its batch."""
    state = ProducerState()
    confirm(state, 3)
    for epoch in range(4, 20):
        assert state.begin_verification(PRODUCER, epoch) is not None
    write(state, 0, epoch=3)


def test_made_up_epochs_take_no_place_from_the_right_one() -> None:
    """Asked about in one round trip to the coordinator, they kept its producer at a retriable error."""
    state = ProducerState()
    right = state.begin_verification(PRODUCER, 3)
    made_up = [state.begin_verification(PRODUCER, epoch) for epoch in range(4, 1_000)]
    assert right is not None and right.confirm()
    write(state, 0, epoch=3)
    assert all(each is not None and not each.confirm() for each in made_up), "its transaction has begun"
    assert not state.verifications


def test_a_marker_voids_what_was_confirmed_before_it() -> None:
    """A batch under way while its transaction was aborted would open a hanging transaction (KAFKA-14402)."""
    state = ProducerState()
    asked = state.begin_verification(PRODUCER, 0)
    assert asked is not None
    assert end(state)
    asked.confirm()
    with pytest.raises(InvalidTxnState):
        write(state, 0)


def test_a_marker_leaves_what_is_asked_about_the_next_transaction() -> None:
    """Since version 2 it has the epoch of the next transaction, and a quick producer is that far before it comes
    (KIP-890).
    """
    state = ProducerState()
    confirm(state)
    write(state, 0)
    asked = state.begin_verification(PRODUCER, 1)
    assert asked is not None
    assert end(state, epoch=1, version=2)
    asked.confirm()
    write(state, 0, epoch=1)


def test_each_transaction_of_an_epoch_is_confirmed_by_itself() -> None:
    """The marker of the first transaction ends its confirmation."""
    state = ProducerState()
    confirm(state)
    write(state, 0)
    assert end(state)
    with pytest.raises(InvalidTxnState):
        write(state, 1)
    confirm(state)
    write(state, 1)


@pytest.mark.parametrize("supports_epoch_bump", [True, False])
def test_a_producer_of_version_2_begins_with_sequence_0(supports_epoch_bump: bool) -> None:
    """A later request that arrives before the first one waits for it; older producers may begin anywhere (KIP-360)."""
    state = ProducerState()
    asked = state.begin_verification(PRODUCER, 0)
    assert asked is not None
    assert asked.confirm(supports_epoch_bump=supports_epoch_bump)
    if supports_epoch_bump:
        with pytest.raises(OutOfOrderSequenceNumber, match="must begin with sequence 0, not 3"):
            write(state, 3)
        write(state, 0)
    else:
        write(state, 3)


def test_what_was_confirmed_for_one_epoch_is_nothing_to_another() -> None:
    """A fenced producer gets its error, a newer producer asks anew, and the older request is void then."""
    state = ProducerState()
    old = state.begin_verification(PRODUCER, 3)
    assert old is not None
    confirm(state, 4)
    old.confirm()
    with pytest.raises(InvalidProducerEpoch):
        state.begin_verification(PRODUCER, 3)
    with pytest.raises(InvalidProducerEpoch):
        write(state, 0, epoch=3)
    write(state, 0, epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        state.begin_verification(PRODUCER, 3)


def test_a_retry_of_what_is_in_the_log_begins_nothing() -> None:
    """It is answered with its original, also when the transaction has ended."""
    state = ProducerState()
    confirm(state)
    write(state, 0)
    assert end(state)
    state.check_in_transaction(header_of(0, attributes=TRANSACTIONAL_BIT))


def test_the_same_marker_is_written_once() -> None:
    """A coordinator without a response asks again; its successor's marker is kept, since it fences the former."""
    state = ProducerState()
    confirm(state)
    write(state, 0)
    assert end(state)
    assert not end(state)
    assert end(state, coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFenced):
        end(state, coordinator_epoch=4)


def test_a_marker_that_comes_late_ends_nothing_since_version_2() -> None:
    """Its epoch is above that of its own transaction, and that of the next transaction is the same (KIP-890)."""
    state = ProducerState()
    confirm(state)
    write(state, 0)
    assert end(state, epoch=1, version=2)
    confirm(state, 1)
    write(state, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        end(state, epoch=1, version=2)
    assert state.in_transaction(PRODUCER, 1)
    with pytest.raises(InvalidTxnState):
        end(state, epoch=0, version=2)
    assert end(state, epoch=2, version=2)


def test_a_marker_that_a_newer_epoch_of_an_open_transaction_keeps_out_was_not_written() -> None:
    """Its coordinator must not take "fenced" for "written": the transaction would stay open for ever."""
    state = ProducerState()
    confirm(state)
    write(state, 0)
    state.record(header_of(0, attributes=TRANSACTIONAL_BIT, epoch=2), 11, 0)
    with pytest.raises(InvalidTxnState):
        end(state, epoch=1, version=2)
    assert end(state, epoch=3, version=2)
    with pytest.raises(InvalidProducerEpoch):
        end(state, epoch=1, version=2)


def test_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest has to be asked again."""
    monkeypatch.setattr(verification, "MAX_VERIFICATIONS", 2)
    kept = verification.Verifications()
    first = kept.begin(1, 0)
    kept.begin(2, 0)
    kept.begin(3, 0)
    first.confirm()
    assert (len(kept), first.holds, kept.holds(1, 0)) == (2, False, False)


def test_epochs_of_one_producer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that is not confirmed has to be asked about again, and a confirmed one last of all."""
    monkeypatch.setattr(verification, "MAX_VERIFICATIONS", 3)
    kept = verification.Verifications()
    assert kept.begin(1, 5).confirm()
    asked = [kept.begin(1, epoch) for epoch in range(6, 10)]
    assert (len(kept), kept.holds(1, 5)) == (3, True)
    assert [each.confirm() for each in asked] == [False, False, True, True]
    monkeypatch.setattr(verification, "MAX_VERIFICATIONS", 1)
    kept.clear()
    assert kept.begin(1, 5).confirm()
    kept.begin(2, 0)
    assert (len(kept), kept.holds(1, 5)) == (1, False)


def test_a_marker_is_a_sign_of_life() -> None:
    """producer.id.expiration.ms counts from it, so that what it fences stays fenced; none expires in a transaction."""
    state = ProducerState()
    confirm(state)
    write(state, 0)
    assert state.expire(0, idle_ms=100) == 0
    assert state.expire(200, idle_ms=100) == 0
    assert end(state)
    assert state.expire(250, idle_ms=100) == 0
    assert state.expire(300, idle_ms=100) == 0
    assert state.expire(350, idle_ms=100) == 1
