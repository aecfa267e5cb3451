"""Claims about reading the metrics that clients push: what is right is read, what is wrong costs little."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import InvalidRecord
from raftlog.protocol.otlp import FIELDS_AT_ONCE, MAX_ATTRIBUTES, MAX_FIELDS, DataPoint, MetricsReader
from tests.protocol.otlp_bytes import field, fixed, gauge, histogram, metrics_data, point, total, varint


def read_with(reader: MetricsReader) -> list[tuple[tuple[tuple[str, str], ...], DataPoint]]:
    return [each for each in reader.points() if each is not None]


def read(encoded: bytes) -> list[tuple[tuple[tuple[str, str], ...], DataPoint]]:
    return read_with(MetricsReader(encoded))


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    """As OpenTelemetry's metrics.proto has them; numbers are doubles or ints of 64 bits."""
    encoded = metrics_data(
        gauge("a.rate", point(0.5, node_id="1"), point(-3, node_id="2")),
        total("a.total", point(7, topic="t")),
        total("b", point(2), delta=True),
        total("c", point(1), grows=False),
        group_id="g",
    )
    group = (("group_id", "g"),)
    assert read(encoded) == [
        (group, DataPoint("a.rate", "gauge", False, (("node_id", "1"),), 0.5)),
        (group, DataPoint("a.rate", "gauge", False, (("node_id", "2"),), -3)),
        (group, DataPoint("a.total", "counter", False, (("topic", "t"),), 7)),
        (group, DataPoint("b", "counter", True, (), 2)),
        (group, DataPoint("c", "gauge", False, (), 1)),
    ]


def test_attributes_that_are_numbers_or_truths_are_texts() -> None:
    """Kafka's clients send a node's id as an int."""
    values = {"i": field(3, 2**64 - 5), "b": field(2, 1), "d": fixed(4, 1.5), "list": field(5, b"")}
    named = b"".join(field(7, field(1, name.encode()) + field(2, each)) for name, each in values.items())
    ((_, found),) = read(metrics_data(gauge("a", fixed(4, 1.0) + named)))
    assert found.attributes == (("i", "-5"), ("b", "true"), ("d", "1.5"))


def test_what_is_no_number_is_no_point() -> None:
    """The Java client sends a rate without events as NaN."""
    assert read(metrics_data(gauge("a", point(math.nan), point(math.inf), b""))) == []


def test_histograms_are_counted_and_passed_over() -> None:
    """No Kafka client sends them."""
    reader = MetricsReader(metrics_data(histogram("h"), gauge("a", point(1))))
    assert [each.name for _, each in read_with(reader)] == ["a"]
    assert reader.skipped == 1


@pytest.mark.parametrize(
    "encoded",
    [
        field(1, b"abc")[:-1],
        b"\x80",
        b"\xff" * 11,
        varint(1 << 3 | 3),
        field(1, 5),
        field(1, field(2, field(2, field(5, field(1, varint(4 << 3 | 5) + b"abcd"))))),
        metrics_data(gauge("a", point(1)))[:-3],
    ],
)
def test_malformed_metrics_are_refused(encoded: bytes) -> None:
    """A field that is cut off, a group, a number where a message belongs."""
    with pytest.raises(InvalidRecord):
        read(encoded)


def test_a_push_is_read_up_to_so_many_fields() -> None:
    """However deep or flat they are: the time that reading takes is bounded, and what came first is kept."""
    first = field(2, gauge("a", point(1)))
    many = {f"a{number}": "v" for number in range(MAX_FIELDS)}
    for rest in (field(9, 1) * MAX_FIELDS, field(2, gauge("b", point(1, **many)))):
        reader = MetricsReader(field(1, field(2, first)) + field(1, field(2, rest)))
        assert [each.name for _, each in read_with(reader)] == ["a"]
        assert reader.skipped == 1


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_nothing_but_a_refusal_is_raised(encoded: bytes) -> None:
    """A client sends what it likes."""
    _read_or_refuse(encoded)


@given(st.data())
def test_metrics_of_which_a_byte_changed_are_read_or_refused(data: st.DataObject) -> None:
    """Closer to what is right than chance alone comes."""
    encoded = bytearray(metrics_data(gauge("a", point(0.5, x="y")), total("b", point(1)), group_id="g"))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    _read_or_refuse(bytes(encoded))


def _read_or_refuse(encoded: bytes) -> None:
    try:
        read(encoded)
    except InvalidRecord:
        pass


@pytest.mark.parametrize(
    "encode",
    [
        lambda: metrics_data(gauge("a", *(point(1, x="y") for _ in range(1_500)))),
        lambda: metrics_data(total("a", *(point(1, x="y") for _ in range(1_500)))),
        lambda: metrics_data(*(gauge("a", b"") for _ in range(5_000))),
        lambda: field(1, field(2, field(9, 1) * 20_000)),
        lambda: field(1, field(9, b"x") * 20_000),
        lambda: field(9, b"x") * 20_000,
        lambda: metrics_data(gauge("a", point(1, **{f"a{number}": "v" for number in range(5_000)}))),
        lambda: metrics_data(gauge("a", *(fixed(3, 7) * 20_000,))),
    ],
)
def test_reading_pauses_after_so_many_fields_however_they_are_nested(encode: Callable[[], bytes]) -> None:
    """A push of any shape lets other work go on, since reading it may take longer than one turn of a loop."""
    reader = MetricsReader(encode())
    last = longest = 0
    for each in reader.points():
        if each is None:
            longest, last = max(longest, reader.fields_read - last), reader.fields_read
    longest = max(longest, reader.fields_read - last)
    assert reader.fields_read > 5_000
    assert longest <= FIELDS_AT_ONCE + 4 * MAX_ATTRIBUTES
