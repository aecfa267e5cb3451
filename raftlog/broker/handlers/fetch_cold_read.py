"""A read of records that are not in memory: created on the loop, run by a thread that waits for the disk."""

from __future__ import annotations

from errno import EIO

from raftlog.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower
from raftlog.broker.network.fetch_sessions import SessionPartition
from raftlog.replication.replica_host import PartitionRead


class ColdRead:
    """A read that has to wait for the disk. It is created on the loop and run away from it. It uses only the log."""

    __slots__ = (
        "_aborted",
        "_disk_error",
        "_end_offset",
        "_for_consumer",
        "_leader_epoch",
        "_limit",
        "_min_one",
        "_offset",
        "_partition",
        "_read",
        "_refused",
        "entry",
    )

    def __init__(
        self,
        entry: SessionPartition,
        read: PartitionRead,
        *,
        limit: int,
        end_offset: int,
        min_one: bool,
        for_consumer: bool,
    ) -> None:
        """`limit` in bytes; `end_offset` is the offset that the reader may not read past."""
        assert entry.partition is not None
        self.entry = entry
        self._read = read
        self._disk_error: OSError | None = None
        self._refused: KafkaError | None = None
        self._partition = entry.partition
        self._leader_epoch = entry.partition.leader_epoch
        self._offset = entry.offset
        self._limit = limit
        self._end_offset = end_offset
        self._min_one = min_one
        self._for_consumer = for_consumer
        # Determined now, since the segment may be cleaned, and its aborted transactions forgotten, while it is read.
        log = entry.partition.log
        self._aborted = None if read.aborted is None else log.transaction_index.since(entry.offset)

    def run(self) -> PartitionRead:
        """Wait for the disk."""
        log, end = self._partition.log, self._end_offset
        try:
            found = log.read_with_end(
                self._offset, self._limit, end_offset=end, min_one=self._min_one, cached=False
            )
            if self._for_consumer:
                found = log.read_on(found, self._limit, end_offset=end, min_one=self._min_one, cached=False)
        except KafkaError as error:
            self._refused = error
            return PartitionRead(error.code, -1, -1, -1, b"")
        except OSError as error:
            self._disk_error = error
            return PartitionRead(KafkaStorageError.code, -1, -1, -1, b"")
        records, read_end = found
        read = self._read._replace(records=records, end_offset=read_end)
        if self._aborted is None or records is None:
            return read
        return read._replace(aborted=tuple(self._aborted.in_batches(self._offset, records)))

    def finish(self, read: PartitionRead) -> PartitionRead:
        """Return the result on the loop, if the replica led all the while.

        A follower truncates and overwrites its log (KAFKA-18723). A failing disk goes offline; a file that retention
        deleted meanwhile is not a failure.
        """
        if self._refused is not None:
            return read._replace(error_code=self._partition.read_error_for_client(self._refused).code)
        partition, error = self._partition, self._disk_error
        if error is not None and error.errno == EIO:
            partition.storage_failed(error)
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            return PartitionRead(read.error_code or NotLeaderOrFollower.code, -1, -1, -1, b"")
        return read
