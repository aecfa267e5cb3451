"""Batches turned into columns equal `iter_records`, record by record, and every malformed batch is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage, KafkaError
from raftlog.pipeline.offsets import Range, TopicPartition
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    Record,
    build_batch,
    build_end_marker,
    iter_records,
    new_record,
    read_header,
    stamp_max_timestamp,
)
from raftlog.records.header import TRANSACTIONAL_BIT
from tests.kit.examples import examples

if TYPE_CHECKING:
    from raftlog.pipeline.record_columns import Batch

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
AT = TopicPartition("t", 3)
FIELDS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=2).map(tuple)
RECORDS = st.lists(
    st.builds(new_record, FIELDS, FIELDS, timestamp=st.integers(-1, 2**42), headers=HEADERS),
    min_size=1,
    max_size=100,
)


@pytest.fixture(autouse=True)
def _arrow() -> None:
    pytest.importorskip("pyarrow", reason="pip install raftlog[spark]")


def batch_of(whole: bytes) -> Batch:
    from raftlog.pipeline.record_columns import Batch

    return Batch.at(memoryview(whole), 0, read_header(whole))


def rows_of(batches: list[Batch], wanted: Range, *names: str) -> list[tuple[Any, ...]]:
    import pyarrow as pa

    from raftlog.pipeline.columns import arrow_schema
    from raftlog.pipeline.record_columns import to_arrow

    schema = arrow_schema(include_headers=False)
    found = to_arrow(batches, wanted, pa.schema([schema.field(name) for name in names or schema.names]))
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in found.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def rows_by_iteration(batches: list[bytes], wanted: Range) -> list[tuple[Any, ...]]:
    return [
        (
            r.key,
            r.value,
            AT.topic,
            AT.partition,
            r.offset,
            r.timestamp * 1_000,
            int(read_header(b).is_log_append_time),
        )
        for b in batches
        for r in iter_records(b)
        if wanted.start <= r.offset < wanted.end
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(RECORDS, st.integers(0, 4), st.integers(0, 50)), min_size=1, max_size=4), st.data())
def test_columns_are_those_of_the_records(
    parts: list[tuple[list[Record], int, int]], data: st.DataObject
) -> None:
    """All codecs, several batches, gaps between them, ranges that cut them."""
    batches, offset = [], 0
    for records, codec, gap in parts:
        offset += gap
        batches.append(build_batch(records, base_offset=offset, codec=codec))
        offset += len(records)
    start = data.draw(st.integers(0, offset))
    wanted = Range(AT, start, data.draw(st.integers(start, offset + 5)))
    assert rows_of([batch_of(b) for b in batches], wanted) == rows_by_iteration(batches, wanted)
    counted = rows_of([batch_of(b) for b in batches], wanted, "partition", "topic")
    assert counted == [(AT.partition, AT.topic)] * len(rows_by_iteration(batches, wanted))


def test_log_append_time_is_the_time_of_all_records_of_a_batch() -> None:
    """KIP-32; another batch beside it keeps its own times."""
    plain = build_batch([new_record(None, b"a", timestamp=5), new_record(None, b"b", timestamp=7)])
    header = stamp_max_timestamp(
        read_header(plain), plain, base_offset=2, leader_epoch=0, max_timestamp=99, is_append_time=True
    )
    batches = [plain, header + plain[len(header) :]]
    wanted = Range(AT, 0, 9)
    rows = rows_of([batch_of(b) for b in batches], wanted)
    assert rows == rows_by_iteration(batches, wanted)
    assert [row[5:] for row in rows] == [(5_000, 0), (7_000, 0), (99_000, 1), (99_000, 1)]


@settings(max_examples=examples(300), deadline=None)
@given(RECORDS, st.data())
def test_bytes_that_are_wrong_give_a_kafka_error_or_rows(records: list[Record], data: st.DataObject) -> None:
    """A hostile or broken node can't make the decoder read elsewhere, fail otherwise or go on for ever."""
    whole = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(57, len(whole) - 1))] = data.draw(st.integers(0, 255))
    header = read_header(bytes(whole))
    try:
        rows = rows_of([batch_of(bytes(whole))], Range(AT, -(2**63), 2**63 - 1), "key", "value", "offset")
    except KafkaError:
        return
    assert len(rows) == header.record_count


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (60, 1),  # one record more than there is
        (60, -1),
        (61, 2),  # a longer first record
        (61, -16),  # a record without a length
        (66, 6),  # its value reaches into the second record
        (66, 120),  # and beyond the end
        (75, 2),  # the second record's value has the place of its headers
        (75, 53),  # a value with no possible length
    ],
)
def test_records_that_do_not_fit_their_batch_are_refused(place: int, change: int) -> None:
    """Two records of nine bytes each, with one number that lies."""
    from raftlog.pipeline.record_columns import read_fields

    whole = bytearray(build_batch([new_record(None, value, timestamp=0) for value in (b"aa", b"bb")]))
    assert [whole[at] for at in (61, 66, 70, 75)] == [16, 4, 16, 4]
    assert len(read_fields([batch_of(bytes(whole))]).offsets) == 2
    whole[place] = (whole[place] + change) % 256
    with pytest.raises(KafkaError):
        read_fields([batch_of(bytes(whole))])


