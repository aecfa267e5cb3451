"""Groups of strangers: made-up members, thousands of them, metadata of megabytes, expensive expressions."""

from __future__ import annotations

import struct
from typing import Any, Final

from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    ELSEWHERE,
    Target,
    array,
    compact,
    counted,
    for_seconds,
    legacy,
    outcomes_of,
    raw,
    request,
    varint,
)

JOIN, HEARTBEAT, LEAVE, SYNC, DELETE_GROUPS, OFFSET_COMMIT = 11, 12, 13, 14, 42, 8
CONSUMER_HEARTBEAT, LIST_GROUPS, OFFSET_DELETE = 68, 16, 47
NODES: Final = (1, 2, 3)
GROUP_OF_BYSTANDERS: Final = "bystanders"


def _join(
    group: str,
    member: str = "",
    metadata: bytes = b"m",
    *,
    instance: str | None = None,
    session_ms: int = 30_000,
) -> bytes:
    """Return a JoinGroup v5, the first version with static members."""
    static = b"\xff\xff" if instance is None else legacy(instance)
    body = (
        legacy(group) + struct.pack(">ii", session_ms, 60_000) + legacy(member) + static + legacy("consumer")
    )
    return raw(
        JOIN, 5, body + struct.pack(">i", 1) + legacy("range") + struct.pack(">i", len(metadata)) + metadata
    )


def _join_old(group: str, metadata: bytes = b"m", *, session_ms: int = 6_000) -> bytes:
    """Return a JoinGroup v3, which makes the sender a member at once."""
    body = legacy(group) + struct.pack(">ii", session_ms, 60_000) + legacy("") + legacy("consumer")
    return raw(
        JOIN, 3, body + struct.pack(">i", 1) + legacy("range") + struct.pack(">i", len(metadata)) + metadata
    )


def _beat(group: str, **fields: Any) -> bytes:
    """Return a ConsumerGroupHeartbeat v1."""
    given = {"member_id": "", "member_epoch": 0, "rebalance_timeout": 60_000, "topic_partitions": ()} | fields
    return request(CONSUMER_HEARTBEAT, 1, "ConsumerGroupHeartbeatRequest", group_id=group, **given)


