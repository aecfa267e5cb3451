"""The laws of a produced batch's records (Apache Kafka: LogValidator), and what a walk over them may cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from raftlog.records.batch import HEADER_BYTES, BatchHeader, Record, build_batch, new_record
from raftlog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from raftlog.records.header import validate_produced
from raftlog.records.raw_records import rebuild_batch
from raftlog.records.validation import (
    HEADERS_PER_PART,
    MAX_DECOMPRESSION_RATIO,
    MAX_RECORD_ERRORS,
    MAX_RECORDS,
    RECORDS_PER_STEP,
    NeedsStepwiseValidation,
    RecordRules,
    WalkRules,
    must_be_walked,
    validate_records,
    validate_small_batch,
)
from raftlog.records.varint import write_varint
from tests.records.forged_batches import with_deltas, with_payload

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LAWS = RecordRules.of(TopicConfig(), NOW_MS)
KEYED = RecordRules.of(TopicConfig(cleanup_policy=("compact",)), NOW_MS)
CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


def records(count: int, *, keyless: Sequence[int] = (), timestamp: int = NOW_MS) -> list[Record]:
    return [new_record(None if each in keyless else b"k", None, timestamp=timestamp) for each in range(count)]


def smallest(count: int) -> bytes:
    """The plain bytes of records without key, value or header."""
    plain = bytearray()
    for number in range(count):
        delta = bytearray()
        write_varint(delta, number)
        write_varint(plain, 5 + len(delta))
        plain += b"\0\0" + delta + b"\x01\x01\0"
    return bytes(plain)


def walked(batch: bytes, laws: RecordRules = LAWS) -> tuple[int, int]:
    """Walk a batch here and now; returns how many calls went away from the loop, and how often others had a turn."""
    calls = turns = 0
    steps = validate_records(header_of(batch), batch, laws)
    answer = None
    while True:
        try:
            call = steps.send(answer)
        except StopIteration:
            return calls, turns
        answer = None if call is None else call()
        calls, turns = calls + (call is not None), turns + (call is None)


def header_of(batch: bytes) -> BatchHeader:
    return validate_produced(batch, 1 << 30)


def checked(batch: bytes, laws: RecordRules = LAWS) -> None:
    """Check a small batch at once."""
    validate_small_batch(header_of(batch), batch, laws)


def is_walked(batch: bytes, **config: object) -> bool:
    """Say whether a leader with this topic config looks at the records."""
    return must_be_walked(header_of(batch), WalkRules.of(TopicConfig(**config)), NOW_MS)  # type: ignore[arg-type]


BASE = build_batch(records(1))


@pytest.mark.parametrize("count", [2**31 - 1, 2, 1_000])
def test_plain_bytes_hold_no_more_records_than_fit(count: int) -> None:
    """61 bytes that claim two thousand million records took that many offsets, and a segment of their own."""
    with pytest.raises(InvalidRecord, match=f"cannot hold {count} records"):
        header_of(with_payload(BASE, b"", count=count))


def test_the_smallest_records_fit() -> None:
    """Seven bytes are what a record has at least: without key, value and headers, and below number 64."""
    plain = smallest(64)
    assert len(plain) == 64 * 7
    assert header_of(with_payload(BASE, plain, count=64)).record_count == 64
    with pytest.raises(InvalidRecord):
        header_of(with_payload(BASE, plain, count=65))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_compressed_batch_has_as_many_records_as_it_claims(codec: int) -> None:
    """An honest count passes, in turns; a count that differs by 1 is refused."""
    packed = compress(codec, smallest(5_000))
    calls, turns = walked(with_payload(BASE, packed, codec=codec, count=5_000))
    assert calls >= 2 and turns >= 20
    for lie in (5_001, 4_999, 200_000):
        with pytest.raises(InvalidRecord):
            walked(with_payload(BASE, packed, codec=codec, count=lie))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_batch_that_claims_more_records_than_bytes_is_walked(codec: int) -> None:
    """And no other batch: compressed batches of ordinary producers cost what they did."""
    payload = compress(codec, smallest(100) * 50)
    assert is_walked(with_payload(BASE, payload, codec=codec, count=len(payload) + 1))
    assert not is_walked(with_payload(BASE, payload, codec=codec, count=len(payload)))
    lines = [new_record(None, b"line %d of a log" % each, timestamp=NOW_MS) for each in range(1_000)]
    assert not is_walked(build_batch(lines, codec=codec))


def test_a_header_of_an_honest_client_is_believed() -> None:
    """Timestamps of the last days, of clocks that are a little ahead, in any order: no batch is walked."""
    for newest in (NOW_MS, NOW_MS + 60_000, NOW_MS - 3 * DAY_MS):
        for base in (newest, newest - 30 * DAY_MS, 0):
            assert not is_walked(claimed(base, newest))
    assert not is_walked(claimed(NOW_MS - 900 * DAY_MS, NOW_MS - 800 * DAY_MS), retention_ms=-1)
    assert not is_walked(claimed(-1, 5), message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize(
    ("base", "newest"),
    [
        (NOW_MS, -1),
        (-1, 0),
        (-1, -1),
        (-5, NOW_MS),
        (NOW_MS, NOW_MS - 1),
        (NOW_MS, NOW_MS + 60_001),
        (NOW_MS, 2**63 - 1),
        (0, NOW_MS - 84 * HOUR_MS - 1),
        (0, 0),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_a_header_that_may_lie_by_much_is_walked(base: int, newest: int, codec: int) -> None:
    """Such as no honest client sends, far ahead, or so old that retention would take the batch soon."""
    assert is_walked(claimed(base, newest, codec=codec))


def test_records_are_walked_where_a_topic_bounds_their_times() -> None:
    """No header shows the smallest timestamp; compacted topics walk anyway, and the default bound is free."""
    honest = claimed(NOW_MS, NOW_MS)
    assert is_walked(honest, message_timestamp_before_max_ms=HOUR_MS)
    assert is_walked(honest, message_timestamp_after_max_ms=HOUR_MS - 1)
    assert is_walked(honest, cleanup_policy=("compact", "delete"))
    assert not is_walked(honest, message_timestamp_after_max_ms=HOUR_MS)
    assert not is_walked(
        honest, message_timestamp_before_max_ms=HOUR_MS, message_timestamp_type="LogAppendTime"
    )


@given(times=st.lists(st.integers(-1, NOW_MS), min_size=1, max_size=300), codec=st.sampled_from(CODECS))
def test_a_walk_finds_the_largest_timestamp(times: list[int], codec: int) -> None:
    """Wherever it is, at once and in turns."""
    batch = build_batch([new_record(b"k", b"v", timestamp=each) for each in times], codec=codec)
    header = header_of(batch)
    steps, answer = validate_records(header, batch, LAWS), None
    while True:
        try:
            call = steps.send(answer)
        except StopIteration as end:
            assert end.value == max(times)
            break
        answer = None if call is None else call()
    if len(times) <= RECORDS_PER_STEP:
        assert validate_small_batch(header, batch, LAWS) == max(times)


def claimed(base: int, newest: int, *, codec: int = NONE) -> bytes:
    """A batch with a header that claims these times."""
    header = header_of(build_batch(records(2), codec=codec))._replace(base_timestamp=base)
    payload = build_batch(records(2), codec=codec)[HEADER_BYTES:]
    return rebuild_batch(header, payload, count=2, newest_delta=newest - base, horizon_ms=None)


def test_a_claim_that_nothing_can_hold_is_refused_before_anything_is_decompressed() -> None:
    """A number is free to write, and must be free to refuse."""
    laws = LAWS._replace(max_decompressed_bytes=6_999)
    with pytest.raises(InvalidRecord, match="do not fit into 6999 uncompressed bytes"):
        next(validate_records(header_of(with_payload(BASE, b"x", codec=ZSTD, count=1_000)), b"", laws))
    with pytest.raises(MessageTooLarge, match="at most 1000000 records"):
        next(
            validate_records(
                header_of(with_payload(BASE, b"x", codec=ZSTD, count=MAX_RECORDS + 1)), b"", LAWS
            )
        )


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_given_up_at_its_limit_and_never_whole_in_memory(codec: int) -> None:
    """Records of 4 MB where 64 times max.message.bytes are 0.2 MB; clients may split what is too large."""
    laws = RecordRules.of(TopicConfig(max_message_bytes=3_125), NOW_MS)
    assert laws.max_decompressed_bytes == MAX_DECOMPRESSION_RATIO * 3_125
    plain = smallest(75_000) * 8
    batch = with_payload(BASE, compress(codec, plain), codec=codec, count=28_125)
    del plain
    tracemalloc.start()
    try:
        with pytest.raises((MessageTooLarge, InvalidRecord)):
            walked(batch, laws)
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()


def test_a_record_that_spans_many_pieces_is_read_whole() -> None:
    """Plain bytes come in pieces of 128 KiB; their ends are arbitrary."""
    sizes = [1, 131_000, 70, 400_000, 5]
    batch = build_batch([new_record(b"k", b"v" * size, timestamp=NOW_MS) for size in sizes], codec=ZSTD)
    walked(batch, KEYED)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=40))
def test_what_builders_build_passes(shapes: list[tuple[bool, int, int]]) -> None:
    """Keys, values and headers of any size, null values too, checked at once and walked alike."""
    made = [
        new_record(
            b"k" * size,
            b"v" * size if has_value else None,
            timestamp=NOW_MS - size,
            headers=(("name", b"h" * size), ("null", None)) * headers,
        )
        for has_value, size, headers in shapes
    ]
    for codec in (NONE, LZ4):
        batch = build_batch(made, codec=codec)
        checked(batch, KEYED)
        walked(batch, KEYED)


MALFORMED: dict[str, Callable[[bytes], bytes]] = {
    "a byte more": lambda plain: plain + b"\0",
    "a byte less": lambda plain: plain[:-1],
    "a record twice": lambda plain: plain + plain,
    "a length of nothing": lambda plain: b"\0" + plain,
    "a length that is negative": lambda plain: b"\x01" + plain,
    "a header that is missing": lambda plain: plain[:-1] + b"\x02",
    "a negative number of headers": lambda plain: plain[:-1] + b"\x01",
    "a number that is not 0": lambda plain: plain[:3] + b"\x02" + plain[4:],
    "a varint of seventy bits": lambda plain: b"\xff" * 9 + b"\x7f" + plain,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused_for_good(name: str) -> None:
    """INVALID_RECORD: CORRUPT_MESSAGE would have the client send the same bytes again."""
    plain = MALFORMED[name](BASE[HEADER_BYTES:])
    for look in (checked, walked):
        with pytest.raises(InvalidRecord):
            look(with_payload(BASE, plain, count=1))


@pytest.mark.parametrize("look", [checked, walked])
def test_all_records_without_a_key_are_named(look: Callable[[bytes, RecordRules], object]) -> None:
    """KIP-467: of 100 records ten are at fault, and each gets its reason."""
    keyless = [*range(0, 100, 10)]
    with pytest.raises(InvalidRecord) as caught:
        look(build_batch(records(100, keyless=keyless)), KEYED)
    assert [number for number, _ in caught.value.record_errors] == keyless
    assert {reason for _, reason in caught.value.record_errors} == {
        "the record has no key, which a compacted topic needs"
    }


def test_an_answer_names_no_more_records_than_its_limit() -> None:
    """A megabyte of records without keys must not be answered with ten."""
    with pytest.raises(InvalidRecord, match="5000 of 5000") as caught:
        walked(build_batch(records(5_000, keyless=range(5_000))), KEYED)
    assert len(caught.value.record_errors) == MAX_RECORD_ERRORS


@pytest.mark.parametrize(
    ("timestamp", "error"),
    [
        (NOW_MS + HOUR_MS, None),
        (NOW_MS + HOUR_MS + 1, InvalidTimestamp),
        (NOW_MS - 5_000, None),
        (NOW_MS - 5_001, InvalidTimestamp),
        (-1, None),
        (2**63 - 1, InvalidTimestamp),
        (2**63 + 5, InvalidTimestamp),
        (-(2**62), InvalidTimestamp),
    ],
)
def test_each_records_timestamp_is_judged(timestamp: int, error: type[KafkaError] | None) -> None:
    """A delta can lead beyond 64 bits, where no header leads. -1 means that there is no timestamp."""
    config = TopicConfig(
        cleanup_policy=("compact",),
        message_timestamp_before_max_ms=5_000,
        message_timestamp_after_max_ms=HOUR_MS,
    )
    batch = with_deltas((timestamp - NOW_MS, 0), timestamp=NOW_MS)
    laws = RecordRules.of(config, NOW_MS)
    if error is None:
        checked(batch, laws)
        return
    with pytest.raises(error) as caught:
        checked(batch, laws)
    assert [number for number, _ in caught.value.record_errors] == [0]


def test_the_brokers_own_time_is_not_judged() -> None:
    """Under LogAppendTime the producer's value is unused, but it must be a timestamp."""
    config = TopicConfig(cleanup_policy=("compact",), message_timestamp_type="LogAppendTime")
    checked(build_batch(records(1, timestamp=2**62)), RecordRules.of(config, NOW_MS))


