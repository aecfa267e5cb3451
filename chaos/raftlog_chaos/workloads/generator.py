"""The next operations of clients, by chance: sends, polls, assignments and crashes, on keys that are replaced after a
number of writes.

It follows Jepsen's Kafka workload. It neither sends requests nor records them; one generator serves all clients of a
run, since values are unique per key.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from raftlog_chaos.workloads.port import Kind, split_key

Ending = Literal["commit", "abort", "leave", "usurp"]
"""How a transaction is to end. "leave": its process dies; "usurp": another takes its id, and then it commits."""

ENDINGS: Final[tuple[tuple[Ending, float], ...]] = (("abort", 0.15), ("usurp", 0.03), ("leave", 0.01))
"""Shares of transactions; the others are committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The share of each kind of operation. Each process has one role at a time: of `clients`, `writers`, `readers` and
    so on.
    """

    prefix: str = "log"
    """Topics are called `prefix`0, `prefix`1, …"""
    partitions: int = 2
    replicas: int = 3
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    keys: int = 4
    """Partitions that are written to at a time."""
    writes_per_key: int = 256
    """After so many a key is written no more and a new one takes its place: topics are created all the time."""
    clients: int = 3
    """Processes that both send and poll."""
    writers: int = 1
    readers: int = 1
    careless: int = 0
    """Processes that write with acks=1: see `log`."""
    transformers: int = 0
    """Members of one group that turn each record into another record, exactly once: see `transactions`."""
    subscribe: bool = False
    """A polling client joins a group and commits, instead of assigning keys to itself."""
    members: int = 1
    """How many members share a group, if they subscribe."""
    txn: bool = False
    """A writing client uses transactions, with polls among the writes if it reads, too. Needs transactional ports."""
    rate: float = 100.0
    """Operations per second of all processes together, less what they wait for answers; 0: no pauses."""
    longest: int = 4
    """Sends in one operation at most, on their way together."""
    assign_share: float = 1 / 64
    """Share of polls that are replaced by a change of the assignment."""
    unseen_share: float = 1 / 3
    """Share of assignments that add every key with acknowledged records that were never polled."""
    crash_every_s: float = 30.0
    """How long a process lives on average; 0: for ever."""
    final_readers: int = 2

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each worker."""
        counts: dict[Kind, int] = {
            "client": self.clients,
            "writer": self.writers,
            "reader": self.readers,
            "careless": self.careless,
            "transformer": self.transformers,
        }
        return tuple(kind for kind, count in counts.items() for _ in range(count))

    @property
    def transactional(self) -> bool:
        """Whether there are any transactions."""
        return self.txn or self.transformers > 0

    @property
    def out_keys(self) -> tuple[str, ...]:
        """The topic that transformers write to."""
        return tuple(
            f"{self.prefix}-out-{index}" for index in range(self.partitions if self.transformers else 0)
        )


class Send(NamedTuple):
    writes: tuple[tuple[str, int], ...]
    """(key, value), in this order."""


class Poll(NamedTuple):
    pass


class Txn(NamedTuple):
    steps: tuple[tuple[str, int] | None, ...]
    """Writes, and None for a poll."""
    ending: Ending = "commit"


class Transform(NamedTuple):
    """Poll, and write one record for each polled record, in a transaction with their offsets."""

    ending: Ending = "commit"


class Take(NamedTuple):
    """Assign or subscribe, as the options say."""

    keys: tuple[str, ...]


Operation = Send | Poll | Txn | Transform | Take


