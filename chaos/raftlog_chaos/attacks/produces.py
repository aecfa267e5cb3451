"""False produce requests: batches, records, times, producers and transactions, or far too many of them."""

from __future__ import annotations

import struct
import time
from typing import Final

from raftlog.base.compiled import crc32c
from raftlog.protocol.codec import decode_response
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import CRC_START, HEADER, HEADER_BYTES
from raftlog.records.varint import write_varint
from raftlog_chaos.attacks.facts import counter
from raftlog_chaos.attacks.readers import one_record, produce
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    Target,
    array,
    compact,
    counted,
    expect,
    for_seconds,
    outcomes_of,
    raw,
    send_each,
    varint,
)

PRODUCE: Final = 0
CRC_AT: Final = CRC_START - 4
FIELDS: Final = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
FAR: Final = 2**62
CLEANINGS: Final = "raftlog_compactions_total"


def altered(batch: bytes, **fields: int) -> bytes:
    """Return a batch with other header fields, and a CRC that holds."""
    values = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | fields
    out = bytearray(HEADER.pack(*values.values()) + batch[HEADER_BYTES:])
    if "crc" not in fields:
        out[CRC_AT:CRC_START] = struct.pack(">I", crc32c(bytes(out[CRC_START:])))
    return bytes(out)


def with_payload(payload: bytes, count: int = 1, *, codec: int = 0) -> bytes:
    """Return a batch that claims `count` records in a custom payload."""
    batch = one_record()[:HEADER_BYTES] + payload
    length = len(batch) - 12
    return altered(batch, length=length, attributes=codec, last_offset_delta=count - 1, record_count=count)


def record(
    *, timestamp_delta: int = 0, offset_delta: int = 0, key: bytes | None = b"k", rest: bytes = b"\2v\0"
) -> bytes:
    """Return one record of a batch, its length in front; `rest` is its value and headers."""
    body = bytearray(b"\0")
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    write_varint(body, -1 if key is None else len(key))
    out = bytearray()
    write_varint(out, len(body) + len(key or b"") + len(rest))
    return bytes(out + body) + (key or b"") + rest


def codes(target: Target, topic: str, batches: list[bytes], partition: int = 0) -> list[int | None]:
    """Produce each batch on a connection of its own; return their error codes, None where there is no answer."""
    found: list[int | None] = []
    for batch in batches:
        with target.line() as line:
            answer = line.ask(produce(topic, partition, batch, timeout_ms=2000))
        if answer is None:
            found.append(None)
            continue
        decoded = decode_response(PRODUCE, 9, memoryview(answer))[1]
        found.append(int(decoded.responses[0].partition_responses[0].error_code))
    return found


def _each(target: Target, topic: str, batches: list[bytes], partition: int = 0) -> str:
    return send_each(target, [produce(topic, partition, each, timeout_ms=2000) for each in batches])


@attack("kafka", within_s=30, ci=True)
def empty_batches_of_two_billion_records(target: Target) -> str:
    """Batches of 61 bytes that claim two billion records are refused: each would roll a segment and stop readers."""
    counts = (2**31 - 1, 2**31 - 2, 2**30, 1_000_000, 1)
    plain = [with_payload(b"", count) for count in counts]
    packed = [with_payload(b"\x78" * 20, count, codec=codec) for count in counts for codec in (1, 2, 3, 4)]
    for topic in (target.topic, target.compacted):
        taken = codes(target, topic, plain).count(0)
        expect(not taken, f"{topic} took {taken} batches without a byte for the records that they claim")
    return "; ".join(_each(target, topic, packed) for topic in (target.topic, target.compacted))


