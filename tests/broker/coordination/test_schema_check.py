"""The check of produced records by schemas: each wrong record is named, and `_schemas` is read only when needed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from raftlog.base.compiled import crc32c
from raftlog.base.config import TopicConfig
from raftlog.base.errors import InvalidRecord, LeaderNotAvailable, NotEnoughReplicas
from raftlog.base.memory import Account
from raftlog.broker.coordination import schema_check
from raftlog.broker.coordination.schema_check import SchemaCheck
from raftlog.broker.coordination.schema_log import SchemaLog
from raftlog.broker.coordination.schema_reader import SchemaReader
from raftlog.records.batch import CRC_START, build_batch, new_record
from raftlog.records.varint import write_varint
from raftlog.schemas.produced import MOST_ERRORS
from raftlog.schemas.records import SchemaRemoved, SchemaWritten, StoreRecord, encode
from raftlog.schemas.schema import Schema
from tests.broker.coordination.group_broker import BROKER
from tests.broker.coordination.test_schema_log import SchemaBroker, committed, play

CHECKED = TopicConfig(confluent_value_schema_validation=True)
BY_RECORD = TopicConfig(
    confluent_value_schema_validation=True,
    confluent_value_subject_name_strategy="io.confluent.kafka.serializers.subject.RecordNameStrategy",
)
PARSED = TopicConfig(confluent_value_schema_validation=True, schema_payload_validation=True)


def batch(*values: bytes | None) -> memoryview:
    return memoryview(build_batch([new_record(b"k", each, timestamp=0) for each in values]))


class FakeClient:
    """The sender of a batch, which leaves after some slices of its check (`Client`)."""

    def __init__(self, leaves_after: int = 1_000) -> None:
        self.left = leaves_after
        self.slices = 0

    @property
    def is_open(self) -> bool:
        return self.slices < self.left

    def record_thread_time(self, seconds: float) -> None:
        self.slices += 1


async def checked(
    check: SchemaCheck, config: TopicConfig, records: memoryview, client: FakeClient | None = None
) -> None:
    memory = Account("batches", 1 << 20)
    try:
        await check.check("t", config, records, 0, memory=memory, client=client or FakeClient())
    finally:
        assert memory.used == 0
        assert memory.most >= len(records)


def framed(schema_id: int, payload: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


async def write(log: SchemaLog, *records: StoreRecord) -> None:
    at = log.bounds().log_end_offset
    encoded = tuple(encode(each) for each in records)
    await committed(log, log.append(encoded, at=at, leader_epoch=log.bounds().leader_epoch, now_ms=1))


def long(subject: str, version: int, schema_id: int, text: str = '"long"') -> SchemaWritten:
    return SchemaWritten(subject, version, schema_id, Schema("AVRO", text))


async def errors_of(check: SchemaCheck, config: TopicConfig, *values: bytes | None) -> Any:
    with pytest.raises(InvalidRecord) as caught:
        await checked(check, config, batch(*values))
    return caught.value.record_errors


def test_each_wrong_record_is_named() -> None:
    """KIP-467: its index in the batch, and the reason."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1), long("other-value", 1, 2, '"int"'))
        await checked(check, CHECKED, batch(framed(1), None, framed(1)))
        found = await errors_of(check, CHECKED, framed(1), b"plain", None, framed(9), framed(2))
        assert [index for index, _ in found] == [1, 3, 4]
        assert [text.partition(",")[0] for _, text in found] == [
            "the value has no schema id",
            "the value has the schema id 9",
            "the value has the schema id 2",
        ]
        found = await errors_of(check, CHECKED, *[b"plain"] * (MOST_ERRORS + 5))
        assert len(found) == MOST_ERRORS

    play(scenario)


def test_a_new_schema_and_a_new_subject_are_looked_up() -> None:
    """An id that is known under another subject is read again: the registration may have come since."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("other-value", 1, 1))
        await errors_of(check, CHECKED, framed(1))
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))
        await write(log, long("t-value", 2, 2, '"int"'))
        await checked(check, CHECKED, batch(framed(2)))

    play(scenario)


def test_avro_data_is_parsed_where_the_topic_says_so() -> None:
    """After the ids."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, PARSED, batch(framed(1, b"\x02")))
        await checked(check, CHECKED, batch(framed(1, b"")))
        ((index, reason),) = await errors_of(check, PARSED, framed(1, b"\x02"), framed(1, b""))
        assert index == 1
        assert reason == "the value is no data of its schema: the data is cut off"

    play(scenario)


def test_schemas_that_cannot_be_read_are_a_retriable_error() -> None:
    """No broker leads `_schemas`: the client sends the batch again."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        node.publish(leader=-1)
        waiting = [asyncio.ensure_future(checked(check, CHECKED, batch(framed(1)))) for _ in range(3)]
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, LeaderNotAvailable)
        assert await errors_of(check, CHECKED, b"plain"), "no schema makes this record right"

    play(scenario)


def test_without_a_registry_all_records_are_refused_and_the_reason_says_so() -> None:
    """The cluster has no topic `_schemas`: no node has a schema registry, or nothing was registered yet."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        node.image = node.image.__class__()
        ((_, reason),) = await errors_of(SchemaCheck(node.broker), CHECKED, framed(1))
        assert "there is no topic _schemas" in reason

    play(scenario)


