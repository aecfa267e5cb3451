"""librdkafka's share consumer (KIP-932) against real nodes. The numbers name librdkafka's own tests of a behaviour.

librdkafka's tests are programs in C that no package has; these are written after their descriptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    ConcurrentModificationException,
    IllegalStateException,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from raftlog.base.errors import InvalidRecordState
from raftlog.testing.cluster import Cluster
from tests.clients.nodes import checked_logs
from tests.clients.with_confluent import Confluent
from tests.kit.settings import QUICK, SMALL
from tests.kit.waits import PATIENCE_S, poll_until

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LIMIT = 3
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(LIMIT),
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def short_locks() -> Iterator[Cluster]:
    """Three nodes of this module, where locks may be short."""
    with Cluster(3, settings={**SMALL, **QUICK, **SETTINGS}) as cluster, checked_logs(cluster) as checked:
        yield checked


class Queue:
    """A topic and share groups of it."""

    def __init__(self, cluster: Cluster, client: Confluent, topic: str) -> None:
        self.servers = cluster.bootstrap_servers
        self.client = client
        self.topic = topic
        client.create_topic(topic, 1, 3)

    def configure(self, group: str, **configs: str) -> None:
        """Set configs of a group, by their names with underscores; without a reset it begins at the earliest."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        named = {"share.auto.offset.reset": "earliest"} | named
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in named.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.servers})
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()

    def send(self, *values: str, partition: int = 0, topic: str = "") -> None:
        self.client.produce(topic or self.topic, [each.encode() for each in values], partition=partition)

    @contextmanager
    def member(self, group: str = "", *topics: str, **settings: Any) -> Iterator[ShareConsumer]:
        """A member that acknowledges each record, unless `settings` say otherwise."""
        own = {"share.acknowledgement.mode": "explicit"} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        common = {"bootstrap.servers": self.servers, "group.id": group or self.topic, "log_level": 0}
        consumer = ShareConsumer({**common, **own})
        consumer.subscribe(list(topics) or [self.topic])
        try:
            yield consumer
        finally:
            consumer.close()


@pytest.fixture
def queue(short_locks: Cluster, topic: str) -> Iterator[Queue]:
    with closing(Confluent(short_locks.bootstrap_servers)) as client:
        made = Queue(short_locks, client, topic)
        made.configure(topic)
        yield made


def poll(member: ShareConsumer) -> list[Any]:
    """Return the records of a poll, and see that there is no error among them."""
    found = list(member.poll(0.1))
    assert [each.error() for each in found if each.error()] == []
    return found


def hold(member: ShareConsumer) -> list[Any]:
    """Return the records of the first poll that has any. The member has them until it acknowledges them."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(poll(member))
        return bool(found)

    poll_until(enough, "a record is delivered")
    return found


def accept(member: ShareConsumer, count: int) -> list[Any]:
    """Take at least so many records, and accept them."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(accept_next(member))
        return len(found) >= count

    poll_until(enough, f"{count} records are delivered", seen=lambda: len(found))
    return found


def accept_next(member: ShareConsumer) -> list[Any]:
    """Poll once, and accept what comes."""
    found = poll(member)
    for each in found:
        member.acknowledge(each, ACCEPT)
    check_commit(member)
    return found


def check_commit(member: ShareConsumer) -> None:
    """Commit, and see that it succeeds."""
    assert [error for error in member.commit_sync(30.0).values() if error is not None] == []


def texts(records: Sequence[Any]) -> list[str]:
    return [each.value().decode() for each in records]


def none_is_left(queue: Queue) -> None:
    """See that a record that is sent now comes next, and alone."""
    queue.send("last")
    with queue.member() as member:
        assert texts(accept(member, 1)) == ["last"]


# -- where a group begins, and what it subscribes to (0170)


@pytest.mark.nightly
def test_a_group_begins_where_its_config_says(queue: Queue) -> None:
    """0170: latest by default, earliest if that is set."""
    queue.send("old")
    queue.configure("latest", share_auto_offset_reset="latest")
    with queue.member("latest") as late, queue.member() as early:
        assert texts(accept(early, 1)) == ["old"]
        seen: list[str] = []

        def begins() -> bool:
            queue.send("new")
            seen.extend(texts(accept_next(late)))
            return bool(seen)

        poll_until(begins, "the group has begun")
        assert set(seen) == {"new"}


def test_deleted_records_are_passed(queue: Queue) -> None:
    """0170: DeleteRecords moves the start of the log, and the group with it."""
    queue.send("a", "b", "c")
    queue.client.delete_records(queue.topic, 0, 2)
    with queue.member() as member:
        assert texts(accept(member, 1)) == ["c"]