@attack("kafka", within_s=40)
def timestamps_beyond_all_bounds(target: Target) -> str:
    """Records of times that no clock can show neither stop the compaction of any log nor take others' records away."""
    deltas = (2**62, 2**63 - 1, -(2**63), -(2**62), 1)
    superseded = [
        record(key=b"k") + record(offset_delta=1, key=b"kept-%d" % number, timestamp_delta=delta)
        for number, delta in enumerate(deltas)
    ]
    bad = [with_payload(each, 2) for each in superseded]
    bases = [
        altered(one_record(key=b"k"), base_timestamp=each, max_timestamp=each)
        for each in (FAR, -FAR, 2**63 - 1, -1)
    ]
    words = [_each(target, topic, bad + bases) for topic in (target.compacted, target.topic)]
    more = [build_batch([new_record(b"k", bytes(700_000), timestamp=1)]) for _ in range(4)]
    before = counter(target, CLEANINGS)
    words.append(_each(target, target.compacted, more))
    going_on = for_seconds(20)
    while going_on() and counter(target, CLEANINGS) < before + len(target.nodes):
        time.sleep(0.5)
    cleaned = counter(target, CLEANINGS) - before
    expect(
        cleaned >= len(target.nodes),
        f"compaction came to an end {cleaned:g} times on {len(target.nodes)} nodes",
    )
    return "; ".join(words)


@attack("kafka")
def malformed_batches(target: Target) -> str:
    """Batches with a wrong magic, CRC, length, codec, count or sequence are refused, partition by partition."""
    good = one_record()
    fields = [
        {"magic": 0},
        {"magic": 1},
        {"magic": 3},
        {"crc": 1},
        {"length": 0},
        {"length": -1},
        {"length": 2**31 - 1},
        {"length": len(good) - 11},
        {"attributes": 5},
        {"attributes": 7},
        {"attributes": 0x10},
        {"attributes": 0x20},
        {"attributes": 0x30},
        {"attributes": 0x40},
        {"attributes": -1},
        {"record_count": -1},
        {"record_count": 0},
        {"last_offset_delta": -1},
        {"last_offset_delta": 2**31 - 1},
        {"producer_id": 5},
        {"producer_id": 5, "base_sequence": 2**31 - 1, "producer_epoch": -1},
        {"producer_id": 2**63 - 1, "base_sequence": 7, "producer_epoch": 32767},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"leader_epoch": 2**31 - 1},
    ]
    batches = [altered(good, **each) for each in fields] + [good[:size] for size in (0, 1, 12, 60, 61, 62)]
    batches += [good + good, good + b"\0"]
    return "; ".join(_each(target, topic, batches) for topic in (target.topic, target.compacted))


