"""Invalid frames: lengths at every level, headers, versions, tags; other protocols; bytes that come late or never."""

from __future__ import annotations

import random
import struct
import time
from typing import Final

from raftlog.protocol.apis import APIS, ApiKey
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    LENGTH,
    Target,
    compact,
    counted,
    for_seconds,
    framed,
    head,
    legacy,
    outcomes_of,
    raw,
    send_each,
    varint,
)

METADATA, PRODUCE, FETCH, API_VERSIONS = 3, 0, 1, 18
MIB: Final = 1 << 20
I32: Final = struct.Struct(">i")


@attack("kafka")
def impossible_frame_lengths(target: Target) -> str:
    """Frame lengths of zero, below zero and beyond the limit close the connection at once."""
    return send_each(target, [LENGTH.pack(size) + b"x" * 64 for size in (0, -1, -(2**31), 2**31 - 1)] * 20)


@attack("kafka")
def announced_but_never_sent(target: Target) -> str:
    """Connections that announce 100 MB each and send ten bytes cost no node 100 MB."""
    return send_each(target, [LENGTH.pack(100 * 1000 * 1000) + b"\0\0\0\3\0\0\0\1\0\0"] * 200)


@attack("kafka", within_s=40, ci=True)
def half_frames_on_many_connections(target: Target) -> str:
    """Half of a frame of 16 MB on each of 60 connections of a node does not add up to half a gigabyte."""
    start = LENGTH.pack(16 * MIB) + head(PRODUCE, 9)
    piece = bytes(256 * 1024)
    with target.lines(60) as lines:
        sent = [line.send(start) for line in lines]
        for _ in range(32):
            for number, line in enumerate(lines):
                sent[number] += line.send(piece, within_s=0.05)
        time.sleep(2)
        return f"{sum(sent) // MIB} MiB taken, {counted(outcomes_of(lines, 0.5))}"


@attack("kafka", within_s=30)
def a_byte_at_a_time(target: Target) -> str:
    """Large frames that arrive a byte at a time, behind a start of 4 MB each, do not tie up the memory of a node."""
    start = LENGTH.pack(90 * MIB) + head(PRODUCE, 9) + bytes(4 * MIB)
    going_on = for_seconds(5)
    with target.lines(100) as lines:
        taken = sum(line.send(start, within_s=0.3) for line in lines)
        while going_on():
            for line in lines:
                line.send(b"\0", within_s=0.01)
            time.sleep(0.2)
        return f"{taken // MIB} MiB taken, {counted(outcomes_of(lines, 0.5))}"


@attack("kafka")
def request_headers_cut_off(target: Target) -> str:
    """A request header that is cut off, or has a client id of a false length or invalid text, closes the connection."""
    whole = head(METADATA, 12)
    cut = [framed(whole[:size]) for size in range(len(whole))]
    lies = [framed(struct.pack(">hhih", METADATA, 12, 1, size) + b"abc") for size in (4, 32767, -2, -32768)]
    return send_each(target, [*cut, *lies, framed(struct.pack(">hhih", METADATA, 12, 1, 2) + b"\xff\xfe")])


@attack("kafka")
def lying_array_counts(target: Target) -> str:
    """Arrays that claim two billion elements in a few bytes, in every API and version, reserve no memory."""
    frames = []
    for key in ApiKey:
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            many = varint(2**32 - 1) if APIS[key].is_flexible(version) else I32.pack(2**31 - 1)
            frames += [raw(key, version, bytes(lead) + many + b"\0" * 8) for lead in (0, 1, 2, 4, 6)]
    return send_each(target, frames)


@attack("kafka")
def lying_string_lengths(target: Target) -> str:
    """Strings longer than their frame, of negative length, or null where none may be, close the connection."""
    frames = []
    for size in (2**15 - 1, -1, -2, -(2**15), 9):
        frames += [raw(key, 0, struct.pack(">h", size) + b"group") for key in (10, 11, 12, 13, 14)]
    for size in (0, 2, 2**32 - 1, 2**31):
        frames += [
            raw(key, APIS[key].max_version, varint(size) + b"group") for key in (8, 11, 12, 13, 14, 68)
        ]
    return send_each(target, frames)


