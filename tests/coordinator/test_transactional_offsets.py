"""Offsets in transactions: when they count, when readers wait for them, and a new coordinator's state (KIP-98, 447)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    FencedInstanceId,
    IllegalGeneration,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMemberId,
)
from raftlog.coordinator.group import DEAD, EMPTY, CommittedOffset, Group
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import (
    DeleteGroup,
    MemberRef,
    OffsetCommit,
    TxnOffsetCommit,
    WriteTxnMarker,
)
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.transactional_offsets import is_unstable
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    build_batch,
    build_end_marker,
    new_record,
)
from raftlog.records.header import TRANSACTIONAL_BIT, stamp
from tests.coordinator.group_coordinator_setup import Answers, GroupCoordinatorSetup, gone

PRODUCER = 7


class TransactionalCoordinatorSetup(GroupCoordinatorSetup):
    """A coordinator with a journal that takes transactions; the partition checks the producer."""

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self.append, new_uuid=self._uuid, transactions=self)

    def _uuid(self) -> UUID:
        return UUID(int=next(self.numbers))

    def append_transactional(
        self, records: tuple[KeyValue, ...], producer_id: int, producer_epoch: int
    ) -> int:
        stamped = [new_record(key, value, timestamp=self.now_ms) for key, value in records]
        return self._write(
            build_batch(
                stamped,
                base_offset=self.end_offset,
                producer=ProducerIdAndSequence(producer_id, producer_epoch),
                attributes=TRANSACTIONAL_BIT,
            ),
            len(records),
        )

    def append_end_marker(self, end: WriteTxnMarker) -> int:
        marker = EndTransactionMarker(end.commit, end.coordinator_epoch)
        batch = build_end_marker(end.producer_id, end.producer_epoch, marker=marker)
        return self._write(stamp(self.end_offset, len(batch), 0) + batch[16:], 1)

    def _write(self, batch: bytes, count: int) -> int:
        if self.refuses is not None:
            raise self.refuses
        self.batches.append(batch)
        self.end_offset += count
        return self.end_offset

    def commit_in_transaction(
        self, offset: int, *, producer: int = PRODUCER, generation: int = -1, **changes: Any
    ) -> Any:
        """Commit an offset in a transaction."""
        metadata = changes.pop("metadata", "")
        commits = tuple(
            OffsetCommit("t", each, CommittedOffset(offset, 3, metadata, 1))
            for each in changes.pop("partitions", (0,))
        )
        group_id = changes.pop("group_id", "g")
        member = MemberRef(changes.pop("member_id", ""), changes.pop("instance", None))
        knows = changes.pop("may_name_epoch", False)
        request = TxnOffsetCommit(group_id, member, generation, commits, producer, 0, knows)
        return self.ask(self.coordinator.commit_in_transaction, request, at=self.moment)

    def end(self, *, commit: bool = True, producer: int = PRODUCER) -> Answers:
        answers = Answers()
        self.coordinator.end_transaction(WriteTxnMarker(producer, 0, commit, 1), answers)
        self._settle()
        return answers

    def remove_topic(self) -> None:
        """The topic is deleted, and what was committed for it goes."""
        self.coordinator.on_topics_deleted(gone("t"))
        self.tick()

    def offset(self, group_id: str = "g") -> int | None:
        """The offset that is committed for the partition."""
        committed = self.read(group_id).offsets.get(("t", 0))
        return committed.offset if committed else None


@pytest.mark.parametrize(("commit", "found"), [(True, 42), (False, 3)])
@pytest.mark.parametrize("fails_over", [True, False])
def test_offsets_count_when_their_transaction_commits(commit: bool, found: int, fails_over: bool) -> None:
    """Before the marker the offsets are unchanged, and a new coordinator reads the same from the journal."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_offset(3)
    assert bench.commit_in_transaction(42) == (0,)
    if fails_over:
        bench.fail_over()
    assert (bench.offset(), is_unstable(bench.read(), ("t", 0))) == (3, True)
    assert not is_unstable(bench.read(), ("t", 1))
    assert bench.end(commit=commit) == [None]
    if fails_over:
        bench.fail_over()
    assert (bench.offset(), is_unstable(bench.read(), ("t", 0))) == (found, False)