def _on_all(target: Target, frames: list[bytes], *, each: int = 50, within_s: float = 6.0) -> str:
    """Send all frames to each node, some per connection, since only one node coordinates a group."""
    words = []
    for node in NODES:
        with target.lines((len(frames) + each - 1) // each, "kafka", node) as lines:
            for number, line in enumerate(lines):
                line.send(b"".join(frames[number * each : (number + 1) * each]))
            words += outcomes_of(lines, within_s)
    return counted(words)


def _delete(target: Target, groups: list[str]) -> str:
    """Delete empty groups; return the outcome in words."""
    words = []
    for node in NODES:
        with target.line("kafka", node, ELSEWHERE) as line:
            line.send(raw(DELETE_GROUPS, 2, array([compact(each) for each in groups]) + b"\0"))
            words.append(line.outcome(8))
    return counted(words)


@attack("kafka", within_s=60)
def thousands_of_made_up_groups(target: Target) -> str:
    """Members that join six thousand groups and never come back cost a bound, and are gone after their session."""
    groups = [f"attack-group-{number}" for number in range(6_000)]
    outcome = _on_all(target, [_join_old(each) for each in groups], each=1_000)
    asked = _on_all(target, [_join(each) for each in groups[:2_000]], each=1_000, within_s=2)
    return f"{outcome}; without an id: {asked}; deletion: {_delete(target, groups)}"


@attack("kafka", within_s=60)
def a_group_of_thousands(target: Target) -> str:
    """Four hundred members that join one group at once, and vanish, get a generation without a stall."""
    outcome = _on_all(target, [_join_old("attack-crowd", b"m" * 200)] * 400, each=1, within_s=4)
    return outcome


@attack("kafka", within_s=60)
def offers_of_megabytes(target: Target) -> str:
    """Members that offer a megabyte each are refused once a generation could not be recorded any more."""
    return _on_all(target, [_join_old("attack-offers", bytes(1_000_000))] * 60, each=1, within_s=3)


@attack("kafka", within_s=30)
def strangers_in_a_group(target: Target) -> str:
    """A made-up member id, generation or instance of a living group has no effect on it."""
    group, frames = GROUP_OF_BYSTANDERS, []
    for member in ("", "made-up", "rdkafka-00000000-0000-0000-0000-000000000000", "m" * 30_000):
        for generation in (-1, 0, 1, 2, 2**31 - 1):
            frames.append(raw(HEARTBEAT, 0, legacy(group) + struct.pack(">i", generation) + legacy(member)))
            sync = legacy(group) + struct.pack(">i", generation) + legacy(member)
            frames.append(raw(SYNC, 0, sync + struct.pack(">i", 0)))
            commit = compact(group) + struct.pack(">i", generation) + compact(member) + b"\0"
            part = struct.pack(">iqi", 0, 0, -1) + b"\1\0"
            if member or generation >= 0:
                frames.append(
                    raw(
                        OFFSET_COMMIT,
                        8,
                        commit + array([compact(target.bystanders) + array([part]) + b"\0"]) + b"\0",
                    )
                )
        if member:
            frames.append(raw(LEAVE, 0, legacy(group) + legacy(member)))
            frames.append(_join(group, member))
            frames.append(_beat(group, member_id=member, member_epoch=1))
            frames.append(_beat(group, member_id=member, member_epoch=-1))
    frames.append(raw(DELETE_GROUPS, 2, array([compact(group)]) + b"\0"))
    frames.append(
        raw(
            OFFSET_DELETE,
            0,
            legacy(group) + struct.pack(">i", 1) + legacy(target.bystanders) + struct.pack(">ii", 1, 0),
        )
    )
    return _on_all(target, frames, each=1, within_s=3)


@attack("kafka", within_s=40)
def impossible_group_numbers(target: Target) -> str:
    """Session timeouts, epochs, generations and names at the ends of their ranges are answered with errors."""
    frames = [_join_old("attack-odd", session_ms=each) for each in (-1, 0, 1, 2**31 - 1, -(2**31))]
    frames += [_join_old(each) for each in ("", "g" * 32_000)]
    frames += [_join("attack-odd", instance=each) for each in ("", "i" * 32_000)]
    frames += [
        _beat("attack-odd", member_epoch=each, member_id="m") for each in (-3, -2, -1, 0, 1, 2**31 - 1)
    ]
    frames += [_beat("attack-odd", rebalance_timeout=each) for each in (-1, 0, 2**31 - 1)]
    frames += [_beat(each) for each in ("", "g" * 60_000)]
    frames += [_beat("attack-odd", server_assignor="a" * 30_000, subscribed_topic_names=("a",))]
    frames += [_beat("attack-odd", member_id="m" * 60_000, rack_id="r" * 60_000, instance_id="i" * 60_000)]
    return _on_all(target, frames, each=1, within_s=3)


@attack("kafka", within_s=60)
def expressions_that_take_long(target: Target) -> str:
    """Subscriptions by exponential expressions, and very long ones, are matched in turns or refused."""
    bombs = [
        "(a+)+$",
        "(a|aa)+$",
        "(.*a){25}",
        "((a{100}){100}){100}",
        "(?:a?){1000}a{1000}",
        "[a-z]{1,1000}" * 10,
        "|".join(f"topic-{number}" for number in range(20_000)),
        ".*" * 5_000,
        "(" * 20_000,
        "\\p{Greek}{500}" * 20,
        "x" * 900_000,
    ]
    frames = [
        _beat(
            f"attack-regex-{number % 20}",
            member_id=f"m-{number}",
            subscribed_topic_regex=bomb,
            subscribed_topic_names=None,
        )
        for number in range(60)
        for bomb in bombs
        if number < 3 or len(bomb) < 1_000
    ]
    return _on_all(target, frames, each=10, within_s=5)


@attack("kafka", within_s=60)
def subscriptions_to_everything(target: Target) -> str:
    """Members that subscribe to ten thousand made-up topics each are bounded in what they may say together."""
    names = tuple(f"topic-{number:06d}" for number in range(10_000))
    frames = [
        _beat(f"attack-wide-{number % 10}", member_id=f"m-{number}", subscribed_topic_names=names)
        for number in range(40)
    ]
    owned = array([bytes([n % 256]) * 16 + varint(2) + struct.pack(">i", n) + b"\0" for n in range(4_000)])
    body = (
        compact("attack-wide-0") + compact("m-0") + struct.pack(">i", 1) + b"\0\0" + struct.pack(">i", 1000)
    )
    frames += [raw(CONSUMER_HEARTBEAT, 1, body + b"\0\0\0" + owned + b"\0")] * 5
    return _on_all(target, frames, each=4, within_s=5)


@attack("kafka", within_s=40)
def assignments_of_megabytes(target: Target) -> str:
    """SyncGroup with assignments of megabytes, for members that do not exist, is refused by its size."""
    many = struct.pack(">i", 30_000) + b"".join(
        legacy(f"a-member-with-a-long-name-{number}") + struct.pack(">i", 0) for number in range(30_000)
    )
    large = struct.pack(">i", 1) + legacy("m") + struct.pack(">i", 20_000_000) + bytes(20_000_000)
    start = legacy("attack-sync") + struct.pack(">i", 1) + legacy("m")
    return _on_all(target, [raw(SYNC, 0, start + each) for each in (many, large)], each=1, within_s=4)


@attack("kafka", within_s=30)
def heartbeats_in_a_hurry(target: Target) -> str:
    """As many heartbeats of unknown members as a client can send in five seconds leave other members theirs."""
    frame = raw(HEARTBEAT, 0, legacy("attack-beats") + struct.pack(">i", 1) + legacy("m")) * 500
    going_on, sent = for_seconds(5), 0
    with target.lines(6) as lines:
        while going_on():
            for line in lines:
                sent += line.send(frame, within_s=0.1)
                line.read(0.001)
    return f"{sent * 500 // len(frame)} sent"


@attack("kafka", within_s=40)
def static_members_that_take_turns(target: Target) -> str:
    """A static instance that a thousand clients claim in turn belongs to the last client."""
    outcome = _on_all(target, [_join("attack-static", instance="one")] * 1_000, each=20, within_s=3)
    return outcome
