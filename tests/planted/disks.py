"""Bugs of storage: what is synced, what recovery trusts, and what a log remembers of epochs and producers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from raftlog.broker.replicas.flusher import Flusher
from raftlog.quorum import wal
from raftlog.records.header import HEADER_BYTES, BatchHeader, read_header
from raftlog.replication import leader_role
from raftlog.storage import (
    damage,
    fetched_batches,
    producer_snapshots,
    recovery,
    segment,
    segment_reads,
    segment_scanner,
)
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.flush import FlushTicket
from raftlog.storage.log import Log
from raftlog.storage.log_directory import LogDirectory
from raftlog.storage.producers import ProducerState
from raftlog.storage.recovery import LoadedLog
from raftlog.storage.segment import Segment
from raftlog.storage.segment_scanner import SegmentScanner
from raftlog_chaos.scenarios.blackouts import blackouts
from raftlog_chaos.scenarios.clean_stop import clean_stop
from raftlog_chaos.scenarios.corruption import corruption
from raftlog_chaos.scenarios.disk_errors import disk_errors
from raftlog_chaos.scenarios.endurance import endure
from raftlog_chaos.scenarios.kip_101 import kip_101
from raftlog_chaos.scenarios.names_of_one_log import names_of_one_log
from raftlog_chaos.scenarios.refused import refused
from raftlog_chaos.scenarios.retry import retry
from tests.planted.plant import Plant

RECALLED = (
    "tests/storage/test_recalled_batches.py"
    "::test_a_batch_whose_header_rotted_is_recalled_as_it_was_or_not_at_all"
)


def never_check_crc(patch: pytest.MonkeyPatch) -> None:
    """Neither recovery nor a first reader nor a follower looks at a CRC."""
    for module in (damage, fetched_batches, segment_reads, segment_scanner):
        patch.setattr(module, "check_crc", lambda buffer, position, header: None)


def read_back_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A first reader believes the headers of what it reads, as a coordinator that reads its log back is."""
    patch.setattr(segment_reads, "_verify", lambda *where, **how: None)


def recall_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A start recalls a producer's last batches from headers that may have rotted."""

    def header_at(scanner: SegmentScanner, position: int) -> BatchHeader:
        return read_header(scanner._view(position, HEADER_BYTES), position - scanner._start)

    trusting = type("TrustingScanner", (SegmentScanner,), {"header_at": header_at})
    patch.setattr(producer_snapshots, "SegmentScanner", trusting)


def recall_out_of_place(patch: pytest.MonkeyPatch) -> None:
    """A start recalls a producer's last batches at their base offsets, which no CRC covers."""
    patch.setattr(producer_snapshots, "_batches_in_place", Segment.iter_headers)


def replay_out_of_place(patch: pytest.MonkeyPatch) -> None:
    """A start makes the producers' state from batches at their base offsets, which no CRC covers."""
    replay = producer_snapshots._replay

    def replay_all(*given: Any) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(Segment, "follows", lambda *_: True)
            replay(*given)

    patch.setattr(producer_snapshots, "_replay", replay_all)


def accept_torn_tails(patch: pytest.MonkeyPatch) -> None:
    """Recovery takes a batch for whole if its header is."""
    patch.setattr(segment_scanner, "check_crc", lambda buffer, position, header: None)


def trust_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    """No reader holds a batch's leader epoch, which no CRC covers, to what the log noted of epochs."""
    patch.setattr(segment.Segment, "_is_of_its_epoch", lambda segment, header: True)


def never_check_what_is_served(patch: pytest.MonkeyPatch) -> None:
    """A leader trusts its memory, however often a follower comes back for the same."""
    patch.setattr(leader_role, "CHECKED_REFETCH_INTERVAL", 1 << 60)


def take_damage_for_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """Recovery cuts a log at the first bad batch, whatever comes after it."""
    patch.setattr(recovery._Recovery, "_acknowledged_until", lambda *arguments: None)


def ignore_failed_syncs(patch: pytest.MonkeyPatch) -> None:
    """A sync that failed counts as done."""
    ended = Flusher._sync_ended
    patch.setattr(Flusher, "_sync_ended", lambda self, error: ended(self, None))


