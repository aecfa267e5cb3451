"""Clients of all versions, honest and not, on a transactional id with epochs that run out (a hypothesis machine)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.coordinator.transactions.transaction import (
    EXHAUSTED_EPOCH,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    PREPARED_STATES,
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from tests.coordinator.transactions.transaction_coordinator_setup import (
    FIRST_ID,
    TransactionCoordinatorSetup,
)
from tests.kit.examples import examples

EPOCHS = st.integers(EXHAUSTED_EPOCH - 2, MAX_PRODUCER_EPOCH) | st.integers(0, 3)
VERSIONS = st.sampled_from(ClientTransactionVersion)


class LastEpochs(RuleBasedStateMachine):
    """Every request gets a response, and no client ever gets the epoch that fences the last."""

    @initialize(
        epoch=st.integers(EXHAUSTED_EPOCH - 2, MAX_PRODUCER_EPOCH),
        state=st.sampled_from(
            [
                TransactionState.EMPTY,
                TransactionState.ONGOING,
                TransactionState.COMPLETE_ABORT,
                TransactionState.PREPARE_COMMIT,
            ]
        ),
        version=VERSIONS,
    )
    def begin(self, epoch: int, state: TransactionState, version: ClientTransactionVersion) -> None:
        self.bench = TransactionCoordinatorSetup()
        self.bench.take_id()
        now_ms = self.bench.now_ms
        producer = ProducerIdAndEpoch(FIRST_ID, epoch)
        record = Transaction("x", producer, state, 1000, update_ms=now_ms, start_ms=now_ms)
        if (
            version is ClientTransactionVersion.TV_2
            and state is TransactionState.PREPARE_COMMIT
            and epoch == MAX_PRODUCER_EPOCH
        ):
            record = Transaction(
                "x", producer, state, 1000, next_id=self.bench.take_id(), client_version=version
            )
        self.bench.take_over(record, now_ms=now_ms)

    def _asker(self, epoch: int | None, back: int) -> ProducerIdAndEpoch:
        tail = self.bench.read()
        asker = tail.producer if epoch is None else ProducerIdAndEpoch(tail.producer.producer_id, epoch)
        return ProducerIdAndEpoch(asker.producer_id - back, asker.epoch)

    def _heard(self, answer: object) -> None:
        if isinstance(answer, ProducerIdAndEpoch):
            assert 0 <= answer.epoch < MAX_PRODUCER_EPOCH

    @rule(epoch=st.none() | EPOCHS, back=st.integers(0, 1), anew=st.booleans())
    def init(self, epoch: int | None, back: int, anew: bool) -> None:
        self._heard(self.bench.init(NO_PRODUCER if anew else self._asker(epoch, back), timeout_ms=1000))

    @rule(epoch=st.none() | EPOCHS, back=st.integers(0, 1), version=VERSIONS)
    def add(self, epoch: int | None, back: int, version: ClientTransactionVersion) -> None:
        asker = self._asker(epoch, back)
        if self.bench.add(asker, 0, version=version) is None:
            assert asker.epoch < MAX_PRODUCER_EPOCH

    @rule(epoch=st.none() | EPOCHS, back=st.integers(0, 1), commit=st.booleans(), version=VERSIONS)
    def end(self, epoch: int | None, back: int, commit: bool, version: ClientTransactionVersion) -> None:
        self._heard(self.bench.end(self._asker(epoch, back), commit=commit, version=version))

    @rule()
    def told(self) -> None:
        if self.bench.read().state in PREPARED_STATES:
            self.bench.markers_written()

    @rule()
    def time_is_up(self) -> None:
        self.bench.pass_time(2)
        assert self.bench.read().state is not TransactionState.ONGOING

    @invariant()
    def the_epoch_can_be_written(self) -> None:
        assert 0 <= self.bench.read().producer.epoch <= MAX_PRODUCER_EPOCH


LastEpochs.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
TestLastEpochs = LastEpochs.TestCase
