"""One replica seen from outside: what it holds below its high watermark is the same on all replicas for ever.

It reads the simulated disk's contents without its faults and its chance, so that a check has no effect.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import CorruptMessage, KafkaError
from raftlog.base.types import TopicPartition
from raftlog.records.header import HEADER_BYTES, BatchHeader, check_crc, read_header
from raftlog.replication.leader_role import LATEST, LeaderRole
from raftlog.replication.partition import Partition
from raftlog.storage.segment import Segment
from raftlog_chaos.expected_table import ExpectedTable, records_of

if TYPE_CHECKING:
    from raftlog_chaos.chronicle import Chronicle, Kind
    from raftlog_chaos.simulator.hosts import Host

_Batch = tuple[int, int, int]
"""(end offset, CRC, leader epoch)."""

NOWHERE: Final = -1

_BASE_OFFSET: Final = attrgetter("base_offset")


class PartitionTruth:
    """The records that were ever seen below any replica's high watermark, and up to where clients could ever read."""

    def __init__(self, name: TopicPartition) -> None:
        self.where = f"{name.topic}-{name.partition}"
        self.name = name
        self.batches: dict[int, _Batch] = {}
        self.leaders: dict[int, int] = {}
        """The leader in each leader epoch."""
        self.readable: dict[int, int] = {}
        """The highest latest offset that the leader of each epoch would return to a client."""
        self.excused = False
        self.is_table = False
        """Some replica was compacted: a batch that others fetch from it may be another, though no offset is missing."""
        self.table = ExpectedTable()
        """The expected table of a compacted topic: its batches change while its records don't."""

    def excuse(self) -> None:
        """Permit the loss of records: the last in-sync replica is lost, or a leader was elected uncleanly."""
        self.excused = True

    def readable_before(self, leader_epoch: int) -> int:
        """Return the end of the records that clients could read under earlier leaders."""
        return max((end for epoch, end in self.readable.items() if epoch < leader_epoch), default=0)