def count_refused_syncs(patch: pytest.MonkeyPatch) -> None:
    """A log counts as synced though the kernel refused to: no thread does it instead."""
    submit = Flusher._submit

    def submit_some(flusher: Flusher, ticket: FlushTicket) -> bool:
        taken = submit(flusher, ticket)
        return taken or not (ticket.directories or ticket.paths)

    patch.setattr(Flusher, "_submit", submit_some)


def sync_no_folders(patch: pytest.MonkeyPatch) -> None:
    """The bytes of a new segment are synced, its name is not."""
    patch.setattr(FlushTicket, "sync_directory", lambda ticket, path: None)


def put_the_recovery_point_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint claims what was only written."""
    checkpoint = Log.checkpoint

    def claim_all(log: Log) -> int:
        checkpoint(log)
        log.recovery_point = log.log_end_offset
        return log.recovery_point

    patch.setattr(Log, "checkpoint", claim_all)


def leave_the_clean_marker(patch: pytest.MonkeyPatch) -> None:
    """The file that a clean stop once wrote is believed after every later crash."""
    take = LogDirectory._take_clean_marker

    def take_and_put_back(directory: LogDirectory) -> int | None:
        epoch = take(directory)
        if epoch is not None:
            directory.write_clean_shutdown_file(epoch)
        return epoch

    patch.setattr(LogDirectory, "_take_clean_marker", take_and_put_back)


def forget_epochs_as_follower(patch: pytest.MonkeyPatch) -> None:
    """A follower's log does not learn the epochs of what it fetched."""
    append = Log._append_run

    def append_only(log: Log, run: memoryview, headers: list[Any], now_ms: int) -> None:
        noting = LeaderEpochs.note
        with pytest.MonkeyPatch.context() as within:
            within.setattr(
                LeaderEpochs,
                "note",
                lambda epochs, epoch, start: epochs.latest < 0 and noting(epochs, epoch, start),
            )
            append(log, run, headers, now_ms)

    patch.setattr(Log, "_append_run", append_only)


def forget_epochs_on_recovery(patch: pytest.MonkeyPatch) -> None:
    """A restart keeps the newest epoch only (as KAFKA-10432 skipped the first)."""
    load = recovery.load

    def load_newest(*arguments: Any, **rest: Any) -> LoadedLog:
        contents = load(*arguments, **rest)
        epochs = contents.epochs
        epochs._epochs, epochs._starts = epochs._epochs[-1:], epochs._starts[:1]
        return contents

    patch.setattr(recovery, "load", load_newest)


def keep_producers_on_truncation(patch: pytest.MonkeyPatch) -> None:
    """A truncated batch is still taken for a producer's newest batch."""
    patch.setattr(ProducerState, "try_truncate", lambda state, end_offset: True)


def remember_one_batch_after_restart(patch: pytest.MonkeyPatch) -> None:
    """A snapshot holds a producer's last batch only, and the others are not looked for (KIP-98: five)."""
    patch.setattr(producer_snapshots, "_recall_batches", lambda state, segments, offset: None)


def metadata_without_sync(patch: pytest.MonkeyPatch) -> None:
    """Raft §5: a vote or an entry that is answered for must be on the disk."""

    def append_only(journal: wal.Wal, records: list[bytes]) -> None:
        assert journal._file is not None
        group = b"".join([wal.group_record(journal._end), *records])
        journal._end += journal._file.pwritev([group], journal._end)

    patch.setattr(wal.Wal, "append", append_only)


def need_what_is_cut(patch: pytest.MonkeyPatch) -> None:
    """A segment is cut only if its time index can be made of all its batches, those to be cut too."""
    patch.setattr(segment, "suppress", lambda error: nullcontext())


def believe_a_recovery_point_from_before_a_cut(patch: pytest.MonkeyPatch) -> None:
    """A start that cut damage off leaves the recovery point as it was, beyond what is fetched again."""
    patch.setattr(recovery._Recovery, "_limit_recovery_point", lambda recovering, end_offset: None)


