"""The decisions of a transaction coordinator about one transactional id: pure functions of its tail.

The rules and error codes are Apache Kafka's, with one exception. One record both fences a producer and aborts its
transaction, so no failure can separate the two.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from raftlog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from raftlog.base.machine import Decision
from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from raftlog.coordinator.transactions.transaction import (
    COMPLETE,
    EXHAUSTED_EPOCH,
    IDLE,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    PREPARED_STATES,
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    Transaction,
    TransactionChanged,
    TransactionEvent,
    TransactionState,
    next_state,
)
from raftlog.coordinator.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    SendMarkers,
    VerifyPartitions,
)

AllocateProducerId = Callable[[], int]
"""Return a unique producer id. Raise CoordinatorLoadInProgress when none is available."""

FIRST_EPOCH = 0


def _changed(after: Transaction) -> TransactionChanged:
    return TransactionChanged(after.transactional_id, after)


# -- a producer begins ------------------------------------------------------------------------------------


def decide_init(
    tail: Transaction, request: InitProducerId, *, take_id: AllocateProducerId, now_ms: int
) -> Decision:
    """Give a producer its id and epoch. An open transaction is aborted first: the client retries."""
    _check_epoch(request.producer)
    if tail.exists and request.producer != NO_PRODUCER and not _may_go_on(tail, request.producer):
        raise ProducerFenced("another producer has this transactional id")
    if tail.state in PREPARED_STATES:
        raise ConcurrentTransactions("the previous transaction is still completing")
    if tail.state is TransactionState.ONGOING:
        if request.producer not in (NO_PRODUCER, tail.producer):
            raise ProducerFenced(f"the epoch is {tail.producer.epoch}, not {request.producer.epoch}")
        # The holder of the epoch is not fenced by its own bump: it retries with the same epoch. After an exhausted
        # epoch no client gets another.
        holder_epoch = NO_EPOCH if tail.is_exhausted else request.producer.epoch
        fence = _take_epoch(tail, ClientTransactionVersion.TV_0, now_ms, last_epoch=holder_epoch)
        return fence._replace(reply=ConcurrentTransactions("the transaction before is being aborted"))
    fresh = _next_producer(tail, request, take_id)
    after = msgspec.structs.replace(
        tail,
        producer=fresh.producer,
        last_epoch=fresh.last_epoch,
        previous_id=fresh.previous_id,
        state=next_state(tail.state, TransactionEvent.INITIALISED),
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
    )
    return Decision((_changed(after),), reply=after.producer)


class _Fresh(msgspec.Struct, frozen=True):
    producer: ProducerIdAndEpoch
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_PRODUCER_ID


def _may_go_on(tail: Transaction, asker: ProducerIdAndEpoch) -> bool:
    """Return whether it may be the id's producer: it is, or it was and never got the next id (KIP-360)."""
    if asker.producer_id == tail.producer.producer_id:
        return True
    return asker.producer_id == tail.previous_id and asker.epoch >= EXHAUSTED_EPOCH


def _next_producer(tail: Transaction, request: InitProducerId, take_id: AllocateProducerId) -> _Fresh:
    before, asker = tail.producer, request.producer
    if not tail.exists:
        return _Fresh(ProducerIdAndEpoch(take_id(), FIRST_EPOCH))
    if tail.is_exhausted and (asker == NO_PRODUCER or asker.epoch == before.epoch):
        last_epoch = NO_EPOCH if asker == NO_PRODUCER else before.epoch
        return _Fresh(ProducerIdAndEpoch(take_id(), FIRST_EPOCH), last_epoch, before.producer_id)
    if asker == NO_PRODUCER:
        return _Fresh(_bumped(before), NO_EPOCH, tail.previous_id)
    if asker.epoch == before.epoch:
        return _Fresh(_bumped(before), before.epoch, tail.previous_id)
    if asker.epoch == tail.last_epoch:  # a retry after a lost answer
        return _Fresh(before, tail.last_epoch, tail.previous_id)
    raise ProducerFenced(f"epoch {asker.epoch} is not the previous epoch, {before.epoch}")


def _bumped(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    assert producer.epoch < MAX_PRODUCER_EPOCH
    return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)


# -- partitions -------------------------------------------------------------------------------------------


def _check_epoch(producer: ProducerIdAndEpoch) -> None:
    """Raise ProducerFenced for the epoch that fences the last holder: a client that sends it made it up."""
    if producer.epoch >= MAX_PRODUCER_EPOCH:
        raise ProducerFenced(f"no producer has epoch {producer.epoch}")


