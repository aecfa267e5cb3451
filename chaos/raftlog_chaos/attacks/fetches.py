"""Fetch sessions and lists of partitions with false versions, epochs and ids, and with far too many elements."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from raftlog.protocol.codec import decode_response
from raftlog_chaos.attacks.readers import fetch_all
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ATTACKER,
    Line,
    Target,
    array,
    compact,
    counted,
    for_seconds,
    legacy,
    legacy_array,
    raw,
    send_each,
)

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
HEAD: Final = struct.Struct(">iiiibii")
MIB: Final = 1 << 20


class Part(NamedTuple):
    """One partition of a Fetch."""

    number: int
    offset: int = 0
    epoch: int = -1
    most: int = MIB

    def packed(self, version: int) -> bytes:
        """Return it as a version has it, without tags."""
        if version >= 12:
            return struct.pack(">iiqiqi", self.number, self.epoch, self.offset, -1, -1, self.most)
        if version >= 9:
            return struct.pack(">iiqqi", self.number, self.epoch, self.offset, -1, self.most)
        start = b"" if version < 5 else struct.pack(">q", -1)
        return struct.pack(">iq", self.number, self.offset) + start + struct.pack(">i", self.most)


def fetch(
    version: int,
    topics: list[tuple[bytes, list[Part]]],
    session: tuple[int, int] = (0, -1),
    *,
    wait_ms: int = 0,
    replica: int = -1,
) -> bytes:
    """Return a Fetch v4 to v14; `topics` are names or ids that are bytes already, with their partitions."""
    head = HEAD.pack(replica, wait_ms, 0, 50 * MIB, 0, *session)
    if version < 7:
        head = head[:-8]
    if version < 12:
        body = legacy_array(
            [name + legacy_array([part.packed(version) for part in each]) for name, each in topics]
        )
        rest = (b"\0\0\0\0" if version >= 7 else b"") + (b"\0\0" if version >= 11 else b"")
        return raw(FETCH, version, head + body + rest)
    body = array(
        [name + array([part.packed(version) + b"\0" for part in each]) + b"\0" for name, each in topics]
    )
    return raw(FETCH, version, head + body + b"\1\1\0")


def session_of(line: Line, version: int, frame: bytes) -> int:
    """Send a Fetch that starts a session; return its id, 0 if there is none."""
    answer = line.ask(frame)
    if answer is None:
        return 0
    return int(decode_response(FETCH, version, memoryview(answer))[1].session_id)


@attack("kafka", ci=True)
def a_session_changes_its_version(target: Target) -> str:
    """A session begun in v12 with a name of 40,000 bytes and continued in v11, over cold data, ends no node."""
    words = []
    for _ in range(3):
        target.cool()
        for index, node in enumerate(sorted(target.nodes)):
            with target.line("kafka", node) as line:
                long = compact("n" * 40_000)
                topics = [(compact(target.topic), [Part(index)]), (long, [Part(0)])]
                session = session_of(line, 12, fetch(12, topics, (0, 0)))
                target.cool()
                line.send(fetch(11, [(legacy(target.topic), [Part(index, 4)])], (session, 1)))
                words.append(line.outcome(2))
    return counted(words)


@attack("kafka")
def a_session_changes_from_names_to_ids(target: Target) -> str:
    """A session of names continued with topic ids, or vice versa, is refused and has no other effect."""
    words = []
    with target.line() as line:
        session = session_of(line, 12, fetch(12, [(compact(target.topic), [Part(0)])], (0, 0)))
        line.send(fetch(13, [(bytes(range(16)), [Part(0)])], (session, 1)))
        words.append(line.outcome())
    with target.line() as line:
        session = session_of(line, 13, fetch(13, [(bytes(range(16)), [Part(0)])], (0, 0)))
        line.send(fetch(12, [(compact(target.topic), [Part(0)])], (session, 1)))
        words.append(line.outcome())
    return counted(words)


@attack("kafka", within_s=30)
def somebody_elses_session(target: Target) -> str:
    """Guessed and stolen session ids, wrong epochs and ended sessions are refused; their owner goes on."""
    topics = [(compact(target.topic), [Part(0)])]
    with target.line() as owner, target.line() as thief:
        session = session_of(owner, 12, fetch(12, topics, (0, 0)))
        words = []
        for epoch in (1, 1, 2, 5, -1, 0, 2**31 - 1):
            thief.send(fetch(12, topics, (session, epoch)))
            words.append(thief.outcome())
        for number in range(200):
            thief.send(fetch(12, [], (number * 7919 + 1, 1)))
            words.append(thief.outcome())
        owner.send(fetch(12, topics, (session, 1)))
        return f"{counted(words)}; the owner: {owner.outcome()}"


@attack("kafka", within_s=30)
def very_many_sessions(target: Target) -> str:
    """Thousands of sessions of some hundred partitions each stay within what sessions may take together."""
    unknown = [Part(index) for index in range(300)]
    frame = fetch(12, [(compact(target.topic), unknown[:3]), (compact("nowhere"), unknown)], (0, 0))
    with target.lines(20) as lines:
        for line in lines:
            line.send(frame * 150, within_s=1)
        going_on, answered = for_seconds(8), 0
        while going_on() and answered < 3_000:
            answered += sum(line.receive(0.1) is not None for line in lines)
    return f"{answered} answered"


@attack("kafka", within_s=30)
def a_session_of_a_million_partitions(target: Target) -> str:
    """Fetch sessions of a hundred thousand partitions each, over and over, take neither seconds nor gigabytes."""
    parts = [Part(index) for index in range(90_000)]
    frame = fetch(12, [(compact("nowhere"), parts)], (0, 0))
    with target.lines(12) as lines:
        for line in lines:
            line.send(frame)
        return counted([line.outcome(4) for line in lines])


@attack("kafka", within_s=30)
def one_partition_a_hundred_thousand_times(target: Target) -> str:
    """A Fetch that names one partition again and again reads it no more often than once."""
    parts = [Part(0)] * 100_000
    with target.line() as line:
        line.send(fetch(12, [(compact(target.topic), parts)]))
        words = [line.outcome(5)]
        line.send(fetch(4, [(legacy(target.topic), parts)]))
        words.append(line.outcome(5))
    return counted(words)


@attack("kafka")
def impossible_fetch_positions(target: Target) -> str:
    """Offsets, epochs, sizes and waits at the ends of their ranges are answered with errors."""
    odd = [
        (0, offset, epoch, most)
        for offset in (-1, -(2**63), 2**63 - 1)
        for epoch in (-1, 2**31 - 1)
        for most in (0, -1)
    ]
    odd += [(index, 0, -1, MIB) for index in (-1, 3, 2**31 - 1, -(2**31))]
    frames = [fetch(12, [(compact(target.topic), [Part(*each)])]) for each in odd]
    frames += [fetch(11, [(legacy(target.topic), [Part(*each)])], wait_ms=-1) for each in odd]
    return send_each(target, frames)


@attack("kafka", within_s=20)
def forged_replica_fetches(target: Target) -> str:
    """Fetches with a replica's id but without its proof move no high watermark and return no uncommitted record."""
    frames = [
        fetch(
            version,
            [((compact if version >= 12 else legacy)(target.topic), [Part(0, 1 << 40)])],
            replica=replica,
        )
        for version in (4, 11, 12)
        for replica in (1, 2, 3, -2, 2**31 - 1)
    ]
    return send_each(target, frames * 20)


