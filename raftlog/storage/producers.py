"""A log's knowledge of idempotent producers: the last five batches of each (KIP-98, KIP-360), and open transactions.

Pure state: it receives every batch in order. `check_sequence` only reads; `record` is the only writer. Kafka's
`<offset>.snapshot` files keep only the last batch of each producer; the log's end restores the others.

The number of producers is bounded, since clients can make ids up. A further producer evicts the least recent writer
without an open transaction. Recency is counted in offsets, so all replicas evict the same producers, even a replica
that reads the log again. After a failover a retry is recognised as before. An evicted producer may go on with any
sequence (KIP-360), but a retry of what it wrote before counts as new. Snapshots keep the order. Truncation restores the
producers that the truncated batches had evicted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from struct import Struct
from struct import error as StructError
from typing import ClassVar, Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from raftlog.base.types import NO_EPOCH, NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP
from raftlog.records.batch import EndTransactionMarker
from raftlog.records.header import MAX_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from raftlog.storage.refused_batches import RefusedBatches, is_behind
from raftlog.storage.verification import Verification, Verifications

NUM_BATCHES_TO_RETAIN: Final = 5
"""Batches per producer for detecting retries: the most that a client may have in flight."""

MAX_IDLE_PRODUCERS: Final = 5_000
"""Producers of a partition that are remembered without an open transaction: about 2 MB, and 3 ms to encode.

It must be the same on all brokers, so it is not a setting.
"""

TV_2: Final = 2
"""The transaction.version since which every end of a transaction bumps its producer's epoch (KIP-890)."""

_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION: Final = 1
_CRC_END: Final = 6