@attack("kafka")
def malformed_records(target: Target) -> str:
    """Records that lie about their lengths, keys, headers and numbers are refused where they are looked at."""
    payloads = [
        record(key=None),
        record(offset_delta=5),
        record(offset_delta=-(2**63)),
        record(rest=b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        record(rest=b"\2v\xfe\xff\xff\xff\x0f"),
        record(rest=b"\2v\2\1"),
        b"\xff" * 20,
        b"\x80" * 11 + b"\0",
        b"\0" * 30,
        b"\1\0\0\0\0\0",
        b"\xfe\xff\xff\xff\x0f" + bytes(40),
    ]
    batches = [with_payload(each, count) for each in payloads for count in (1, 2, 1000)]
    return "; ".join(_each(target, topic, batches) for topic in (target.compacted, target.topic))


@attack("kafka", within_s=30)
def one_partition_named_again_and_again_in_a_produce(target: Target) -> str:
    """A Produce that names sixty thousand partitions, or one sixty thousand times, is bounded or goes in turns."""
    part = struct.pack(">i", 0) + b"\0\0"
    others = [struct.pack(">i", number) + b"\1\0" for number in range(60_000)]
    head = b"\0" + struct.pack(">hi", -1, 1000)
    bodies = [
        head + array([compact(target.topic) + array([part] * 60_000) + b"\0"]) + b"\0",
        head + array([compact("nowhere") + array(others) + b"\0"]) + b"\0",
        head + array([compact(f"t{n}") + array([part]) + b"\0" for n in range(30_000)]) + b"\0",
    ]
    with target.lines(6) as lines:
        for number, line in enumerate(lines):
            line.send(raw(PRODUCE, 9, bodies[number % 3]))
        return counted(outcomes_of(lines, 8))


@attack("kafka", within_s=40)
def made_up_producer_ids(target: Target) -> str:
    """Batches of very many made-up producer ids neither stay in memory for ever nor stop the loop."""
    going_on, sent, number = for_seconds(8), 0, 1 << 40
    with target.lines(8) as lines:
        while going_on():
            for line in lines:
                frames = []
                for _ in range(100):
                    number += 7
                    batch = build_batch(
                        [new_record(b"k", b"v", timestamp=1)], producer=ProducerIdAndSequence(number, 0, 0)
                    )
                    frames.append(produce(target.topic, 0, batch, acks=1))
                sent += line.send(b"".join(frames), within_s=0.5) // len(frames[0])
                line.read(0.001)
        time.sleep(2)
    return f"{sent} ids"


@attack("kafka")
def produces_without_acknowledgement(target: Target) -> str:
    """acks=0 with errors of every kind closes its own connection, and keeps no memory."""
    bad = [
        produce(target.topic, 0, altered(one_record(), crc=1), acks=0),
        produce("nowhere", 0, one_record(), acks=0),
        produce(target.topic, 99, one_record(), acks=0),
        produce(target.topic, 1, one_record(), acks=0),
        produce("__consumer_offsets", 0, one_record(), acks=0),
        produce(target.topic, 0, one_record(), acks=5),
        produce(target.topic, 0, one_record(), acks=-2),
    ]
    return send_each(target, bad * 20)


@attack("kafka")
def internal_topics_from_outside(target: Target) -> str:
    """Records for the coordinators' own topics are refused from every client and in every version."""
    words = []
    for topic in ("__consumer_offsets", "__transaction_state"):
        for partition in range(3):
            (code,) = codes(target, topic, [one_record(key=b"k")], partition)
            expect(code != 0, f"{topic}-{partition} took a record of a client")
            words.append(f"error {code}")
    return counted(words)


@attack("kafka", within_s=30)
def long_transactional_ids(target: Target) -> str:
    """Transactional ids of 32 KB in Produce and elsewhere are refused, and hold up no other transaction."""
    batch = build_batch(
        [new_record(b"k", b"v", timestamp=1)], producer=ProducerIdAndSequence(77, 0, 0), attributes=0x10
    )
    frames = []
    for number in range(30):
        long = compact(f"{number}" + "t" * 32_000)
        part = struct.pack(">i", 0) + varint(len(batch) + 1) + batch + b"\0"
        body = (
            long
            + struct.pack(">hi", -1, 3000)
            + array([compact(target.topic) + array([part]) + b"\0"])
            + b"\0"
        )
        frames += [raw(PRODUCE, version, body) for version in (9, 11, 12)]
        frames.append(raw(22, 4, long + struct.pack(">iqh", 60_000, -1, -1) + b"\0"))
    return send_each(target, frames, within_s=5)


@attack("kafka", within_s=30)
def produces_of_a_hundred_megabytes(target: Target) -> str:
    """Requests of 90 MB, several at once, are taken one budget's worth at a time, or refused."""
    value = bytes(900_000)
    part = struct.pack(">i", 0) + varint(len(value) + 1) + value + b"\0"
    body = (
        b"\0"
        + struct.pack(">hi", -1, 1000)
        + array([compact(target.topic) + array([part] * 95) + b"\0"])
        + b"\0"
    )
    frame = raw(PRODUCE, 9, body)
    with target.lines(8) as lines:
        taken = 0
        for line in lines:
            taken += line.send(frame, within_s=2)
        return f"{taken >> 20} MiB taken; {counted(outcomes_of(lines, 4))}"


@attack("kafka", within_s=30)
def large_records_in_a_hurry(target: Target) -> str:
    """As many megabytes as a client can send for five seconds leave honest producers their share."""
    batch = build_batch([new_record(b"k", bytes(900_000), timestamp=int(time.time() * 1000))])
    frame, going_on, sent = produce(target.topic, 0, batch, acks=1), for_seconds(5), 0
    with target.lines(4) as lines:
        while going_on():
            for line in lines:
                sent += line.send(frame, within_s=0.2)
                line.read(0.001)
    return f"{sent >> 20} MiB sent"
