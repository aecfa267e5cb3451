"""Offsets as JSON, limits per trigger and the sharing of ranges among tasks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.pipeline.offsets import (
    EndBeforeStart,
    Range,
    TopicPartition,
    assigned_from_json,
    from_json,
    limited,
    ranges_of,
    split,
    to_json,
    waiting,
)

TOPIC_PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20))
OFFSETS = st.dictionaries(TOPIC_PARTITIONS, st.integers(0, 10_000), min_size=1)


def at(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def test_json_is_that_of_sparks_kafka_source():
    """A checkpoint's offsets can be read by people and given as startingOffsets."""
    offsets = {at(10): 1, at(2): 5, at(0, "a"): 0}
    assert json.dumps(to_json(offsets)) == '{"a": {"0": 0}, "t": {"2": 5, "10": 1}}'
    assert from_json('{"t":{"0":23,"1":-2}}') == {at(0): 23, at(1): -2}


@given(OFFSETS)
def test_json_gives_back_what_it_was_made_of(offsets: dict[TopicPartition, int]):
    """A checkpoint keeps a position exactly."""
    assert from_json(json.dumps(to_json(offsets))) == offsets


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "not a JSON object"),
        ('{"t":5}', 'topic "t" must have an object of partitions'),
        ('{"t":{"x":5}}', '"x" is not a partition number'),
        ('{"t":{"0":-3}}', "t-0: -3"),
        ('{"t":{"0":"5"}}', "t-0: '5'"),
        ('{"t":{"0":true}}', "t-0: True"),
    ],
)
def test_json_that_is_no_offsets_is_refused_with_the_place(text: str, what: str):
    """The message says which topic, which partition, what is wrong."""
    with pytest.raises(ValueError, match=what):
        from_json(text)


@pytest.mark.parametrize("text", ['{"t":{"0":1}}', '{"t":[]}', '{"t":["0"]}', '{"t":[-1]}', "t"])
def test_an_assignment_that_is_none_is_refused(text: str):
    """Only lists of partition numbers by topic are accepted."""
    with pytest.raises(ValueError, match=r"topic|JSON"):
        assigned_from_json(text)


def test_a_limit_is_shared_in_proportion_to_what_is_there():
    """As maxOffsetsPerTrigger of Spark's Kafka source."""
    start, end = {at(0): 0, at(1): 100}, {at(0): 300, at(1): 200}
    assert limited(start, end, 100) == {at(0): 75, at(1): 125}
    assert limited(start, end, 400) == end


@given(OFFSETS, st.data())
def test_with_a_limit_a_stream_gets_to_the_end_and_never_beyond(
    end: dict[TopicPartition, int], data: st.DataObject
):
    """Every trigger takes the limit if there is as much, at least one offset if any exist, and at most one extra offset
    per partition.
    """
    start = {tp: data.draw(st.integers(0, offset)) for tp, offset in end.items()}
    most = data.draw(st.integers(1, 20_000))
    taken = limited(start, end, most)
    assert all(start[tp] <= taken[tp] <= end[tp] for tp in end)
    assert min(most, waiting(start, end)) <= waiting(start, taken) <= most + len(end)
    assert taken == end or all(taken[tp] > start[tp] for tp in end if end[tp] > start[tp])


def test_a_partition_that_went_backwards_is_left_alone_by_limits():
    """Its loss is reported when the batch is planned, not hidden by arithmetic."""
    assert limited({at(0): 50, at(1): 0}, {at(0): 10, at(1): 1_000}, 100) == {at(0): 10, at(1): 100}


def test_a_start_beyond_the_end_is_an_error_and_no_empty_range():
    """Spark's Kafka source refuses it too (SPARK-52096): a mistake must not look like a partition without records."""
    with pytest.raises(EndBeforeStart):
        ranges_of({at(0): 4, at(1): 0}, {at(0): 2, at(1): 5})
    assert ranges_of({at(0): 4, at(1): 0}, {at(0): 4, at(1): 5}) == [Range(at(1), 0, 5)]


@given(OFFSETS, st.data())
def test_split_ranges_cover_each_offset_once_and_in_order(
    end: dict[TopicPartition, int], data: st.DataObject
):
    """No offset is read twice or left out, whatever minPartitions and maxRecordsPerPartition are."""
    start = {tp: data.draw(st.integers(0, offset)) for tp, offset in end.items()}
    whole = ranges_of(start, end)
    least = data.draw(st.none() | st.integers(1, 40))
    most = data.draw(st.none() | st.integers(50, 5_000))
    parts = split(whole, least=least, most_records=most)
    for each in whole:
        own = [part for part in parts if part.at == each.at]
        assert own[0].start == each.start and own[-1].end == each.end
        assert all(a.end == b.start for a, b in pairwise(own))
    assert all(part.size > 0 and (most is None or part.size <= most) for part in parts)
    if least is not None:
        assert len(parts) >= min(least, sum(each.size for each in whole))


def test_large_ranges_are_split_further_than_small_ones():
    """Tasks of about the same size."""
    parts = split([Range(at(0), 0, 900), Range(at(1), 0, 100)], least=5)
    assert [part.size for part in parts if part.at == at(0)] == [225] * 4
    assert [part.size for part in parts if part.at == at(1)] == [100]


def test_nothing_to_read_is_split_into_nothing():
    """minPartitions cannot be met where there is no record."""
    assert split([], least=4) == []
