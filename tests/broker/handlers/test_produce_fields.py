"""A client lies in each field of Produce and of record batches: what the broker answers, and what the log then holds.

The fields are the rows of docs/pages/explanation/batches.md. Frames are raw, the partition and its log are real.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import InvalidRecord
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from raftlog.broker.coordination.transaction_verification import TransactionVerifier
from raftlog.metadata.image import PartitionState
from raftlog.records.batch import ProducerIdAndSequence, build_batch, iter_records, new_record
from raftlog.records.compression import GZIP
from raftlog.records.header import BatchHeader, check_crc, iter_headers
from raftlog.replication.partition import Partition
from raftlog.storage.log import Log
from raftlog_chaos.attacks.produces import altered, record, with_payload
from raftlog_chaos.simulator.disk import SimDisk
from tests.broker.fakes import TOPIC, TOPIC_ID, FakePartitionServer, produce
from tests.replication.replica_cluster import NOW_MS, FakeHost, registrations

PAGE = Path(__file__).parents[3] / "docs/pages/explanation/batches.md"
VERSION = 9

NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC = 0, 2, 3
INVALID_TOPIC, INVALID_ACKS, INVALID_TIMESTAMP, OUT_OF_ORDER, INVALID_EPOCH = 17, 21, 32, 45, 47
INVALID_REQUEST, NOT_AUTHORIZED_FOR_ID, UNSUPPORTED_CODEC, INVALID_RECORD, UNKNOWN_TOPIC_ID = (
    42,
    53,
    76,
    87,
    100,
)

COMPACTED = {"cleanup_policy": ("compact",)}
BOUNDED = {"message_timestamp_before_max_ms": 3_600_000}
DAY_MS = 86_400_000

Stored = Callable[[BatchHeader], bool]


class Lie(NamedTuple):
    """One invalid field: the frame, the response, and the header in the log, if the batch is appended."""

    field: str
    name: str
    frame: bytes
    code: int
    stored: Stored | None = None
    config: dict[str, Any] = {}


def of(*times: int, producer: tuple[int, int, int] = (-1, -1, -1), codec: int = 0) -> bytes:
    """A right batch of records with these timestamps."""
    records = [new_record(b"k", b"v", timestamp=each) for each in times or (NOW_MS,)]
    return build_batch(records, producer=ProducerIdAndSequence(*producer), codec=codec)


GOOD = of()
TWO = of(NOW_MS - 5, NOW_MS)


def header(field: str, name: str, code: int, stored: Stored | None = None, **fields: int) -> Lie:
    """A lie in the header of a batch of two records; its CRC holds."""
    return Lie(field, name, produce(1, (0, altered(TWO, **fields))), code, stored)


def batch(
    field: str, name: str, records: bytes | None, code: int, stored: Stored | None = None, **config: Any
) -> Lie:
    return Lie(field, name, produce(1, (0, records)), code, stored, config)


def is_true(found: BatchHeader) -> bool:
    """The largest timestamp is that of the records of TWO."""
    return found.max_timestamp == NOW_MS


def kept(**fields: int) -> Stored:
    return lambda found: all(getattr(found, name) == value for name, value in fields.items())


def of_now(lying: bytes) -> bytes:
    return altered(lying, base_timestamp=NOW_MS, max_timestamp=NOW_MS)


def record_lie(field: str, name: str, payload: bytes, count: int = 1) -> list[Lie]:
    """Refused where records are walked; elsewhere believed, which the table says."""
    lying = of_now(with_payload(payload, count))
    return [
        batch(field, f"{name}, walked", lying, INVALID_RECORD, **COMPACTED),
        batch(field, f"{name}, not walked", lying, NONE, kept(record_count=count)),
    ]


OLD_SECOND = altered(of(NOW_MS, NOW_MS - DAY_MS), max_timestamp=NOW_MS)

LIES: list[Lie] = [
    header("base_offset", "any", INVALID_RECORD, base_offset=77),
    header("batch_length", "less", CORRUPT_MESSAGE, length=len(TWO) - 20),
    header("batch_length", "more", INVALID_RECORD, length=len(TWO) + 20),
    header("batch_length", "negative", CORRUPT_MESSAGE, length=-1),
    header("partition_leader_epoch", "of the future", NONE, kept(leader_epoch=0), leader_epoch=2**31 - 1),
    header("magic", "1", INVALID_RECORD, magic=1),
    header("crc", "wrong", CORRUPT_MESSAGE, crc=1),
    header("attributes: codec", "unknown", UNSUPPORTED_CODEC, attributes=5),
    batch(
        "attributes: codec", "another, walked", altered(GOOD, attributes=GZIP), INVALID_RECORD, **COMPACTED
    ),
    header("attributes: codec", "another, not walked", NONE, kept(attributes=GZIP), attributes=GZIP),
    header("attributes: timestamp type", "set", INVALID_TIMESTAMP, attributes=0x08),
    header("attributes: transactional", "without an id", NOT_AUTHORIZED_FOR_ID, attributes=0x10),
    header("attributes: control", "set", INVALID_RECORD, attributes=0x20),
    header("attributes: delete horizon", "set", INVALID_RECORD, attributes=0x40),
    header("attributes: unused bits", "set", NONE, kept(attributes=0x7F80), attributes=0x7F80),
    header("last_offset_delta", "more", INVALID_RECORD, last_offset_delta=2),
    header("last_offset_delta", "negative", INVALID_RECORD, last_offset_delta=-1),
    header(
        "base_timestamp",
        "-1",
        NONE,
        lambda found: (found.base_timestamp, found.max_timestamp) == (-1, 4),
        base_timestamp=-1,
    ),
    header("max_timestamp", "-1, as Sarama before 1.45.1", NONE, is_true, max_timestamp=-1),
    header("max_timestamp", "0", NONE, is_true, max_timestamp=0),
    header("max_timestamp", "below the base", NONE, is_true, max_timestamp=NOW_MS - 6),
    header("max_timestamp", "in an hour and more", NONE, is_true, max_timestamp=NOW_MS + DAY_MS),
    header("max_timestamp", "in two minutes", NONE, is_true, max_timestamp=NOW_MS + 120_000),
    header("max_timestamp", "of the year 292278994", NONE, is_true, max_timestamp=2**63 - 1),
    batch(
        "max_timestamp",
        "old while a record is fresh, as KafkaJS sends it",
        altered(of(NOW_MS - 4 * DAY_MS, NOW_MS, NOW_MS - 4 * DAY_MS), max_timestamp=NOW_MS - 4 * DAY_MS),
        NONE,
        is_true,
    ),
    batch(
        "max_timestamp",
        "0 for no timestamp, as librdkafka sends it",
        altered(of(-1), max_timestamp=0),
        NONE,
        kept(max_timestamp=-1),
    ),
    batch(
        "max_timestamp",
        "compressed",
        altered(of(NOW_MS - 5, NOW_MS, codec=GZIP), max_timestamp=-1),
        NONE,
        is_true,
    ),
    header(
        "max_timestamp",
        "a minute ahead: believed",
        NONE,
        kept(max_timestamp=NOW_MS + 60_000),
        max_timestamp=NOW_MS + 60_000,
    ),
    batch(
        "max_timestamp",
        "any under LogAppendTime",
        altered(TWO, max_timestamp=5, base_timestamp=-1),
        NONE,
        lambda found: found.max_timestamp == NOW_MS and found.is_log_append_time,
        message_timestamp_type="LogAppendTime",
    ),
    header("producer_id", "below -1", NONE, kept(producer_id=-7), producer_id=-7),
    header("producer_id", "none, with a sequence", NONE, kept(base_sequence=5), base_sequence=5),
    batch("producer_epoch", "of before", of(producer=(5, 0, 1)), INVALID_EPOCH),
    batch("base_sequence", "none", of(producer=(5, 1, -1)), INVALID_RECORD),
    batch("base_sequence", "after a gap", of(producer=(5, 1, 7)), OUT_OF_ORDER),
    header("records_count", "0", INVALID_RECORD, record_count=0),
    header("records_count", "another than the offsets say", INVALID_RECORD, record_count=3),
    header(
        "records_count", "more than fit", INVALID_RECORD, record_count=2**31 - 1, last_offset_delta=2**31 - 2
    ),
    *record_lie("records_count", "one more than there are", record(rest=b"\x0evvvvvvv\0"), 2),
    *record_lie("record: length", "longer than the contents", b"\x40" + record()[1:] + bytes(24)),
    batch(
        "record: attributes",
        "set",
        of_now(with_payload(record()[:1] + b"\x7f" + record()[2:])),
        NONE,
        None,
        **COMPACTED,
    ),
    batch("record: timestamp_delta", "a day back", OLD_SECOND, INVALID_TIMESTAMP, **BOUNDED),
    batch("record: timestamp_delta", "a day back, not bounded", OLD_SECOND, NONE, is_true),
    batch(
        "record: timestamp_delta",
        "a day ahead",
        altered(of(NOW_MS, NOW_MS + DAY_MS), max_timestamp=NOW_MS),
        INVALID_TIMESTAMP,
        message_timestamp_after_max_ms=60_000,
    ),
    batch(
        "record: timestamp_delta",
        "a day ahead under the default: believed",
        altered(of(NOW_MS, NOW_MS + DAY_MS), max_timestamp=NOW_MS),
        NONE,
        is_true,
    ),
    *record_lie("record: offset_delta", "5", record(offset_delta=5)),
    *record_lie("record: key length", "longer than the record", record().replace(b"\2k", b"\x20k")),
    batch("record: key length", "none", with_payload(record(key=None)), INVALID_RECORD, **COMPACTED),
    *record_lie("record: value length", "longer than the record", record(rest=b"\x20v\0")),
    *record_lie("record: headers", "more than fit", record(rest=b"\2v\x20")),
    *record_lie("record: headers", "without a name", record(rest=b"\2v\2\1\0")),
    Lie("transactional_id", "empty", produce(1, (0, GOOD), transactional_id=""), INVALID_REQUEST),
    Lie("acks", "2", produce(1, (0, GOOD), acks=2), INVALID_ACKS),
    Lie("acks", "-2", produce(1, (0, GOOD), acks=-2), INVALID_ACKS),
    Lie("timeout_ms", "negative", produce(1, (0, GOOD), timeout_ms=-(2**31)), NONE, kept(record_count=1)),
    Lie("topic name", "unknown", produce(1, (0, GOOD), topic="other"), UNKNOWN_TOPIC),
    Lie("topic name", "internal", produce(1, (0, GOOD), topic=CONSUMER_OFFSETS_TOPIC), UNKNOWN_TOPIC),
    Lie("topic id", "unknown", produce(1, (0, GOOD), version=13, topic=UUID(int=99)), UNKNOWN_TOPIC_ID),
    Lie("partition index", "unknown", produce(1, (44, GOOD)), UNKNOWN_TOPIC),
    Lie("partition index", "negative", produce(1, (-1, GOOD)), UNKNOWN_TOPIC),
    Lie(
        "partition index",
        "twice",
        produce(1, (0, GOOD), (0, GOOD), acks=-1),
        INVALID_RECORD,
        kept(record_count=1),
    ),
    batch("records: null", "null", None, INVALID_RECORD),
    batch("records: empty", "empty", b"", INVALID_RECORD),
    batch("records: several batches", "two", GOOD + GOOD, INVALID_RECORD),
]


def lead(config: dict[str, Any]) -> Partition:
    """A partition that this broker leads alone, with one batch of producer 5 in epoch 1."""
    log = Log.open(
        SimDisk(0),
        f"/data/{TOPIC}-0",
        config=TopicConfig(**config),
        recovery_point=0,
        clean=False,
        topic_id=TOPIC_ID,
        now_ms=NOW_MS,
    )
    host = FakeHost(1, registrations([1]))
    partition = Partition(TopicPartition(TOPIC, 0), TOPIC_ID, log=log, host=host)
    partition.reconcile(PartitionState((1,), (1,), 1, 0))
    partition.append_produced(memoryview(of(producer=(5, 1, 0))), acks=1, now_ms=NOW_MS)
    return partition


def serve(partition: Partition) -> FakePartitionServer:
    fake = FakePartitionServer(partition)  # type: ignore[arg-type]
    fake.broker.env.wall_clock_ms = lambda: NOW_MS
    fake.broker.verifier = TransactionVerifier(fake.broker)
    return fake


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: f"{lie.field}: {lie.name}")
async def test_a_lie_is_refused_or_put_right(lie: Lie) -> None:
    """The answer has the field's error, or the log has what is true; what is stored has a CRC that holds."""
    partition = lead(lie.config)
    fake = serve(partition)
    pipe = fake.connect()
    pipe.send(lie.frame)
    while fake.server.tasks:  # it is walked in turns
        fake.offload.run()
        await asyncio.sleep(0)
    partition.note_flushed(partition.log_end_offset)
    version = struct.unpack_from(">h", lie.frame, 6)[0]
    codes = [
        each.error_code for topic in pipe.answer(0, version).responses for each in topic.partition_responses
    ]
    assert codes[-1] == lie.code
    stored = partition.log.read(0, 1 << 20, end_offset=partition.log_end_offset)
    assert stored is not None
    found = [*iter_headers(stored)][1:]
    for position, header in found:
        check_crc(stored, position, header)
    if lie.stored is None:
        assert lie.code == NONE or not found
    else:
        ((_, header),) = found
        assert lie.stored(header)


