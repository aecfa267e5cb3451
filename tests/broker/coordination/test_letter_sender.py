"""Dead letters of share groups (KIP-1191): each step repeated after a crash, and dead-letter topics that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from raftlog.base.config import GroupConfig
from raftlog.base.errors import InvalidConfig, KafkaError, NotLeaderOrFollower, OutOfOrderSequenceNumber
from raftlog.broker.coordination.dead_letters import LetterBox
from raftlog.broker.coordination.led_share_partition import LedSharePartition
from raftlog.broker.coordination.share_state_client import StoredState
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.dead_letter import DeadLetters, decode_dead_letters
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    DeliveryState,
    FetchedBatch,
    StateBatch,
    StateWrite,
)
from raftlog_chaos.simulator import SimLoop, simulate

KEY = SharePartitionKey("g", UUID(int=8), 1)
BOX = LetterBox(UUID(int=9), 0)
CONFIG = GroupConfig(errors_deadletterqueue_topic_name="dlq.g", share_partition_max_record_locks=20)


class Store:
    """A share coordinator that answers at once."""

    def __init__(self, stored: StoredState) -> None:
        self.stored = stored
        self.writes: list[StateWrite] = []

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> StoredState:
        return self.stored

    async def write(
        self, key: SharePartitionKey, write: StateWrite, *, state_epoch: int, leader_epoch: int
    ) -> None:
        self.writes.append(write)


class Writer:
    """Dead-letter topics. `errors` are raised first, in order."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self.sent: list[tuple[int, int, int, int]] = []
        self.by_hand: list[bool] = []
        self.gaps: set[int] = set()
        """Offsets that have no record."""
        self.box: LetterBox | KafkaError = BOX
        self._last_id = 100

    async def find_box(self, key: SharePartitionKey) -> LetterBox:
        if isinstance(self.box, KafkaError):
            raise self.box
        return self.box

    async def new_producer_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def most(self, key: SharePartitionKey) -> int:
        return 5

    async def offsets(self, key: SharePartitionKey, first_offset: int, last_offset: int) -> list[int]:
        return [each for each in range(first_offset, last_offset + 1) if each not in self.gaps]

    async def write(self, key: SharePartitionKey, letters: DeadLetters, *, by_hand: bool) -> None:
        self.by_hand.append(by_hand)
        self.sent.append(letters[:4])
        if self.errors:
            raise self.errors.pop(0)


class Leader:
    """A loaded share partition of twenty records."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.store = Store(StoredState(3, 0, ()))
        self.writer = Writer()
        self.config = CONFIG

    async def load(self) -> LedSharePartition:
        self.led = LedSharePartition(KEY, 7, self.store, config=lambda: self.config, changed=lambda: None)
        self.led.letters = self.writer

        async def find_first_offset() -> int:
            return 0

        await self.led.load(find_first_offset)
        return self.led

    async def reject(self, first: int, last: int) -> None:
        offset = self.led.machine.next_fetch_offset()
        if offset < 20:
            self.led.acquire(AcquireRequest("a", 100), [FetchedBatch(offset, 19)], fetch_offset=offset)
        await self.led.acknowledge("a", [Acknowledgement(first, last, [AcknowledgeType.REJECT])])

    async def pass_time(self, seconds: float = 0.01) -> None:
        over = asyncio.Event()
        self._loop.call_later(seconds, over.set)
        await over.wait()


def run_scenario(scenario: Callable[[Leader], Awaitable[None]]) -> None:
    async def program(loop: SimLoop) -> None:
        await loop.host("b1").start(scenario(Leader(loop)))

    simulate(program)


def test_letters_are_in_the_state_before_they_are_produced() -> None:
    """Archiving, then the letters, then archived: each is committed before the next. Sequences go on."""

    async def scenario(leader: Leader) -> None:
        led = await leader.load()
        await leader.reject(0, 6)
        assert led.machine.start_offset == 0
        await leader.pass_time()
        assert leader.writer.sent == [(101, 0, 0, 4), (101, 5, 5, 6)]
        assert led.machine.start_offset == 7
        archiving, planned, both, archived = leader.store.writes
        assert archiving.batches == (StateBatch(0, 6, DeliveryState.ARCHIVING, 1),) and not archiving.letters
        assert planned.letters == DeadLetters(101, 0, 0, 4, 1, *BOX)
        assert both.letters == DeadLetters(101, 5, 5, 6, 1, *BOX) and both.start_offset == 5
        assert archived.start_offset == 7
        assert led.record.counts.of("g").letters == 7

    run_scenario(scenario)


def test_offsets_without_a_record_have_no_letter() -> None:
    """They are archived, wherever they are; the sequences of the others have no gap."""

    async def scenario(leader: Leader) -> None:
        led = await leader.load()
        leader.writer.gaps = {0, 1, 4, 7}
        await leader.reject(0, 7)
        await leader.pass_time()
        assert leader.writer.sent == [(101, 0, 2, 3), (101, 2, 5, 6)]
        assert led.machine.start_offset == 8
        assert led.record.counts.of("g").letters == 4

    run_scenario(scenario)


def test_a_gap_does_not_wait_for_a_topic_that_fails() -> None:
    """It needs none."""

    async def scenario(leader: Leader) -> None:
        led = await leader.load()
        leader.writer.gaps, leader.writer.box = {0, 1}, InvalidConfig("no topic")
        await leader.reject(0, 3)
        await leader.pass_time()
        assert led.machine.start_offset == 2

    run_scenario(scenario)


def test_letters_say_whether_an_operator_has_archived_the_records() -> None:
    """Also those of a batch that is tried again; records that a member rejects have a batch of their own."""

    async def scenario(leader: Leader) -> None:
        led = await leader.load()
        leader.writer.errors = [NotLeaderOrFollower(), NotLeaderOrFollower()]
        await leader.reject(2, 2)
        await led.acknowledge_by_hand(AcknowledgeType.REJECT, 0, 1)
        await leader.pass_time(2.0)
        sent = [each[2:] for each in leader.writer.sent]
        assert dict(zip(sent, leader.writer.by_hand, strict=True)) == {(2, 2): False, (0, 1): True}
        assert len(sent) == 4

    run_scenario(scenario)


def test_the_next_leader_repeats_the_letters_that_may_be_written() -> None:
    """It produces the same batch with the same sequence, and then what has become archiving since."""

    async def scenario(leader: Leader) -> None:
        batches = (StateBatch(0, 0, DeliveryState.ARCHIVING, 1), StateBatch(2, 4, DeliveryState.ARCHIVING, 1))
        leader.store.stored = StoredState(3, 0, batches, DeadLetters(55, 7, 2, 3, 1, *BOX))
        await leader.load()
        await leader.pass_time()
        assert leader.writer.sent == [(55, 7, 2, 3), (55, 9, 0, 0), (55, 10, 4, 4)]

    run_scenario(scenario)


def test_letters_of_the_last_leader_that_are_done_are_not_repeated() -> None:
    """Their records are archived in the state."""

    async def scenario(leader: Leader) -> None:
        batches = (StateBatch(2, 3, DeliveryState.ARCHIVED, 1),)
        leader.store.stored = StoredState(3, 0, batches, DeadLetters(55, 7, 2, 3, 1, *BOX))
        await leader.load()
        await leader.pass_time()
        assert not leader.writer.sent
        await leader.reject(0, 0)
        await leader.pass_time()
        assert leader.writer.sent == [(55, 9, 0, 0)]

    run_scenario(scenario)


def test_another_topic_gets_another_producer() -> None:
    """Its log does not know the sequences of the former."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        await leader.reject(0, 0)
        await leader.pass_time()
        leader.writer.box = LetterBox(UUID(int=10), 0)
        await leader.reject(1, 1)
        await leader.pass_time()
        assert leader.writer.sent == [(101, 0, 0, 0), (102, 0, 1, 1)]

    run_scenario(scenario)