def test_a_new_leader_that_does_not_know_the_end_refuses_no_record_for_good() -> None:
    """KIP-207: its predecessor may have answered a registration that lies beyond its high watermark."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        node.partition_host.flushes = False
        record = (encode(long("t-value", 1, 1)),)
        end_offset = log.append(record, at=0, leader_epoch=log.bounds().leader_epoch, now_ms=1)
        node.publish(leader=1)
        with pytest.raises(LeaderNotAvailable):
            await checked(check, CHECKED, batch(framed(1)))
        node.partition_host.flushes = True
        node.partition_host.flush(node.replicas.partitions[0])
        await committed(log, end_offset)
        await checked(check, CHECKED, batch(framed(1)))

    play(scenario)


def test_an_interrupted_reading_has_not_read() -> None:
    """The client that waited for it has gone: another batch reads anew."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        gone = asyncio.ensure_future(checked(check, CHECKED, batch(framed(1))))
        await asyncio.sleep(0)
        stays = asyncio.ensure_future(checked(check, CHECKED, batch(framed(1))))
        while not check._reader._reading.locked():
            await asyncio.sleep(0)
        gone.cancel()
        try:
            await stays
        except LeaderNotAvailable:
            await checked(check, CHECKED, batch(framed(1)))

    play(scenario)


def test_a_topic_that_was_made_anew_is_read_anew() -> None:
    """Ids of the former registry mean nothing."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))
        check._reader._topic_id = UUID(int=99)
        check._reader._loaded_from = (UUID(int=99), 0)
        check._reader.state.apply(long("t-value", 2, 7), b"old")
        await errors_of(check, CHECKED, framed(8))
        await errors_of(check, CHECKED, framed(7))
        await checked(check, CHECKED, batch(framed(1)))

    play(scenario)


def test_a_reading_whose_end_the_log_start_passes_goes_on_to_the_new_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator writes the schemas again, and deletes all records before them, between two requests of a reader."""
    read = SchemaReader._read

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check, trims = SchemaCheck(node.broker), 0
        await write(log, long("t-value", 1, 1), long("t-value", 2, 2, '"int"'))

        async def read_later(reader: SchemaReader, leader: int) -> bytes:
            nonlocal trims
            if not trims:
                trims = log.bounds().log_end_offset
                await write(log, long("t-value", 1, 1))
                node.replicas.partitions[0].delete_records(trims)
            return await read(reader, leader)

        monkeypatch.setattr(SchemaReader, "_read", read_later)
        await checked(check, CHECKED, batch(framed(1)))
        await errors_of(check, CHECKED, framed(2))
        assert trims == log.bounds().log_start_offset == 2

    play(scenario)


def test_a_record_with_an_unreadable_header_does_not_end_the_reading() -> None:
    """Clients with the right may write to the topic, and headers of its records mean nothing."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        foreign = build_batch([new_record(b"k", b"v", timestamp=1, headers=(("name", b""),))])
        broken = bytearray(foreign.replace(b"name", b"\xff\xfe\xff\xfe"))
        broken[CRC_START - 4 : CRC_START] = crc32c(broken[CRC_START:]).to_bytes(4, "big")
        node.replicas.partitions[0].append_produced(memoryview(bytes(broken)), acks=-1, now_ms=1)
        await committed(log, 1)
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))

    play(scenario)


LONGS = '{"type":"array","items":"long"}'


def many_longs(count: int) -> bytes:
    """An array, framed by the id 1."""
    out = bytearray()
    write_varint(out, count)
    return framed(1, bytes(out) + b"\x02" * count + b"\0")


def test_batches_of_two_clients_are_checked_in_turns() -> None:
    """A small batch waits for one slice of a large one, not for its end."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1, LONGS))
        await checked(check, PARSED, batch(many_longs(1)))
        large, small = FakeClient(), FakeClient()
        working = asyncio.ensure_future(checked(check, PARSED, batch(many_longs(50_000)), large))
        while large.slices < 5:
            await asyncio.sleep(0)
        await checked(check, PARSED, batch(many_longs(1)), small)
        assert large.slices < 5 + 2 * small.slices + 2
        await working
        assert large.slices > 50

    play(scenario)


def test_the_check_ends_with_its_client() -> None:
    """Between two slices: a client may send a batch that takes seconds, and close."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1, LONGS))
        client = FakeClient(leaves_after=7)
        with pytest.raises(ConnectionAbortedError):
            await checked(check, PARSED, batch(many_longs(50_000)), client)
        assert client.slices == 7

    play(scenario)


def test_names_of_records_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time: Protobuf takes 25 µs for each character."""
    named = []

    def names_of(schema: Schema) -> frozenset[str]:
        named.append(schema.text)
        assert check._naming.locked()
        return frozenset({"R"})

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        nonlocal check
        check = SchemaCheck(node.broker)
        await write(log, long("R", 1, 1), long("R", 2, 2, '"int"'))
        for _ in range(3):
            await checked(check, BY_RECORD, batch(framed(1), framed(2)))

    check: Any = None
    monkeypatch.setattr(schema_check, "names_of", names_of)
    play(scenario)
    assert named == ['"long"', '"int"']