class LogAppendInfo(NamedTuple):
    """The position of a produced batch. `log_append_time_ms` is -1 under CreateTime; a duplicate names its original."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class BatchMetadata(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMetadata:
        """Return the batch that a header in the log describes."""
        end, offset = header.last_sequence, header.base_offset
        return cls(header.base_sequence, end, offset, header.last_offset, header.max_timestamp)


_NO_BATCH: Final = BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, NO_TIMESTAMP)


class ProducerStateEntry:
    """The state of one producer id: its epoch, last batches and open transaction."""

    __slots__ = (
        "active_at",
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "marker_offset",
        "txn_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: tuple[BatchMetadata, ...] = ()
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_EPOCH
        self.txn_first_offset = NO_OFFSET
        """First offset of the open transaction, or -1."""
        self.marker_offset = NO_OFFSET
        """The offset of its last marker; -1 if there is none, or unknown since a snapshot was read."""
        self.active_at = NO_OFFSET
        """The offset of its newest batch or marker. After reading a snapshot, it is the snapshot's offset or lower."""

    @property
    def last_sequence(self) -> int:
        """Return the last sequence of its newest batch; -1 if no batch with a sequence is remembered."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class AbortedTransaction(NamedTuple):
    """A transaction with records that read_committed consumers skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers describes it; -1 for what is unknown or absent (KIP-664)."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class ProducerState:
    """All producers of one partition."""

    default_max_idle_producers: ClassVar[int] = MAX_IDLE_PRODUCERS
    """Scenarios of the simulator have all replicas remember fewer."""

    __slots__ = (
        "_ended",
        "_idle",
        "_looks",
        "_most",
        "_open",
        "_pushed_out_at",
        "markers_known_from",
        "refused_batches",
        "verifications",
    )

    def __init__(self) -> None:
        self.refused_batches = RefusedBatches()
        self.verifications = Verifications()
        """Soft: which transactions may begin here."""
        self._idle: dict[int, ProducerStateEntry] = {}
        """Producers without an open transaction, the least recent writer first."""
        self._open: dict[int, ProducerStateEntry] = {}
        """Producers with an open transaction, the oldest transaction first."""
        self._ended: list[tuple[int, int]] = []
        self._looks: deque[tuple[int, int]] = deque()
        """When `expire` ran, and after which offset no producer had written by then. Soft."""
        self._most = self.default_max_idle_producers
        self._pushed_out_at = NO_OFFSET
        """The newest offset at which a further producer evicted another."""
        self.markers_known_from = 0
        """Offset of the snapshot that this was read from: it holds no offsets of markers."""

    def __len__(self) -> int:
        return len(self._idle) + len(self._open)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._idle or producer_id in self._open

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._idle.get(producer_id) or self._open.get(producer_id)

    def _all(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return chain(self._idle.items(), self._open.items())

    def set_max_idle_producers(self, most: int) -> int:
        """Set how many producers without an open transaction are remembered; return how many were evicted.

        Replicas agree on MAX_IDLE_PRODUCERS. Less is for brokers with too many producers in all their partitions.
        """
        self._most = most
        gone = list(islice(self._idle, max(len(self._idle) - most, 0)))
        for producer_id in gone:
            del self._idle[producer_id]
        return len(gone)

    def _keep(self, producer_id: int, producer: ProducerStateEntry) -> None:
        """Put a producer without an open transaction last in the eviction order; the least recent writer may be
        evicted.
        """
        self._idle[producer_id] = producer
        if len(self._idle) > self._most:
            del self._idle[next(iter(self._idle))]
            self._pushed_out_at = producer.active_at

    def must_retain_batch(self, header: BatchHeader) -> bool:
        """Return whether this state depends on that batch: a remembered batch, or the last marker where none is
        remembered.

        Batches without sequences are not remembered: the offsets that a producer commits depend on a marker.
        """
        producer = self.get(header.producer_id)
        if producer is None:
            return False
        if header.is_control:
            is_last = producer.marker_offset in (header.base_offset, NO_OFFSET)
            return not producer.batches and producer.epoch == header.producer_epoch and is_last
        return any(batch.last_offset == header.last_offset for batch in producer.batches)

    def active_since(self, offset: int) -> list[int]:
        """Return the producers whose last remembered batch ends at `offset` or beyond."""
        return [
            each for each, known in self._all() if known.batches and known.batches[-1].last_offset >= offset
        ]

    def active(self) -> list[ActiveProducer]:
        """Return every producer that is known."""
        return [
            ActiveProducer(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for producer_id, producer in self._all()
        ]

    # -- transactions (KIP-890) ----------------------------------------------------------------------------------

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this very epoch is open."""
        producer = self.get(producer_id)
        return producer is not None and producer.txn_first_offset != NO_OFFSET and producer.epoch == epoch

    def begin_verification(self, producer_id: int, epoch: int) -> Verification | None:
        """Return the verification that the coordinator must confirm before the first batch here; None if not required.

        Raise InvalidProducerEpoch for a fenced producer.
        """
        if self.in_transaction(producer_id, epoch) or self.verifications.holds(producer_id, epoch):
            return None
        producer = self.get(producer_id)
        if producer is not None and producer.epoch > epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} is older than {producer.epoch}")
        return self.verifications.begin(producer_id, epoch)

    def check_in_transaction(self, header: BatchHeader) -> None:
        """Raise InvalidTxnState for a batch that would begin a transaction which its coordinator has not confirmed.

        A retry of a batch in the log does not begin a transaction. InvalidProducerEpoch for a fenced producer.
        OutOfOrderSequenceNumber where earlier batches, of requests in flight, are missing.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self.in_transaction(producer_id, epoch):
            return
        if self.verifications.holds(producer_id, epoch):
            if header.base_sequence > 0 and self.verifications.must_begin_with_0(producer_id):
                self._check_first_sequence(header)
            return
        if self.check_sequence(header) is None:
            self.verifications.check_epoch(producer_id, epoch)
            raise InvalidTxnState("the partition is not part of the producer's transaction")

    def _check_first_sequence(self, header: BatchHeader) -> None:
        if self.refused_batches:
            self.refused_batches.check(header)
        producer = self.get(header.producer_id)
        if producer is None or not producer.batches:
            raise OutOfOrderSequenceNumber(
                f"a transaction of version 2 must begin with sequence 0, not {header.base_sequence}"
            )

    def check_marker(
        self, producer_id: int, epoch: int, *, coordinator_epoch: int, transaction_version: int
    ) -> bool:
        """Return whether a marker has to be written; False if a marker of the same coordinator ended the transaction
        already.

        Since transaction.version 2 a marker's epoch is above that of the transaction that it ends, so a late marker has
        no effect. Raise InvalidProducerEpoch, TransactionCoordinatorFenced; InvalidTxnState where a newer transaction
        is open, which begins only after the marker of the previous transaction.
        """
        producer = self.get(producer_id)
        if producer is None:
            return True
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"coordinator epoch {coordinator_epoch} is older than {producer.coordinator_epoch}"
            )
        is_open = producer.txn_first_offset != NO_OFFSET
        if is_open and epoch < producer.epoch:
            raise InvalidTxnState(
                f"the marker has epoch {epoch}, but the open transaction has epoch {producer.epoch}"
            )
        if epoch < producer.epoch or (is_open and epoch == producer.epoch and transaction_version >= TV_2):
            raise InvalidProducerEpoch(
                f"the marker has epoch {epoch}, but the producer has epoch {producer.epoch}"
            )
        return is_open or epoch > producer.epoch or coordinator_epoch > producer.coordinator_epoch

    def check_open_transaction(
        self, producer_id: int, offset: int, last_sequence: int, last_timestamp: int
    ) -> None:
        """Raise InvalidTxnState unless a producer's transaction is open since that very offset, and it wrote no more.

        Later batches belong to another transaction that has a coordinator; aborting would lose them.
        """
        producer = self.get(producer_id)
        if producer is None or producer.txn_first_offset != offset:
            raise InvalidTxnState(f"no transaction of producer {producer_id} is open since offset {offset}")
        if (producer.last_sequence, producer.last_timestamp) != (last_sequence, last_timestamp):
            raise InvalidTxnState(f"producer {producer_id} has written since then")

    def end_verifications(self, producer_id: int, epoch: int, *, transaction_version: int) -> None:
        """End the verifications that a marker ends, whether or not the marker has to be written."""
        next_epoch = epoch if transaction_version >= TV_2 else epoch + 1
        self.verifications.end_below(producer_id, next_epoch)

    def check_sequence(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the original if `header` is a retry of any of the last five batches, None if it is new and in order.

        Raise InvalidProducerEpoch (an older epoch) and OutOfOrderSequenceNumber (a gap). An unknown producer may start
        with any sequence, since its state may have expired (KIP-360); a new epoch starts with 0. Batches sent after a
        refused batch (`refused_batches`) are refused with the same error.
        """
        if self.refused_batches:
            self.refused_batches.check(header)
        producer = self._idle.get(header.producer_id) or self._open.get(header.producer_id)
        if producer is None:
            return None
        sequence = header.base_sequence
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(f"epoch {header.producer_epoch} is older than {producer.epoch}")
        if producer.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            # Also for a newer epoch: it would fence the marker that ends the transaction, and the transaction would
            # stay open.
            raise InvalidTxnState("a producer with an open transaction may not write outside it")
        if header.producer_epoch > producer.epoch:
            if sequence > 0:
                raise OutOfOrderSequenceNumber(
                    f"a new producer epoch must begin with sequence 0, not {sequence}"
                )
            return None
        if sequence < 0:
            return None  # a coordinator's own batch in a transaction, or a marker: has no sequence
        batches = producer.batches
        if not batches:
            if sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"after the epoch's marker the sequence must be 0, not {sequence}"
                )
            return None
        last_sequence = batches[-1].last_sequence
        if sequence == (last_sequence + 1) & MAX_SEQUENCE:
            return None
        end = (sequence + header.last_offset_delta) & MAX_SEQUENCE
        for batch in batches:
            if batch.base_sequence == sequence and batch.last_sequence == end:
                return batch
        raise OutOfOrderSequenceNumber(f"sequence {sequence} does not follow {last_sequence}")

    def is_retry(self, header: BatchHeader) -> bool:
        """Return whether the batch is in the log already. Raises as `check_sequence`."""
        return header.producer_id >= 0 and self.check_sequence(header) is not None

    def note_refused_batch(self, header: BatchHeader, error: KafkaError) -> None:
        """Refuse the batches after a refused batch until it comes again.

        A batch behind the producer's last in the log is ignored: any client may send it, and it will not come again.
        """
        producer = self.get(header.producer_id)
        if producer is not None and producer.epoch >= header.producer_epoch:
            is_next = producer.epoch == header.producer_epoch and (
                not producer.batches or is_behind(producer.last_sequence, header.base_sequence)
            )
            if not is_next:
                return
        self.refused_batches.note(header, error)

    def record(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Record a data batch that is in the log at `base_offset`."""
        producer_id = header.producer_id
        if self.refused_batches:
            self.refused_batches.pop((producer_id, header.producer_epoch), None)
        epoch = header.producer_epoch
        producer = self._idle.pop(producer_id, None) or self._open.get(producer_id)
        if producer is None:
            producer = ProducerStateEntry(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = ()
        delta, sequence = header.last_offset_delta, header.base_sequence
        producer.active_at = last_offset = base_offset + delta
        if sequence >= 0:
            fields = (sequence, (sequence + delta) & MAX_SEQUENCE, base_offset, last_offset, timestamp)
            producer.batches = (
                *producer.batches[1 - NUM_BATCHES_TO_RETAIN :],
                tuple.__new__(BatchMetadata, fields),
            )
        producer.last_timestamp = timestamp
        if producer.txn_first_offset == NO_OFFSET:
            if header.attributes & TRANSACTIONAL_BIT:
                producer.txn_first_offset = base_offset
                self._open[producer_id] = producer
                self.verifications.end(producer_id)
            else:
                self._keep(producer_id, producer)

    def end_transaction(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int
    ) -> AbortedTransaction | None:
        """Record the marker at `offset`; return the transaction if the marker aborts it."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = (
            self._open.pop(producer_id, None)
            or self._idle.pop(producer_id, None)
            or ProducerStateEntry(epoch)
        )
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = ()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marker_offset = producer.active_at = offset
        producer.last_timestamp = header.max_timestamp
        first_offset, producer.txn_first_offset = producer.txn_first_offset, NO_OFFSET
        self._keep(producer_id, producer)
        if first_offset == NO_OFFSET:
            return None
        self._ended.append((first_offset, offset))
        if marker.commit:
            return None
        oldest = next(iter(self._open.values()), None)
        unstable = offset + 1 if oldest is None else oldest.txn_first_offset
        return AbortedTransaction(producer_id, first_offset, offset, unstable)

    def restore_batches(self, producer_id: int, batches: list[BatchMetadata]) -> None:
        """Put back batches that a snapshot left out, if they lead up to the last one known."""
        producer = self.get(producer_id)
        if producer is not None and producer.batches and batches[-1][:4] == producer.batches[-1][:4]:
            producer.batches = tuple(batches[-NUM_BATCHES_TO_RETAIN:])

    def try_truncate(self, end_offset: int) -> bool:
        """Forget the batches at or after `end_offset`. Return False, without a change, if that needs the log.

        Only the log can restore a transaction, evicted producers, or a producer's state before all its remembered
        batches.
        """
        if end_offset < self.markers_known_from or end_offset <= self._pushed_out_at:
            return False
        if self._open or self._ended:
            return False
        cut = [producer for producer in self._idle.values() if producer.active_at >= end_offset]
        for producer in cut:
            if producer.marker_offset >= end_offset:
                return False  # its transaction is open again; damage cuts committed markers too
            batches = producer.batches
            if not batches or batches[0].last_offset >= end_offset or batches[-1].last_offset < end_offset:
                return False
        for producer in cut:
            producer.batches = tuple(each for each in producer.batches if each.last_offset < end_offset)
            producer.last_timestamp = producer.batches[-1].timestamp
            producer.active_at = max(producer.batches[-1].last_offset, producer.marker_offset)
        if cut:
            self._idle = dict(sorted(self._idle.items(), key=_by_activity))
        self._looks = deque((at_ms, min(offset, end_offset)) for at_ms, offset in self._looks)
        return True

    @property
    def has_uncommitted_markers(self) -> bool:
        """Whether a transaction was ended by a marker that is not yet known to be committed."""
        return bool(self._ended)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or ended by a marker not yet known to be committed."""
        first = next(iter(self._open.values()), None)
        oldest = None if first is None else first.txn_first_offset
        for first_offset, _ in self._ended:
            if oldest is None or first_offset < oldest:
                oldest = first_offset
        return oldest

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Record that the markers before `high_watermark` are committed."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]

    def expire(self, now_ms: int, *, idle_ms: int) -> int:
        """Forget producers without an open transaction and without a new batch for `idle_ms` of these calls' time.

        Call it now and then; it returns how many expired (producer.id.expiration.ms). Records' own timestamps may be
        old.
        """
        silent_below = NO_OFFSET
        while self._looks and now_ms - self._looks[0][0] >= idle_ms:
            silent_below = self._looks.popleft()[1]
        self._looks.append((now_ms, 1 + max((each.active_at for _, each in self._all()), default=NO_OFFSET)))
        gone = [producer_id for producer_id, each in self._idle.items() if each.active_at < silent_below]
        for producer_id in gone:
            del self._idle[producer_id]
        return len(gone)

    def encode(self) -> bytes:
        """Return the bytes of a snapshot file (Kafka's schema, version 1), the least recent writer first."""
        entries = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self)))
        pack = _SNAPSHOT_ENTRY.pack
        for producer_id, producer in self._all():
            last = producer.batches[-1] if producer.batches else _NO_BATCH
            _, last_sequence, base_offset, last_offset, _ = last
            entries += pack(
                producer_id,
                producer.epoch,
                last_sequence,
                last_offset,
                last_offset - base_offset,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        crc = crc32c(memoryview(entries)[_CRC_END:])
        entries[2:_CRC_END] = crc.to_bytes(4, "big")
        return bytes(entries)

    @classmethod
    def decode(cls, file_bytes: bytes) -> ProducerState:
        """Return the state of a snapshot file. ValueError if it is damaged or of another version."""
        try:
            version, crc, count = _SNAPSHOT_HEAD.unpack_from(file_bytes)
        except StructError as error:
            raise ValueError("producer snapshot is cut off") from error
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"producer snapshot of version {version}")
        if crc32c(memoryview(file_bytes)[_CRC_END:]) != crc:
            raise ValueError("producer snapshot's CRC does not match")
        if len(file_bytes) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            raise ValueError("producer snapshot's length does not match its count")
        state = cls()
        active_at = NO_OFFSET
        for fields in _SNAPSHOT_ENTRY.iter_unpack(file_bytes[_SNAPSHOT_HEAD.size :]):
            active_at = max(active_at, fields[3])
            state._restore(*fields).active_at = active_at
        state._open = dict(sorted(state._open.items(), key=_by_opening))
        state.set_max_idle_producers(cls.default_max_idle_producers)
        return state

    def _restore(self, producer_id: int, epoch: int, *rest: int) -> ProducerStateEntry:
        last_sequence, last_offset, delta, timestamp, coordinator_epoch, open_since = rest
        producer = ProducerStateEntry(epoch)
        if last_sequence != NO_SEQUENCE:
            base_sequence = (last_sequence - delta) & MAX_SEQUENCE
            batch = BatchMetadata(base_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
            producer.batches = (batch,)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.txn_first_offset = open_since
        (self._idle if open_since == NO_OFFSET else self._open)[producer_id] = producer
        return producer


def _by_activity(entry: tuple[int, ProducerStateEntry]) -> int:
    return entry[1].active_at


def _by_opening(entry: tuple[int, ProducerStateEntry]) -> int:
    return entry[1].txn_first_offset
