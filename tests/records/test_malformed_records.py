"""Records that no honest client sends. A walk refuses them; where there is none, each reader names them and goes on.

The broker walks few batches (`raftlog.records.validation`), so these reach logs. They may cost the readers of their own
batch; records of others must stay readable, findable and compactable.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from raftlog.admin.native.records import Part, shown
from raftlog.base.config import TopicConfig
from raftlog.base.env import ThreadOffload
from raftlog.base.errors import CorruptMessage, KafkaError
from raftlog.base.turns import TurnQueue
from raftlog.cli.app import app
from raftlog.records.batch import build_batch, iter_records, new_record, stamp, validate_produced
from raftlog.records.compression import NONE, ZSTD
from raftlog.records.validation import RecordRules, WalkRules, must_be_walked, validate_records
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.records.forged_batches import MALFORMED, malformed
from tests.storage.batches import read_all
from tests.storage.compacted_logs import (
    batches_of,
    cleaning_of,
    close_segment,
    flush_and_checkpoint,
    open_compacted,
    put,
    run_steps,
)

NOW_MS = 1_000_000
CLEANED_ALL_THE_SAME = frozenset(
    {
        "length-too-long",
        "headers-negative",
        "headers-too-many",
        "header-without-a-name",
        "header-beyond-the-record",
    }
)
"""Malformed behind the value, which is as far as a cleaning reads a record."""
NAMES = pytest.mark.parametrize("name", [*MALFORMED, "garbage"])
CODECS = pytest.mark.parametrize("codec", [NONE, ZSTD], ids=["plain", "zstd"])


def made(name: str, codec: int, *, ahead_ms: int = 0) -> bytes:
    """The malformed batch, if it exists with that codec."""
    if name in ("garbage", "nothing") and codec == NONE:
        pytest.skip("without a codec, its header is refused: so few bytes cannot hold two records")
    return malformed(name, timestamp=NOW_MS, codec=codec, max_timestamp=NOW_MS + ahead_ms)


def honest(*values: bytes) -> bytes:
    return build_batch([new_record(b"k", value, timestamp=NOW_MS + 5) for value in values])


def append(log: Log, batch: bytes, *, now_ms: int = NOW_MS) -> None:
    header = validate_produced(memoryview(batch), 1 << 20)
    log.append_as_leader(header, memoryview(batch), leader_epoch=0, now_ms=now_ms)


@NAMES
@CODECS
def test_a_walk_refuses_each(name: str, codec: int) -> None:
    """INVALID_RECORD, as from Apache Kafka, and InvalidTimestamp for times beyond 64 bits; Kafka wraps these round."""
    batch = made(name, codec)
    header = validate_produced(memoryview(batch), 1 << 20)
    steps = validate_records(header, batch, RecordRules.of(TopicConfig(), NOW_MS))
    with pytest.raises(KafkaError) as refused:
        answer = None
        while True:
            call = steps.send(answer)
            answer = call() if call else None
    expected = "InvalidTimestamp" if name == "timestamp-beyond-64-bits" else "InvalidRecord"
    assert type(refused.value).__name__ == expected, refused.value


@NAMES
@CODECS
def test_a_plain_topic_takes_each_without_a_walk(name: str, codec: int) -> None:
    """This is what the other tests stand on; once batches are walked at no cost, they go."""
    header = validate_produced(memoryview(made(name, codec)), 1 << 20)
    assert not must_be_walked(header, WalkRules.of(TopicConfig()), NOW_MS)


@NAMES
@CODECS
def test_reading_records_names_the_first_that_is_malformed(name: str, codec: int) -> None:
    """By its number and its batch, unless the whole batch cannot be decompressed; sound records come before."""
    batch, found = stamped(made(name, codec), 40), []
    with pytest.raises(CorruptMessage) as refused:
        for each in iter_records(batch):
            found.append(each)
    follows = name in ("a-record-too-many", "trailing-bytes")
    sound = 0 if name in ("nothing", "garbage") else 2 if follows else 1
    assert [each.offset for each in found] == [40, 41][:sound]
    if name != "garbage" and not follows:
        assert f"record {sound} of the batch at offset 40: " in str(refused.value)


@NAMES
@CODECS
def test_a_search_by_time_goes_on_behind_each(name: str, codec: int) -> None:
    """It misses no honest record: those before, and those behind, have their offsets; no error stops consumers."""
    log = Log.open(
        SimDisk(0),
        "/data/t-0",
        config=TopicConfig(),
        recovery_point=0,
        clean=False,
        topic_id=None,
        now_ms=NOW_MS,
    )
    append(log, build_batch([new_record(b"k", b"v", timestamp=NOW_MS - 9)]))
    append(log, made(name, codec, ahead_ms=3))
    append(log, honest(b"a", b"b"))
    assert log.offset_for_timestamp(NOW_MS - 9) == (0, NOW_MS - 9, 0)
    assert log.offset_for_timestamp(NOW_MS + 4) == (3, NOW_MS + 5, 0)
    assert log.max_timestamp() == (3, NOW_MS + 5, 0)
    for within_ms in (0, 1, 3):
        found = log.offset_for_timestamp(NOW_MS + within_ms)
        assert found is not None and found[0] in (1, 2, 3), "no honest record is missed"
    append(log, made(name, codec, ahead_ms=9))
    newest = log.max_timestamp()
    assert newest is not None and newest[0] in (3, 5, 6)


@NAMES
@CODECS
def test_a_log_with_each_is_recovered_whole(name: str, codec: int) -> None:
    """Recovery looks at headers and checksums: no malformed record is taken for rot, and none cuts a log."""
    disk = SimDisk(0)
    for _ in range(2):
        log = Log.open(
            disk,
            "/data/t-0",
            config=TopicConfig(),
            recovery_point=0,
            clean=False,
            topic_id=None,
            now_ms=NOW_MS,
        )
        if log.log_end_offset == 0:
            append(log, made(name, codec))
            append(log, honest(b"a"))
            log.flush()
            before = read_all(log)
            disk.crash()
            disk.power_up()
    assert (log.log_end_offset, log.damage, read_all(log)) == (3, None, before)


@NAMES
@CODECS
def test_a_cleaning_keeps_each_and_compacts_the_others(name: str, codec: int) -> None:
    """A topic that was not compacted may become so. The cleaning reports where the first such batch is."""
    log = open_compacted(SimDisk(0))
    put(log, (b"a", b"old"))
    append(log, made(name, codec))
    put(log, (b"a", b"new"))
    close_segment(log)
    flush_and_checkpoint(log)
    cleaning = cleaning_of(log)
    assert cleaning is not None
    run_steps(cleaning.steps())
    expected = (0, None) if name in CLEANED_ALL_THE_SAME else (1, 1)
    assert cleaning.is_complete and (cleaning.malformed, cleaning.first_malformed) == expected
    kept = [header.base_offset for header, _ in batches_of(log) if header.record_count]
    assert 0 not in kept and {1, 3} <= set(kept)


class FakeCall:
    """The part of a request that reading records needs."""

    def __init__(self) -> None:
        self.node = SimpleNamespace(reading_records=asyncio.Lock(), offload=ThreadOffload())
        self.turns = TurnQueue()


def stamped(batch: bytes, base_offset: int) -> bytes:
    start = stamp(base_offset, len(batch), 0)
    return start + batch[len(start) :]


@NAMES
@CODECS
@pytest.mark.parametrize("most", [1, 10])
async def test_the_http_api_names_each_and_shows_the_others(name: str, codec: int, most: int) -> None:
    """A reader that follows a partition gets to its end, with however few records at a time."""
    content = stamped(made(name, codec), 5) + stamped(honest(b"a", b"b"), 7)
    start, offsets, unreadable = 5, [], []
    for _ in range(10):
        data = SimpleNamespace(error_code=0, records=content, high_watermark=9, log_start_offset=0)
        found, _ = await shown(FakeCall(), ("t", 0), data, Part(start, most))  # type: ignore[arg-type]
        answer: dict[str, Any] = json.loads(msgspec.json.encode(found))
        offsets += [each["offset"] for each in answer["records"]]
        unreadable += answer["unreadable"]
        assert answer["next_offset"] > start
        start = answer["next_offset"]
        if start == 9:
            break
    assert start == 9 and offsets[-2:] == [7, 8] and offsets == sorted(set(offsets))
    assert len(unreadable) == 1 or (name in ("a-record-too-many", "trailing-bytes") and most == 1)
    assert all((each["end_offset"], bool(each["reason"])) == (7, True) for each in unreadable)


@NAMES
@CODECS
def test_raftlog_log_dump_names_each_and_shows_the_others(name: str, codec: int, tmp_path: Path) -> None:
    """With the file and the position of the batch, on standard error."""
    path = tmp_path / f"{5:020}.log"
    path.write_bytes(stamped(made(name, codec), 5) + stamped(honest(b"a", b"b"), 7))
    ran = CliRunner().invoke(app, ["log", "dump", str(path), "--records", "-J"])
    assert f"{path}, position 0: " in ran.stderr
    assert [row["offset"] for row in json.loads(ran.stdout)][-2:] == [7, 8]