def take_flushed_records_for_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """A start cuts what looks like a torn write off in silence, though all of it was on the disk once."""
    begin = recovery._Recovery.__init__

    def begin_without(recovering: Any, *given: Any, flushed_until: int, **named: Any) -> None:
        begin(recovering, *given, flushed_until=0, **named)

    patch.setattr(recovery._Recovery, "__init__", begin_without)


def cut_off_what_is_not_there(patch: pytest.MonkeyPatch) -> None:
    """Damage is cut off although the loop has truncated the log to before it: the log's end moves forward."""
    truncate = Log.truncate_damage

    def cut(log: Log) -> None:
        end, bad = log.log_end_offset, log._uncut_from
        truncate(log)
        if bad is not None and bad > end:
            log._segments.active.truncate(log._segments.active.size, bad)
            log._forget_beyond(bad)

    patch.setattr(Log, "truncate_damage", cut)


PLANTS = [
    Plant("crc-never-checked", "bit rot", corruption, never_check_crc),
    Plant("torn-tail-accepted", "torn write", blackouts, accept_torn_tails),
    Plant("leader-epochs-trusted", "rot outside the CRC", refused, trust_leader_epochs),
    Plant("served-rot-not-checked", "rot in the page cache", refused, never_check_what_is_served),
    Plant(
        "cut-needs-what-is-cut",
        "rot met by a truncation",
        corruption,
        need_what_is_cut,
        test="tests/storage/test_truncate_rot.py::test_a_cut_before_rot_needs_nothing_of_what_is_cut",
    ),
    Plant(
        "read-back-unchecked",
        "rot met by a coordinator",
        corruption,
        read_back_unchecked,
        test=("tests/broker/coordination/test_rotten_logs.py::test_a_rotten_header_misleads_no_coordinator"),
    ),
    Plant(
        "damage-cut-beyond-the-end",
        "rot met by a truncation",
        corruption,
        cut_off_what_is_not_there,
        test="tests/storage/test_damage_races.py::test_damage_in_what_the_loop_took_away_is_not_cut_off",
    ),
    Plant("recalled-unchecked", "rot in a header", corruption, recall_unchecked, test=RECALLED),
    Plant("recalled-out-of-place", "rot outside the CRC", corruption, recall_out_of_place, test=RECALLED),
    Plant("replayed-out-of-place", "rot outside the CRC", corruption, replay_out_of_place, test=RECALLED),
    Plant("damage-taken-for-torn-tail", "damage in mid-log", corruption, take_damage_for_a_torn_tail),
    Plant(
        "recovery-point-beyond-a-cut",
        "damage in mid-log",
        corruption,
        believe_a_recovery_point_from_before_a_cut,
        test=(
            "tests/storage/test_recovery.py"
            "::test_a_recovery_point_from_before_a_cut_of_damage_is_not_believed"
        ),
    ),
    Plant(
        "flushed-taken-for-torn",
        "lost sectors",
        names_of_one_log,
        take_flushed_records_for_a_torn_tail,
        4.0,
    ),
    Plant("failed-sync-ignored", "failed fsync", disk_errors, ignore_failed_syncs),
    Plant("refused-sync-counts", "ack without fsync", blackouts, count_refused_syncs),
    Plant("folders-not-synced", "name not durable", blackouts, sync_no_folders),
    Plant("recovery-point-too-far", "recovery point", blackouts, put_the_recovery_point_at_the_end),
    Plant("clean-marker-stays", "clean shutdown", clean_stop, leave_the_clean_marker),
    Plant("epochs-not-noted-by-follower", "epoch cache", kip_101, forget_epochs_as_follower),
    Plant("epochs-lost-on-restart", "epoch cache", kip_101, forget_epochs_on_recovery),
    Plant("producers-not-truncated", "producer snapshot", retry, keep_producers_on_truncation),
    Plant("dedup-window-of-one", "producer snapshot", retry, remember_one_batch_after_restart),
    Plant("metadata-without-sync", "P2 journal not synced", endure, metadata_without_sync),
]