def test_a_count_larger_than_the_offsets_is_refused() -> None:
    """A read of the topic's name alone reads headers alone: none may fill the memory of a worker."""
    from raftlog.pipeline.record_columns import Batch

    whole = build_batch([new_record(b"k", b"v", timestamp=1)])
    header = read_header(whole)._replace(record_count=1_000_000_000)
    with pytest.raises(CorruptMessage, match="offset 0 "):
        rows_of([Batch.at(memoryview(whole), 0, header)], Range(AT, 0, 10), "topic")


def test_a_record_that_leads_backwards_is_refused() -> None:
    """A length of -2^31 would make the search for records go round in a circle."""
    from raftlog.pipeline.record_columns import read_fields

    whole = bytearray(build_batch([new_record(None, b"a" * 40, timestamp=0)]))
    whole[61:66] = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptMessage):
        read_fields([batch_of(bytes(whole))])


PROGRAM = """
import sys
from raftlog.pipeline.columns import arrow_schema
from raftlog.pipeline.offsets import Range, TopicPartition
from raftlog.pipeline.record_columns import Batch, to_arrow
from raftlog.records.batch import build_batch, new_record, read_header
whole = build_batch([new_record(None, b"a", timestamp=5)])
batch = Batch.at(memoryview(whole), 0, read_header(whole))
rows = to_arrow([batch], Range(TopicPartition("t", 0), 0, 1), arrow_schema(include_headers=False))
assert rows.num_rows == 1
print([name for name in ("pandas", "confluent_kafka") if name in sys.modules])
"""


def test_a_worker_reads_without_pandas() -> None:
    """Half a second of each new worker process of Spark would go into importing it (`pa.array` does)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_markers_and_aborted_transactions_are_invisible() -> None:
    """A producer's aborted transaction ends at its marker; the next of the same producer counts (KIP-98)."""
    from raftlog.pipeline.leader_fetch import visible_batches

    def sent(producer_id: int, offset: int, *, transactional: bool = True) -> bytes:
        return build_batch(
            [new_record(None, b"x", timestamp=0)],
            base_offset=offset,
            producer=ProducerIdAndSequence(producer_id, 0, 0),
            attributes=TRANSACTIONAL_BIT if transactional else 0,
        )

    def marker(producer_id: int, offset: int, *, commit: bool) -> bytes:
        whole = build_end_marker(producer_id, 0, marker=EndTransactionMarker(commit, 0))
        return offset.to_bytes(8, "big") + whole[8:]

    log = [
        sent(1, 0),
        sent(2, 1),
        sent(1, 2, transactional=False),
        marker(1, 3, commit=False),
        sent(1, 4),
        marker(2, 5, commit=True),
        marker(1, 6, commit=True),
        sent(3, 7),
        marker(3, 8, commit=False),
    ]
    batches = [batch_of(each) for each in log]

    def offsets(aborted: list[tuple[int, int]]) -> list[int]:
        return [each.header.base_offset for each in visible_batches(batches, aborted)]

    assert offsets([(3, 7), (1, 0)]) == [1, 2, 4]
    assert offsets([]) == [0, 1, 2, 4, 7], "read_uncommitted"
