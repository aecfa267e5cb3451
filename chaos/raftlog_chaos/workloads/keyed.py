"""Writes a compacted topic: keys are overwritten and deleted, without a transaction and in transactions that commit or
abort.

The writer is at the leader's replica, in the place of a coordinator. It promises no more; the watcher of the replicas
knows the committed records.
"""

from __future__ import annotations

import random
from typing import Final

from raftlog.base.errors import KafkaError
from raftlog.base.types import NO_EPOCH
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker

PRODUCER_ID: Final = 7_100
KEYS: Final = 8
WEAR: Final = 10
"""After so many records the oldest key is never written again: its deletion is final."""


class KeyedWriter:
    """`step` it in the process of the node that leads; after a failover it aborts what may be open."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._leader_epoch = NO_EPOCH
        self._number = 0
        self._stamp = ProducerIdAndSequence(PRODUCER_ID, 0, 0)
        self._is_open = False
        self.transactions = 0
        """The number of completed transactions: a scenario without any is no proof."""

    def step(self, replica: Partition) -> None:
        """Write one batch or one marker, if this replica leads."""
        role = replica.role
        if type(role) is not LeaderRole:
            return
        try:
            if role.leader_epoch != self._leader_epoch:
                self._leader_epoch = role.leader_epoch
                self._stamp = ProducerIdAndSequence(PRODUCER_ID, self._stamp.producer_epoch + 1, 0)
                self._end(replica, commit=False)
            elif self._is_open and self._chance.random() < 0.3:
                self._end(replica, commit=self._chance.random() < 0.5)
            elif self._chance.random() < 0.3:
                self._write(replica, transactional=True)
            else:
                self._write(replica, transactional=False)
        except KafkaError:
            self._leader_epoch = NO_EPOCH  # its outcome is unknown: abort it

    def _write(self, replica: Partition, *, transactional: bool) -> None:
        records = []
        for _ in range(self._chance.randint(1, 3)):
            self._number += 1
            value = None if self._chance.random() < 0.25 else b"%d" % self._number
            key = self._number // WEAR + self._chance.randrange(KEYS)
            records.append(new_record(b"key %d" % key, value, timestamp=-1))
        if not transactional:
            replica.append_produced(memoryview(build_batch(records)), acks=-1, now_ms=0)
            return
        verification = replica.begin_verification(PRODUCER_ID, self._stamp.producer_epoch)
        if verification is not None:
            verification.confirm()  # it is the coordinator, too
        batch = build_batch(records, producer=self._stamp, attributes=TRANSACTIONAL_BIT)
        replica.append_produced(memoryview(batch), acks=-1, now_ms=0)
        self._stamp = self._stamp._replace(base_sequence=self._stamp.base_sequence + len(records))
        self._is_open = True

    def _end(self, replica: Partition, *, commit: bool) -> None:
        self.transactions += self._is_open
        self._is_open = False
        marker = TxnMarker(PRODUCER_ID, self._stamp.producer_epoch, commit, coordinator_epoch=0)
        replica.append_marker(marker, now_ms=0)
