"""Strangers that act as brokers at the port of clients: forged handshakes, false replicas, forwarded lies."""

from __future__ import annotations

import random
import struct
from typing import Final

from raftlog_chaos.attacks.fetches import Part, fetch
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    Target,
    array,
    compact,
    counted,
    for_seconds,
    framed,
    legacy,
    outcomes_of,
    raw,
    send_each,
)

HANDSHAKE: Final = 0x7261
"""raftlog's own API key for the authentication of brokers."""
NONCE: Final = bytes(range(32))


def step(body: bytes) -> bytes:
    """Return a frame of the handshake between brokers."""
    return framed(struct.pack(">hhih", HANDSHAKE, 0, 1, -1) + body)


def hello(kind: int = 1, broker: int = 2, epoch: int = 0) -> bytes:
    """Return the first frame, of a broker that may be anybody."""
    return step(struct.pack(">Biq", kind, broker, epoch) + NONCE)


@attack("kafka")
def forged_handshakes(target: Target) -> str:
    """Handshakes out of order, cut off, repeated or with a wrong proof end only their own connection."""
    chance = random.Random(2)
    frames = [
        hello(kind, broker, epoch)
        for kind in (0, 1, 2, 3, 16, 128, 255)
        for broker, epoch in ((1, 0), (2, -1), (-1, 2**63 - 1))
    ]
    frames += [
        step(b""),
        step(b"\2"),
        step(b"\1"),
        step(b"\2" + bytes(32)),
        step(b"\2" + bytes(31)),
        hello() + hello(),
    ]
    frames += [hello() + step(b"\2" + chance.randbytes(32)) for _ in range(200)]
    frames += [hello() + step(b"\2" + bytes(32)) + step(b"\2" + bytes(32)), hello(255) + step(bytes(33))]
    return send_each(target, frames)


@attack("kafka", within_s=20)
def handshakes_in_a_hurry(target: Target) -> str:
    """As many hellos as a stranger can send in five seconds do not cost other brokers their connections."""
    going_on, sent = for_seconds(5), 0
    frame = b"".join(hello(1, 1 + number % 3) for number in range(100))
    with target.lines(8) as lines:
        while going_on():
            for line in lines:
                sent += line.send(frame, within_s=0.1) * 100 // len(frame)
                line.read(0.001)
    return f"{sent} hellos"


@attack("kafka")
def replicas_after_a_failed_handshake(target: Target) -> str:
    """Follower fetches after a hello without its proof count as a client's, and move no high watermark."""
    frames = []
    for replica in (1, 2, 3):
        asked = [
            fetch(
                version,
                [((compact if version >= 12 else legacy)(target.topic), [Part(0, 1 << 50)])],
                replica=replica,
            )
            for version in (11, 12)
        ]
        frames += [hello(1, replica) + each for each in asked]
        frames += [hello(1, replica) + step(b"\2" + bytes(32)) + each for each in asked]
    return send_each(target, frames * 10)


@attack("kafka")
def what_only_brokers_may_ask(target: Target) -> str:
    """Requests between brokers and controllers, from a stranger, are refused in every version."""
    keys = (4, 5, 6, 7, 27, 52, 53, 54, 56, 57, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87)
    frames = [raw(key, version, bytes(64)) for key in keys for version in range(4)]
    epoch = struct.pack(">i", 2) + array(
        [compact(target.topic) + array([struct.pack(">iii", 0, -1, 0) + b"\0"]) + b"\0"]
    )
    frames += [raw(23, 4, epoch + b"\0")] * 10
    body = struct.pack(">ib", 2, 0) + array(
        [compact(target.topic) + array([struct.pack(">iiq", 0, -1, -1) + b"\0"]) + b"\0"]
    )
    frames += [raw(2, 7, body + b"\0")] * 10
    with target.lines(len(frames)) as lines:
        for line, frame in zip(lines, frames, strict=False):
            line.send(frame)
        return counted(outcomes_of(lines))
