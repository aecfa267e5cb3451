"""Bugs of the transaction coordinator: its responses, its markers, its fencing, and its failover."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftlog.base.errors import NONE, InvalidProducerEpoch, ProducerFenced
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID
from raftlog.broker.coordination import transaction_markers
from raftlog.broker.coordination.transaction_markers import MarkerSender
from raftlog.coordinator.transactions import decisions, transaction_records
from raftlog.coordinator.transactions.transaction import (
    IDLE,
    PREPARED_STATES,
    Transaction,
    TransactionChanged,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionRunner,
)
from raftlog.storage.verification import Verifications
from raftlog_chaos.scenarios.exactly_once import exactly_once, exactly_once_alone
from tests.planted.plant import Plant

SECONDS = 6.0
TESTS = "tests/coordinator/transactions/test_transactions.py"


class Hasty(Runner[Transaction]):
    """Takes for committed what it has appended."""

    __slots__ = ()

    def handle(self, decide: Any, answer: Answer) -> None:
        super().handle(decide, answer)
        self.committed(self.end_offset)


def act_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Answers and markers leave when the outcome is appended."""
    new_runner = TransactionCoordinator._runner

    def hasty_runner(coordinator: TransactionCoordinator, transaction: Transaction) -> TransactionRunner:
        made = new_runner(coordinator, transaction)
        made.__class__ = Hasty
        return made

    patch.setattr(TransactionCoordinator, "_runner", hasty_runner)


def forget_outcomes_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not send the markers that its predecessor had decided."""
    load = TransactionCoordinator.load

    def load_quietly(coordinator: TransactionCoordinator, transactions: Any, **times: Any) -> list[Any]:
        load(coordinator, transactions, **times)
        return []

    patch.setattr(TransactionCoordinator, "load", load_quietly)


def keep_partitions_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Further partitions of a transaction are in no record (redpanda#6018): a failover leaves them out."""
    encode = decisions._changed

    def without_later_ones(after: Transaction) -> TransactionChanged:
        if after.state is TransactionState.ONGOING and after.update_ms != after.start_ms:
            after = msgspec.structs.replace(after, partitions=frozenset(sorted(after.partitions)[:1]))
        return encode(after)

    patch.setattr(decisions, "_changed", without_later_ones)


def leave_out_the_last_epoch(patch: pytest.MonkeyPatch) -> None:
    """Which epoch came before is in no record, as in Apache Kafka 4.3: after a failover a retried bump is fenced."""
    tags = transaction_records._tags

    def without_last_epoch(transaction: Transaction) -> bytes:
        return tags(msgspec.structs.replace(transaction, last_epoch=NO_EPOCH))

    patch.setattr(transaction_records, "_tags", without_last_epoch)


def _leave_out(patch: pytest.MonkeyPatch, **fields: int) -> None:
    """Have records leave out these fields of a transactional id."""
    tags = transaction_records._tags
    patch.setattr(transaction_records, "_tags", lambda each: tags(msgspec.structs.replace(each, **fields)))


def leave_out_the_next_id(patch: pytest.MonkeyPatch) -> None:
    """The producer id after an exhausted id is in no record: after a failover only the response names it."""
    _leave_out(patch, next_id=NO_PRODUCER_ID)


def leave_out_the_previous_id(patch: pytest.MonkeyPatch) -> None:
    """The exhausted producer id is in no record: after a failover a client that lost the response is fenced."""
    _leave_out(patch, previous_id=NO_PRODUCER_ID)


def forget_the_id_that_ended(patch: pytest.MonkeyPatch) -> None:
    """An end with the last epoch forgets the producer id that it had: a client that asks again for it is refused."""
    complete = decisions.decide_complete

    def complete_without_it(tail: Transaction, producer: Any, **times: int) -> Decision:
        decided = complete(tail, producer, **times)
        records = tuple(
            decisions._changed(msgspec.structs.replace(each.transaction, previous_id=tail.previous_id))
            for each in decided.records
        )
        return decided._replace(records=records)

    patch.setattr(decisions, "decide_complete", complete_without_it)


def let_all_of_the_id_before_go_on(patch: pytest.MonkeyPatch) -> None:
    """A client with any epoch of the exhausted producer id is taken for the holder of the last epoch."""

    def may_go_on(tail: Transaction, asker: Any) -> bool:
        return asker.producer_id in (tail.producer.producer_id, tail.previous_id)

    patch.setattr(decisions, "_may_go_on", may_go_on)