def _check_producer(tail: Transaction, producer: ProducerIdAndEpoch) -> None:
    """Raise InvalidProducerIdMapping, ProducerFenced or ConcurrentTransactions unless this producer may write now."""
    _check_epoch(producer)
    if not tail.exists:
        raise InvalidProducerIdMapping("unknown transactional id")
    if tail.state in PREPARED_STATES and producer == tail.successor:
        raise ConcurrentTransactions("the previous transaction is still completing")
    if producer.producer_id != tail.producer.producer_id:
        raise InvalidProducerIdMapping(f"the producer id is {tail.producer.producer_id}")
    if producer.epoch != tail.producer.epoch:
        raise ProducerFenced(f"the epoch is {tail.producer.epoch}, not {producer.epoch}")
    if tail.state in PREPARED_STATES:
        raise ConcurrentTransactions("the previous transaction is still completing")


def decide_add(tail: Transaction, request: AddPartitions, *, now_ms: int) -> Decision:
    """Add partitions to the transaction; the first begin it."""
    _check_producer(tail, request.producer)
    is_open = tail.state is TransactionState.ONGOING
    if is_open and request.partitions <= tail.partitions:
        return Decision()
    after = msgspec.structs.replace(
        tail,
        state=next_state(tail.state, TransactionEvent.PARTITIONS_ADDED),
        partitions=tail.partitions | request.partitions,
        start_ms=tail.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=request.client_version,
    )
    return Decision((_changed(after),))


def decide_verify(tail: Transaction, request: VerifyPartitions) -> Decision:
    """Return the partitions that are not part of the producer's open transaction."""
    _check_producer(tail, request.producer)
    present = tail.partitions if tail.state is TransactionState.ONGOING else frozenset()
    return Decision(reply=request.partitions - present)


# -- the end ----------------------------------------------------------------------------------------------


def decide_end(
    tail: Transaction, request: EndTransaction, *, take_id: AllocateProducerId, now_ms: int
) -> Decision:
    """Decide a transaction's outcome, by the rules of the client's version."""
    _check_epoch(request.producer)
    if not tail.exists:
        raise InvalidProducerIdMapping("unknown transactional id")
    if request.client_version is ClientTransactionVersion.TV_2:
        return _end_bumping(tail, request, take_id=take_id, now_ms=now_ms)
    return _end_classic(tail, request, now_ms=now_ms)


def _end_classic(tail: Transaction, request: EndTransaction, *, now_ms: int) -> Decision:
    if request.producer.producer_id != tail.producer.producer_id:
        raise InvalidProducerIdMapping(f"the producer id is {tail.producer.producer_id}")
    if request.producer.epoch != tail.producer.epoch:
        raise ProducerFenced(f"the epoch is {tail.producer.epoch}, not {request.producer.epoch}")
    if tail.state is TransactionState.ONGOING:
        event = TransactionEvent.COMMITTED if request.commit else TransactionEvent.ABORTED
        after = msgspec.structs.replace(tail, update_ms=now_ms, client_version=request.client_version)
        return _prepare(tail, event, after)
    return _ended_already(tail, request)


def _end_bumping(
    tail: Transaction, request: EndTransaction, *, take_id: AllocateProducerId, now_ms: int
) -> Decision:
    """Each end bumps the epoch, so that late or repeated requests are known by their epoch (KIP-890)."""
    asker, current = request.producer, tail.producer
    if _asks_again(tail, asker):
        return _ended_already(tail, request)
    if tail.state in PREPARED_STATES and asker == tail.successor:
        raise ConcurrentTransactions("the previous transaction is still completing")
    if asker.producer_id != current.producer_id:
        raise InvalidProducerIdMapping(f"the producer id is {current.producer_id}")
    if asker.epoch != current.epoch or tail.state in PREPARED_STATES:
        raise ProducerFenced(f"the epoch is {current.epoch}, not {asker.epoch}")
    if tail.state is not TransactionState.ONGOING and request.commit:
        raise InvalidTxnState(
            f"there is no transaction to commit: the transactional id is {tail.state.value}"
        )
    event = TransactionEvent.COMMITTED if request.commit else TransactionEvent.ABORTED
    return _prepare(tail, event, _end_with_bump(tail, take_id, now_ms))


def _asks_again(tail: Transaction, asker: ProducerIdAndEpoch) -> bool:
    """Return whether a client of version 2 retries the end of its last transaction: its epoch is the previous.

    Or the transaction timed out, and no other producer took the id: then an abort is done already, and the client may
    continue. If a classic client or a fence ended it, the previous epoch belongs to a fenced producer.
    """
    if (
        tail.client_version is not ClientTransactionVersion.TV_2
        or tail.state not in PREPARED_STATES | COMPLETE
    ):
        return False
    current = tail.producer
    if current.epoch > FIRST_EPOCH and asker == ProducerIdAndEpoch(current.producer_id, current.epoch - 1):
        return True
    changed_id = tail.state in COMPLETE and current.epoch == FIRST_EPOCH
    return changed_id and asker == ProducerIdAndEpoch(tail.previous_id, EXHAUSTED_EPOCH)