def test_a_member_changes_its_subscription(queue: Queue, topic: str) -> None:
    """0170: records of the former topic that it has can still be acknowledged."""
    other = f"{topic}-other"
    queue.client.create_topic(other, 1, 3)
    queue.send("one")
    queue.send("two", topic=other)
    with queue.member() as member:
        (held,) = hold(member)
        member.subscribe([other])
        member.acknowledge(held)
        check_commit(member)
        assert texts(accept(member, 1)) == ["two"]
    none_is_left(queue)


def test_members_with_different_subscriptions_share_what_they_have_in_common(
    queue: Queue, topic: str
) -> None:
    """0170: each record goes to one of them."""
    other = f"{topic}-other"
    queue.client.create_topic(other, 1, 3)
    queue.send(*map(str, range(20)))
    queue.send(*map(str, range(20, 40)), topic=other)
    with queue.member("", topic, other) as both, queue.member() as one:
        found: list[str] = []

        def done() -> bool:
            for member in (both, one):
                found.extend(texts(accept_next(member)))
            return len(found) >= 40

        poll_until(done, "all records are delivered", seen=lambda: len(found))
    assert sorted(found, key=int) == [str(each) for each in range(40)]


# -- what arrives (0171)


def test_every_codec_with_headers_and_empty_records_arrives_whole(queue: Queue) -> None:
    """0171: keys and values of no bytes, and many headers, too."""
    headers = [(f"h{number}", b"x" * number) for number in range(50)]
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": queue.servers, "compression.type": codec})
        producer.produce(queue.topic, codec * 200, key=codec, headers=headers, partition=0)
        producer.produce(queue.topic, b"", key=b"", partition=0)
        producer.flush()
    with queue.member() as member:
        found = accept(member, 2 * len(CODECS))
    assert [(each.key(), each.value()) for each in found[::2]] == [
        (codec.encode(), codec.encode() * 200) for codec in CODECS
    ]
    assert {(each.key(), each.value()) for each in found[1::2]} == {(b"", b"")}
    assert all(each.headers() == headers for each in found[::2])


@pytest.mark.nightly
def test_a_partition_that_is_added_is_read_from_its_beginning(queue: Queue) -> None:
    """0171: the group knows the topic already, so no record of the new partition is passed over."""
    queue.configure(queue.topic, share_auto_offset_reset="latest")
    with queue.member() as member:

        def begins() -> bool:
            queue.send("first")
            return bool(accept_next(member))

        poll_until(begins, "the group has begun")
        queue.client.grow_topic(queue.topic, 2)
        with closing(Confluent(queue.servers)) as writer:  # the other one does not know of the new partition
            writer.produce(queue.topic, [b"added"], partition=1)
        seen: list[str] = []

        def arrives() -> bool:
            seen.extend(texts(accept_next(member)))
            return "added" in seen

        poll_until(arrives, "the record of the new partition is delivered")


def test_a_record_larger_than_a_fetch_arrives(queue: Queue) -> None:
    """0171, 0180: fetch.max.bytes is no hard limit."""
    queue.send("x" * 200_000, "small")
    with queue.member(fetch_max_bytes=1_000) as member:
        assert [len(each) for each in texts(accept(member, 2))] == [200_000, 5]


# -- acknowledgements (0172, 0173, 0176)


def test_each_answer_does_what_it_says(queue: Queue) -> None:
    """0172: a record is accepted or rejected for good, and released until it is out of deliveries."""
    queue.send("accepted", "rejected", "released")
    kinds = {"accepted": ACCEPT, "rejected": REJECT, "released": RELEASE}
    counts: dict[str, list[int]] = {}
    with queue.member() as member:

        def done() -> bool:
            for each in poll(member):
                counts.setdefault(each.value().decode(), []).append(each.delivery_count())
                member.acknowledge(each, kinds[each.value().decode()])
            check_commit(member)
            return len(counts.get("released", ())) == LIMIT

        poll_until(done, "the record is out of deliveries", seen=lambda: dict(counts))
    assert counts == {"accepted": [1], "rejected": [1], "released": list(range(1, LIMIT + 1))}
    none_is_left(queue)


def test_the_last_answer_before_a_commit_counts(queue: Queue) -> None:
    """0172: until then an answer can be changed; after it, no more."""
    queue.send("a")
    with queue.member() as member:
        (record,) = hold(member)
        member.acknowledge(record, REJECT)
        member.acknowledge(record, RELEASE)
        check_commit(member)
        with pytest.raises((IllegalStateException, KafkaException)):
            member.acknowledge(record, ACCEPT)
        (again,) = accept(member, 1)
        assert again.delivery_count() == 2
    none_is_left(queue)


