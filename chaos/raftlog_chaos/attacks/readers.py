"""Clients that send requests and never read: answers must not pile up, on one connection or over many."""

from __future__ import annotations

import struct
import time
from typing import Final

from raftlog.records.batch import build_batch, new_record
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    Target,
    array,
    compact,
    counted,
    never_read,
    outcomes_of,
    raw,
    varint,
)

PRODUCE, FETCH, METADATA, API_VERSIONS, DESCRIBE_CONFIGS = 0, 1, 3, 18, 32
FULL: Final = 50 << 20


def fetch_all(topic: str, partition: int, *, wait_ms: int = 0, most: int = FULL) -> bytes:
    """Return a Fetch v12 of a partition from its beginning, with as much as it has."""
    part = struct.pack(">iiqiqi", partition, -1, 0, -1, -1, most) + b"\0"
    head = struct.pack(">iiiibii", -1, wait_ms, 0, most, 0, 0, -1)
    return raw(FETCH, 12, head + array([compact(topic) + array([part]) + b"\0"]) + b"\1\1\0")


def produce(
    topic: str,
    partition: int,
    batch: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    """Return a Produce v9 of one batch."""
    name = b"\0" if transactional_id is None else compact(transactional_id)
    part = struct.pack(">i", partition) + varint(len(batch) + 1) + batch + b"\0"
    body = (
        name + struct.pack(">hi", acks, timeout_ms) + array([compact(topic) + array([part]) + b"\0"]) + b"\0"
    )
    return raw(PRODUCE, 9, body)


def one_record(value: bytes = b"x", key: bytes | None = None) -> bytes:
    """Return a batch of one record of now."""
    return build_batch([new_record(key, value, timestamp=int(time.time() * 1000))])


@attack("kafka", within_s=30, ci=True)
def fetches_behind_a_produce(target: Target) -> str:
    """Fetches that are answered at once, behind a Produce that waits for replicas, do not pin gigabytes in one line."""
    frames = produce(target.topic, 0, one_record()) + fetch_all(target.topic, 0) * 127
    with target.lines(10) as lines:
        for _ in range(20):
            for line in lines:
                line.send(frames, within_s=0.05)
            time.sleep(0.1)
        return counted(outcomes_of(lines, 0.5))


@attack("kafka", within_s=30)
def fetches_that_nobody_reads(target: Target) -> str:
    """A hundred connections that fetch megabytes without reading hold memory for their requests, not for responses."""
    with target.lines(100) as lines:
        sent = never_read(lines, fetch_all(target.topic, 0) * 20, seconds=4)
        return f"{sent // 1024} KiB of requests taken, {counted([each.state for each in lines])}"


@attack("kafka", within_s=30)
def metadata_that_nobody_reads(target: Target) -> str:
    """Pipelined Metadata and ApiVersions without a reader stop only the reading of that connection."""
    frame = raw(METADATA, 12, b"\0\0\0\0") * 50 + raw(API_VERSIONS, 0, b"") * 50
    with target.lines(50) as lines:
        sent = never_read(lines, frame, seconds=4)
        return f"{sent // 1024} KiB of requests taken"


@attack("kafka", within_s=30)
def configs_that_nobody_reads(target: Target) -> str:
    """DescribeConfigs with documentation, a thousand times on each of 30 connections without reading, stays bounded."""
    resource = b"\4" + compact("1") + b"\0\0"
    frame = raw(DESCRIBE_CONFIGS, 4, array([resource]) + b"\1\1\0")
    with target.lines(30) as lines:
        sent = never_read(lines, frame * 100, seconds=4)
        return f"{sent // len(frame)} requests taken"


@attack("kafka", within_s=30)
def slow_readers(target: Target) -> str:
    """Clients that take a kilobyte a second of what they fetched hold no more of a node than what is on its way."""
    with target.lines(60) as lines:
        for line in lines:
            line.send(fetch_all(target.topic, 0) * 50, within_s=0.2)
        taken = 0
        for _ in range(4):
            time.sleep(1)
            taken += sum(len(line.read(0.005, 1024)) for line in lines)
        return f"{taken // 1024} KiB read"


@attack("kafka", within_s=30)
def waiting_fetches(target: Target) -> str:
    """Fetches that wait as long as a client may ask for, a hundred on each of 100 connections, cost a place each."""
    part = struct.pack(">iiqiqi", 0, -1, 1 << 40, -1, -1, FULL) + b"\0"
    late = struct.pack(">iiqiqi", 0, -1, 8, -1, -1, FULL) + b"\0"
    head = struct.pack(">iiiibii", -1, 2**31 - 1, 2**31 - 1, FULL, 0, 0, -1)
    frames = [
        raw(FETCH, 12, head + array([compact(target.topic) + array([each]) + b"\0"]) + b"\1\1\0")
        for each in (late, part)
    ]
    with target.lines(100) as lines:
        for line in lines:
            line.send(frames[0] * 100 + frames[1] * 20)
        return counted(outcomes_of(lines, 3))


@attack("kafka", within_s=20)
def answers_cut_off(target: Target) -> str:
    """Clients that reset their connection in the middle of a large answer leave no memory behind."""
    came = 0
    for _ in range(300):
        line = target.line()
        line.send(fetch_all(target.topic, 0) * 3)
        came += len(line.read(0.05, 4096))
        line.close(reset=True)
    return f"{came // 1024} KiB read"


@attack("kafka", within_s=20)
def deep_pipelines(target: Target) -> str:
    """Ten thousand acks=all Produce requests in one go are taken as far as answers keep up, and all are answered."""
    frame = produce(target.topic, 0, one_record())
    answers = 0
    with target.line() as line:
        sent = line.send(frame * 10_000, within_s=8)
        while line.receive(1.0) is not None and answers < 20_000:
            answers += 1
        return f"{sent // len(frame)} taken, {answers} answered"