def test_every_row_of_the_table_is_lied_about() -> None:
    """A field without a test could be believed by mistake."""
    tables = re.findall(r"^\| field \|.*\n(?:\|.*\n)+", PAGE.read_text(), re.MULTILINE)
    rows = re.findall(r"^\| (?!field)([^|]+?) \|", "".join(tables), re.MULTILINE)
    assert len(rows) == len(set(rows)) > 30
    assert set(rows) == {lie.field for lie in LIES}


async def test_each_record_at_fault_is_named_with_its_time() -> None:
    """`record_errors` of the response (KIP-467): the index in the batch, the record's own time, the limits' name."""
    partition = lead(BOUNDED)
    pipe = serve(partition).connect()
    pipe.send(produce(1, (0, OLD_SECOND)))
    (topic,) = pipe.answer(0, VERSION).responses
    (answer,) = topic.partition_responses
    assert answer.error_code == INVALID_TIMESTAMP
    (fault,) = answer.record_errors
    assert fault.batch_index == 1
    limits = (
        f"timestamp {NOW_MS - DAY_MS} is out of range, which is {NOW_MS - 3_600_000} to {NOW_MS + 3_600_000}"
    )
    assert fault.batch_index_error_message == f"{limits} (message.timestamp.before.max.ms)"
    assert "record 1:" in answer.error_message


async def test_a_corrected_batch_reads_back_as_it_was_sent() -> None:
    """Only the header changes: records, their times and what follows in the log are as they were."""
    partition = lead({})
    partition.log.advance_log_start(partition.log_end_offset)
    sent = altered(of(NOW_MS - 5, NOW_MS, NOW_MS - 3, codec=GZIP), max_timestamp=-1)
    appended = partition.append_produced(memoryview(sent), acks=1, now_ms=NOW_MS)
    stored = partition.log.read(appended.base_offset, 1 << 20, end_offset=partition.log_end_offset)
    assert stored is not None
    assert [each.timestamp for each in iter_records(stored)] == [NOW_MS - 5, NOW_MS, NOW_MS - 3]
    assert partition.log.max_timestamp() == (appended.base_offset + 1, NOW_MS, 0)


def test_a_transaction_needs_a_producer_id() -> None:
    """Its coordinator could not find its producer; the request's transactional id is checked before."""
    partition = lead({})
    with pytest.raises(InvalidRecord):
        partition.append_produced(memoryview(altered(TWO, attributes=0x10)), acks=1, now_ms=NOW_MS)
