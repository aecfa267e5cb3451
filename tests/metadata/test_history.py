"""Claims about the memory of what happened: bounded, the same everywhere, and honest about where it begins."""

from __future__ import annotations

from uuid import UUID

from raftlog.metadata.causes import CAUSE_SENTENCES, Cause, describe_cause
from raftlog.metadata.history import KEPT_OF_BROKER, KEPT_OF_PARTITION, History
from raftlog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage
from raftlog.metadata.loader import MetadataLoader
from raftlog.metadata.metadata_records import (
    Batch,
    BrokerChanged,
    BrokerRegistered,
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
    decode_batch,
    encode_batch,
)
from raftlog.metadata.record_replay import apply_records

TOPIC = UUID(int=1)
DEAD = Cause("taken_for_dead", 1, "connection refused")


class HistorySetup:
    """A history that receives batches in sequence."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.image = EMPTY_IMAGE

    def tell(self, *records: Record, causes: tuple[Cause, ...] = (), at_ms: int = 0) -> MetadataImage:
        batch = Batch(1, self.image.offset, records, at_ms, causes)
        old, self.image = self.image, apply_records(self.image, records)
        self.history.add_batch(old, self.image, batch)
        return self.image

    def begin(self, partitions: int = 1) -> None:
        endpoints = (Endpoint("X", "h", 1),)
        self.tell(*(BrokerRegistered(each, UUID(int=each), endpoints, None, ()) for each in (1, 2)))
        created = (PartitionCreated(TOPIC, each, (1, 2), (1, 2), 1) for each in range(partitions))
        self.tell(TopicCreated("t", TOPIC), *created)


def test_changes_have_a_moment_a_cause_and_both_values() -> None:
    """One batch fences a broker and elects another: both events have the same moment."""
    told = HistorySetup(History())
    told.begin()
    before = told.image.offset
    changed = PartitionChanged(TOPIC, 0, leader=2, isr=(2,))
    told.tell(changed, BrokerChanged(1, 0, fenced=True), causes=(DEAD,), at_ms=77)
    created, elected = told.history.partition(TOPIC, 0)
    assert created.old is None
    assert elected.old is not None and elected.new is not None
    assert (elected.old.leader, elected.new.leader, elected.new.isr) == (1, 2, (2,))
    assert (elected.batch.offset, elected.batch.at_ms, elected.batch.causes) == (before, 77, (DEAD,))
    assert elected.batch.partitions == 1
    fenced = told.history.broker_changes_at(before)[1]
    assert fenced.batch == elected.batch
    assert fenced.new is not None and fenced.new.fenced


def test_elections_and_isr_changes_are_counted_for_the_leader() -> None:
    """Sums over brokers are the cluster's."""
    told = HistorySetup(History())
    told.begin()
    told.tell(PartitionChanged(TOPIC, 0, leader=2, isr=(2,)))
    told.tell(PartitionChanged(TOPIC, 0, isr=(1, 2)))
    told.tell(PartitionChanged(TOPIC, 0, isr=(2,)))
    told.tell(PartitionChanged(TOPIC, 0, leader=1, isr=(1,)))
    first, second = told.history.counts(1), told.history.counts(2)
    assert (second.leaderships_gained, second.isr_shrinks, second.isr_expands) == (1, 2, 1)
    assert (first.leaderships_gained, first.unclean_elections, second.unclean_elections) == (1, 1, 0)


def test_each_thing_keeps_its_last_changes_only() -> None:
    """Memory is bounded however often things change."""
    told = HistorySetup(History())
    told.begin()
    for number in range(KEPT_OF_BROKER + 9):
        told.tell(
            PartitionChanged(TOPIC, 0, leader=1 + number % 2), BrokerChanged(1, 0, fenced=bool(number % 2))
        )
    assert len(told.history.partition(TOPIC, 0)) == KEPT_OF_PARTITION
    assert len(told.history.broker(1)) == KEPT_OF_BROKER
    assert told.history.partition(TOPIC, 0)[-1].batch.offset == told.image.offset - 2


def test_beyond_the_limit_the_quietest_partitions_are_forgotten() -> None:
    """The bound is on all together; what changes is what people ask about."""
    told = HistorySetup(History(most_kept=5))
    told.begin(partitions=5)
    told.tell(PartitionChanged(TOPIC, 0, leader=2))
    assert len(told.history.partition(TOPIC, 0)) == 2
    assert [len(told.history.partition(TOPIC, each)) for each in range(1, 5)] == [0, 1, 1, 1]


def test_a_deleted_topic_is_forgotten() -> None:
    """Topics that come and go leave no entry behind."""
    told = HistorySetup(History(most_kept=2))
    told.begin(partitions=2)
    told.tell(TopicDeleted(TOPIC))
    assert told.history.partition(TOPIC, 0) == []
    told.tell(TopicCreated("u", UUID(int=2)), PartitionCreated(UUID(int=2), 0, (1, 2), (1, 2), 1))
    assert len(told.history.partition(UUID(int=2), 0)) == 1


def test_a_snapshot_begins_a_history_anew_and_it_says_so() -> None:
    """No reader gets a chain with a link missing."""
    source = MetadataLoader(lambda call: call())
    registered = BrokerRegistered(1, UUID(int=1), (Endpoint("X", "h", 1),), None, ())
    source.apply(encode_batch(Batch(0, 0, (registered,))))
    assert len(source.history.broker(1)) == 1
    target = MetadataLoader(lambda call: call())
    target.apply(encode_batch(Batch(0, 0, (registered,))))
    target.restore(source.snapshot()())
    assert target.history.broker(1) == []
    assert target.history.since_offset == source.image.offset == 1


def test_batches_of_older_versions_are_read_without_time_and_cause() -> None:
    """A journal that was written before causes existed is replayed."""
    old = encode_batch(Batch(1, 0, ()))[1:]
    assert old[0] == 0x95, "an array of five"
    shorter = b"\x01\x93" + old[1:4]
    assert decode_batch(shorter) == Batch(1, 0, (), 0, ())


def test_every_cause_has_words_and_an_unknown_one_is_shown_as_it_is() -> None:
    """A newer controller's state is not hidden."""
    assert all(describe_cause(Cause(kind, 3, "so")) for kind in CAUSE_SENTENCES)
    assert describe_cause(DEAD) == "broker 1 was considered dead: connection refused"
    assert describe_cause(Cause("moon_phase", 1, "full")) == "moon phase full"
