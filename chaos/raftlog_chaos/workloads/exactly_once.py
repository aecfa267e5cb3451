"""Consume, transform, produce, exactly once: whatever dies, and however many workers use one transactional id.

The input is the numbers 0, 1, 2 …. Number n becomes a record in each of some partitions, and the offset n + 1 of the
group, in one transaction. Several workers share one transactional id and fence each other all the time. At the end
every number below the group's offset must be there in all its partitions, once, and no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from raftlog_chaos.workloads.committed_reader import CommittedReader
from raftlog_chaos.workloads.observations import Observations, TopicIndex
from raftlog_chaos.workloads.raw_client import AWAY, Client
from raftlog_chaos.workloads.txn_client import Refused, TransactionalProducer

STEPS: Final = ("init", "add", "write", "offsets", "end")
SLEEP_RATE: Final = 0.03
SLEEP_AT_THE_END_RATE: Final = 0.12
LONGEST_SLEEP_S: Final = 2.5
"""After so long a sleep a worker finds its transaction aborted, or its id taken."""

NOT_PART: Final = frozenset({48, 120})
"""INVALID_TXN_STATE, TRANSACTION_ABORTABLE."""

COMMIT_RATE: Final = 0.75
NUMBERS_HASHED: Final = 7


class Attempt(NamedTuple):
    """One attempt at one number by one worker."""

    transactional_id: str
    number: int
    attempt: int

    def value(self) -> bytes:
        return f"{self.transactional_id}/{self.number}/{self.attempt}".encode()

    @classmethod
    def of(cls, value: bytes) -> Attempt:
        transactional_id, number, attempt = value.decode().split("/")
        return cls(transactional_id, int(number), int(attempt))


class ExactlyOnceModel:
    """The actions and observations of workers, and the records that readers saw."""

    def __init__(self, topic: str, partitions: int, history: Observations) -> None:
        self.topic = topic
        self.partitions = partitions
        self.history = history
        self.acked: dict[str, int] = {}
        """By transactional id, up to which number a commit was acknowledged."""
        self.commits = 0
        self.fenced = 0
        self.void_answers = 0
        """How often a record was refused because its transaction's confirmation was void when it came."""
        self.steps: dict[str, asyncio.Event] = {each: asyncio.Event() for each in STEPS}
        """Set when a worker is about to take such a step, for scenarios that act at that moment."""
        self._attempts = 0
        self._asked: set[Attempt] = set()
        self._void: dict[Attempt, str] = {}
        self._seen: dict[tuple[str, int], Attempt] = {}
        self._where: dict[tuple[str, int], set[int]] = {}

    def partitions_of(self, transactional_id: str, number: int) -> list[TopicIndex]:
        """Return the partitions for the records of a number: one partition or several."""
        first = (number * NUMBERS_HASHED + len(transactional_id)) % self.partitions
        count = 1 + number % self.partitions
        return [(self.topic, (first + each) % self.partitions) for each in range(count)]

    def begin(self, transactional_id: str, number: int) -> Attempt:
        self._attempts += 1
        return Attempt(transactional_id, number, self._attempts)

    def asked(self, attempt: Attempt) -> None:
        """Record that the commit was requested: from now on the attempt may be committed."""
        self._asked.add(attempt)

    def committed(self, attempt: Attempt) -> None:
        self.commits += 1
        if attempt in self._void:
            self._blame(f"{attempt} was committed, and {self._void[attempt]}")
        known = self.acked.get(attempt.transactional_id, 0)
        self.acked[attempt.transactional_id] = max(known, attempt.number + 1)

    def void(self, attempt: Attempt, why: str) -> None:
        """Record that the attempt can never become visible."""
        self._void[attempt] = why
        seen = self._seen.get((attempt.transactional_id, attempt.number))
        if seen == attempt:
            self._blame(f"{attempt} was read, but {why}")

    def found_offset(self, transactional_id: str, offset: int, *, acked: int) -> None:
        """Check a group's offset that was read when commits up to `acked` had been acknowledged."""
        if offset < acked:
            self._blame(f"{transactional_id}: its offset is {offset}, but {acked} was acknowledged")

    def read(self, where: TopicIndex, offset: int, value: bytes) -> None:
        """Check a record that a reader of committed records read."""
        self.history.consume(where, offset, value)
        attempt = Attempt.of(value)
        if attempt in self._void:
            self._blame(f"{attempt} was read at {where} {offset}, but {self._void[attempt]}")
        elif attempt not in self._asked:
            self._blame(f"{attempt} was read at {where} {offset}, but nobody committed it")
        key = (attempt.transactional_id, attempt.number)
        first = self._seen.setdefault(key, attempt)
        if first != attempt:
            self._blame(f"number {key} was processed twice: {first} and {attempt}")
        if where not in self.partitions_of(*key):
            self._blame(f"{attempt} was read at {where}, where it was never written")
        self._where.setdefault(key, set()).add(where[1])

    def judge(self, offsets: dict[str, int], last: dict[TopicIndex, list[bytes]]) -> None:
        """Compare the groups' final offsets with everything that can be read from beginning to end."""
        counts: dict[tuple[str, int, int], int] = {}
        for where, values in last.items():
            for attempt in map(Attempt.of, values):
                place = (attempt.transactional_id, attempt.number, where[1])
                counts[place] = counts.get(place, 0) + 1
        for (transactional_id, number, index), count in sorted(counts.items()):
            if count > 1:
                self._blame(f"number {transactional_id}/{number} is {count} times in partition {index}")
            if number >= offsets.get(transactional_id, 0):
                self._blame(f"number {transactional_id}/{number} is there, but not its offset")
        for transactional_id, offset in offsets.items():
            self.found_offset(transactional_id, offset, acked=self.acked.get(transactional_id, 0))
            for number in range(offset):
                lacks = [
                    index
                    for _, index in self.partitions_of(transactional_id, number)
                    if (transactional_id, number, index) not in counts
                ]
                if lacks:
                    self._blame(f"number {transactional_id}/{number} is not in partitions {lacks}")

    def _blame(self, text: str) -> None:
        self.history.blame(text)