@attack("kafka", within_s=30)
def cold_reads_all_at_once(target: Target) -> str:
    """Reads of what is not in the page cache, from 200 connections at once, leave the disk's threads to the syncs."""
    target.cool()
    with target.lines(200) as lines:
        for number in range(5):
            for line in lines:
                line.send(fetch_all(target.topic, 0, most=256 * 1024), within_s=0.05)
            target.cool() if number % 2 else None
        return counted([line.outcome(0.02) for line in lines])


@attack("kafka", within_s=30)
def timestamps_searched_again_and_again(target: Target) -> str:
    """ListOffsets that names one partition fifteen thousand times searches it once, or not at all."""
    part = struct.pack(">iiq", 0, -1, 1) + b"\0"
    body = struct.pack(">ib", -1, 0) + array([compact(target.topic) + array([part] * 15_000) + b"\0"]) + b"\0"
    with target.lines(4) as lines:
        for line in lines:
            line.send(raw(LIST_OFFSETS, 7, body))
        return counted([line.outcome(6) for line in lines])


@attack("kafka", within_s=30)
def epochs_asked_again_and_again(target: Target) -> str:
    """OffsetForLeaderEpoch for thousands of repeated and unknown partitions goes in turns."""
    part = struct.pack(">iii", 0, -1, 0) + b"\0"
    topics = [
        compact(target.topic) + array([part] * 5_000) + b"\0",
        compact("nowhere") + array([part] * 5_000) + b"\0",
    ]
    with target.line(source=ATTACKER) as line:
        line.send(raw(OFFSET_FOR_LEADER_EPOCH, 4, struct.pack(">i", -1) + array(topics) + b"\0"))
        return line.outcome(8)
