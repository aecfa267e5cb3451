"""Claims in records that a broker must not believe, and reads of records that cost far more than their size
suggests."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

from raftlog.protocol.codec import decode_response
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.compression import GZIP
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog_chaos.attacks.bombs import zstd_bomb
from raftlog_chaos.attacks.facts import ask
from raftlog_chaos.attacks.http import request as http_request
from raftlog_chaos.attacks.http import statuses
from raftlog_chaos.attacks.newcomers import expect_probes
from raftlog_chaos.attacks.produces import altered, codes, with_payload
from raftlog_chaos.attacks.readers import produce
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    LENGTH,
    ClaimBroken,
    Line,
    Target,
    array,
    compact,
    counted,
    create_topic,
    delete_topics,
    expect,
    for_seconds,
    raw,
)
from raftlog_chaos.attacks.transactions import initiated

LIST_OFFSETS, DELETE_RECORDS, INIT, ADD_PARTITIONS, END = 2, 21, 22, 24, 26
EARLIEST, LATEST = -2, -1
READ_COMMITTED: Final = 1
ZSTD: Final = 4
CENTURY_MS: Final = 100 * 365 * 24 * 3_600_000
MANY: Final = 300_000
"""Records of one batch."""


@contextlib.contextmanager
def _topic(target: Target, name: str, **configs: str) -> Iterator[str]:
    """Make a topic for as long as the context lasts."""
    made = [(key.replace("_", "."), value) for key, value in configs.items()]
    expect(create_topic(target, name, configs=made) == "answered", "no topic was made")
    try:
        yield name
    finally:
        delete_topics(target, [name])


def _offset(target: Target, topic: str, timestamp: int, isolation: int = 0) -> int:
    """Return what a leader says about the offset of a special timestamp."""
    part = struct.pack(">iiq", 0, -1, timestamp) + b"\0"
    named = array([compact(topic) + array([part]) + b"\0"])
    with target.line() as line:
        answer = line.ask(raw(LIST_OFFSETS, 7, struct.pack(">ib", -1, isolation) + named + b"\0"), 10)
    expect(answer is not None, "ListOffsets was not answered")
    return int(decode_response(LIST_OFFSETS, 7, memoryview(answer or b""))[1].topics[0].partitions[0].offset)


def _in_order(target: Target, topic: str) -> int:
    """Return the log's start. Raises ClaimBroken if the offsets of a log are out of order."""
    start, stable, end = (
        _offset(target, topic, EARLIEST),
        _offset(target, topic, LATEST, READ_COMMITTED),
        _offset(target, topic, LATEST),
    )
    expect(start <= stable <= end, f"log start {start}, last stable offset {stable}, high watermark {end}")
    return start


def _stay(target: Target, topic: str, batches: list[bytes], seconds: float = 7.0) -> str:
    """Produce the batches, let retention run several times, and check that fresh records are still there."""
    taken = codes(target, topic, batches)
    time.sleep(seconds)
    start = _in_order(target, topic)
    expect(start == 0, f"{start} fresh records were deleted by age")
    return f"{taken.count(0)} of {len(taken)} taken"


