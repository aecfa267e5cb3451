"""Dead letters of share groups (KIP-1191): from a member's acknowledgement to the dead-letter topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.base.errors import InvalidConfig, InvalidRecord, OffsetNotAvailable
from raftlog.base.share_deliveries import HandAcknowledgement
from raftlog.broker.coordination import dead_letters
from raftlog.broker.coordination.dead_letters import (
    BY_HAND,
    REJECTED,
    DeadLetterWriter,
    LetterBox,
    _offsets,
)
from raftlog.broker.handlers.shared.share_by_hand import acknowledge_by_hand
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.metadata.controller_api import (
    SAFE_DOWNGRADE,
    UPGRADE,
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
    FeatureUpdate,
    UpdateFeatures,
)
from raftlog.metadata.features import DEAD_LETTERS, SHARE_VERSION
from raftlog.records.batch import Record, build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog.sharing.dead_letter import DeadLetters
from raftlog_chaos.checkers.records import read_batches
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import PRODUCE, Client, create_topic, delete_topic
from raftlog_chaos.workloads.share_member import ACCEPT, REJECT, RELEASE
from raftlog_chaos.workloads.txn_client import TransactionalProducer
from tests.node.share_members import (
    BATCH,
    GROUP,
    TOPIC,
    Member,
    acquired,
    code_of,
    context_of,
    produce,
    run_scenario,
    set_group_config,
    share_partitions,
    start,
    submit,
)

LETTERS = "dlq.work"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
CREATES = {"errors.deadletterqueue.auto.create.topics.enable": "true"}


async def have_letters(cluster: SimCluster, **configs: str) -> None:
    """Create the dead-letter topic, with _ for the dots of configs, and have the group use it."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    client = Client("letters", cluster.bootstrap)
    await create_topic(client, LETTERS, partitions=1, configs=ENABLED | named)
    await cluster.until(lambda: cluster.leader_replica(LETTERS, 0), 10, "the dead-letter topic")
    await set_group_config(cluster, errors_deadletterqueue_topic_name=LETTERS)


def letters(cluster: SimCluster, topic: str = LETTERS) -> list[Record]:
    """Return the committed dead letters."""
    found = cluster.leader_replica(topic, 0)
    if found is None:
        return []
    view = memoryview(read_batches(found[1].log, found[1].high_watermark))
    return [
        record
        for position, header in iter_headers(view)
        for record in iter_records(view[position : position + header.length])
    ]


def offsets(cluster: SimCluster) -> list[int]:
    """Return the offsets that the dead letters name."""
    return [int(dict(each.headers)["__dlq.errors.offset"] or b"") for each in letters(cluster)]


async def until_letters(cluster: SimCluster, *expected: int) -> None:
    await cluster.until(lambda: len(offsets(cluster)) >= len(expected), 20, "the dead letters")
    assert offsets(cluster) == list(expected)


async def until_start(cluster: SimCluster, member: Member, offset: int) -> None:
    """Wait until the group begins at an offset: all below is done."""
    machine = share_partitions(cluster, member.leader).machine_of(key_of(cluster))
    assert machine is not None
    await cluster.until(lambda: machine.start_offset == offset, 60, f"the group begins at {offset}")


def key_of(cluster: SimCluster) -> SharePartitionKey:
    return SharePartitionKey(GROUP, cluster.last_image().topics[TOPIC].topic_id, 0)


async def reject(cluster: SimCluster, member: Member, batches: int = 1) -> list[int]:
    """Have a member reject the next three records of some that are produced; return their offsets."""
    await produce(cluster, batches)
    ((first, last, count),) = acquired(await member.fetch())
    assert count == 1 and code_of(await member.acknowledge((first, last, [REJECT]))) == 0
    return list(range(first, last + 1))


async def on_node(cluster: SimCluster, node_id: int, work: Coroutine[Any, Any, Any]) -> Any:
    return await cluster.nodes[node_id].host.start(work)


# -- what a letter says