def _fence_whoever(patch: pytest.MonkeyPatch, name: str) -> None:
    """Have a decision that takes an epoch forget its holder's epoch."""
    decide = getattr(decisions, name)

    def fence(tail: Transaction, *given: Any, **named: Any) -> Decision:
        take_epoch = decisions._take_epoch

        def take(tail: Transaction, version: Any, now_ms: int, *, last_epoch: int = NO_EPOCH) -> Decision:
            return take_epoch(tail, version, now_ms)

        with pytest.MonkeyPatch.context() as within:
            within.setattr(decisions, "_take_epoch", take)
            return decide(tail, *given, **named)  # type: ignore[no-any-return]

    patch.setattr(decisions, name, fence)


def fence_after_a_timeout(patch: pytest.MonkeyPatch) -> None:
    """A producer with a transaction that took too long gets no epoch any more, though no other has its id."""
    _fence_whoever(patch, "decide_timeout")


def fence_after_its_own_bump(patch: pytest.MonkeyPatch) -> None:
    """A producer is fenced by its own bump, which aborted its transaction, when it retries as requested."""
    _fence_whoever(patch, "decide_init")


def believe_epochs_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    """An epoch fences lower epochs once it is asked about, whatever the coordinator will say of it."""

    def check_epoch(verifications: Verifications, producer_id: int, epoch: int) -> None:
        if any(each > epoch for each in verifications._asked.get(producer_id, ())):
            raise InvalidProducerEpoch(f"epoch {epoch} is older")

    patch.setattr(Verifications, "check_epoch", check_epoch)


def keep_few_epochs(patch: pytest.MonkeyPatch) -> None:
    """Four epochs of one producer are asked about at a time: invented epochs crowd the right epoch out."""
    begin = Verifications.begin

    def begin_one_of_four(verifications: Verifications, producer_id: int, epoch: int) -> Any:
        asked = verifications._asked.get(producer_id, {})
        if epoch not in asked and len(asked) >= 4:
            confirmed = verifications._confirmed.get(producer_id)
            verifications._void(producer_id, next(each for each in asked if asked[each] is not confirmed))
        return begin(verifications, producer_id, epoch)

    patch.setattr(Verifications, "begin", begin_one_of_four)


def take_failed_markers_for_written(patch: pytest.MonkeyPatch) -> None:
    """A leader counts every response as a success."""
    codes = transaction_markers._codes
    patch.setattr(transaction_markers, "_codes", lambda result: dict.fromkeys(codes(result), NONE))


def give_up_unreachable_leaders(patch: pytest.MonkeyPatch) -> None:
    """Markers are sent once; a leader that is away does not get them."""

    def give_up(sender: MarkerSender, link: Any, batch: Any) -> None:
        for outcome, partitions in batch:
            sender._markers_written(outcome, partitions)

    patch.setattr(MarkerSender, "_try_later", give_up)
    patch.setattr(MarkerSender, "_wait_for_metadata", MarkerSender._markers_written)


def keep_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A producer that begins anew gets its predecessor's epoch."""
    patch.setattr(decisions, "_bumped", lambda producer: producer)


def fence_nobody(patch: pytest.MonkeyPatch) -> None:
    """Any epoch of the producer id may end a transaction."""
    end = decisions.decide_end

    def end_for_anybody(tail: Transaction, request: Any, **given: Any) -> Decision:
        if tail.exists and tail.state is TransactionState.ONGOING:
            request = msgspec.structs.replace(request, producer=tail.producer)
        return end(tail, request, **given)

    patch.setattr(decisions, "decide_end", end_for_anybody)


def refuse_who_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A client that goes on while markers of its last transaction are written is refused, not asked to wait."""
    check = decisions._check_producer

    def check_and_refuse(tail: Transaction, producer: Any) -> None:
        if tail.state in PREPARED_STATES:
            raise ProducerFenced("the previous transaction is still completing")
        check(tail, producer)

    patch.setattr(decisions, "_check_producer", check_and_refuse)


def fence_all_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator takes the epoch from every producer with an open transaction."""
    load = TransactionCoordinator.load

    def load_and_fence(coordinator: TransactionCoordinator, transactions: Any, **times: Any) -> list[Any]:
        fenced = [
            msgspec.structs.replace(each, producer=decisions._bumped(each.producer))
            if each.state is TransactionState.ONGOING
            else each
            for each in transactions
        ]
        return load(coordinator, fenced, **times)

    patch.setattr(TransactionCoordinator, "load", load_and_fence)


