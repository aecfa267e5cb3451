"""A transaction coordinator on a journal that says when it is committed."""

from __future__ import annotations

import itertools
from typing import Any

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorLoadInProgress, KafkaError
from raftlog.base.types import TopicPartition
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactions.transaction import (
    NO_PRODUCER,
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    Transaction,
)
from raftlog.coordinator.transactions.transaction_coordinator import (
    IDS_PER_SWEEP,
    TransactionCoordinator,
)
from raftlog.coordinator.transactions.transaction_records import TransactionReplay
from raftlog.coordinator.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    SendMarkers,
    VerifyPartitions,
)
from raftlog.records.batch import build_batch, new_record
from tests.coordinator.group_coordinator_setup import Answers

FIRST_ID = 1000
CLASSIC, BUMPING = ClientTransactionVersion.TV_0, ClientTransactionVersion.TV_2


def topic_partitions(*indexes: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, index) for index in indexes)


class TransactionCoordinatorSetup:
    """`sent` is what left for the partitions. `autocommit`: all is committed as soon as it is appended."""

    def __init__(self, *, autocommit: bool = True, **settings: Any) -> None:
        self.config = NodeConfig(node_id=1, **settings)
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.refuses: KafkaError | None = None
        self.autocommit = autocommit
        self.now = 100.0
        self.ids = itertools.count(FIRST_ID)
        self.no_ids = False
        self.sent: list[SendMarkers] = []
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.config, self.append, send=self.sent.append, take_id=self.take_id)

    def take_id(self) -> int:
        if self.no_ids:
            raise CoordinatorLoadInProgress
        return next(self.ids)

    def append(self, records: tuple[KeyValue, ...]) -> int:
        if self.refuses is not None:
            raise self.refuses
        stamped = [new_record(key, value, timestamp=self.now_ms) for key, value in records]
        self.batches.append(build_batch(stamped, base_offset=self.end_offset))
        self.end_offset += len(records)
        return self.end_offset

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    def commit(self) -> None:
        self.coordinator.committed(self.end_offset)

    def replayed(self) -> dict[str, Transaction]:
        replay = TransactionReplay()
        replay.feed(b"".join(self.batches))
        assert not replay.skipped
        return {each.transactional_id: each for each in replay.transactions()}

    def fail_over(self, *, batches: int | None = None) -> None:
        """A new coordinator reads the journal back, or as much of it as survived."""
        if batches is not None:
            self.batches = self.batches[:batches]
        self.sent.clear()
        self.coordinator = self.new_coordinator()
        self.take_over(*self.replayed().values())

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now_ms)

    def take_over(self, *records: Transaction, now_ms: int | None = None) -> None:
        """Let the coordinator begin with these."""
        at_ms = self.now_ms if now_ms is None else now_ms
        self.sent += self.coordinator.load(records, at=Moment(self.now, at_ms))

    def ask(self, call: Any, *args: Any, **times: Any) -> Any:
        """Call a coordinator's method; returns its answer, "waits" while there is none."""
        answers = Answers()
        call(*args, answers, **times)
        if self.autocommit:
            self.commit()
        assert len(answers) <= 1
        return answers[0] if answers else "waits"

    def change(self, call: Any, request: Any) -> Any:
        return self.ask(call, request, at=self.moment)

    def init(
        self, producer: ProducerIdAndEpoch = NO_PRODUCER, *, name: str = "x", timeout_ms: int = 60_000
    ) -> Any:
        return self.change(self.coordinator.init_producer_id, InitProducerId(name, timeout_ms, producer))

    def add(
        self,
        producer: ProducerIdAndEpoch,
        *indexes: int,
        name: str = "x",
        version: ClientTransactionVersion = CLASSIC,
    ) -> Any:
        request = AddPartitions(name, producer, topic_partitions(*indexes), version)
        return self.change(self.coordinator.add_partitions, request)

    def verify(self, producer: ProducerIdAndEpoch, *indexes: int, name: str = "x") -> Any:
        return self.ask(
            self.coordinator.verify_partitions, VerifyPartitions(name, producer, topic_partitions(*indexes))
        )

    def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool = True,
        name: str = "x",
        version: ClientTransactionVersion = CLASSIC,
    ) -> Any:
        request = EndTransaction(name, producer, commit, version)
        return self.change(self.coordinator.end_transaction, request)

    def markers_written(self, *, name: str = "x") -> None:
        """Every partition has the marker of the outcome that was sent last."""
        markers = [each for each in self.sent if each.transactional_id == name][-1]
        self.coordinator.markers_written(name, markers.producer, now_ms=self.now_ms)
        if self.autocommit:
            self.commit()

    def read(self, name: str = "x") -> Transaction:
        found = self.ask(self.coordinator.read, name)
        assert isinstance(found, Transaction)
        return found

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.5, end)
            self.coordinator.tick(self.moment)
            self.coordinator.sweep(self.moment, most=IDS_PER_SWEEP)
            if self.autocommit:
                self.commit()
