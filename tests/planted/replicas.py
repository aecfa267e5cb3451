"""Bugs of replication: who counts, up to where, and who may lead with what."""

from __future__ import annotations

import pytest

from raftlog.broker import fetcher
from raftlog.proof.stories.blackouts import blackouts
from raftlog.proof.stories.endurance import endure
from raftlog.quorum import wal
from raftlog.replication.following import Following
from raftlog.replication.leading import Leading
from raftlog.replication.progress import Progress
from raftlog.storage.producers import ProducerState
from tests.planted.plant import Plant


def acknowledge_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """The leader counts what it has only written, and followers fetch on before they flushed."""
    appended = Leading._note_appended

    def count_at_once(leading: Leading, end_before: int) -> None:
        appended(leading, end_before)
        leading.note_flushed(leading.log.log_end_offset)

    patch.setattr(Leading, "_note_appended", count_at_once)
    patch.setattr(fetcher, "_is_dirty", lambda partition: False)


def commit_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """A follower counts for one record more than it proved to have."""
    note_fetch = Progress.note_fetch

    def note_more(progress: Progress, offset: int, epoch: int, *, leader_end_offset: int, now: float) -> None:
        proven = offset + (offset < leader_end_offset)
        note_fetch(progress, proven, epoch, leader_end_offset=leader_end_offset, now=now)

    patch.setattr(Progress, "note_fetch", note_more)


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: a follower's high watermark lags, so this cuts what was committed."""
    begin = Following.begin

    def cut_and_begin(following: Following) -> None:
        begin(following)
        partition = following.partition
        partition.log.truncate_to(max(partition.high_watermark, partition.log_start_offset))

    patch.setattr(Following, "begin", cut_and_begin)


def forget_producers_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know what its producers sent to the old one."""
    begin = Leading.begin

    def forget_and_begin(leading: Leading) -> None:
        leading.log._producers = ProducerState()
        begin(leading)

    patch.setattr(Leading, "begin", forget_and_begin)


def tell_the_end_before_it_is_settled(patch: pytest.MonkeyPatch) -> None:
    """KIP-207: a new leader's high watermark may lie before what the old one told."""
    begin = Leading.begin

    def begin_settled(leading: Leading) -> None:
        leading.epoch_start_offset = 0
        begin(leading)

    patch.setattr(Leading, "begin", begin_settled)


def metadata_without_sync(patch: pytest.MonkeyPatch) -> None:
    """Raft §5: a vote or an entry that is answered for must be on the disk."""

    def append_only(journal: wal.Wal, records: list[bytes]) -> None:
        assert journal._file is not None
        group = b"".join([wal.group_record(journal._end), *records])
        journal._end += journal._file.pwritev([group], journal._end)

    patch.setattr(wal.Wal, "append", append_only)


STORM_S = 4.0

PLANTS = [
    Plant("ack-before-flush", "H3 ack without fsync", blackouts, acknowledge_before_the_flush, 4.0),
    Plant("high-watermark-one-too-high", "high watermark off by one", endure, commit_one_too_many, STORM_S),
    Plant("truncate-to-high-watermark", "H4 KIP-101", endure, truncate_to_the_high_watermark, STORM_S),
    Plant("dedup-lost-on-failover", "H10 duplicates on retry", endure, forget_producers_on_failover, STORM_S),
    Plant("offsets-before-kip-207", "H9 KIP-207", endure, tell_the_end_before_it_is_settled, STORM_S),
    Plant("metadata-without-sync", "P2 journal not synced", endure, metadata_without_sync, STORM_S),
]