def test_a_batch_that_failed_is_repeated_as_it_was() -> None:
    """Whether it is written is unknown."""

    async def scenario(leader: Leader) -> None:
        leader.writer.errors = [NotLeaderOrFollower(), NotLeaderOrFollower()]
        led = await leader.load()
        await leader.reject(0, 1)
        await leader.reject(2, 2)
        await leader.pass_time(2.0)
        assert leader.writer.sent == [(101, 0, 0, 1)] * 3 + [(101, 2, 2, 2)]
        counts = led.record.counts.of("g")
        assert (counts.letters, counts.failed_letters, counts.lost_letters) == (3, 2, 0)

    run_scenario(scenario)


def test_a_log_that_lost_the_producer_gets_another() -> None:
    """An unclean election: the sequence has a gap, so the batch is certainly not there."""

    async def scenario(leader: Leader) -> None:
        leader.writer.errors = [OutOfOrderSequenceNumber()]
        await leader.load()
        await leader.reject(0, 1)
        await leader.pass_time(2.0)
        assert leader.writer.sent == [(101, 0, 0, 1), (102, 0, 0, 1)]

    run_scenario(scenario)


def test_a_dead_letter_topic_that_fails_does_not_stall_its_group() -> None:
    """Records wait for their letters while there is room for others, and then are archived without."""

    async def scenario(leader: Leader) -> None:
        leader.writer.box = InvalidConfig("there is no such topic")
        led = await leader.load()
        await leader.reject(0, 3)
        await leader.pass_time(60.0)
        assert led.machine.start_offset == 0
        await leader.reject(4, 19)
        await leader.pass_time(10.0)
        assert led.machine.start_offset == 20 and led.record.counts.of("g").lost_letters == 20

    run_scenario(scenario)


def test_letters_that_fail_make_room_for_other_groups_and_go_on_later() -> None:
    """The attempts would keep the share partition in memory for ever, although its group is gone."""

    async def scenario(leader: Leader) -> None:
        led = await leader.load()
        leader.writer.errors = [InvalidConfig("no")]
        await leader.reject(0, 0)
        assert not led.can_make_room, "the first attempt is under way"
        led.release_members({"a"})
        await leader.pass_time()
        assert led.can_make_room and not led.is_idle
        led.end(NotLeaderOrFollower())
        await leader.pass_time(10.0)
        assert leader.writer.sent == [(101, 0, 0, 0)], "no attempt after its end"
        (planned,) = [each.letters for each in leader.store.writes if each.letters is not None]
        archiving = (StateBatch(0, 0, DeliveryState.ARCHIVING, 1),)
        leader.store.stored = StoredState(3, 0, archiving, planned)
        await leader.load()
        await leader.pass_time()
        assert leader.writer.sent == 2 * [(101, 0, 0, 0)], "the same batch again"

    run_scenario(scenario)


def test_records_that_wait_for_letters_are_archived_once_the_group_has_no_topic() -> None:
    """As in Apache Kafka."""

    async def scenario(leader: Leader) -> None:
        leader.config = GroupConfig()
        leader.store.stored = StoredState(3, 0, (StateBatch(0, 3, DeliveryState.ARCHIVING, 1),))
        led = await leader.load()
        await leader.pass_time()
        assert led.machine.start_offset == 4 and not leader.writer.sent

    run_scenario(scenario)


def test_letters_survive_the_round_trip() -> None:
    """encode and decode are inverse."""
    letters = DeadLetters(2**40, 2**31 - 1, 5, 9, 3, *BOX)
    assert decode_dead_letters(letters.encode()) == letters and letters.next_sequence == 4