def test_what_is_given_up_is_in_the_dead_letter_topic(queue: Queue) -> None:
    """KIP-1191: another group reads there what was rejected, and what is out of deliveries, with key and value."""
    letters, readers = f"dlq.{queue.topic}", f"{queue.topic}-readers"
    queue.client.create_topic(letters, 1, 3, errors_deadletterqueue_group_enable="true")
    queue.configure(
        queue.topic,
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="true",
    )
    queue.configure(readers)
    queue.send("accepted", "rejected", "released")
    kinds = {"accepted": ACCEPT, "rejected": REJECT, "released": RELEASE}
    found: dict[bytes, dict[str, bytes]] = {}
    with queue.member() as member, queue.member(readers, letters) as reader:

        def done() -> bool:
            for each in poll(member):
                member.acknowledge(each, kinds[each.value().decode()])
            check_commit(member)
            found.update({each.value(): dict(each.headers()) for each in accept_next(reader)})
            return len(found) == 2

        poll_until(done, "both letters are delivered", seen=lambda: dict(found))
    for value, offset, count, why in (
        (b"rejected", b"1", b"1", b"Offset rejected by client."),
        (b"released", b"2", str(LIMIT).encode(), b"Offset delivery count exceeded the threshold."),
    ):
        assert found[value] == {
            "__dlq.errors.topic": queue.topic.encode(),
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": offset,
            "__dlq.errors.group": queue.topic.encode(),
            "__dlq.errors.delivery.count": count,
            "__dlq.errors.message": why,
        }


def test_members_may_mix_their_modes(queue: Queue) -> None:
    """0172: an implicit member accepts what it has polled with its next poll or commit."""
    queue.send("a", "b")
    with queue.member(share_acknowledgement_mode="implicit") as implicit:
        found: list[str] = []

        def enough() -> bool:
            found.extend(texts(poll(implicit)))
            return len(found) == 2

        poll_until(enough, "both are delivered")
        check_commit(implicit)
        with pytest.raises(IllegalStateException):
            implicit.acknowledge_offset(queue.topic, 0, 0)
    none_is_left(queue)


def test_a_lock_that_is_over_gives_the_record_to_another_and_refuses_the_first(queue: Queue) -> None:
    """0173: its acknowledgement gets INVALID_RECORD_STATE, and the delivery count grows."""
    queue.configure(queue.topic, share_record_lock_duration_ms="1000")
    queue.send("a")
    with queue.member() as first, queue.member() as second:
        (record,) = hold(first)
        (again,) = hold(second)
        assert again.delivery_count() == record.delivery_count() + 1
        first.acknowledge(record)
        outcomes = first.commit_sync(PATIENCE_S)
    assert [error.args[0].code() for error in outcomes.values()] == [InvalidRecordState.code]