def test_a_rejected_record_has_a_letter_that_names_it() -> None:
    """KIP-1191's headers, and neither key nor value. An accepted record has none."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        (a,) = await start(cluster, "a")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        await a.acknowledge((0, 2, [ACCEPT, REJECT, ACCEPT]))
        await until_start(cluster, a, 3)
        (letter,) = letters(cluster)
        assert letter.headers == (
            ("__dlq.errors.topic", b"t"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"1"),
            ("__dlq.errors.group", b"work"),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        )
        assert (letter.key, letter.value) == (None, None)

    run_scenario(scenario)


def test_a_record_that_is_out_of_deliveries_has_a_letter() -> None:
    """It says so, and how often the record was delivered."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        await set_group_config(cluster, share_delivery_count_limit="2")
        (a,) = await start(cluster, "a")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        await a.acknowledge((0, 2, [RELEASE, ACCEPT, ACCEPT]))
        assert (0, 0, 2) in acquired(await a.fetch())
        await a.acknowledge((0, 0, [RELEASE]))
        await until_letters(cluster, 0)
        said = dict(letters(cluster)[0].headers)
        assert said["__dlq.errors.delivery.count"] == b"2"
        assert said["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."

    run_scenario(scenario)


def test_a_letter_has_key_and_value_if_the_group_wants_them() -> None:
    """The record's own headers are not copied. A record that is too large for the topic is only named."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster, max_message_bytes="2000")
        await set_group_config(cluster, errors_deadletterqueue_copy_record_enable="true")
        (a,) = await start(cluster, "a")
        records = [new_record(b"k", size * b"x", timestamp=5, headers=(("own", b""),)) for size in (3, 3000)]
        client = Client("producer", cluster.bootstrap)
        await client.refresh(TOPIC)
        request = produce_request((TOPIC, 0), build_batch(records), acks=-1)
        await client.ask_leader(TOPIC, 0, PRODUCE, request)
        assert acquired(await a.fetch()) == [(0, 1, 1)]
        await a.acknowledge((0, 1, [REJECT]))
        await until_letters(cluster, 0, 1)
        assert [(each.key, each.value) for each in letters(cluster)] == [(b"k", b"xxx"), (None, None)]
        assert "own" not in dict(letters(cluster)[0].headers)

    run_scenario(scenario)


@pytest.mark.parametrize("by", ["a member", "an operator"])
def test_an_offset_without_a_record_has_no_letter(by: str) -> None:
    """The end of a transaction is an offset too, which members skip. A letter says that an operator did it."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        (a,) = await start(cluster, "a")
        producer = TransactionalProducer(
            Client("producer", cluster.bootstrap), "x", group="", reads=(TOPIC, 0), bumping=True
        )
        await producer.init()
        await producer.write((TOPIC, 0), b"in a transaction")
        await producer.end(commit=True)
        await until_end(cluster, 2)
        await produce(cluster, 1)
        taken = acquired(await a.fetch(max_records=10))
        assert (taken[0][0], taken[-1][1]) == (0, 6)
        if by == "a member":
            assert code_of(await a.acknowledge((0, 6, [REJECT]))) == 0
        else:
            said = HandAcknowledgement(key_of(cluster).topic_id, 0, True, (0, 6))
            await on_node(cluster, a.leader, acknowledge_by_hand(context_of(cluster, a.leader), GROUP, said))
        await until_letters(cluster, 0, 2, 3, 4, 5, 6)
        await until_start(cluster, a, 7)
        reasons = {dict(each.headers)["__dlq.errors.message"] for each in letters(cluster)}
        assert reasons == {REJECTED if by == "a member" else BY_HAND}

    run_scenario(scenario)


async def until_end(cluster: SimCluster, end_offset: int) -> None:
    """Wait until records up to an offset are committed."""

    def is_committed() -> bool:
        found = cluster.leader_replica(TOPIC, 0)
        return found is not None and found[1].high_watermark >= end_offset

    await cluster.until(is_committed, 10, f"the end is {end_offset}")


def test_records_that_a_leader_does_not_know_as_committed_are_no_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader has a lower high watermark for a moment: OFFSET_NOT_AVAILABLE, and the next attempt finds them."""

    async def scenario(cluster: SimCluster) -> None:
        await produce(cluster, 2)
        found, state = cluster.leader_replica(TOPIC, 0), cluster.state(TOPIC, 0)
        assert found is not None and state is not None
        leader, replica = state.leader, found[1]
        writer, key = DeadLetterWriter(context_of(cluster, leader)), key_of(cluster)
        assert await on_node(cluster, leader, writer.offsets(key, 7, 19)) == [7, 8, 9]
        with monkeypatch.context() as patch:
            behind = SimpleNamespace(
                log=replica.log, log_start_offset=0, log_end_offset=10, high_watermark=BATCH
            )
            patch.setattr(dead_letters, "locate", lambda *_: behind)
            assert await on_node(cluster, leader, writer.offsets(key, 3, 4)) == [3, 4]
            with pytest.raises(OffsetNotAvailable):
                await on_node(cluster, leader, writer.offsets(key, 3, 5))

    run_scenario(scenario)


@pytest.mark.parametrize(("is_readable", "expected"), [(True, [3]), (False, [2, 3, 4])])
def test_a_batch_that_cannot_be_read_has_a_record_at_each_offset(
    is_readable: bool, expected: list[int]
) -> None:
    """Members reject what they cannot read, so its letters must not be lost."""
    batch = memoryview(build_batch([new_record(None, b"x", timestamp=0)], base_offset=3))
    (header,) = (header for _, header in iter_headers(batch))
    sparse = header._replace(base_offset=2, last_offset_delta=2, record_count=1 if is_readable else 0)
    found = _offsets(sparse, batch if is_readable else batch[:20], range(10))
    assert [offset for offset, _ in found] == expected


# -- the dead-letter topic


def test_the_brokers_create_the_topic_if_they_may() -> None:
    """With the config that lets groups use it."""

    async def scenario(cluster: SimCluster) -> None:
        await set_group_config(cluster, errors_deadletterqueue_topic_name=LETTERS)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await until_letters(cluster, 0, 1, 2)
        assert cluster.last_image().config("topic", LETTERS).items() >= ENABLED.items()

    run_scenario(scenario, settings=CREATES)


def test_letters_wait_for_a_topic_that_is_missing() -> None:
    """The records are not delivered again, and get their letters once it is there."""

    async def scenario(cluster: SimCluster) -> None:
        await set_group_config(cluster, errors_deadletterqueue_topic_name=LETTERS)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await asyncio.sleep(20.0)
        assert LETTERS not in cluster.last_image().topics
        machine = share_partitions(cluster, a.leader).machine_of(key_of(cluster))
        assert machine is not None and machine.start_offset == 0
        await have_letters(cluster)
        await until_letters(cluster, 0, 1, 2)

    run_scenario(scenario)


def test_a_topic_that_is_made_anew_gets_the_next_letters() -> None:
    """They are another producer's: its log knows no sequence."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await until_letters(cluster, 0, 1, 2)
        await delete_topic(Client("admin", cluster.bootstrap), LETTERS)
        await reject(cluster, a)
        await asyncio.sleep(2.0)
        await have_letters(cluster)
        await until_letters(cluster, 3, 4, 5)

    run_scenario(scenario)


@pytest.mark.parametrize(
    "configs", [{"compression_type": "zstd"}, {"message_timestamp_type": "LogAppendTime"}]
)
def test_letters_follow_the_configs_of_their_topic(configs: dict[str, str]) -> None:
    """Its codec and its timestamps, also where the broker that leads it writes them itself."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster, **configs)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await until_letters(cluster, 0, 1, 2)
        await on_each_node(cluster)
        found = cluster.leader_replica(LETTERS, 0)
        assert found is not None
        view = read_batches(found[1].log, found[1].high_watermark)
        if "compression_type" in configs:
            assert {header.codec for _, header in iter_headers(view)} == {4}
        else:
            assert all(header.attributes & 8 for _, header in iter_headers(view))

    run_scenario(scenario)


async def on_each_node(cluster: SimCluster) -> None:
    """Have each broker write the same letters, as leaders of the share partition that follow each other."""
    key, count = key_of(cluster), len(letters(cluster))
    topic_id = cluster.last_image().topics[LETTERS].topic_id
    writer = DeadLetterWriter(context_of(cluster, 1))
    producer_id = await on_node(cluster, 1, writer.new_producer_id())
    for sequence in (0, 2):
        same = DeadLetters(producer_id, sequence, 7, 8, 1, topic_id, 0)
        for node_id in cluster.nodes:
            writer = DeadLetterWriter(context_of(cluster, node_id))
            await on_node(cluster, node_id, writer.write(key, same))
    assert offsets(cluster)[count:] == [7, 8, 7, 8]


def test_a_batch_that_several_leaders_write_is_there_once() -> None:
    """By the sequence of its producer, whether the broker leads the dead-letter topic or not."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        await on_each_node(cluster)

    run_scenario(scenario)


def test_letters_are_checked_by_schemas_wherever_their_topic_is_led() -> None:
    """A copied record has the schema of its topic: INVALID_RECORD, on the leader as on the others."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster, confluent_value_schema_validation="true")
        await set_group_config(
            cluster,
            errors_deadletterqueue_topic_name=LETTERS,
            errors_deadletterqueue_copy_record_enable="true",
        )
        await produce(cluster, 3)
        key, topic_id = key_of(cluster), cluster.last_image().topics[LETTERS].topic_id
        for node_id in cluster.nodes:
            writer = DeadLetterWriter(context_of(cluster, node_id))
            producer_id = await on_node(cluster, node_id, writer.new_producer_id())
            letter = DeadLetters(producer_id, 0, 0, 0, 1, topic_id, 0)
            with pytest.raises(InvalidRecord, match="record 0 of the batch: the value has no schema id"):
                await on_node(cluster, node_id, writer.write(key, letter))
        assert not letters(cluster)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("dlq.none", {}, "the dead-letter topic dlq.none does not exist"),
        ("other", {}, "the dead-letter topic other must begin with dlq."),
        ("dlq.plain", {}, "errors.deadletterqueue.group.enable is false for the topic dlq.plain"),
        ("", {}, "the group work has no dead-letter topic any more"),
        (TOPIC, {"errors.deadletterqueue.topic.name.prefix": ""}, "the group work has no dead-letter topic"),
    ],
)
def test_a_topic_that_cannot_have_letters_is_refused_with_the_reason(
    name: str, settings: dict[str, str], reason: str
) -> None:
    """InvalidConfig, which is in the log; of the group's own topic there are no letters."""

    async def scenario(cluster: SimCluster) -> None:
        await create_topic(Client("letters", cluster.bootstrap), "dlq.plain", partitions=1)
        await set_group_config(cluster, errors_deadletterqueue_topic_name=name)
        writer = DeadLetterWriter(context_of(cluster, 1))
        with pytest.raises(InvalidConfig, match=reason):
            await on_node(cluster, 1, writer.find_box(key_of(cluster)))

    run_scenario(scenario, settings=settings)


def test_a_partition_has_its_letters_in_one_partition() -> None:
    """By its number, as in Apache Kafka; fewer letters go together if the topic takes only small batches."""

    async def scenario(cluster: SimCluster) -> None:
        client = Client("letters", cluster.bootstrap)
        small = {"max.message.bytes": "2000"}
        await create_topic(client, LETTERS, partitions=3, configs=ENABLED | small)
        await set_group_config(cluster, errors_deadletterqueue_topic_name=LETTERS)
        writer, key = DeadLetterWriter(context_of(cluster, 1)), key_of(cluster)._replace(partition=7)
        topic_id = cluster.last_image().topics[LETTERS].topic_id
        assert await on_node(cluster, 1, writer.find_box(key)) == LetterBox(topic_id, 1)
        most = writer.most(key)
        assert 1 < most < 10
        producer_id = await on_node(cluster, 1, writer.new_producer_id())
        full = DeadLetters(producer_id, 0, 2**40, 2**40 + most - 1, 25, topic_id, 0)
        await on_node(cluster, 1, writer.write(key, full))
        assert len(letters(cluster)) == most

    run_scenario(scenario)


def test_a_group_that_reads_its_dead_letter_topic_has_no_letters_of_it() -> None:
    """They would come back to the group, and fail again without end."""

    async def scenario(cluster: SimCluster) -> None:
        ops = tuple(ConfigOp(name, value) for name, value in ENABLED.items())
        await submit(cluster, AlterConfigs((ConfigAlteration("topic", TOPIC, ops),)))
        await set_group_config(cluster, errors_deadletterqueue_topic_name=TOPIC)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await until_start(cluster, a, 3)
        assert len(letters(cluster, TOPIC)) == 5

    run_scenario(scenario, settings={"errors.deadletterqueue.topic.name.prefix": ""})


# -- the feature


async def set_level(cluster: SimCluster, level: int, kind: int) -> None:
    await submit(cluster, UpdateFeatures((FeatureUpdate(SHARE_VERSION, level, kind),)))


def test_there_are_no_letters_below_level_two() -> None:
    """Brokers of older releases would not go on with them. From the upgrade on there are."""

    async def scenario(cluster: SimCluster) -> None:
        await set_level(cluster, DEAD_LETTERS - 1, SAFE_DOWNGRADE)
        await have_letters(cluster)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await until_start(cluster, a, 3)
        await set_level(cluster, DEAD_LETTERS, UPGRADE)
        await reject(cluster, a)
        await until_letters(cluster, 3, 4, 5)

    run_scenario(scenario)


def test_letters_that_wait_are_given_up_at_a_downgrade() -> None:
    """Their records are archived, as a broker of an older release would take them for."""

    async def scenario(cluster: SimCluster) -> None:
        await set_group_config(cluster, errors_deadletterqueue_topic_name=LETTERS)
        (a,) = await start(cluster, "a")
        await reject(cluster, a)
        await asyncio.sleep(1.0)
        await set_level(cluster, DEAD_LETTERS - 1, SAFE_DOWNGRADE)
        await until_start(cluster, a, 3)

    run_scenario(scenario)


# -- leaders that move


@pytest.mark.parametrize("step", ["write_letters", "letters_written"])
def test_the_next_leader_goes_on_where_the_last_one_died(step: str) -> None:
    """Between the state and the topic, and between the topic and the state: each record has one letter."""

    async def scenario(cluster: SimCluster) -> None:
        await have_letters(cluster)
        (a,) = await start(cluster, "a")
        led = next(iter(share_partitions(cluster, a.leader)._led.values()))
        died = asyncio.Event()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(led, step, dying(getattr(led, step), cluster, a.leader, died))
            await reject(cluster, a)
            await died.wait()
        cluster.restart(a.leader)
        await cluster.until_ready()
        await cluster.until(cluster.all_in_sync, 60, "all are in sync")
        b = Member(cluster, "b")
        await b.join()
        b.find_leader()
        await b.fetch()
        await until_letters(cluster, 0, 1, 2)

    run_scenario(scenario)


def dying(
    call: Callable[[DeadLetters], Any], cluster: SimCluster, node_id: int, died: asyncio.Event
) -> Callable[[DeadLetters], Any]:
    """Return a call after which its node dies: of a method that is awaited, or is not."""

    def die(value: Any) -> Any:
        cluster.crash(node_id)
        died.set()
        return value

    async def after(value: Awaitable[None]) -> None:
        die(await value)
        await asyncio.Event().wait()

    def called(given: DeadLetters) -> Any:
        if call.__name__ == "letters_written":
            return die(None)
        return after(call(given))

    return called
