"""The source of all values: a seed, values from earlier answers, and the ends of every range."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

T = TypeVar("T")

REMEMBERED: Final = 32
"""Values of one name that are kept from answers."""
NO_LIE: Final = -1

TOPICS: Final = ("fuzz-0", "fuzz-1", "fuzz-compact")
"""Topics that exist in the worlds of the fuzzer."""

OWN: Final = ("fuzz", "made")
"""Prefixes of the fuzzer's own topics."""

EDGES: Final[Mapping[str, tuple[int, ...]]] = {
    "b": (0, 1, -1, 2, 3, 127, -128),
    "h": (0, 1, -1, 2, 5, 32767, -32768),
    "i": (0, 1, -1, 2, 3, 100, 1 << 20, 2**31 - 1, -(2**31), -2),
    "q": (0, 1, -1, -2, -3, 100, 1 << 40, 2**63 - 1, -(2**63), 1_767_225_600_000),
    "B": (0, 1, 255),
    "H": (0, 1, 9092, 65535),
    "I": (0, 1, 2**32 - 1),
    "Q": (0, 1, 2**64 - 1),
    "?": (0, 1, 2),
}
"""Keyed by struct code."""

UUIDS: Final = (bytes(16), bytes(15) + b"\1", bytes(range(16)))

STRINGS: Final = (
    "",
    "a",
    "1",
    "2",
    "0",
    "-1",
    "fuzz",
    *TOPICS,
    "__consumer_offsets",
    "__transaction_state",
    "consumer",
    "range",
    ".",
    "..",
    "a/b",
    "*",
    "a" * 249,
    "a" * 250,
    "ü" * 130,
    "\0",
    "\u202e",
    "\U0001f600",
    "9" * 20,
    "٣",
)
LONG: Final = ("x" * 3_000, "x" * 33_000, "9" * 5_000, "ü" * 20_000)
GROUPS: Final = ("group-a", "group-b", "group-c")
TRANSACTIONS: Final = ("tx-a", "tx-b", "tx-c")
PATTERNS: Final = (
    "fuzz.*",
    ".*",
    "(a+)+$",
    "(",
    "[",
    "a{1000}",
    "(a{50}){50}",
    "\\",
    "fuzz-[01]",
    "x" * 2_000,
)
CONFIGS: Final = (
    "cleanup.policy",
    "retention.ms",
    "segment.bytes",
    "min.insync.replicas",
    "max.message.bytes",
    "compression.type",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "leader.replication.throttled.replicas",
    "delete.retention.ms",
    "consumer.session.timeout.ms",
    "num.io.threads",
    "log.retention.ms",
    "nothing.of.the.kind",
)
CONFIG_VALUES: Final = (
    "1",
    "-1",
    "0",
    "true",
    "compact",
    "delete",
    "compact,delete",
    "",
    "9" * 30,
    "1e9",
    "1:1,2:2",
    "*",
    "x",
)

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "group_id": GROUPS,
    "group_ids": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "transactional_id": TRANSACTIONS,
    "v3_and_below_transactional_id": TRANSACTIONS,
    "transactional_ids": TRANSACTIONS,
    "coordinator_keys": GROUPS + TRANSACTIONS,
    "key": GROUPS + TRANSACTIONS,
    "topic": TOPICS,
    "topic_names": TOPICS,
    "subscribed_topic_names": TOPICS,
    "topic_name": TOPICS,
    "resource_name": (*TOPICS, "1", "", *GROUPS),
    "configuration_keys": CONFIGS,
    "value": CONFIG_VALUES,
    "protocol_type": ("consumer",),
    "protocol_name": ("range", "roundrobin"),
    "server_assignor": ("uniform", "range", "none"),
    "subscribed_topic_regex": PATTERNS,
    "transactional_id_pattern": PATTERNS,
    "state_filters": ("Empty", "Ongoing", "Stable", "Dead"),
    "states_filter": ("Empty", "Ongoing", "Stable", "Dead"),
    "types_filter": ("consumer", "classic", "share"),
    "client_software_name": ("fuzz", "a b", ""),
}
"""Strings by the name of their field."""

