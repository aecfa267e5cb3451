"""Fetch of one partition: the same bytes as kio's, and whatever has another layout is left to the general codecs."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raftlog.protocol import single_fetch
from raftlog.protocol.fetch import FetchedPartition, FetchPartition, encode_fetch_response
from raftlog.protocol.schema import message_type
from tests.protocol.kio_messages import kio_decode
from tests.protocol.test_fetch import fields_of, kio_response

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HEAD = st.tuples(st.integers(0, 10**6), I32, I32, st.integers(0, 1), I32, I32)
PARTITION = st.builds(FetchPartition, I32, I32, I64, I32, I64, I32)
REPLICA = st.tuples(st.integers(0, 99), I64)
RECORDS = st.sampled_from([0, 1, 125, 126, 127, 128, 129, 2_000]).map(bytes)
BODY_AT = 22
"""Behind length, header and the client id "raftlog"."""


def request(
    head: tuple[int, ...], topic: UUID, partition: FetchPartition, replica: tuple[int, int]
) -> bytearray:
    asked = (head, topic.bytes, partition, replica)
    return bytearray(single_fetch.pack_request(17, 5, b"raftlog", asked=asked))


@given(head=HEAD, topic=st.uuids(), partition=PARTITION, replica=REPLICA)
def test_a_request_is_what_kio_reads(
    head: tuple[int, ...], topic: UUID, partition: FetchPartition, replica: tuple[int, int]
) -> None:
    """One partition of a session (KIP-227), with the replica's state as a tagged field (KIP-903)."""
    frame = request(head, topic, partition, replica)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    read = fields_of(kio_decode(message_type(1, 17, "request"), bytes(frame[BODY_AT:])))
    names = ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch")
    assert tuple(read[name] for name in names) == head
    assert read["topics"] == [(topic, [partition])]
    assert (read["replica_id"], read["replica_epoch"]) == replica
    assert single_fetch.unpack_request(memoryview(frame), BODY_AT) == (
        *(head, topic.bytes, tuple(partition), replica),
    )


@given(at=st.integers(BODY_AT, 130), value=st.integers(0, 255))
def test_a_request_of_another_layout_is_not_read(at: int, value: int) -> None:
    """With one byte changed it returns what kio reads, or None."""
    frame = request((500, 1, 1 << 20, 0, 7, 8), UUID(int=9), FetchPartition(1, 2, 3, 4, 5, 6), (2, 11))
    frame[at % len(frame)] = value
    found = single_fetch.unpack_request(memoryview(frame), BODY_AT)
    if found is not None:
        read = fields_of(kio_decode(message_type(1, 17, "request"), bytes(frame[BODY_AT:])))
        assert read["topics"] == [(UUID(bytes=found[1]), [FetchPartition(*found[2])])]
        assert (read["replica_id"], read["replica_epoch"]) == found[3]
        assert (read["forgotten"], read["rack_id"]) == ([], "")


@given(topic=st.uuids(), fields=st.tuples(I32, I64, I64, I64, I32), records=RECORDS)
def test_a_response_is_what_kio_writes(topic: UUID, fields: tuple[int, ...], records: bytes) -> None:
    """With lengths of records of one byte and two bytes."""
    index, high_watermark, stable, start, preferred = fields
    result = FetchedPartition(index, 0, high_watermark, stable, start, records, None, preferred)
    frame = single_fetch.pack_response(7, 70, 5, topic=topic.bytes, result=result)
    assert frame is not None and bytes(frame) == kio_response(17, [(topic, [result])], [])
    read = single_fetch.unpack_response(memoryview(frame)[4:])
    assert read is not None
    assert read[:4] == (7, 70, 5, topic.bytes)
    assert (*read[4][:5], bytes(read[4][5]), *read[4][6:]) == result


def test_only_an_answer_of_one_partition_and_nothing_rare_is_read() -> None:
    """Null records, a diverging epoch, a second partition and a cut are for the general decoder."""
    plain = FetchedPartition(1, 0, 2, 3, 4, b"records")
    rare = (
        [plain, plain],
        [plain._replace(records=None)],
        [plain._replace(leader=(1, 2))],
        [plain._replace(aborted=())],
    )
    for results in rare:
        frame = b"".join(encode_fetch_response(17, 7, [(UUID(int=1), results)]))
        assert single_fetch.unpack_response(memoryview(frame)[4:]) is None
    frame = b"".join(encode_fetch_response(17, 7, [(UUID(int=1), [plain])]))
    assert single_fetch.unpack_response(memoryview(frame)[4:]) is not None
    for end in range(4, len(frame)):
        assert single_fetch.unpack_response(memoryview(frame)[4:end]) is None
