"""Transactions of one writer in one partition, and a read_committed consumer that is checked against them.

The writer sits at the leader, as producer and coordinator in one, so that it can imitate late messages. It requires no
transaction to be visible, only that no record of an uncommitted transaction is visible.
"""

from __future__ import annotations

import random
from typing import Final

from raftlog.base.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    TransactionCoordinatorFenced,
)
from raftlog.base.types import NO_EPOCH
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker
from raftlog_chaos.workloads.committed_reader import CommittedReader
from raftlog_chaos.workloads.observations import Observations, TopicIndex
from raftlog_chaos.workloads.raw_client import Client

FETCH: Final = 1
PRODUCER_ID: Final = 7_000
READ_COMMITTED: Final = 1
PAUSE_S: Final = 0.005
LATE: Final = 0.1
"""The share of its steps that imitate late messages."""


class Ledger:
    """Writes transactions of a few batches, one at a time; after a failover it aborts a transaction that may be open.

    It also imitates late messages: a batch that is verified while its transaction is aborted, and a marker of a former
    coordinator. Since transaction.version 2 a repeat of the last marker is among them. The log must refuse all of them.
    """

    def __init__(self, chance: random.Random, *, longest: int = 3, producer_id: int = PRODUCER_ID) -> None:
        """`longest`: further batches of a transaction, at most."""
        self._producer_id = producer_id
        self.decided: dict[bytes, bool] = {}
        """Keyed by value: the decided outcome of its transaction, True for commit. Open transactions are missing."""
        self.refused = 0
        """Late messages that did no harm."""
        self._chance = chance
        self._longest = longest
        self._version = chance.choice((1, 2))
        self._leader_epoch = NO_EPOCH
        self._number = 0
        self._stamp = ProducerIdAndSequence(self._producer_id, 0, 0)
        self._open: list[bytes] = []
        self._left = 0

    def step(self, replica: Partition) -> None:
        """Write one batch or one marker, if this replica leads. Call it in its node's process."""
        role = replica.role
        if type(role) is not LeaderRole:
            return
        try:
            if role.leader_epoch != self._leader_epoch:
                self._leader_epoch = role.leader_epoch
                self._stamp = ProducerIdAndSequence(self._producer_id, self._stamp.producer_epoch + 1, 0)
                self._end(replica, commit=False, bump=1)
            elif self._chance.random() < LATE:
                self._be_late(replica)
            elif self._open and self._left == 0:
                self._end(replica, commit=self._chance.random() < 0.6, bump=self._version - 1)
            else:
                self._write(replica)
        except KafkaError:
            self._leader_epoch = NO_EPOCH  # its outcome is unknown: abort it

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or may be."""
        return bool(self._open) or self._leader_epoch == NO_EPOCH

    def finish(self, replica: Partition) -> None:
        """End the open transaction, and begin no other."""
        if self.is_open or replica.leader_epoch != self._leader_epoch:
            self._left = 0
            self.step(replica)

    def _write(self, replica: Partition) -> None:
        self._left = self._left - 1 if self._open else self._chance.randint(0, self._longest)
        self._open.append(self._new_value())
        verification = replica.begin_verification(self._producer_id, self._stamp.producer_epoch)
        if verification is not None:
            verification.confirm()  # it is the coordinator, too
        self._append(replica, self._open[-1], self._stamp)
        self._stamp = self._stamp._replace(base_sequence=self._stamp.base_sequence + 1)

    def _new_value(self) -> bytes:
        self._number += 1
        return b"%d" % self._number

    def _append(self, replica: Partition, value: bytes, stamp: ProducerIdAndSequence) -> None:
        records = [new_record(None, value, timestamp=-1)]
        batch = build_batch(records, producer=stamp, attributes=TRANSACTIONAL_BIT)
        replica.append_produced(memoryview(batch), acks=-1, now_ms=0)

    def _end(self, replica: Partition, *, commit: bool, bump: int) -> None:
        self.decided.update(dict.fromkeys(self._open, commit))
        self._open = []
        if bump:
            self._stamp = ProducerIdAndSequence(self._producer_id, self._stamp.producer_epoch + bump, 0)
        self._mark(replica, commit=commit, coordinator_epoch=1)

    def _mark(self, replica: Partition, *, commit: bool, coordinator_epoch: int) -> None:
        epoch = self._stamp.producer_epoch
        marker = TxnMarker(self._producer_id, epoch, commit, coordinator_epoch, self._version)
        replica.append_marker(marker, now_ms=0)

    def _be_late(self, replica: Partition) -> None:
        try:
            if not self._open:
                value = self._new_value()
                self.decided[value] = False
                self._produce_too_late(replica, value)
            elif self._version > 1 and self._chance.random() < 0.5:
                self._mark(replica, commit=True, coordinator_epoch=1)
            else:
                self._mark(replica, commit=True, coordinator_epoch=0)
        except (InvalidTxnState, InvalidProducerEpoch, TransactionCoordinatorFenced):
            self.refused += 1

    def _produce_too_late(self, replica: Partition, value: bytes) -> None:
        """The coordinator says yes, the transaction is aborted, the yes arrives."""
        stamp = self._stamp
        verification = replica.begin_verification(self._producer_id, stamp.producer_epoch)
        self._end(replica, commit=False, bump=self._version - 1)
        if verification is not None:
            verification.confirm()
        self._append(replica, value, stamp)


class LedgerReader(CommittedReader):
    """Compares what it reads with the ledger, and reports differences."""

    def __init__(self, client: Client, where: TopicIndex, ledger: Ledger, *, history: Observations) -> None:
        super().__init__(client, where)
        self.history = history
        self._ledger = ledger

    def took(self, offset: int, value: bytes) -> None:
        decided = self._ledger.decided.get(value)
        if not decided:
            fate = "was aborted" if decided is False else "is open"
            self.history.blame(f"{self.where}: {value!r} was read at {offset}, but its transaction {fate}")