@attack("kafka", within_s=60)
def times_that_no_record_has(target: Target) -> str:
    """A batch header that claims 1970, or a time far ahead, makes fresh records neither old nor immortal."""
    now = int(time.time() * 1000)
    batch = build_batch([new_record(b"k", b"fresh", timestamp=now)])
    lies = [
        altered(batch, max_timestamp=1),
        altered(batch, max_timestamp=-1),
        altered(batch, max_timestamp=now - CENTURY_MS // 10),
        altered(batch, max_timestamp=now + 60_000),
        altered(batch, max_timestamp=-(2**63)),
        altered(batch, max_timestamp=2**63 - 1),
    ]
    with _topic(target, "attack-times", retention_ms="3600000", segment_ms="1000") as topic:
        return _stay(target, topic, [*lies, batch])


@attack("kafka", within_s=60)
def records_without_a_time(target: Target) -> str:
    """Records without a timestamp age by their file, so that fresh records are not from 1970."""
    batch = build_batch([new_record(b"k", b"fresh", timestamp=-1)])
    with _topic(target, "attack-timeless", retention_ms="3600000", segment_ms="1000") as topic:
        return _stay(target, topic, [batch] * 20)


def _open_transaction(target: Target, name: str) -> tuple[Line, tuple[int, int]]:
    """Begin to use a transactional id; return a line to its coordinator and the id and epoch of its producer."""
    going_on = for_seconds(10)
    while going_on():
        for node in target.nodes:
            line = target.line(node=node)
            answer = line.ask(initiated(compact(name)))
            made = None if answer is None else decode_response(INIT, 4, memoryview(answer))[1]
            if made is not None and not made.error_code:
                return line, (made.producer_id, made.producer_epoch)
            line.close()
        time.sleep(0.2)
    raise ClaimBroken("no transactional id was given")


@attack("kafka", within_s=40)
def records_deleted_under_open_transactions(target: Target) -> str:
    """Records deleted under an open transaction leave the last stable offset at or above the log's start."""
    name, fresh = "attack-open", [new_record(b"k", b"v", timestamp=int(time.time() * 1000))] * 10
    with _topic(target, "attack-deleted") as topic, target.line() as leader:
        coordinator, writer = _open_transaction(target, name)
        mine = struct.pack(">qh", *writer)
        with coordinator:
            added = array([compact(topic) + array([LENGTH.pack(0)]) + b"\0"])
            coordinator.ask(raw(ADD_PARTITIONS, 3, compact(name) + mine + added + b"\0"))
            producer = ProducerIdAndSequence(*writer, base_sequence=0)
            batch = build_batch(fresh, producer=producer, attributes=TRANSACTIONAL_BIT)
            leader.ask(produce(topic, 0, batch, transactional_id=name))
            taken = codes(target, topic, [build_batch(fresh)])
            to_the_end = struct.pack(">iq", 0, -1) + b"\0"
            topics = array([compact(topic) + array([to_the_end]) + b"\0"])
            leader.ask(raw(DELETE_RECORDS, 2, topics + LENGTH.pack(5_000) + b"\0"), 8)
            start = _in_order(target, topic)
            coordinator.ask(raw(END, 3, compact(name) + mine + b"\0\0"), 5)
        expect(start == 2 * len(fresh), f"the log starts at {start}: not all was written, or not all deleted")
        return f"log start {start}; {counted([str(each) for each in taken])}"


# --- reads over HTTP


def _read(topic: str, offset: int) -> bytes:
    path = f"/v1/topics/{topic}/partitions/0/records?offset={offset}&max_records=1"
    return http_request("GET", path)


def _reading(target: Target, topic: str, offset: int, *, give_up: bool) -> Callable[[], str]:
    """Return what reads one record on many connections to each node, and whether probes were answered meanwhile."""

    def run() -> str:
        words: list[str] = []
        going_on = for_seconds(6)
        while going_on():
            for node in target.nodes:
                with target.lines(8, "http", node) as lines:
                    for line in lines:
                        line.send(_read(topic, offset))
                    if give_up:
                        for line in lines:
                            line.close(reset=True)
                    else:
                        words += [statuses(line, 2.0, 1) for line in lines[:2]]
            if give_up:
                time.sleep(0.05)
        return f"{counted(words) or 'given up'}; {expect_probes(target, 2)}"

    return run


@attack("http", within_s=60)
def the_last_record_of_a_very_large_batch(target: Target) -> str:
    """One record at the end of a batch of 300,000, read on many connections, leaves the loop and the probes alone."""
    with _topic(target, "attack-large") as topic:
        taken = codes(target, topic, [_large()])
        expect(taken == [0], f"the batch was not taken: {taken}")
        return _reading(target, topic, MANY - 1, give_up=False)()


@attack("http", within_s=60)
def reads_that_are_given_up(target: Target) -> str:
    """Reads for clients that have left are given up: hundreds of them do not pile up."""
    with _topic(target, "attack-left") as topic:
        taken = codes(target, topic, [_large()])
        expect(taken == [0], f"the batch was not taken: {taken}")
        return _reading(target, topic, MANY - 1, give_up=True)()


@attack("http", within_s=60)
def reads_of_what_unfolds(target: Target) -> str:
    """Reading a record over HTTP from a batch that unfolds to half a gigabyte costs a bounded part of it."""
    bomb = with_payload(zstd_bomb(), codec=ZSTD)
    with _topic(target, "attack-unfolds") as topic:
        taken = codes(target, topic, [bomb])
        return f"{taken}; {_reading(target, topic, 0, give_up=False)()}"


def _large() -> bytes:
    """Return a batch of very many tiny records, some hundred kilobytes."""
    now = int(time.time() * 1000)
    return build_batch([new_record(None, b"", timestamp=now)] * MANY, codec=GZIP)


@attack("http", within_s=40)
def streams_of_events_begun_and_dropped(target: Target) -> str:
    """Thousands of event streams that are opened and reset leave no stream open, and probes are answered."""
    begun, going_on = 0, for_seconds(5)
    while going_on():
        for node in target.nodes:
            with target.lines(20, "http", node) as lines:
                for line in lines:
                    line.send(http_request("GET", "/v1/events"))
                    begun += 1
                for line in lines:
                    line.close(reset=True)
    probes = expect_probes(target, 2)
    answer = json.loads(ask(target.nodes[1], "/v1/health"))
    return f"{begun} begun; {probes}; {answer.get('status', '')}"