def abort_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator aborts what its predecessor was committing."""
    load = TransactionCoordinator.load

    def load_and_abort(coordinator: TransactionCoordinator, transactions: Any, **times: Any) -> None:
        changed = [
            msgspec.structs.replace(each, state=TransactionState.PREPARE_ABORT)
            if each.state in PREPARED_STATES
            else each
            for each in transactions
        ]
        load(coordinator, changed, **times)

    patch.setattr(TransactionCoordinator, "load", load_and_abort)


def begin_while_the_last_one_ends(patch: pytest.MonkeyPatch) -> None:
    """A producer that begins anew does not wait until every partition has heard of the transaction before."""
    init = decisions.decide_init

    def init_at_once(tail: Transaction, request: Any, **given: Any) -> Decision:
        if tail.state in PREPARED_STATES:
            assert TransactionState.EMPTY in IDLE
            tail = msgspec.structs.replace(tail, state=TransactionState.EMPTY)
        return init(tail, request, **given)

    patch.setattr(decisions, "decide_init", init_at_once)


def time_no_transaction(patch: pytest.MonkeyPatch) -> None:
    """A transaction of a dead producer stays open for ever."""
    patch.setattr(TransactionCoordinator, "_watch", lambda *arguments, **times: None)


PLANTS = [
    Plant("outcome-before-commit", "ack before replication", exactly_once, act_before_the_commit, SECONDS),
    Plant("outcomes-not-told-again", "open transaction", exactly_once, forget_outcomes_on_failover, SECONDS),
    Plant("partitions-in-memory", "redpanda#6018", exactly_once, keep_partitions_in_memory, SECONDS),
    Plant(
        "marker-errors-ignored", "half a transaction", exactly_once, take_failed_markers_for_written, SECONDS
    ),
    Plant("markers-sent-once", "half a transaction", exactly_once, give_up_unreachable_leaders, SECONDS),
    Plant("epoch-not-bumped", "KIP-98 fencing", exactly_once, keep_the_epoch, SECONDS),
    Plant("any-epoch-ends", "KAFKA-17754 late EndTxn", exactly_once, fence_nobody, SECONDS),
    Plant("commit-turned-abort", "half a transaction", exactly_once, abort_what_is_committed, SECONDS),
    Plant("begun-too-early", "KIP-98 fencing", exactly_once, begin_while_the_last_one_ends, SECONDS),
    Plant("refused-amid-markers", "KIP-98 fencing", exactly_once_alone, refuse_who_goes_on, SECONDS),
    Plant("last-epoch-left-out", "KIP-360 retries", exactly_once_alone, leave_out_the_last_epoch, SECONDS),
    Plant("timed-out-fenced", "KIP-360 next epoch", exactly_once_alone, fence_after_a_timeout, SECONDS),
    Plant(
        "bumped-fenced",
        "KIP-360 next epoch",
        exactly_once_alone,
        fence_after_its_own_bump,
        SECONDS,
        test=f"{TESTS}::test_a_bump_within_a_transaction_aborts_it_and_its_retry_gets_the_next_epoch",
    ),
    Plant(
        "next-id-left-out",
        "KIP-360 exhausted ids",
        exactly_once_alone,
        leave_out_the_next_id,
        SECONDS,
        test=f"{TESTS}::test_an_end_with_the_last_epoch_brings_another_producer_id",
    ),
    Plant(
        "previous-id-left-out",
        "KIP-360 exhausted ids",
        exactly_once_alone,
        leave_out_the_previous_id,
        SECONDS,
        test=f"{TESTS}::test_a_retried_bump_is_answered_by_the_next_coordinator",
    ),
    Plant(
        "ended-id-forgotten",
        "KIP-890 exhausted ids",
        exactly_once_alone,
        forget_the_id_that_ended,
        SECONDS,
        test=f"{TESTS}::test_an_end_with_the_last_epoch_brings_another_producer_id",
    ),
    Plant(
        "id-before-not-fenced",
        "KIP-360 exhausted ids",
        exactly_once_alone,
        let_all_of_the_id_before_go_on,
        SECONDS,
        test=f"{TESTS}::test_only_the_last_holder_of_the_id_before_is_let_on",
    ),
    Plant("made-up-epochs-fence", "KIP-890 fencing", exactly_once_alone, believe_epochs_unconfirmed, SECONDS),
    Plant("made-up-epochs-crowd", "KIP-890 questions", exactly_once_alone, keep_few_epochs, SECONDS),
    Plant("owners-fenced", "KIP-98 fencing", exactly_once_alone, fence_all_on_failover, SECONDS),
    Plant("transactions-not-timed", "hanging transaction", exactly_once, time_no_transaction, SECONDS),
]
