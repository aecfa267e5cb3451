"""Frames for a broker's port, one after the other from a seed: valid, nearly valid, mutated, and in dances.

A dance is a sequence in which one client follows a protocol: a group, a transaction, a fetch session. Its next steps
mostly repeat the ids from earlier answers.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from raftlog.broker.handlers import served
from raftlog.protocol.apis import APIS
from raftlog_chaos.fuzz.draw import GROUPS, NO_LIE, STRINGS, TOPICS, TRANSACTIONS, Draw, KnownValues
from raftlog_chaos.fuzz.grammar import VERSIONS, draw_request

PREFIX: Final = 4
HANDSHAKE: Final = 0x7261
"""raftlog's own API key for the authentication of brokers."""
SERVED: Final = tuple(each for each in VERSIONS if each[0] in served())
OTHERS: Final = tuple(each for each in VERSIONS if each[0] not in served())

HARMFUL: Final = frozenset({64})
"""Served APIs that a run of frames does not survive: UnregisterBroker of a running broker."""
_i32 = struct.Struct(">i")


class Frame(NamedTuple):
    """One frame with its length, as it is sent. `kind` says how it was made."""

    data: bytes
    kind: str


class RequestSequence(NamedTuple):
    """A course: API keys in their order, and what fields are given in all of them."""

    name: str
    steps: tuple[int, ...]
    given: Callable[[random.Random], Mapping[str, Any]]


def _group(chance: random.Random) -> Mapping[str, Any]:
    return {"group_id": chance.choice(GROUPS), "protocol_type": "consumer", "name": "range"}


def _transaction(chance: random.Random) -> Mapping[str, Any]:
    return {
        "transactional_id": chance.choice(TRANSACTIONS),
        "group_id": chance.choice(GROUPS),
        "name": TOPICS[0],
    }


def _topic(chance: random.Random) -> Mapping[str, Any]:
    name = chance.choice(("made-1", "made-2", "made-3"))
    return {"name": name, "topic": name, "num_partitions": chance.choice((1, 2)), "replication_factor": 1}


def _compacted(chance: random.Random) -> Mapping[str, Any]:
    return {"name": "fuzz-compact", "index": 0, "acks": chance.choice((1, -1)), "timeout": 100}


def _session(chance: random.Random) -> Mapping[str, Any]:
    return {"topic": chance.choice(TOPICS), "replica_id": -1, "max_wait": 0}


def _share_group(chance: random.Random) -> Mapping[str, Any]:
    return {
        "group_id": chance.choice(GROUPS),
        "member_id": chance.choice(("a", "b")),
        "topic_name": TOPICS[0],
        "max_wait": 0,
        "is_renew_ack": 0,
    }


DANCES: Final = (
    RequestSequence("a classic group", (10, 11, 11, 14, 12, 8, 9, 12, 13, 42), _group),
    RequestSequence("a consumer group", (10, 68, 68, 8, 9, 68, 69, 68, 47), _group),
    RequestSequence("a share group", (10, 91, 76, 78, 0, 78, 79, 78, 79, 90, 77, 76, 92), _share_group),
    RequestSequence("a transaction", (10, 22, 24, 0, 25, 28, 26, 65, 61, 66), _transaction),
    RequestSequence("a fetch session", (3, 1, 1, 1, 2, 1, 1, 23, 1), _session),
    RequestSequence("a compacted topic", (0,) * 10, _compacted),
    RequestSequence("a topic", (19, 3, 0, 1, 37, 44, 32, 45, 46, 43, 21, 20), _topic),
)


def mutated(data: bytearray, rng: random.Random, other: bytes = b"") -> bytearray:
    """Change bytes of a frame behind its length, which is made to fit again, mostly. `other` is to be spliced in."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = PREFIX + int(rng.random() * max(1, len(data) - PREFIX))
        way = rng.randrange(8)
        if way <= 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif way == 2 and at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif way == 3:
            del data[at:]
        elif way == 4:
            del data[at : at + rng.randint(1, 8)]
        elif way == 5:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        elif way == 6:
            data[at:at] = data[at : at + rng.randint(1, 64)]
        else:
            data += other[PREFIX:][:512]
    if rng.random() < 0.97 and len(data) >= PREFIX:
        _i32.pack_into(data, 0, len(data) - PREFIX)
    return data


def mutants(data: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Return frames that differ from a given frame in some bytes."""
    return [bytes(mutated(bytearray(data), rng, data)) for _ in range(count)]


