"""Bugs of followers that serve consumers (KIP-392): what they take for committed, and when they say so."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.disk import Buffer
from raftlog.base.errors import OffsetOutOfRange
from raftlog.broker.network.fetch_sessions import FetchSession
from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import PartitionRead
from raftlog.replication.role import ReadableRole
from raftlog.storage.log import Log
from raftlog_chaos.scenarios.follower_reads import follower_reads
from tests.planted.plant import Plant

UNIT = "tests/replication/test_follower_reads.py"
BROKERS = "tests/broker/replicas/test_follower_fetch.py"


def believe_the_leaders_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower's high watermark is the leader's, also past the end of its own log."""
    append = FollowerRole.append_fetched

    def append_and_believe(role: FollowerRole, records: memoryview, **told: int) -> None:
        append(role, records, **told)
        partition = role.partition
        partition.high_watermark = max(partition.high_watermark, told["high_watermark"])

    patch.setattr(FollowerRole, "append_fetched", append_and_believe)


def believe_answers_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """An answer to a fetch of an earlier leader epoch is appended."""
    patch.setattr(FollowerRole, "_require", lambda role, leader_epoch: None)


def believe_the_leaders_stable_offset(patch: pytest.MonkeyPatch) -> None:
    """A follower takes its last stable offset from the leader's answer, which has the high watermark there."""
    read = FollowerRole.read_as_consumer

    def read_up_to_the_told(role: FollowerRole, offset: int, max_bytes: int, **rest: Any) -> PartitionRead:
        found = read(role, offset, max_bytes, **{**rest, "read_committed": False})
        if not rest["read_committed"] or found.error_code:
            return found
        records = found.records or b""
        aborted = tuple(role.partition.log.transaction_index.in_batches(offset, records))
        return found._replace(aborted=aborted, last_stable_offset=found.high_watermark)

    patch.setattr(FollowerRole, "read_as_consumer", read_up_to_the_told)


def count_the_log_as_committed(patch: pytest.MonkeyPatch) -> None:
    """A replica that begins to follow serves all that it has, as far as its log goes."""
    begin = FollowerRole.begin

    def begin_with_all(role: FollowerRole) -> None:
        begin(role)
        partition = role.partition
        partition.high_watermark = partition.log_end_offset
        partition.log.on_high_watermark_updated(partition.high_watermark)

    patch.setattr(FollowerRole, "begin", begin_with_all)


def say_where_the_leader_ends(patch: pytest.MonkeyPatch) -> None:
    """OFFSET_OUT_OF_RANGE comes with a high watermark: librdkafka resets instead of asking the leader."""
    patch.setattr(FollowerRole, "_refuse", ReadableRole._refuse)


def call_readers_ahead_diverging(patch: pytest.MonkeyPatch) -> None:
    """A follower judges by its log what it has not fetched yet."""
    read = ReadableRole.read_as_consumer
    lost = FollowerRole.has_lost_leader

    def judge_all(role: FollowerRole, offset: int, max_bytes: int, **rest: Any) -> PartitionRead:
        if lost(role, role.partition.host.now()):
            return PartitionRead(OffsetOutOfRange.code, -1, -1, -1, b"")
        return read(role, offset, max_bytes, **rest)

    patch.setattr(FollowerRole, "read_as_consumer", judge_all)


def wake_no_reader(patch: pytest.MonkeyPatch) -> None:
    """A consumer that waits at a follower is woken by changes of the role alone."""
    append = FollowerRole.append_fetched

    def append_silently(role: FollowerRole, records: memoryview, **told: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Partition, "high_watermark_moved", lambda partition: None)
            append(role, records, **told)

    patch.setattr(FollowerRole, "append_fetched", append_silently)


def keep_damage_that_a_reader_found(patch: pytest.MonkeyPatch) -> None:
    """A follower with a damaged log goes on from its end: in sync, though records in it are lost."""
    patch.setattr(FollowerRole, "cut_damage", lambda role: False)