def _ended_already(tail: Transaction, request: EndTransaction) -> Decision:
    """Confirm a repeated end. Raise InvalidTxnState for the other outcome."""
    state = tail.state
    committed = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if (
        state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        and request.commit
        and request.producer != tail.producer
    ):
        # the client keeps to the protocol and timed out while its commit was in flight (KAFKA-20785).
        raise ProducerFenced("the transaction timed out and was aborted")
    if state is TransactionState.EMPTY or committed != request.commit:
        wanted = "commit" if request.commit else "abort"
        raise InvalidTxnState(f"there is no transaction to {wanted}: the transactional id is {state.value}")
    if state in PREPARED_STATES:
        raise ConcurrentTransactions("the transaction's markers are still being written")
    return Decision(reply=tail.producer)


def decide_timeout(tail: Transaction, *, now_ms: int) -> Decision:
    """Abort an open transaction after its timeout: its epoch is over.

    Its client gets the next epoch by InitProducerId with that epoch (KIP-360), and in version 2 also by an abort.
    Apache Kafka does so too: no other producer has the id.
    """
    if tail.is_exhausted:
        return _take_epoch(tail, ClientTransactionVersion.TV_0, now_ms)
    goes_on = tail.client_version is ClientTransactionVersion.TV_2
    version = ClientTransactionVersion.TV_2 if goes_on else ClientTransactionVersion.TV_0
    return _take_epoch(tail, version, now_ms, last_epoch=tail.producer.epoch)


def decide_fence_producer(tail: Transaction, *, now_ms: int) -> Decision:
    """Abort an open transaction and fence its producer, which gets no other epoch.

    The record is a classic record for any client: a fenced producer must not retry an end (`_asks_again`).
    """
    return _take_epoch(tail, ClientTransactionVersion.TV_0, now_ms)


def _take_epoch(
    tail: Transaction, client_version: ClientTransactionVersion, now_ms: int, *, last_epoch: int = NO_EPOCH
) -> Decision:
    if tail.state is not TransactionState.ONGOING:
        return Decision()
    after = msgspec.structs.replace(
        tail,
        # Only a record from elsewhere can have the last epoch: its holder is never admitted.
        producer=tail.producer if tail.producer.epoch >= MAX_PRODUCER_EPOCH else _bumped(tail.producer),
        last_epoch=last_epoch,
        update_ms=now_ms,
        client_version=client_version,
    )
    return _prepare(tail, TransactionEvent.FENCED, after)


def _end_with_bump(tail: Transaction, take_id: AllocateProducerId, now_ms: int) -> Transaction:
    """Return the id with the next epoch for its client, or a new producer id if no epoch is left."""
    return msgspec.structs.replace(
        tail,
        producer=_bumped(tail.producer),
        last_epoch=tail.producer.epoch,
        next_id=take_id() if tail.is_exhausted else NO_PRODUCER_ID,
        start_ms=tail.start_ms if tail.state is TransactionState.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=ClientTransactionVersion.TV_2,
    )


def _prepare(tail: Transaction, event: TransactionEvent, after: Transaction) -> Decision:
    after = msgspec.structs.replace(after, state=next_state(tail.state, event))
    return Decision((_changed(after),), reply=after.successor, effects=(markers_of(after),))


def markers_of(prepared: Transaction) -> SendMarkers:
    """Return the markers to send for an outcome; a new coordinator derives them from the state again."""
    return SendMarkers(
        prepared.transactional_id,
        prepared.producer,
        prepared.state is TransactionState.PREPARE_COMMIT,
        prepared.partitions,
        prepared.client_version,
    )


def decide_complete(tail: Transaction, producer: ProducerIdAndEpoch, *, now_ms: int) -> Decision:
    """Complete the transaction: every partition has this producer's marker."""
    if tail.state not in PREPARED_STATES or tail.producer != producer:
        return Decision()
    rotates = tail.next_id != NO_PRODUCER_ID
    after = msgspec.structs.replace(
        tail,
        state=next_state(tail.state, TransactionEvent.MARKERS_WRITTEN),
        producer=tail.successor,
        previous_id=producer.producer_id if rotates else tail.previous_id,
        next_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        update_ms=now_ms,
    )
    return Decision((_changed(after),))


def decide_expire(tail: Transaction, *, now_ms: int, expiration_ms: int) -> Decision:
    """Remove an id that was unused for `expiration_ms`."""
    if tail.state not in IDLE or now_ms - tail.update_ms < expiration_ms:
        return Decision()
    assert next_state(tail.state, TransactionEvent.EXPIRED) is TransactionState.DEAD
    return Decision((TransactionChanged(tail.transactional_id, None),))