class Frames:
    """`next` returns frames for ever. `known` holds values from answers, if the caller lets it learn them.

    Requests of the APIs in `without` are not drawn, and strings of no meaning are some of `strings`; by mutation others
    may still come about.
    """

    def __init__(
        self,
        seed: str,
        known: KnownValues | None = None,
        *,
        without: frozenset[int] = frozenset(),
        strings: Sequence[str] = STRINGS,
    ) -> None:
        self._without = HARMFUL | without
        self.known = known or KnownValues()
        self.rng = random.Random(seed)
        self._draw = Draw(self.rng, self.known, strings)
        self._number = 0
        self._dance: RequestSequence | None = None
        self._step = 0
        self._given: Mapping[str, Any] = {}
        self._last = b""

    def next(self) -> Frame:
        """Return the next frame."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        chance = self.rng.random()
        if chance < 0.02:
            return self._odd()
        api_key, version, kind = self._choose(chance)
        draw = self._draw
        draw.fixed, draw.lie_in, draw.size = self._given, NO_LIE, 0
        if chance > 0.8:
            kind += ", a length lies"
            draw.lie_in = int(chance * 1_000) % 12
        data = draw_request(draw, api_key, version, self._number)
        if 0.6 < chance <= 0.75:
            data = mutated(data, self.rng, self._last)
            kind += ", mutated"
        self._last = bytes(data)
        return Frame(self._last, f"{APIS[api_key].name} v{version}{kind}")

    def _choose(self, chance: float) -> tuple[int, int, str]:
        """Return the API and version of the next frame: the next step of a dance, or any."""
        if self._dance is not None and self._step < len(self._dance.steps):
            if chance < 0.6 or chance > 0.9:
                key = self._dance.steps[self._step]
                self._step += 1
                if key in self._without:
                    key = 3
                return key, self._version(key), f" in {self._dance.name}"
        elif self.rng.random() < 0.3:
            self._dance, self._step = self.rng.choice(DANCES), 0
            self._given = self._dance.given(self.rng)
        else:
            self._dance, self._given = None, {}
        key, version = self.rng.choice(OTHERS if chance > 0.97 else SERVED)
        return (18, 0, "") if key in self._without else (key, version, "")

    def _version(self, key: int) -> int:
        api = APIS[key]
        if self.rng.random() < 0.7:
            return api.max_version
        return self.rng.randint(api.min_version, api.max_version)

    # --- frames without a schema

    def _odd(self) -> Frame:
        """Return a frame that is no request of Kafka's."""
        rng = self.rng
        way = rng.randrange(4)
        if way == 0:
            body = struct.pack(">hhih", HANDSHAKE, 0, self._number, -1) + self._step_of_handshake()
            return Frame(_i32.pack(len(body)) + body, "a handshake of brokers")
        if way == 1:
            body = struct.pack(
                ">hhih", rng.choice((-1, 4, 93, 999, 32767)), rng.randint(-1, 20), self._number, -1
            )
            return Frame(_i32.pack(len(body)) + body, "an API that nobody has")
        if way == 2:
            key, version = rng.choice(SERVED)
            version = rng.choice((-1, version + 50, 32767))
            body = struct.pack(">hhih", key, version, self._number, -1) + rng.randbytes(20)
            return Frame(_i32.pack(len(body)) + body, f"{APIS[key].name} in a version that nobody has")
        size = rng.choice((0, -1, 5, 2**31 - 1, 200_000_000))
        return Frame(_i32.pack(size) + rng.randbytes(5), "a length of its own")

    def _step_of_handshake(self) -> bytes:
        rng = self.rng
        kind = rng.choice((0, 1, 2, 3, 16, 40, 128, 255))
        if kind == 2:
            return bytes([kind]) + rng.randbytes(rng.choice((32, 32, 31, 33)))
        return struct.pack(
            ">Biq", kind, rng.choice((1, 2, 3, -1, 4)), rng.choice((0, 1, 2, -1))
        ) + rng.randbytes(32)