NUMBERS: Final[Mapping[str, tuple[int, ...]]] = {
    "resource_type": (2, 4, 8, 16, 32, 0, -1),
    "config_operation": (0, 1, 2, 3, 4),
    "key_type": (0, 1, 2),
    "election_type": (0, 1, 2),
    "isolation_level": (0, 1),
    "acks": (-1, 1, 0),
    "partition": (0, 1, 2, -1),
    "index": (0, 1, 2, -1),
    "partition_index": (0, 1, 2, -1),
    "partitions": (0, 1, 2),
    "partition_indexes": (0, 1, 2),
    "broker_ids": (1, 2, 3, 4, -1),
    "replicas": (1, 2, 3, 4),
    "broker_id": (4, 99, -1),
    "replica_id": (-1, -1, -1, 1, 2),
    "max_wait": (0, 0, 1, 20, -1),
    "min_bytes": (0, 1, 100),
    "max_bytes": (1 << 20, 0, 1, -1, 2**31 - 1),
    "timeout": (100, 1, 0, -1, 1_000),
    "session_timeout": (6_000, 10_000, 1, -1, 2**31 - 1),
    "rebalance_timeout": (200, 1, 0, -1, 1_000),
    "transaction_timeout": (1_000, 100, 0, -1, 2**31 - 1),
    "num_partitions": (1, 2, -1, 0, 3),
    "replication_factor": (1, 3, -1, 0, 4),
    "count": (1, 2, 3, 4, 0, -1),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_767_225_600_000),
    "fetch_offset": (0, 1, 5, 100, -1),
    "producer_epoch": (0, 1, -1),
    "member_epoch": (0, 1, 2, -1, -2),
    "session_epoch": (0, 0, 1, 2, -1),
    "share_session_epoch": (0, 0, 1, 1, 2, 3, -1),
    "share_acquire_mode": (0, 1, 2),
    "max_records": (500, 1, 0, -1, 2**31 - 1),
    "batch_size": (100, 1, 0, -1),
    "acknowledge_types": (1, 2, 3, 4, 0, 5, -1),
    "first_offset": (0, 1, 2, 5, -1),
    "last_offset": (0, 1, 2, 5, 100, -1),
    "start_offset": (0, 1, -1, -2),
    "endpoint_type": (1, 2, 0),
}
"""Integers by the name of their field; timeouts are small."""

ALIASES: Final[Mapping[str, str]] = {
    "generation_id_or_member_epoch": "generation_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "producer_id_filters": "producer_id",
}
"""Fields that mean the same as another."""

LEARNED: Final = frozenset(
    {
        "member_id",
        "generation_id",
        "member_epoch",
        "producer_id",
        "producer_epoch",
        "session_id",
        "topic_id",
        "leader_epoch",
        "base_offset",
        "cluster_id",
    }
)
"""Fields of answers that later requests can name again."""


class KnownValues:
    """Values that answers brought, by the name of their field: the last few of each."""

    def __init__(self) -> None:
        self._values: dict[str, deque[Any]] = {}
        self._own_ids: set[Any] = set()
        """Ids of the fuzzer's own topics, if an answer had the name beside the id."""

    def learn(self, answer: Any) -> None:
        """Remember the LEARNED fields of an answer, at any depth."""
        fields = getattr(answer, "__dataclass_fields__", None)
        if fields is None:
            if isinstance(answer, tuple):
                for each in answer[:REMEMBERED]:
                    self.learn(each)
            return
        if not self._is_ours(answer):
            return
        for name in fields:
            value = getattr(answer, name)
            if name in LEARNED and value not in (None, "", -1):
                self._values.setdefault(name, deque(maxlen=REMEMBERED)).append(value)
            elif value.__class__ is tuple or hasattr(value, "__dataclass_fields__"):
                self.learn(value)

    def of(self, name: str) -> Sequence[Any] | None:
        """Return the known values of a field, or None."""
        return self._values.get(name)

    def _is_ours(self, answer: Any) -> bool:
        """Return False for a part of an answer about a topic that is not known to be the fuzzer's own.

        A member that subscribed to everything is assigned the honest clients' topic by its id alone.
        """
        topic_id = getattr(answer, "topic_id", None)
        if topic_id is None:
            return True
        name = getattr(answer, "name", None) or getattr(answer, "topic_name", None)
        if name is not None and name.startswith(OWN):
            self._own_ids.add(topic_id)
        return topic_id in self._own_ids