class ReplicaWatch:
    """One replica in one life of its node. `look` says what is wrong."""

    __slots__ = (
        "_chronicle",
        "_cleaned",
        "_damaged",
        "_disk",
        "_end",
        "_log_end",
        "_node",
        "_partition",
        "_position",
        "_segment",
        "high_watermark",
        "role",
        "truth",
    )

    def __init__(
        self, host: Host, partition: Partition, truth: PartitionTruth, chronicle: Chronicle | None
    ) -> None:
        self._node = host.name
        self._disk = host.disk
        self._partition = partition
        self._chronicle = chronicle
        self._damaged = False
        self._segment: Segment | None = None
        self._position = NOWHERE
        self._cleaned = partition.log.cleaned_until
        self._end = NOWHERE
        self._log_end = partition.log_end_offset
        self.truth = truth
        self.high_watermark = NOWHERE
        self.role: Any = None

    def has_news(self, partition: Partition) -> bool:
        """Return whether a look is worth while."""
        return (
            partition.high_watermark != self.high_watermark
            or partition.role is not self.role
            or partition.log.cleaned_until != self._cleaned
            or (self._chronicle is not None and partition.log.log_end_offset != self._log_end)
        )

    def look(self) -> list[str]:
        """Take note of what is new, and return what is wrong about it."""
        partition = self._partition
        self._damaged = self._damaged or partition.log.damage is not None
        before, changed_role = self.high_watermark, partition.role is not self.role
        if self._chronicle is not None:
            self._note_changes(self._chronicle)
        self.high_watermark, self.role = partition.high_watermark, partition.role
        if self.high_watermark < before and self._was_set_aside():
            self._damaged = True  # found, cut and repaired between two looks
        if self._damaged or self.truth.excused:
            return []
        faults = []
        if self.high_watermark < before:
            faults.append(f"its high watermark went back from {before} to offset {self.high_watermark}")
        faults += self._judge_order() + self._compare_records()
        if self._is_table() and self._cleaned != partition.log.cleaned_until:
            self._cleaned = partition.log.cleaned_until
            faults += self._judge_table()
        if type(partition.role) is LeaderRole:
            faults += self._judge_leader(partition.role, is_new=changed_role)
        return [f"{self.truth.where}: {self._node}: {fault}" for fault in faults]

    def _note_changes(self, chronicle: Chronicle) -> None:
        partition, where = self._partition, self.truth.name
        if partition.role is not self.role:
            kind = type(partition.role).__name__.lower()
            opened = partition.leader_epoch < 0 and kind == "role"
            text = "opened its log" if opened else f"{kind} in epoch {partition.leader_epoch}"
            text += f"; log ends at {partition.log_end_offset}, high watermark {partition.high_watermark}"
            chronicle.note(self._node, "role", text, where=where)
        end, was = partition.log_end_offset, self._log_end
        self._log_end = end
        if end != was:
            change: Kind = "appended" if end > was else "truncated"
            chronicle.note(self._node, change, "", where=where, offsets=(min(was, end), max(was, end)))
        high, low = partition.high_watermark, max(self.high_watermark, 0)
        if high > low:
            chronicle.note(self._node, "high watermark", "", where=where, offsets=(low, high))

    def _is_table(self) -> bool:
        """Whether the newest record of each key is what counts. A replica that starts does not know its topic yet."""
        log = self._partition.log
        self.truth.is_table |= log.compacted or log.active_segment.may_have_gaps
        return self.truth.is_table

    def _was_set_aside(self) -> bool:
        """Whether the log once had damage that was cut off."""
        return any(".damaged" in name for name in self._disk.listdir(self._partition.log.directory))

    def _judge_order(self) -> list[str]:
        """The log start, the last stable offset, the high watermark and the log's end come in this order."""
        partition = self._partition
        try:
            stable = partition.last_stable_offset
        except AssertionError:
            stable = NOWHERE
        order = [partition.log_start_offset, stable, partition.high_watermark, partition.log_end_offset]
        return [] if order == sorted(order) else [f"log start, stable, high watermark and end are {order}"]

    # -- leaders ------------------------------------------------------------------------------------------------

    def _judge_leader(self, role: LeaderRole, *, is_new: bool) -> list[str]:
        truth, epoch, faults = self.truth, role.leader_epoch, []
        due = truth.readable_before(epoch)
        if is_new:
            node_id = self._partition.host.broker_id
            if truth.leaders.setdefault(epoch, node_id) != node_id:
                faults.append(f"leads in epoch {epoch} of node {truth.leaders[epoch]}")
            if self._partition.log_end_offset < due:
                end = self._partition.log_end_offset
                faults.append(f"leads with a log that ends at {end}; clients could read up to offset {due}")
        readable = _readable(role)
        if readable is None:
            return faults
        if readable < due:
            faults.append(f"the latest offset for clients went back from {due} to {readable}")
        later = [end for other, end in truth.readable.items() if other > epoch]
        if later and readable > min(later):
            faults.append(f"tells {readable} in epoch {epoch}, a later leader told offset {min(later)}")
        truth.readable[epoch] = max(readable, truth.readable.get(epoch, 0))
        return faults

    # -- records ------------------------------------------------------------------------------------------------

    def _compare_records(self) -> list[str]:
        """Compare the batches below the high watermark that were not looked at yet."""
        log = self._partition.log
        start = max(self._end, log.log_start_offset)
        if start > log.log_end_offset:  # cut, and to be filled again: with the same, one hopes
            start = log.log_start_offset
        faults: list[str] = []
        segments = log.segments
        at = max(0, bisect_right(segments, start, key=_BASE_OFFSET) - 1)
        while at < len(segments) and start < self.high_watermark:
            start = self._compare_segment(segments[at], start, faults)
            if self._position < segments[at].size and self._is_table():
                break  # the rest rotted: a later record would hide what is still unknown
            at += 1
        self._end = start
        return faults[:3]

    def _compare_segment(self, segment: Segment, start: int, faults: list[str]) -> int:
        """Go on where the last look ended, if that is here, up to the high watermark; returns the new end."""
        content = self._disk.peek(segment.file.path)
        if content is None:
            return start
        position = self._position if self._segment is segment and self._end == start else 0
        due = start if position else segment.base_offset
        while position + HEADER_BYTES <= segment.size:
            try:
                header = read_header(content, position)
            except CorruptMessage:
                break
            follows = header.base_offset == due or (segment.may_have_gaps and header.base_offset > due)
            if header.end_offset > self.high_watermark or not follows:
                break  # out of its place: it rotted, as where a CRC fails; that is found elsewhere
            if self._hides_what_nobody_knows(segment, start, position, header.length):
                break  # a sound replica has to show first what was here; later records would hide the gap
            if header.base_offset >= start:
                faults += self._compare_batch(header, content, segment, position)
            due = header.end_offset
            start = max(start, due)
            position += header.length
        self._segment, self._position, self._end = segment, position, start
        return start

    def _hides_what_nobody_knows(self, segment: Segment, start: int, position: int, length: int) -> bool:
        """Whether a batch of a table rotted before it was looked at on any replica."""
        rotten = self._disk.has_rotted(segment.file.path, range(position, position + length))
        return rotten and self._is_table() and self.truth.table.end <= start

    def _judge_table(self) -> list[str]:
        """After a cleaning: what is left of the log is what was committed, and the newest of each key."""
        log, left, faults = self._partition.log, list[int](), list[str]()
        for segment in log.segments:
            content = self._disk.peek(segment.file.path)
            position = 0
            if content is not None and self._disk.has_rotted(segment.file.path, range(segment.size)):
                return []  # its replica finds that out by itself, and is judged when it has it sound again
            while content is not None and position + HEADER_BYTES <= segment.size:
                header = read_header(content, position)
                batch = memoryview(bytes(content[position : position + header.length]))
                if header.end_offset <= self.high_watermark and not header.is_control:
                    faults += self.truth.table.take(header, batch)
                    left += [record.offset for record in records_of(batch)]
                position += header.length
        return faults[:3] + self.truth.table.judge(left, log.log_start_offset, self.high_watermark)

    def _compare_batch(
        self, header: BatchHeader, content: bytearray, segment: Segment, position: int
    ) -> list[str]:
        if self._disk.has_rotted(segment.file.path, range(position, position + header.length)):
            return []  # other checks find the rot; this check finds replicas that copied it
        if self._is_table():
            return self._compare_rows(header, content, position)
        batch = (header.end_offset, header.crc, header.leader_epoch)
        known = self.truth.batches.setdefault(header.base_offset, batch)
        if known == batch:
            return []
        try:
            check_crc(content, position, header)
        except CorruptMessage:
            return []  # it was torn, or never written
        mine, others = (f"epoch {epoch}, up to {end}, CRC {crc:08x}" for end, crc, epoch in (batch, known))
        return [f"committed offset {header.base_offset} holds another batch ({mine}) than before ({others})"]

    def _compare_rows(self, header: BatchHeader, content: bytearray, position: int) -> list[str]:
        batch = memoryview(bytes(content[position : position + header.length]))
        try:
            check_crc(batch, 0, header)
        except CorruptMessage:
            return []  # as below
        return self.truth.table.take(header, batch)


def _readable(role: LeaderRole) -> int | None:
    """Return the latest offset that the leader would return to a client now, None for an error."""
    try:
        found = role.offset_for_timestamp(LATEST, read_committed=False, replica=False, search=None)
    except KafkaError:
        return None
    return None if found is None else found[0]
