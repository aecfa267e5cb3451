"""The hand-written client's end of Produce says what the schema says."""

from __future__ import annotations

import pytest

from raftlog.base.errors import InvalidRequest
from raftlog.protocol.codec import RequestHeader, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.produce import ProducedPartition, encode_produce_response
from raftlog_chaos.workloads.produce_frames import VERSION, Answer, decode_produced, encode_produce

LENGTH_BYTES = 4


@pytest.mark.parametrize("size", [61, 126, 127, 128, 20_000])
def test_requests_equal_those_of_the_schema(size: int) -> None:
    """Byte by byte, whatever the lengths take."""
    make = request_builders(0, VERSION)
    batch = bytes(size)
    data = make.PartitionProduceData(index=3, records=batch)
    message = make.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=1500,
        topic_data=(make.TopicProduceData(name="log7", partition_data=(data,)),),
    )
    expected = encode_request(RequestHeader(0, VERSION, 42, "client-1"), message)
    assert encode_produce(42, "client-1", ("log7", 3), batch, acks=-1, timeout_ms=1500) == expected


@pytest.mark.parametrize(
    "produced", [ProducedPartition(3, 0, 77, -1, 5), ProducedPartition(3, 19, error_message="too few")]
)
def test_responses_are_understood(produced: ProducedPartition) -> None:
    """As the broker encodes them."""
    frame = encode_produce_response(VERSION, 42, [("log7", [produced])])
    answer = decode_produced(memoryview(frame)[LENGTH_BYTES:])
    assert answer == Answer(produced.error_code, produced.base_offset)


def test_a_response_that_is_cut_off_is_an_error() -> None:
    """Not an IndexError deep inside."""
    frame = encode_produce_response(VERSION, 42, [("log7", [ProducedPartition(3, 0, 77)])])
    with pytest.raises(InvalidRequest):
        decode_produced(memoryview(frame)[LENGTH_BYTES:20])