class Generator:
    """Draws operations; remembers what was written, acknowledged and polled."""

    def __init__(self, options: LogOptions, chance: random.Random) -> None:
        self.options = options
        self.chance = chance
        self.keys: list[str] = []
        """All keys that were ever written to or polled, oldest first."""
        self.acked: dict[str, int] = {}
        """Highest acknowledged offset by key."""
        self.polled: dict[str, int] = {}
        """Highest polled offset by key."""
        self._written: dict[str, int] = {}
        self._current: list[str] = []
        while len(self._current) < options.keys:
            self._current.append(self._new_key())

    @property
    def written(self) -> Mapping[str, int]:
        """Return the highest value that was sent to each key, derived values included."""
        return self._written

    def resume(self, written: Mapping[str, int], acked: Mapping[str, int]) -> None:
        """Go on where another run ended: no value is sent twice, and worn-out keys are not reused."""
        self._written.update(written)
        self.acked.update(acked)
        known = set(written) - set(self.options.out_keys)
        while not known <= set(self.keys):
            self._new_key()
        left = [key for key in self.keys if self._written.get(key, 0) < self.options.writes_per_key]
        self._current = left[-self.options.keys :]
        while len(self._current) < self.options.keys:
            self._current.append(self._new_key())

    def _new_key(self) -> str:
        number = len(self.keys)
        topic, partition = divmod(number, self.options.partitions)
        self.keys.append(f"{self.options.prefix}{topic}-{partition}")
        return self.keys[-1]

    def _write(self) -> tuple[str, int]:
        """Draw a key and its next value."""
        place = self.chance.randrange(len(self._current))
        key = self._current[place]
        value = self._written[key] = self._written.get(key, 0) + 1
        if value >= self.options.writes_per_key:
            self._current[place] = self._new_key()
        return key, value

    def next(self, kind: Kind, *, fresh: bool) -> Operation:
        """Draw what a process does next. `fresh`: it has no keys to poll yet."""
        if kind == "careless":
            return Send((self._write(),))
        if kind == "transformer":
            return Take(tuple(self.siblings(self.keys))) if fresh else Transform(self._ending())
        sends = kind == "writer" or (kind == "client" and self.chance.random() < 0.5)
        if sends and not self.options.txn:
            return Send(tuple(self._write() for _ in range(self._length())))
        if kind == "writer":
            return Txn(tuple(self._write() for _ in range(self._length())), self._ending())
        if fresh or self.chance.random() < self.options.assign_share:
            return Take(self._wanted())
        if self.options.txn and kind == "client":
            steps = [self._write() if self.chance.random() < 0.5 else None for _ in range(self._length())]
            return Txn(tuple(steps), self._ending())
        return Poll()

    def _ending(self) -> Ending:
        drawn = self.chance.random()
        for ending, share in ENDINGS:
            if drawn < share:
                return ending
            drawn -= share
        return "commit"

    def derive(self) -> tuple[str, int]:
        """Draw a key that transformers write to, and its next value."""
        key = self.chance.choice(self.options.out_keys)
        value = self._written[key] = self._written.get(key, 0) + 1
        return key, value

    def _length(self) -> int:
        return self.chance.randint(1, self.options.longest)

    def _wanted(self) -> tuple[str, ...]:
        wanted = dict.fromkeys(self._current)
        if self.chance.random() < self.options.unseen_share:
            wanted.update(dict.fromkeys(self.unseen()))
        if self.options.subscribe:
            # a subscription is to topics: it brings all their partitions
            wanted = dict.fromkeys(self.siblings(wanted))
        return tuple(wanted)

    def unseen(self) -> list[str]:
        """Return the keys with acknowledged records that were never polled."""
        return [key for key, offset in self.acked.items() if self.polled.get(key, -1) < offset]

    def siblings(self, keys: Iterable[str]) -> list[str]:
        """Return all keys of the topics of these."""
        topics = dict.fromkeys(split_key(key)[0] for key in keys)
        return [f"{topic}-{index}" for topic in topics for index in range(self.options.partitions)]

    # -- what came of it ----------------------------------------------------------------------------------------

    def note_acked(self, key: str, offset: int) -> None:
        self.acked[key] = max(self.acked.get(key, -1), offset)

    def note_polled(self, reads: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        for key, records in reads.items():
            if records:
                self.polled[key] = max(self.polled.get(key, -1), records[-1][0])