def test_one_marker_ends_what_a_producer_wrote_of_several_groups_and_nothing_of_others() -> None:
    """A transaction may carry the offsets of many groups (Kafka: by producer id)."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(1, group_id="a")
    bench.commit_in_transaction(2, group_id="b")
    bench.commit_in_transaction(3, group_id="b", producer=8)
    bench.end()
    assert (bench.offset("a"), bench.offset("b")) == (1, 2)
    assert list(bench.read("b").pending) == [8]
    bench.end(producer=8)
    assert bench.offset("b") == 3


def test_nothing_of_a_marker_is_shown_before_it_is_committed() -> None:
    """No response may contain state of a tail that can still be lost; the response to the marker waits as well."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    bench.autocommit = False
    ended = bench.end()
    read = Answers()
    bench.coordinator.read("g", read)
    assert (ended, read) == ([], [])
    bench.commit()
    assert (ended, read[0].offsets[("t", 0)].offset) == ([None], 42)


def test_a_group_whose_only_offsets_were_aborted_is_gone() -> None:
    """It has no state that would have to be remembered."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    assert bench.read().state == EMPTY
    bench.end(commit=False)
    assert bench.read().state == DEAD
    assert len(bench.coordinator) == 0


def test_a_marker_that_cannot_be_written_changes_nothing() -> None:
    """The transaction coordinator gets an error and asks again."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    bench.refuses = NotEnoughReplicas()
    (refused,) = bench.end()
    assert isinstance(refused, NotEnoughReplicas)
    bench.refuses = None
    assert is_unstable(bench.read(), ("t", 0))
    assert bench.end() == [None]
    assert bench.offset() == 42


def test_a_coordinator_that_lost_its_partition_ends_no_transaction() -> None:
    """A client that waits for a marker's commit hears it too."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    bench.autocommit = False
    waiting = bench.end()
    bench.coordinator.on_unloaded(NotCoordinator())
    after = bench.end()
    assert [type(each) for each in (*waiting, *after)] == [NotCoordinator] * 2


def test_zombies_of_an_older_generation_may_not_commit_in_a_transaction() -> None:
    """KIP-447; a producer without a member id is from before, and may."""
    bench = TransactionalCoordinatorSetup()
    member_id, generation = bench.stable_member()
    assert bench.commit_in_transaction(1, member_id=member_id, generation=generation) == (0,)
    assert bench.commit_in_transaction(2) == (0,)
    refused = [
        bench.commit_in_transaction(3, member_id=member_id, generation=generation - 1),
        bench.commit_in_transaction(3, member_id="x", generation=generation),
        bench.commit_in_transaction(3, instance="i", member_id="x", generation=generation),
        bench.commit_in_transaction(3, group_id="other", generation=1, member_id="x"),
    ]
    assert [type(each) for each in refused] == [
        IllegalGeneration,
        UnknownMemberId,
        UnknownMemberId,
        IllegalGeneration,
    ]


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    """KIP-345: its successor has another member id."""
    bench = TransactionalCoordinatorSetup()
    ids, generation = bench.stable_group("i", None)
    refused = bench.commit_in_transaction(3, instance="i", member_id=ids[1], generation=generation)
    assert isinstance(refused, FencedInstanceId)


def test_a_text_that_is_too_long_is_refused_alone() -> None:
    """offset.metadata.max.bytes holds in transactions as well; no record is written for it."""
    bench = TransactionalCoordinatorSetup()
    assert bench.commit_in_transaction(1, metadata="é" * 4097) == (OffsetMetadataTooLarge.code,)
    assert bench.batches == []
    assert bench.commit_in_transaction(1, metadata="é" * 4096) == (0,)


def test_deleting_a_group_deletes_what_pends() -> None:
    """A later marker brings no offset back, for a new coordinator neither."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    assert bench.ask(bench.coordinator.delete, DeleteGroup("g"), at=bench.moment) is None
    assert bench.end() == [None]
    assert bench.offset() is None
    bench.fail_over()
    assert bench.offset() is None


def test_offsets_of_a_deleted_topic_go_from_transactions_too() -> None:
    """The next topic of that name begins without positions."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    bench.coordinator.on_topics_deleted(gone("t"))
    assert not is_unstable(bench.read(), ("t", 0)), "nobody waits for what has yet to go"
    bench.end()
    assert bench.offset() is None
    bench.tick()
    bench.fail_over()
    assert bench.offset() is None


def test_what_pends_of_a_deleted_topic_goes_before_anything_is_committed_for_its_successor() -> None:
    """In a transaction too; the new topic's offset then stands."""
    bench = TransactionalCoordinatorSetup()
    bench.commit_in_transaction(42)
    bench.coordinator.on_topics_deleted(gone("t"))
    assert bench.commit_in_transaction(1, producer=8) == (0,)
    bench.tick()
    bench.end()
    bench.end(producer=8)
    assert bench.offset() == 1
    bench.fail_over()
    assert bench.offset() == 1