@pytest.mark.parametrize("claimed", [RECORDS_PER_STEP - 1, RECORDS_PER_STEP])
@pytest.mark.parametrize("codec", CODECS)
def test_a_small_batch_has_no_more_records_than_it_claims(codec: int, claimed: int) -> None:
    """As many as are looked at in one go, too: a record behind them would keep a topic from being compacted."""
    honest = build_batch(records(claimed), codec=codec)
    validate_small_batch(header_of(honest), honest, KEYED)
    lying = rebuild_batch(
        header_of(honest),
        compress(codec, smallest(claimed + 1)),
        count=claimed,
        newest_delta=0,
        horizon_ms=None,
    )
    with pytest.raises(
        InvalidRecord, match=f"record {claimed} is beyond the record count of the batch header"
    ):
        validate_small_batch(header_of(lying), lying, LAWS)


def test_what_would_take_long_is_not_checked_at_once() -> None:
    """Many records, many bytes, or few bytes that turn out to be many."""
    for batch in (
        build_batch(records(201)),
        build_batch([new_record(b"k", b"v" * 200_000, timestamp=NOW_MS)]),
        build_batch([new_record(b"k", b"v" * 200_000, timestamp=NOW_MS)], codec=ZSTD),
    ):
        with pytest.raises(NeedsStepwiseValidation):
            checked(batch, KEYED)
        walked(batch, KEYED)


def test_a_record_of_very_many_headers_takes_many_steps() -> None:
    """16 MB of them, which compress to 16 KB, took the event loop for seconds."""
    heavy = new_record(b"k", b"v", timestamp=NOW_MS, headers=(("", None),) * 40_000)
    batch = build_batch([heavy, *records(1)], codec=ZSTD)
    _, turns = walked(batch)
    assert turns >= 40_000 // (RECORDS_PER_STEP * HEADERS_PER_PART)
    with pytest.raises(NeedsStepwiseValidation):
        validate_small_batch(header_of(batch), batch, LAWS)
