"""Bytes for the controller's port: handshakes in MessagePack, valid, nearly valid, and random bytes."""

from __future__ import annotations

import random
import struct
from typing import Any, Final

import msgspec

LENGTH: Final = struct.Struct(">I")
TAGS: Final = ("hello", "challenge", "proof", "welcome", "refusal", "nothing")
KINDS: Final = ("raft", "rpc", "heartbeat", "observe", "", "x" * 300)
LEAVES: Final = (None, True, 0, -1, 1.5, 2**63, -(2**63), "", "a", "ü" * 40, b"", b"\0" * 32, b"x" * 5_000)
DEEPEST: Final = 900
_encode: Final = msgspec.msgpack.Encoder().encode


def draw_handshake(rng: random.Random) -> bytes:
    """Return some bytes for a new connection: a few frames, whole or not."""
    out = b"".join(_frame(rng) for _ in range(rng.choice((1, 1, 2, 3))))
    return out[: rng.randrange(len(out) + 1)] if rng.random() < 0.1 else out


def _frame(rng: random.Random) -> bytes:
    payload = bytearray(_payload(rng))
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 2, 4))):
            if payload:
                payload[rng.randrange(len(payload))] = rng.choice(
                    (0, 0x7F, 0x80, 0x90, 0xC1, 0xDD, 0xFF, rng.randrange(256))
                )
    size = len(payload)
    if rng.random() < 0.1:
        size = rng.choice((0, 1, size + 1, size - 1 if size else 0, 4_096, 4_097, 1 << 24, 2**31, 2**32 - 1))
    return LENGTH.pack(size) + bytes(payload)


def _payload(rng: random.Random) -> bytes:
    way = rng.random()
    if way < 0.6:
        return _encode([f"raftlog {rng.choice(TAGS)}", *_fields(rng)])
    if way < 0.8:
        return _encode(_value(rng, 3))
    if way < 0.9:
        return rng.choice((b"\x91", b"\x81\xa1a", b"\xdc\xff\xff")) * rng.choice((1, 50, DEEPEST))
    return rng.randbytes(rng.randrange(200))


def _fields(rng: random.Random) -> list[Any]:
    if rng.random() < 0.6:  # a hello as it should be, but for one thing perhaps
        fields: list[Any] = [1, rng.choice(KINDS[:4]), rng.choice((1, 2, 3, 4)), "", rng.randbytes(32)]
        if rng.random() < 0.5:
            fields[rng.randrange(5)] = _value(rng, 1)
        return fields
    return [_value(rng, 2) for _ in range(rng.randrange(7))]


def _value(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.6:
        return rng.choice(LEAVES)
    if rng.random() < 0.5:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(("a", "raftlog hello", "")): _value(rng, depth - 1)}
