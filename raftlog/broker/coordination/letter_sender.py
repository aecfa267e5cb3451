"""Sends the dead letters of one share partition, in batches of which a single one is under way (KIP-1191).

Each batch is first written into the state (`sharing.dead_letter`), then produced, and its records are archived after
that. A crash between two steps has the next leader repeat the last step, which then has no effect.

A dead-letter topic that fails is tried again and again. Meanwhile its records are archiving, and the start offset waits
for them. They may leave no room for records to deliver. After `PATIENCE_S` they are then archived without letters:
a dead-letter topic must not stall its group. Apache Kafka gives up after a few attempts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from raftlog.base.errors import KafkaError, OutOfOrderSequenceNumber, RequestTimedOut, UnknownTopicId
from raftlog.base.log import LimitedLog, get_logger
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.dead_letter import DeadLetters

if TYPE_CHECKING:
    from raftlog.broker.coordination.dead_letters import LetterBox
    from raftlog.broker.coordination.share_record import ShareRecord
    from raftlog.sharing.share_partition import SharePartition

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0

PATIENCE_S: Final = 30.0
"""How long letters may fail before a group that waits for them goes on: longer than elections take."""

log = get_logger("dead_letters")


class LetterWriter(Protocol):
    """The dead-letter topics, as a share partition uses them (`DeadLetterWriter`)."""

    async def find_box(self, key: SharePartitionKey) -> LetterBox: ...

    async def new_producer_id(self) -> int: ...

    def most(self, key: SharePartitionKey) -> int: ...

    async def offsets(self, key: SharePartitionKey, first_offset: int, last_offset: int) -> list[int]: ...

    async def write(self, key: SharePartitionKey, letters: DeadLetters, *, by_hand: bool) -> None: ...


class Led(Protocol):
    """A share partition as its letters use it (`LedSharePartition`)."""

    key: SharePartitionKey
    record: ShareRecord
    over: KafkaError | None
    letters_failed: str

    @property
    def machine(self) -> SharePartition: ...

    async def write_letters(self, letters: DeadLetters) -> None: ...

    def letters_written(self, letters: DeadLetters) -> None: ...

    def skip_letters(self, first_offset: int, end_offset: int) -> None: ...

    def give_up_letters(self) -> int: ...


class LetterSender:
    """`led` writes the state. `run` ends when no record waits for its letter."""

    def __init__(self, led: Led, writer: LetterWriter) -> None:
        self._led = led
        self._writer = writer
        self._is_fresh = False
        """Whether the next batch needs another producer: whether the last is in its log is unknown."""
        self._pause_s = FIRST_PAUSE_S
        self._failing_since: float | None = None
        self._limited = LimitedLog(log, lambda: asyncio.get_running_loop().time())

    async def run(self, machine: SharePartition) -> None:
        while self._led.over is None and machine.next_archiving(1) is not None:
            try:
                await self._send(machine)
                self._pause_s, self._failing_since = FIRST_PAUSE_S, None
                self._led.letters_failed = ""
            except (KafkaError, TimeoutError) as error:
                if self._led.over is not None:
                    return
                await self._failed(machine, error)

    async def _send(self, machine: SharePartition) -> None:
        """Write the next batch of letters, or the last again if that may not be in its topic."""
        key = self._led.key
        letters = machine.unfinished_letters
        if letters is None or self._is_fresh:
            letters = await self._plan(machine)
            if letters is None:
                return
            await self._led.write_letters(letters)
            self._is_fresh = False
        try:
            await self._writer.write(key, letters, by_hand=machine.are_by_hand(letters))
        except (OutOfOrderSequenceNumber, UnknownTopicId):
            self._is_fresh = True  # the log has lost its producer, or is another: it does not have the batch
            raise
        self._led.record.counts.of(key.group_id).letters += letters.last_offset - letters.first_offset + 1
        self._led.letters_written(letters)

    async def _plan(self, machine: SharePartition) -> DeadLetters | None:
        """Return the next letters. The producer of the last batch goes on if they belong to the same place.

        Return None if no record waits, or the first offsets that wait have no record: these are archived.
        """
        key = self._led.key
        found = machine.next_archiving(self._writer.most(key))
        if found is None:
            return None
        first_offset, last_offset, delivery_count = found
        offsets = await self._writer.offsets(key, first_offset, last_offset)
        if not offsets or offsets[0] > first_offset:
            self._led.skip_letters(first_offset, offsets[0] if offsets else last_offset + 1)
            return None
        last_offset = max(each for number, each in enumerate(offsets, first_offset) if each == number)
        box = await self._writer.find_box(key)
        last = machine.last_letters
        producer_id, sequence = -1, 0
        if last is not None and not self._is_fresh and (last.topic_id, last.partition) == box:
            producer_id, sequence = last.producer_id, last.next_sequence
        else:
            producer_id = await self._writer.new_producer_id()
        return DeadLetters(producer_id, sequence, first_offset, last_offset, delivery_count, *box)

    async def _failed(self, machine: SharePartition, error: Exception) -> None:
        """Wait before the next attempt. Give up all letters if they stall the group, or it has no topic any more."""
        key = self._led.key
        found = error if isinstance(error, KafkaError) else RequestTimedOut("no response")
        counts = self._led.record.counts.of(key.group_id)
        counts.failed_letters += 1
        self._led.letters_failed = str(found.message)
        now = asyncio.get_running_loop().time()
        self._failing_since = self._failing_since or now
        is_over = machine.is_stalled_by_letters and now >= self._failing_since + PATIENCE_S
        given_up = 0
        if is_over or not self._led.machine.limits.has_dead_letters:
            given_up = self._led.give_up_letters()
            counts.lost_letters += given_up if is_over else 0
            self._is_fresh = True
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._limited.warning(
            "dead_letters_failed",
            group_id=key.group_id,
            key=str(key),
            reason=self._led.letters_failed,
            given_up=given_up,
        )
        await asyncio.sleep(pause_s)