class Draw:
    """All chance of one frame. `fixed`: likely values of fields by name; `lie_in`: lengths until one lies."""

    __slots__ = ("batch", "fixed", "known", "lie_in", "random", "rng", "size", "strings")

    def __init__(self, rng: random.Random, known: KnownValues, strings: Sequence[str] = STRINGS) -> None:
        self.strings = strings
        self.rng = rng
        self.random = rng.random
        self.known = known
        self.fixed: Mapping[str, Any] = {}
        self.lie_in = NO_LIE
        self.batch: bytes | None = None
        """The records of every partition; None: some are drawn."""
        self.size = 0
        """Elements so far, which bounds how large the rest becomes."""

    def pick(self, among: Sequence[T]) -> T:
        return among[int(self.random() * len(among))]

    def integer(self, name: str, code: str) -> int:
        """Return a value for an integer field."""
        chance = self.random()
        if chance < 0.9:
            name = ALIASES.get(name, name)
            if name in self.fixed and chance < 0.85:
                return _fit(self.fixed[name], code)
            known = self.known.of(name)
            if known and chance < 0.6:
                value = self.pick(known)
                if isinstance(value, int):
                    return _fit(value + (0 if chance < 0.5 else 1), code)
            likely = NUMBERS.get(name)
            if likely is not None:
                return _fit(self.pick(likely), code)
        if chance < 0.97:
            return self.pick(EDGES[code])
        return _fit(self.rng.getrandbits(64), code)

    def text(self, name: str) -> str:
        """Return a value for a string field."""
        chance = self.random()
        if name in self.fixed and chance < 0.9:
            return str(self.fixed[name])
        known = self.known.of(name)
        if known and chance < 0.6:
            return str(self.pick(known))
        if chance < 0.85:
            return self.pick(WORDS.get(name, TOPICS))
        if chance < 0.9:
            return self.pick(CONFIGS)
        return self.pick(self.strings if chance < 0.999 else LONG)

    def uuid(self) -> bytes:
        """Return the bytes of an id."""
        known = self.known.of("topic_id")
        value: Any = self.pick(known) if known and self.random() < 0.8 else None
        return value.bytes if isinstance(value, UUID) else self.pick(UUIDS)

    def data(self) -> bytes:
        """Return what a field of bytes has."""
        return self.rng.randbytes(int(self.random() * 40))

    def count(self) -> int:
        """Return how many elements an array gets."""
        chance = self.random()
        if self.size > 200:
            return 0 if chance < 0.7 else 1
        if chance < 0.98:
            count = 1 if chance < 0.6 else int(chance * 40) % 3
        else:
            count = 30 if chance < 0.9995 else 2_000
        self.size += count
        return count


def _fit(value: Any, code: str) -> int:
    """Return a value in the range of a struct code."""
    bits = {"b": 8, "h": 16, "i": 32, "q": 64, "B": 8, "H": 16, "I": 32, "Q": 64, "?": 1}[code]
    number = int(value) & ((1 << bits) - 1)
    if code in "bhiq" and number >> (bits - 1):
        number -= 1 << bits
    return number