def test_without_memory_a_batch_is_sent_again() -> None:
    """NOT_ENOUGH_REPLICAS, as for batches that cannot be kept."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        memory = Account("batches", 100)
        memory.acquire(100)
        with pytest.raises(NotEnoughReplicas):
            await SchemaCheck(node.broker).check("t", CHECKED, batch(framed(1)), 0, memory=memory)
        assert memory.used == 100

    play(scenario)


def test_the_schemas_of_a_batch_have_a_limited_number_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed they take fifty times as much memory, which counts."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1), long("t-value", 2, 2, '"int"'))
        records = batch(framed(1, b"\x02"), framed(2, b"\x02"))
        await checked(check, PARSED, records)
        monkeypatch.setattr(schema_check, "MAX_SCHEMA_CHARS", 10)
        with pytest.raises(InvalidRecord, match="11 characters, and at most 10"):
            await checked(check, PARSED, records)


class OtherReplica:
    """Links to broker 2, which says who leads `_schemas`."""

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        self.led = SimpleNamespace(leader_id=leader_id, leader_epoch=leader_epoch)
        self.asked: list[int] = []

    async def ask(self, broker_id: int, *_: Any, **__: Any) -> Any:
        self.asked.append(broker_id)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[self.led])])


def test_a_leader_that_was_replaced_refuses_no_record_for_good() -> None:
    """It was paused, and its metadata is of before: its successor, a live replica, knows better."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        second = structs.replace(BROKER, broker_id=2)
        node.image = structs.replace(node.image, brokers={1: BROKER, 2: second})
        node.broker.links = later = OtherReplica(2, node.leader_epoch + 1)  # type: ignore[assignment]
        with pytest.raises(LeaderNotAvailable):
            await checked(check, CHECKED, batch(framed(9)))
        node.broker.links = same = OtherReplica(1, node.leader_epoch)  # type: ignore[assignment]
        await errors_of(check, CHECKED, framed(9))
        await checked(check, CHECKED, batch(framed(1)))
        assert later.asked == same.asked == [2]

    play(scenario)


def test_records_with_old_ids_wait_for_a_topic_that_was_made_anew() -> None:
    """Its id 1 may be another schema; nothing is accepted by the former one."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1, '"string"'))
        check._reader.state.apply(long("t-value", 1, 1), b"old")
        check._reader._topic_id = UUID(int=99)
        check._reader._loaded_from = (UUID(int=99), 0)
        await checked(check, PARSED, batch(framed(1, b"\x02a")))
        await errors_of(check, PARSED, framed(1, b"\x02"))

    play(scenario)


def test_data_is_refused_only_by_what_the_registry_has_now() -> None:
    """The same id may be of another schema since: it was deleted, and imported anew."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, PARSED, batch(framed(1, b"\x02")))
        await write(log, SchemaRemoved("t-value", 1), long("t-value", 1, 1, '"string"'))
        await checked(check, PARSED, batch(framed(1, b"\x02a")))

    play(scenario)


def test_what_was_deleted_counts_for_a_minute() -> None:
    """Permanent deletion reaches a broker that meets no unknown id."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))
        await write(log, SchemaRemoved("t-value", 1))
        await checked(check, CHECKED, batch(framed(1)))
        await node.pass_time(61)
        await errors_of(check, CHECKED, framed(1))

    play(scenario)


def test_known_ids_are_accepted_while_the_registry_cannot_be_read() -> None:
    """Though it is time to read on."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))
        node.publish(leader=-1)
        await node.pass_time(61)
        await checked(check, CHECKED, batch(framed(1)))

    play(scenario)


def test_a_log_start_beyond_what_was_read_is_where_the_reading_goes_on() -> None:
    """DeleteRecords, or cleanup.policy=compact,delete: the broker must learn new schemas all the same."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))
        await write(log, long("t-value", 2, 2, '"int"'))
        await write(log, long("t-value", 3, 3, '"float"'))
        node.replicas.partitions[0].log.advance_log_start(2)
        await checked(check, CHECKED, batch(framed(3)))
        await errors_of(check, CHECKED, framed(1))

    play(scenario)


def test_a_new_leader_is_read_from_the_start() -> None:
    """It may lack what its predecessor had, and have other records at the same offsets: an unclean election."""

    async def scenario(node: SchemaBroker, log: SchemaLog) -> None:
        check = SchemaCheck(node.broker)
        await write(log, long("t-value", 1, 1))
        await checked(check, CHECKED, batch(framed(1)))
        check._reader.state.apply(long("t-value", 2, 7), b"lost")
        await errors_of(check, CHECKED, framed(8))
        await checked(check, CHECKED, batch(framed(7)))
        node.publish(leader=1)
        await errors_of(check, CHECKED, framed(8))
        await errors_of(check, CHECKED, framed(7))

    play(scenario)