@attack("kafka")
def endless_varints(target: Target) -> str:
    """Varints of more than five bytes are refused wherever they may occur: lengths, counts, tags."""
    endless = b"\xff" * 64
    frames = [raw(key, APIS[key].max_version, endless) for key in ApiKey]
    frames += [framed(head(key, APIS[key].max_version)[:-1] + endless) for key in ApiKey]
    return send_each(target, frames)


@attack("kafka")
def lying_tagged_fields(target: Target) -> str:
    """Tagged fields that lie about their number or size, or come a million at once, cost no more than their bytes."""
    start = head(METADATA, 12)[:-1]
    body = varint(1) + b"\0\0" + b"\0"
    lies = [varint(2**32 - 1), varint(1) + varint(0) + varint(2**31), varint(9) + varint(3)]
    many = varint(1_000_000) + b"\x7f\0" * 1_000_000
    frames = [framed(start + each + body) for each in lies] + [
        raw(METADATA, 12, body[:-1] + each) for each in lies
    ]
    million = [framed(start + many + body), raw(METADATA, 12, body[:-1] + many)]
    return f"{send_each(target, frames)}; a million: {send_each(target, million)}"


@attack("kafka")
def unknown_apis_and_versions(target: Target) -> str:
    """Every API key and version that does not exist is refused, and ApiVersions of any version is answered."""
    keys = (*range(-3, 100), 1000, 0x7260, 0x7FFF, -0x8000)
    frames = [framed(struct.pack(">hhih", key, 99, 1, -1) + b"\0" * 8) for key in keys]
    frames += [framed(struct.pack(">hhih", key, -1, 1, -1) + b"\0" * 8) for key in keys]
    return send_each(target, frames)


@attack("kafka")
def other_protocols(target: Target) -> str:
    """TLS, HTTP, SSH, Redis and DNS at the Kafka port, and Kafka at the others, close only their own connection."""
    hellos = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00\x1e" + bytes(30),
    ]
    words = [send_each(target, hellos)]
    for port in ("controller", "http"):
        with target.line(port) as line:
            line.send(raw(METADATA, 12, b"\0\0\0\0"))
            words.append(f"{port}: {line.outcome()}")
    return "; ".join(words)


@attack("kafka", within_s=30)
def garbage(target: Target) -> str:
    """A megabyte of random bytes on each of many connections of all three ports costs no more than a line of log."""
    chance, words = random.Random(1), []
    for port in ("kafka", "controller", "http") * 3:  # what a closed connection leaves adds up
        with target.lines(20, port) as lines:
            for line in lines:
                line.send(chance.randbytes(MIB), within_s=0.5)
            words.append(f"{port}: {counted(outcomes_of(lines))}")
    return "; ".join(words[-3:])


@attack("kafka", within_s=30)
def many_tiny_elements(target: Target) -> str:
    """Megabytes of the smallest possible elements do not become gigabytes of objects, nor seconds of decoding."""
    fetch = I32.pack(-1) + I32.pack(500) + I32.pack(1) + I32.pack(MIB) + b"\0" + bytes(8)
    bodies = {
        (METADATA, 1): I32.pack(500_000) + b"\0\0" * 500_000,
        (METADATA, 12): varint(100_001) + (bytes(16) + compact("") + b"\0") * 100_000 + b"\0\0\0",
        (FETCH, 12): fetch + varint(1_000_001) + (compact("") + varint(1) + b"\0") * 1_000_000,
        (FETCH, 11): fetch + I32.pack(1_000_000) + (legacy("") + I32.pack(0)) * 1_000_000,
        (PRODUCE, 9): b"\0" + struct.pack(">hi", -1, 1000) + varint(1_000_001) + (b"\1\1\0") * 1_000_000,
    }
    words = []
    for (key, version), body in bodies.items():
        with target.line() as line:
            line.send(raw(key, version, body))
            words.append(f"{APIS[key].name} v{version}: {line.outcome(5)}")
    return "; ".join(words)


@attack("kafka")
def api_versions_again_and_again(target: Target) -> str:
    """Fifty thousand ApiVersions in one go are answered in order while others get their turns."""
    frame = raw(API_VERSIONS, 3, compact("x" * 1000) + compact("y" * 1000) + b"\0")
    with target.line() as line:
        sent = line.send(frame * 10_000, within_s=8)
        return f"{sent // len(frame)} taken, {line.outcome()}"