def test_a_group_with_very_many_offsets_that_pend_is_deleted_in_several_batches() -> None:
    """No offset is committed meanwhile, and a later marker brings none back."""
    bench = TransactionalCoordinatorSetup()
    for first in range(0, 5_000, 1_000):
        assert set(bench.commit_in_transaction(1, partitions=range(first, first + 1_000))) == {0}
    answers, written = Answers(), len(bench.batches)
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    bench.tick()
    assert isinstance(bench.commit_in_transaction(2), CoordinatorLoadInProgress)
    bench.end()
    bench.run_deletions()
    assert answers == [None]
    assert bench.replayed() == {}
    assert max(map(len, bench.batches[written:])) < 100_000


def test_pending_transactional_offsets_do_not_expire() -> None:
    """Nor does the offset before it, which an abort leaves standing."""
    bench = TransactionalCoordinatorSetup(offsets_retention_minutes=1)
    bench.commit_offset(3)
    bench.commit_in_transaction(42)
    bench.now += 3600
    bench.tick()
    assert bench.offset() == 3
    bench.end(commit=False)
    bench.now += 3600
    bench.tick()
    assert bench.offset() is None


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "pend", "commit", "abort", "remove"]), st.integers(1, 3)), max_size=14
)


@given(steps=STEPS)
def test_the_commit_whose_record_came_last_stands(steps: list[Step]) -> None:
    """In whatever order transactions end (Kafka compares the records' offsets); replay and the coordinator agree."""
    bench, expected = TransactionalCoordinatorSetup(), Model()
    for number, (what, producer) in enumerate(steps):
        calls: dict[str, Callable[[], Any]] = {
            "put": lambda number=number: bench.commit_offset(number),
            "pend": lambda number=number, producer=producer: bench.commit_in_transaction(
                number, producer=producer
            ),
            "commit": lambda producer=producer: bench.end(producer=producer),
            "abort": lambda producer=producer: bench.end(producer=producer, commit=False),
            "remove": bench.remove_topic,
        }
        calls[what]()
        expected.step(what, producer, number)
    assert bench.offset() == expected.offset
    known: Group = bench.read()
    bench.fail_over()
    assert bench.offset() == expected.offset
    assert {each: list(topic_partitions) for each, topic_partitions in bench.read().pending.items()} == {
        each: list(topic_partitions) for each, topic_partitions in known.pending.items()
    }


class Model:
    """Apache Kafka's rule, in plain terms: each commit has the number of its record, the largest that counts wins."""

    def __init__(self) -> None:
        self.pending: dict[int, int] = {}
        self.offset: int | None = None

    def step(self, what: str, producer: int, number: int) -> None:
        if what == "put":
            self.offset = number
        elif what == "pend":
            self.pending[producer] = number
        elif what == "remove":
            self.pending, self.offset = {}, None
        elif what == "commit" and producer in self.pending:
            self.offset = max(self.pending.pop(producer), -1 if self.offset is None else self.offset)
        elif what == "abort":
            self.pending.pop(producer, None)


def test_members_of_consumer_groups_commit_in_their_epoch() -> None:
    """ILLEGAL_GENERATION for another, as producers know it (KIP-447, 848), STALE_MEMBER_EPOCH since v6 (KIP-1319).

    A producer without a member id may, as before.
    """
    bench = TransactionalCoordinatorSetup()
    epoch = bench.consumer_group_heartbeat("a", 0).epoch
    assert bench.commit_in_transaction(5, member_id="a", generation=epoch) == (0,)
    for knows, error in ((False, IllegalGeneration), (True, StaleMemberEpoch)):
        refused = bench.commit_in_transaction(6, member_id="a", generation=epoch + 1, may_name_epoch=knows)
        assert type(refused) is error
    assert isinstance(bench.commit_in_transaction(6, member_id="b", generation=epoch), UnknownMemberId)
    assert bench.commit_in_transaction(7) == (0,)
    bench.end()
    bench.fail_over()
    assert bench.offset() == 7 and bench.read().consumer.members.keys() == {"a"}