def append_behind_damage_that_is_cut(patch: pytest.MonkeyPatch) -> None:
    """Damage that a reader found while a fetch was in flight is cut only after its records are judged."""
    cut, append, append_to_log = FollowerRole.cut_damage, FollowerRole.append_fetched, Log.append_as_follower

    def append_without_a_cut(role: FollowerRole, records: memoryview, **told: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(FollowerRole, "cut_damage", lambda role: False)
            append(role, records, **told)
        cut(role)

    def cut_and_append(log: Log, records: Buffer, **rest: Any) -> int:
        log.truncate_damage()
        return append_to_log(log, records, **rest)

    patch.setattr(FollowerRole, "append_fetched", append_without_a_cut)
    patch.setattr(Log, "append_as_follower", cut_and_append)


def forget_committed_markers_at_a_cut(patch: pytest.MonkeyPatch) -> None:
    """After damage is cut, markers that the log has read back count as uncommitted."""

    def limit(partition: Partition) -> None:
        partition.high_watermark = min(partition.high_watermark, partition.log.log_end_offset)

    patch.setattr(Partition, "limit_high_watermark", limit)


def tell_high_watermarks_later(patch: pytest.MonkeyPatch) -> None:
    """A follower with readers gets a new high watermark with the next records, as all others do."""
    patch.setattr(FetchSession, "_want_high_watermarks", lambda session, known: None)


def serve_without_a_leader(patch: pytest.MonkeyPatch) -> None:
    """A follower that is cut off from its leader keeps its readers."""
    patch.setattr(FollowerRole, "has_lost_leader", lambda role, now: False)


def let_them_wait_without_a_leader(patch: pytest.MonkeyPatch) -> None:
    """It refuses them, but those that wait in a session get no answer."""

    async def nothing(housekeeping: Housekeeping) -> None:
        pass

    patch.setattr(Housekeeping, "send_readers_back", nothing)


PLANTS = [
    Plant(
        "high-watermark-past-the-end",
        "KIP-392 a read of nothing",
        follower_reads,
        believe_the_leaders_high_watermark,
    ),
    Plant(
        "answers-of-any-epoch",
        "KIP-392 another leader's records",
        follower_reads,
        believe_answers_of_any_epoch,
        test=("tests/replication/test_following.py::test_an_answer_asked_in_another_leader_epoch_is_dropped"),
    ),
    Plant(
        "stable-offset-of-the-leader",
        "KIP-392 an open transaction read",
        follower_reads,
        believe_the_leaders_stable_offset,
    ),
    Plant(
        "followers-serve-all",
        "KIP-392 an uncommitted record read",
        follower_reads,
        count_the_log_as_committed,
    ),
    Plant(
        "out-of-range-with-offsets",
        "KIP-392 a reset by mistake",
        follower_reads,
        say_where_the_leader_ends,
        test=f"{UNIT}::test_an_offset_outside_the_followers_log_is_out_of_range_without_any_offset",
    ),
    Plant(
        "readers-ahead-diverge",
        "KIP-320 a false truncation",
        follower_reads,
        call_readers_ahead_diverging,
        test=f"{UNIT}::test_a_follower_that_lags_does_not_say_that_its_readers_diverge",
    ),
    Plant(
        "followers-wake-no-reader",
        "KIP-392 a lost wake",
        follower_reads,
        wake_no_reader,
        test=f"{UNIT}::test_a_waiting_consumer_is_woken_when_the_follower_hears_of_a_commit",
    ),
    Plant(
        "read-damage-stays",
        "a damaged copy counts",
        follower_reads,
        keep_damage_that_a_reader_found,
        test=f"{BROKERS}::test_a_follower_whose_log_a_reader_finds_damaged_fetches_it_again",
    ),
    Plant(
        "append-behind-cut-damage",
        "committed records lost at a copy",
        follower_reads,
        append_behind_damage_that_is_cut,
        test=f"{UNIT}::test_a_response_that_arrives_after_a_reader_found_damage_is_dropped",
    ),
    Plant(
        "markers-forgotten-at-a-cut",
        "KIP-392 a stable offset that goes back",
        follower_reads,
        forget_committed_markers_at_a_cut,
        test=f"{UNIT}::test_committed_markers_stay_committed_when_damage_behind_them_is_cut",
    ),
    Plant(
        "high-watermarks-later",
        "KIP-392 a late read",
        follower_reads,
        tell_high_watermarks_later,
        test=f"{BROKERS}::test_a_reader_at_a_follower_gets_a_record_as_soon_as_it_is_committed",
    ),
    Plant(
        "cut-off-followers-serve", "KIP-392 readers kept from news", follower_reads, serve_without_a_leader
    ),
    Plant(
        "cut-off-readers-wait",
        "KIP-392 readers kept from news",
        follower_reads,
        let_them_wait_without_a_leader,
        test=f"{BROKERS}::test_a_follower_that_lost_its_leader_sends_waiting_readers_back",
    ),
]
