"""Compressed batches that expand enormously where a broker decompresses them: keys, times, compaction."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Callable
from typing import Final

from raftlog.records.compression import XERIAL_HEADER
from raftlog.records.varint import write_varint
from raftlog_chaos.attacks.produces import record, with_payload
from raftlog_chaos.attacks.readers import produce
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ELSEWHERE,
    Target,
    array,
    compact,
    counted,
    create_topic,
    delete_topics,
    outcomes_of,
    raw,
)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MIB: Final = 1 << 20
UNFOLDED: Final = 512 * MIB
LIST_OFFSETS: Final = 2
MAX_TIMESTAMP: Final = -3


def _zeros(size: int) -> bytes:
    """Return the start of a record of zeros that is `size` bytes long, without them."""
    out = bytearray()
    write_varint(out, size)
    return bytes(out)


def zstd_bomb(size: int = UNFOLDED) -> bytes:
    """Return zstd that unfolds to zeros, some of it a record's length."""
    from zstandard import ZstdCompressor

    packer = ZstdCompressor(level=1).compressobj()
    out = [packer.compress(_zeros(size))]
    chunk = bytes(MIB)
    out += [packer.compress(chunk) for _ in range(size // MIB)]
    return b"".join([*out, packer.flush()])


def gzip_bomb(size: int = UNFOLDED) -> bytes:
    """Return one gzip member that unfolds to zeros."""
    packer = zlib.compressobj(1, wbits=31)
    out = [packer.compress(_zeros(size))]
    chunk = bytes(MIB)
    out += [packer.compress(chunk) for _ in range(size // MIB)]
    return b"".join([*out, packer.flush()])


def gzip_members(count: int = 40_000) -> bytes:
    """Return very many gzip members of hardly anything, which are to be one stream."""
    return gzip.compress(b"\0") * count


def lz4_bomb(size: int = UNFOLDED) -> bytes:
    """Return an lz4 frame that unfolds to zeros."""
    from lz4.frame import LZ4FrameCompressor

    with LZ4FrameCompressor() as packer:
        chunk = bytes(MIB)
        out = [packer.begin(), packer.compress(_zeros(size))]
        out += [packer.compress(chunk) for _ in range(size // MIB)]
        return b"".join([*out, packer.flush()])


def snappy_bomb(blocks: int = 3_000) -> bytes:
    """Return snappy in snappy-java's framing: many blocks, each of which unfolds twentyfold."""
    from cramjam import snappy

    block = bytes(snappy.compress_raw(bytes(160 * 1024)))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * blocks


def snappy_claims() -> bytes:
    """Return one raw snappy block that claims to unfold to 4 GB."""
    return b"\xff\xff\xff\xff\x0f" + b"\0" * 40


def many_records(count: int, codec: int) -> bytes:
    """Return a batch of very many tiny records that compresses to almost zero bytes."""
    from raftlog.records.compression import compress

    plain = b"".join(record(offset_delta=number, key=b"") for number in range(count))
    return with_payload(compress(codec, plain), count, codec=codec)


BOMBS: Final[dict[str, tuple[int, Callable[[], bytes]]]] = {
    "zstd": (ZSTD, zstd_bomb),
    "gzip": (GZIP, gzip_bomb),
    "gzip members": (GZIP, gzip_members),
    "lz4": (LZ4, lz4_bomb),
    "snappy": (SNAPPY, snappy_bomb),
    "snappy claims": (SNAPPY, snappy_claims),
}


def _throw(target: Target, topic: str, name: str, lines: int = 8) -> str:
    """Send a bomb to a partition's leader on several connections; return its size and the answers."""
    codec, build = BOMBS[name]
    batch = with_payload(build(), 250, codec=codec)
    with target.lines(lines) as opened:
        for line in opened:
            line.send(produce(topic, 0, batch, timeout_ms=5000))
        return f"{len(batch) // 1024} KiB: {counted(outcomes_of(opened, 8))}"


@attack("kafka", within_s=60, ci=True)
def zstd_bombs(target: Target) -> str:
    """zstd of half a gigabyte of zeros for a compacted topic is unpacked up to a bound, one at a time, off the loop."""
    return _throw(target, target.compacted, "zstd")


@attack("kafka", within_s=60)
def gzip_bombs(target: Target) -> str:
    """gzip of half a gigabyte of zeros for a compacted topic is unpacked up to a bound, one at a time, off the loop."""
    return _throw(target, target.compacted, "gzip")


@attack("kafka", within_s=60)
def gzip_of_many_members(target: Target) -> str:
    """Forty thousand gzip members in one batch do not take time that grows with their square."""
    return _throw(target, target.compacted, "gzip members")


@attack("kafka", within_s=60)
def lz4_bombs(target: Target) -> str:
    """lz4 of half a gigabyte of zeros for a compacted topic is unpacked up to a bound, one at a time, off the loop."""
    return _throw(target, target.compacted, "lz4")


@attack("kafka", within_s=60)
def snappy_bombs(target: Target) -> str:
    """snappy-java's framing around half a gigabyte, and a raw block that claims four, are unpacked up to a bound."""
    return (
        f"{_throw(target, target.compacted, 'snappy')}; {_throw(target, target.compacted, 'snappy claims')}"
    )


@attack("kafka", within_s=60)
def bombs_where_times_are_searched(target: Target) -> str:
    """Searching a time among zstd bombs and very many tiny records takes neither gigabytes nor all threads."""
    name = "attack-times"
    made = create_topic(target, name)
    with target.line(source=ELSEWHERE) as line:
        for batch in (many_records(400_000, ZSTD), with_payload(zstd_bomb(200 * MIB), 1, codec=ZSTD)):
            line.send(produce(name, 0, batch, timeout_ms=5000))
            line.receive(5)
    part = struct.pack(">iiq", 0, -1, int(time.time() * 1000) - 1) + b"\0"
    newest = struct.pack(">iiq", 0, -1, MAX_TIMESTAMP) + b"\0"
    with target.lines(12) as lines:
        for number, each in enumerate(lines):
            body = struct.pack(">ib", -1, 0) + array(
                [compact(name) + array([newest if number % 2 else part]) + b"\0"]
            )
            each.send(raw(LIST_OFFSETS, 7, body + b"\0"))
        words = counted(outcomes_of(lines, 20))
    return f"made: {made}; searches: {words}; deletion: {delete_topics(target, [name])}"


@attack("kafka", within_s=60)
def bombs_where_logs_are_compacted(target: Target) -> str:
    """Batches of very many tiny keyed records are compacted or skipped, and so are all other logs."""
    words = []
    batch = many_records(150_000, ZSTD)
    for index, node in enumerate(sorted(target.nodes)):
        with target.line("kafka", node) as line:
            for _ in range(3):
                line.send(produce(target.compacted, index, batch, timeout_ms=10_000))
                words.append("refused" if line.receive(8) is None else "answered")
    time.sleep(4)
    return f"{len(batch) // 1024} KiB: {counted(words)}"
