"""The share coordinator keeps what leaders write, fences old ones, and loses no state (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from uuid import UUID

import pytest

from raftlog.base.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
)
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.share_state import share_state
from raftlog.coordinator.share_state.share_state import (
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
    ShareUpdate,
)
from raftlog.coordinator.share_state.share_state_coordinator import ShareStateCoordinator
from raftlog.coordinator.share_state.share_state_records import encode
from raftlog.coordinator.share_state.share_state_replay import ShareStateReplay
from raftlog.coordinator.share_state.share_state_requests import (
    DeleteState,
    InitializeState,
    ReadState,
    WriteState,
)
from raftlog.coordinator.timer import Moment
from raftlog.records.batch import BatchHeader, build_batch, iter_headers, new_record
from raftlog.sharing.delivery import DeliveryState, StateBatch
from raftlog.sharing.state_batches import combine

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
KEYS = [SharePartitionKey("work", TOPIC, index) for index in range(3)]
KEY = KEYS[0]
ACKNOWLEDGED, AVAILABLE = DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE


class Setup:
    """A coordinator on a journal in memory."""

    def __init__(self, *, updates_per_snapshot: int = 500) -> None:
        self.journal: list[tuple[int, tuple[KeyValue, ...]]] = []
        """Batches by their first offsets."""
        self.end_offset = self.committed_offset = self.start_offset = 0
        self.now_ms = 1_000
        self._updates_per_snapshot = updates_per_snapshot
        self.coordinator = self._new()

    def _new(self) -> ShareStateCoordinator:
        return ShareStateCoordinator(self._append, updates_per_snapshot=self._updates_per_snapshot)

    def _append(self, records: tuple[KeyValue, ...]) -> int:
        self.journal.append((self.end_offset, records))
        self.end_offset += len(records)
        return self.end_offset

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms / 1000, self.now_ms)

    def commit(self, end_offset: int | None = None) -> None:
        self.committed_offset = self.end_offset if end_offset is None else end_offset
        self.coordinator.committed(self.committed_offset)

    def ask(self, call: object, *arguments: object, commit: bool = True) -> list[object]:
        """Return the answers so far: raise it if it is an error."""
        answers: list[object] = []
        is_timed = call not in (
            ShareStateCoordinator.read,
            ShareStateCoordinator.delete,
            ShareStateCoordinator.summary,
        )
        call(self.coordinator, *arguments, answers.append, **({"at": self.at} if is_timed else {}))  # type: ignore[operator]
        if commit:
            self.commit()
        for each in answers:
            if isinstance(each, KafkaError):
                raise each
        return answers

    def initialize(self, epoch: int = 1, *, start: int = -1, key: SharePartitionKey = KEY) -> None:
        self.ask(ShareStateCoordinator.initialize, InitializeState(key, epoch, start))

    def read(self, leader_epoch: int = 0) -> ShareState:
        (state,) = self.ask(ShareStateCoordinator.read, ReadState(KEY, leader_epoch))
        assert isinstance(state, ShareState)
        return state

    def write(
        self,
        *batches: StateBatch,
        start: int = -1,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        commit: bool = True,
    ) -> list[object]:
        request = WriteState(KEY, state_epoch, leader_epoch, start, batches)
        return self.ask(ShareStateCoordinator.write, request, commit=commit)

    def replay(self) -> ShareStateReplay:
        """Replay what is committed, and was not deleted."""
        replay = ShareStateReplay()
        for offset, records in self.journal:
            if self.start_offset <= offset < self.committed_offset:
                batch = bytearray(
                    build_batch([new_record(key, value, timestamp=0) for key, value in records])
                )
                ((_, header),) = iter_headers(memoryview(batch))
                assert isinstance(header, BatchHeader)
                batch[:8] = offset.to_bytes(8, "big")
                replay.feed(batch)
        assert not any(replay.merge())
        return replay

    def fail_over(self) -> None:
        """Lose what is not committed, and let another coordinator read the rest back."""
        self.coordinator.on_unloaded(NotCoordinator())
        self.journal = [each for each in self.journal if each[0] < self.committed_offset]
        self.end_offset = self.committed_offset
        replay = self.replay()
        self.coordinator = self._new()
        self.coordinator.load(replay.states, replay.snapshot_offsets)
        self.coordinator.committed(self.committed_offset)


def acknowledged(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, ACKNOWLEDGED, count)


def test_a_former_leader_stays_fenced_when_the_start_offset_is_set() -> None:
    """It knows the new state epoch after another read, so its leader epoch has to fence it."""
    setup = Setup()
    setup.initialize(1)
    setup.read(leader_epoch=5)
    setup.initialize(2, start=40)
    for _ in range(2):
        with pytest.raises(FencedLeaderEpoch):
            setup.read(leader_epoch=4)
        assert setup.read(leader_epoch=5).start_offset == 40
        setup.fail_over()


def test_a_state_is_read_back_as_it_was_written() -> None:
    """The start offset and the batches merge: what is below the start offset is gone."""
    setup = Setup()
    setup.initialize()
    assert setup.read().start_offset == -1
    setup.write(acknowledged(3, 5), start=0)
    setup.write(acknowledged(0, 2))
    assert setup.read().batches == (acknowledged(0, 5),)
    setup.write(start=4)
    setup.write(StateBatch(5, 5, AVAILABLE, 2), start=1)
    setup.fail_over()
    state = setup.read()
    assert (state.start_offset, state.batches) == (4, (acknowledged(4, 4), StateBatch(5, 5, AVAILABLE, 2)))


def test_an_answer_waits_for_the_commit() -> None:
    """The fsync law: a leader answers a member only after its change is committed."""
    setup = Setup()
    setup.initialize()
    setup.read()
    assert setup.write(start=5, commit=False) == []
    answers: list[object] = []
    setup.coordinator.read(ReadState(KEY, 0), answers.append)
    assert answers == [], "a read sees no change that may vanish"
    setup.commit()
    assert isinstance(answers[0], ShareState)


def test_the_next_leaders_epoch_fences_the_leader_before() -> None:
    """A read with a higher leader epoch is recorded, and so it survives a new coordinator."""
    setup = Setup()
    setup.initialize()
    assert setup.read(leader_epoch=3).leader_epoch == 3
    setup.read(leader_epoch=4)
    setup.fail_over()
    with pytest.raises(FencedLeaderEpoch):
        setup.write(start=5, leader_epoch=3)
    with pytest.raises(FencedLeaderEpoch):
        setup.read(leader_epoch=3)
    setup.write(start=5, leader_epoch=4)
    assert setup.read(leader_epoch=4).start_offset == 5


def test_another_start_offset_fences_the_leader_that_knows_the_former() -> None:
    """AlterShareGroupOffsets initializes the state with a higher state epoch, also to an earlier offset."""
    setup = Setup()
    setup.initialize(epoch=1, start=50)
    setup.read()
    setup.write(acknowledged(60, 70))
    setup.initialize(epoch=2, start=10)
    setup.fail_over()
    with pytest.raises(FencedStateEpoch):
        setup.write(acknowledged(60, 70), state_epoch=1)
    with pytest.raises(FencedStateEpoch):
        setup.initialize(epoch=1, start=50)
    state = setup.read()
    assert (state.start_offset, state.batches, state.state_epoch) == (10, (), 2)


def test_an_initialization_that_comes_late_takes_nothing_back() -> None:
    """It may be sent again after the leader has begun to write."""
    setup = Setup()
    setup.initialize(epoch=1)
    setup.read()
    setup.write(acknowledged(7, 9), start=5)
    end_offset = setup.end_offset
    setup.initialize(epoch=1)
    assert setup.end_offset == end_offset
    assert setup.read().start_offset == 5


def test_a_leader_writes_only_what_it_has_read() -> None:
    """A group that was deleted and made anew begins its epochs anew: the leader may know the former state only."""
    setup = Setup()
    setup.initialize(epoch=1, start=50)
    setup.read(leader_epoch=5)
    setup.ask(ShareStateCoordinator.delete, DeleteState(KEY))
    setup.initialize(epoch=1, start=10)
    setup.fail_over()
    with pytest.raises(FencedLeaderEpoch):
        setup.write(start=60, leader_epoch=5)
    assert setup.read(leader_epoch=5).start_offset == 10
    setup.write(start=20, leader_epoch=5)
    assert setup.read(leader_epoch=5).start_offset == 20


def test_an_empty_write_is_fenced_and_leaves_no_record() -> None:
    """A leader asks so whether another state has begun."""
    setup = Setup()
    setup.initialize(epoch=1)
    setup.read(leader_epoch=5)
    before = setup.end_offset
    assert setup.write(start=-1, leader_epoch=5, state_epoch=1) == [None]
    assert setup.end_offset == before
    setup.initialize(epoch=2, start=7)
    with pytest.raises(FencedStateEpoch):
        setup.write(start=-1, leader_epoch=5, state_epoch=1)


def test_a_deletion_that_comes_late_finds_a_newer_state() -> None:
    """It names the epoch that the group began with it; the next state begins in that epoch or later."""
    setup = Setup()
    setup.initialize(epoch=3)
    setup.ask(ShareStateCoordinator.delete, DeleteState(KEY, 4))
    setup.initialize(epoch=4, start=7)
    setup.ask(ShareStateCoordinator.delete, DeleteState(KEY, 4))
    setup.fail_over()
    assert setup.read().start_offset == 7


def test_an_unknown_state_is_an_invalid_request() -> None:
    """A state must be initialized before its first leader reads it; a deleted state is unknown again."""
    setup = Setup()
    for call in (setup.read, setup.write):
        with pytest.raises(InvalidRequest):
            call()
    setup.initialize(epoch=5)
    setup.ask(ShareStateCoordinator.delete, DeleteState(KEY))
    setup.fail_over()
    assert len(setup.coordinator) == 0
    assert setup.coordinator.redundant_before == setup.end_offset
    (state,) = setup.ask(ShareStateCoordinator.summary, KEY)
    assert isinstance(state, ShareState) and not state.exists
    with pytest.raises(InvalidRequest):
        setup.read()
    setup.initialize(epoch=1)
    assert len(setup.coordinator) == 1


def test_a_snapshot_follows_many_updates() -> None:
    """`share.coordinator.snapshot.update.records.per.snapshot`, counted on by the next coordinator."""
    setup = Setup(updates_per_snapshot=3)
    setup.initialize()
    setup.read()
    for offset in range(2):
        setup.write(start=offset)
    setup.fail_over()
    assert setup.replay().snapshot_offsets == {KEY: 0}
    setup.write(start=3)
    assert setup.replay().snapshot_offsets == {KEY: 4}
    assert setup.coordinator.redundant_before == 4
    state = setup.replay().states[KEY]
    assert (state.snapshot_epoch, state.start_offset, state.updates) == (1, 3, 0)


def test_replay_merges_many_updates_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of a thousand ranges takes ms to merge, and a turn of the loop reads hundreds of updates."""
    merges: list[int] = []

    def counted(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
        merges.append(start_offset)
        return combine(batches, start_offset=start_offset)

    replay = ShareStateReplay()
    written = [acknowledged(2 * each, 2 * each) for each in range(450)]
    records: list[ShareRecord] = [ShareSnapshot(KEY, ShareState(1, 1, 1, 0))]
    records += [ShareUpdate(KEY, 1, 1, -1, (each,), number) for number, each in enumerate(written)]
    batch = build_batch([new_record(*encode(each), timestamp=0) for each in records])
    monkeypatch.setattr(share_state, "combine", counted)
    replay.feed(batch)
    assert not any(replay.merge())
    state = replay.states[KEY]
    assert (state.batches, state.updates, state.delivery_complete_count) == (tuple(written), 450, 449)
    assert len(merges) == 3


def test_a_snapshot_that_may_vanish_makes_no_record_redundant() -> None:
    """The records before it are deleted only after its commit."""
    setup = Setup(updates_per_snapshot=0)
    setup.initialize()
    setup.read()
    setup.write(start=1, commit=False)
    assert setup.coordinator.redundant_before == 0
    setup.commit()
    assert setup.coordinator.redundant_before == 2


def test_cold_states_get_snapshots() -> None:
    """A state that is not written for long would otherwise keep all records after its snapshot from being deleted."""
    setup = Setup()
    for key in KEYS:
        setup.now_ms += 100
        setup.initialize(key=key)
    setup.now_ms = 5_000
    assert setup.coordinator.snapshot_oldest(before_ms=1_250, at=setup.at, most=5) == 2
    setup.commit()
    assert setup.coordinator.redundant_before == 2
    assert setup.coordinator.snapshot_oldest(before_ms=1_250, at=setup.at, most=5) == 0
    assert setup.coordinator.snapshot_oldest(before_ms=9_000, at=setup.at, most=2) == 2


@pytest.mark.parametrize("seed", range(30))
def test_a_new_coordinator_knows_all_that_was_answered(seed: int) -> None:
    """Whatever was not committed is lost with a coordinator, and what is redundant is deleted: no answer is undone."""
    random = Random(seed)
    setup = Setup(updates_per_snapshot=4)
    start = dict.fromkeys(KEYS, -1)
    answered: dict[SharePartitionKey, int] = {}
    for _ in range(300):
        key, chance = random.choice(KEYS), random.random()

        def note(reply: object, key: SharePartitionKey = key, offset: int = start[key] + 1) -> None:
            if reply is None:
                answered[key] = offset

        if chance < 0.1:
            setup.coordinator.initialize(InitializeState(key, 1), lambda _: None, at=setup.at)
        elif chance < 0.7:
            start[key] += 1
            setup.coordinator.write(WriteState(key, 1, 0, start[key]), note, at=setup.at)
        elif chance < 0.75:
            setup.now_ms += 100
            setup.coordinator.snapshot_oldest(before_ms=setup.now_ms - 200, at=setup.at, most=1)
        elif chance < 0.9:
            setup.commit(random.randint(setup.committed_offset, setup.end_offset))
        elif chance < 0.95:
            assert setup.coordinator.redundant_before >= setup.start_offset
            setup.start_offset = setup.coordinator.redundant_before
        else:
            setup.fail_over()
            states = setup.replay().states
            assert all(states[each].start_offset >= offset for each, offset in answered.items())
