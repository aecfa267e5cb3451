"""The writes of hostile clients: producer ids that were never assigned, and batches that no honest client builds."""

from __future__ import annotations

from typing import Final

from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import read_header
from raftlog.records.raw_records import rebuild_batch
from raftlog.records.varint import write_varint
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog_chaos.workloads.observations import Observations

FIRST_ID: Final = 1 << 40


class MadeUpProducers:
    """Floods partitions with batches of producer ids that are used once. `flood` it where the leader is."""

    def __init__(self, history: Observations) -> None:
        self._history = history
        self.written = 0
        """The number of ids with an accepted batch."""

    def flood(self, replica: Partition, count: int) -> None:
        """Append a batch for each of so many new ids, if this replica leads. Raises KafkaError."""
        if type(replica.role) is not LeaderRole:
            return
        for _ in range(count):
            value = f"made-up/{self.written}".encode()
            self._history.attempt((replica.topic, replica.index), (value,))
            stamp = ProducerIdAndSequence(FIRST_ID + self.written, 0, 0)
            batch = build_batch([new_record(None, value, timestamp=-1)], producer=stamp)
            self.written += 1
            replica.append_produced(memoryview(batch), acks=1, now_ms=0)


def impossible_batch() -> bytes:
    """Return a batch of two records with timestamps that exceed 64 bits once compaction rebuilds the batch.

    Partitions refuse it where they walk records; older logs may hold it.
    """
    records = [new_record(b"impossible", None, timestamp=0)] * 2
    plain = bytearray()
    for offset_delta, timestamp_delta in ((0, -(2**63)), (1, 2**63 - 1)):
        body = bytearray(b"\0")
        write_varint(body, timestamp_delta)
        write_varint(body, offset_delta)
        body += b"\x14impossible\x01\0"
        write_varint(plain, len(body))
        plain += body
    header = read_header(build_batch(records))
    return rebuild_batch(
        header._replace(base_timestamp=1), bytes(plain), count=2, newest_delta=0, horizon_ms=None
    )