def test_a_callback_hears_of_each_answer_once(queue: Queue) -> None:
    """0173, 0176: also of those that a poll has sent, and of a commit of a part."""
    queue.send(*map(str, range(10)))
    heard: Counter[int] = Counter()

    def note(offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
        assert error is None
        heard.update(offset for each in offsets.values() for offset in each)

    with queue.member() as member:
        member.set_acknowledgement_commit_callback(note)
        first, *others = hold(member)
        member.acknowledge(first)
        member.commit_async()
        for each in others:
            member.acknowledge(each)

        def all_are_confirmed() -> bool:
            for each in poll(member):
                member.acknowledge(each)
            return sum(heard.values()) == 10

        poll_until(all_are_confirmed, "all are confirmed", seen=lambda: dict(heard))
    assert heard == Counter(range(10))


# -- many members and groups (0174, 0175)


@pytest.mark.nightly
def test_each_group_gets_every_record_once_whatever_its_members(queue: Queue) -> None:
    """0174, 0175: four producers, three groups of one to three members, and four partitions."""
    queue.client.grow_topic(queue.topic, 4)
    sent = {f"{partition}-{number}" for partition in range(4) for number in range(50)}
    groups = [f"{queue.topic}-{number}" for number in range(3)]
    found: dict[str, Counter[str]] = {group: Counter() for group in groups}
    with ExitStack() as members:
        pairs = []
        for number, group in enumerate(groups):
            queue.configure(group)
            pairs += [(group, members.enter_context(queue.member(group))) for _ in range(number + 1)]
        for partition in range(4):
            queue.send(*(f"{partition}-{number}" for number in range(50)), partition=partition)

        def done() -> bool:
            for group, member in pairs:
                found[group].update(texts(accept_next(member)))
            return all(each.keys() == sent for each in found.values())

        poll_until(done, "each group has all", seen=lambda: [len(each) for each in found.values()])
    assert {count for each in found.values() for count in each.values()} == {1}


# -- transactions (0177)


def test_isolation_is_the_groups_and_may_change(queue: Queue) -> None:
    """0177: with read_committed aborted records never come, nor control records; open ones later."""
    queue.configure("committed", share_isolation_level="read_committed")
    queue.configure("all")
    producer = Producer({"bootstrap.servers": queue.servers, "transactional.id": queue.topic})
    producer.init_transactions(PATIENCE_S)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.produce(queue.topic, f"{ends.__name__}-{number}", partition=0)
        producer.flush()
        ends(PATIENCE_S)
    queue.send("plain")
    everything = [
        f"{name}-{number}" for number, name in enumerate(("commit_transaction", "abort_transaction") * 2)
    ]
    with queue.member("all") as member:
        assert texts(accept(member, 5)) == [*everything, "plain"]
    with queue.member("committed") as member:
        assert texts(accept(member, 3)) == [*everything[::2], "plain"]
        producer.begin_transaction()
        producer.produce(queue.topic, "open", partition=0)
        producer.flush()
        queue.configure("committed", share_isolation_level="read_uncommitted")
        assert texts(accept(member, 1)) == ["open"]
    producer.abort_transaction(PATIENCE_S)


# -- the end of a member (0171, 0178, 0179, 0185)


def test_a_member_that_closes_gives_back_what_it_has(queue: Queue) -> None:
    """0171, 0178: what it has acknowledged goes with the close; a closed consumer refuses every call."""
    queue.send("accepted")
    with queue.member() as first:
        (record,) = hold(first)
        first.acknowledge(record)
        queue.send("kept")
        first.commit_async()
        hold(first)
    with pytest.raises(IllegalStateException):
        first.poll(0.1)
    with queue.member() as second:
        (again,) = accept(second, 1)
    assert (again.value(), again.delivery_count()) == (b"kept", 2)


@pytest.mark.nightly
def test_a_member_that_does_not_poll_in_time_leaves_and_comes_back(queue: Queue) -> None:
    """0185: max.poll.interval.ms; another member gets its record."""
    queue.configure(queue.topic, share_record_lock_duration_ms="1000")
    queue.send("a")
    with queue.member(max_poll_interval_ms=1_000) as slow, queue.member() as other:
        (held,) = hold(slow)
        (again,) = accept(other, 1)
        assert again.delivery_count() == 2
        slow.acknowledge(held)
        slow.commit_sync(PATIENCE_S)
    queue.send("b")
    with queue.member(max_poll_interval_ms=1_000) as slow:
        assert texts(accept(slow, 1)) == ["b"]


def test_a_consumer_is_of_one_thread(queue: Queue) -> None:
    """0171: of two calls at once of a consumer one is refused."""
    with queue.member() as member, ThreadPoolExecutor(2) as threads:

        def refused() -> bool:
            errors = [each.exception() for each in [threads.submit(member.poll, 0.5) for _ in range(2)]]
            return any(isinstance(each, ConcurrentModificationException) for each in errors)

        poll_until(refused, "one of the calls is refused")


# -- topics that go (0181, 0184)


@pytest.mark.nightly
def test_a_member_outlives_its_topic(queue: Queue, topic: str) -> None:
    """0176, 0181, 0184: an answer about a deleted topic ends; a new topic of that name begins anew."""
    other = f"{topic}-other"
    queue.client.create_topic(other, 1, 3)
    queue.send("a")
    with queue.member("", topic, other) as member:
        (record,) = hold(member)
        queue.client.delete_topic(topic)
        member.acknowledge(record)
        member.commit_sync(PATIENCE_S)
        queue.send("b", topic=other)
        assert texts(accept_all(member, 1)) == ["b"]
        queue.client.create_topic(topic, 1, 3)
        queue.send("new", "newer")
        found = accept_all(member, 2)
        assert [(each.value(), each.offset(), each.delivery_count()) for each in found] == [
            (b"new", 0, 1),
            (b"newer", 1, 1),
        ]


def accept_all(member: ShareConsumer, count: int) -> list[Any]:
    """Take records while a topic comes or goes: errors of partitions pass."""
    found: list[Any] = []

    def enough() -> bool:
        for each in member.poll(0.1):
            if each.error() is None:
                found.append(each)
                member.acknowledge(each)
        member.commit_sync(PATIENCE_S)
        return len(found) >= count

    poll_until(enough, f"{count} records are delivered", seen=lambda: len(found))
    return found