class ExactlyOnceReader(CommittedReader):
    """Reads one partition during the run, and once more at the end."""

    def __init__(self, client: Client, where: TopicIndex, book: ExactlyOnceModel) -> None:
        super().__init__(client, where)
        self.values: list[bytes] = []
        self._book = book

    def took(self, offset: int, value: bytes) -> None:
        self.values.append(value)
        self._book.read(self.where, offset, value)


class ExactlyOnceWorker:
    """A worker that shares its transactional id; `bumping`: it uses transaction.version 2."""

    rests_s: Sequence[float] = (0.2, 2.0, 4.0)
    """Up to how long it waits before it takes the id again."""
    kind: type[TransactionalProducer] = TransactionalProducer

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        book: ExactlyOnceModel,
        bumping: bool,
        chance: random.Random,
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.book = book
        self.bumping = bumping
        self.chance = chance
        self.stopping = False
        self.done = False

    def producer(self) -> TransactionalProducer:
        """Return a producer without a transaction."""
        return self.kind(
            self.client,
            self.transactional_id,
            group=f"group-{self.transactional_id}",
            reads=(self.book.topic, 0),
            bumping=self.bumping,
        )

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._live()
            except AWAY as error:
                if isinstance(error, Refused):
                    self.refused(error)
            await asyncio.sleep(self.chance.uniform(0.0, self.chance.choice(self.rests_s)))
        self.done = True

    def refused(self, error: Refused) -> None:
        """Count a refusal: the id was taken, or the transaction timed out. The worker may begin anew."""
        self.book.fenced += 1

    async def _live(self) -> None:
        """Begin, look up the progress, and go on from there for a while."""
        producer = self.producer()
        await self._step("init")
        await producer.init()
        await self._go_on(producer)

    async def _go_on(self, producer: TransactionalProducer) -> None:
        number = await producer.committed()
        for _ in range(self.chance.randint(1, 12)):
            if self.stopping:
                return
            number = await self._process(producer, number)
            if self.chance.random() < 0.1:
                await self._step("init")
                await producer.init(go_on=True)

    async def _process(self, producer: TransactionalProducer, number: int) -> int:
        """Return the next number: the same number if this transaction was aborted."""
        attempt = self.book.begin(self.transactional_id, number)
        partitions_of = self.book.partitions_of(self.transactional_id, number)
        if not self.bumping:
            await self._step("add")
            await producer.add(partitions_of)
        for where in partitions_of:
            await self._step("write")
            await self._write(producer, where, attempt)
        await self._step("offsets")
        if not self.bumping:
            await producer.add_offsets()
        await self._commit_offset(producer, attempt)
        await self._step("end")
        return await self._end(producer, attempt)

    async def _write(self, producer: TransactionalProducer, where: TopicIndex, attempt: Attempt) -> None:
        """A worker may be fenced; but its partition is always part of the transaction."""
        try:
            await producer.write(where, attempt.value())
        except Refused as error:
            if error.code in NOT_PART:
                self.book.history.blame(f"{attempt} was not taken at {where}: {error}")
            raise

    async def _commit_offset(self, producer: TransactionalProducer, attempt: Attempt) -> None:
        """Without a membership that fences it (KIP-447), a worker must check that it read no stale offset.

        Only a coordinator that has just replicated a record of this worker is certainly not cut off.
        """
        acked = self.book.acked.get(self.transactional_id, 0)
        await producer.commit_offset(attempt.number + 1)
        offset = await producer.still_committed()
        self.book.found_offset(self.transactional_id, offset, acked=acked)
        if offset != attempt.number:
            raise LookupError(f"number {attempt.number} is no news, all up to {offset} are done")

    async def _end(self, producer: TransactionalProducer, attempt: Attempt) -> int:
        if self.chance.random() >= COMMIT_RATE:
            self.book.void(attempt, "its producer gave it up")
            await producer.end(commit=False)
            return attempt.number
        self.book.asked(attempt)
        try:
            await producer.end(commit=True)
        except Refused as error:
            self.book.void(attempt, f"its commit was refused ({error})")
            raise
        self.book.committed(attempt)
        return attempt.number + 1

    async def _step(self, name: str) -> None:
        """Announce the next step; some workers sleep right there, for longer than their transaction or their id
        lasts.
        """
        self.book.steps[name].set()
        rate = SLEEP_AT_THE_END_RATE if name == "end" else SLEEP_RATE
        if self.chance.random() < rate:
            await asyncio.sleep(self.chance.uniform(0.1, LONGEST_SLEEP_S))
