"""Bad input on the wire of live nodes: the right error, or the connection closed; no other client is disturbed.

After each test a canary on the same node still produces, and no node has grown or died.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import psutil
import pytest

from raftlog.records.batch import build_batch, new_record
from raftlog.records.compression import GZIP, LZ4, compress
from raftlog.records.header import CRC_START
from raftlog.testing.cluster import Cluster
from tests.clients.nodes import events
from tests.clients.raw_client import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    ConnectionClosed,
    RawClient,
    Reader,
    frame,
    produce_body,
    produced,
    string,
    view_topic,
)
from tests.clients.stock import ClientRefused
from tests.clients.with_confluent import Confluent
from tests.kit.waits import until
from tests.records.forged_batches import claiming, with_payload

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
INVALID_REPLICATION_FACTOR = 38
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87

REQUEST_MAX_BYTES = 104_857_600
GROWTH_MAX_BYTES = 64 << 20
NO_TAGS = b"\0"
"""The end of a flexible request's header."""
TLS_HELLO = bytes.fromhex("16030100c4010000c00303") + bytes(range(185))
ONE = build_batch([new_record(b"key", b"value", timestamp=1_700_000_000_000)])
TWO = build_batch([new_record(None, b"value", timestamp=1_700_000_000_000)] * 2)


def rewritten(batch: bytes, position: int, value: bytes, *, honest: bool = True) -> bytes:
    """Return a batch with other bytes at a position; `honest`: with a CRC that says so."""
    from crc32c import crc32c

    changed = bytearray(batch)
    changed[position : position + len(value)] = value
    if honest:
        changed[CRC_START - 4 : CRC_START] = struct.pack(">I", crc32c(bytes(changed[CRC_START:])))
    return bytes(changed)


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> tuple[str, str]:
    """A topic of one partition that takes batches of 1,000 bytes, and the address of its leader."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic("bad-input", 1, 3, max_message_bytes="1000")
    client.close()
    view = view_topic(cluster.nodes[1].address, "bad-input")
    assert view is not None
    return "bad-input", cluster.nodes[view[0].leader].address


@pytest.fixture(autouse=True)
def canary(cluster: Cluster, home: tuple[str, str]) -> Iterator[None]:
    """The same processes serve the same partition, and hold no more memory than before."""
    topic, address = home
    processes = [psutil.Process(node.pid) for node in cluster.nodes.values()]
    before = [process.memory_info().rss for process in processes]
    with RawClient(address) as bystander:
        _, first = produced(bystander.ask(PRODUCE, 3, produce_body(topic, ONE)))
        yield
        code, offset = produced(bystander.ask(PRODUCE, 3, produce_body(topic, ONE)))
    assert code == 0
    assert offset > first
    for process, rss in zip(processes, before, strict=True):
        assert process.memory_info().rss < rss + GROWTH_MAX_BYTES


FOREIGN = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a HTTP POST": b"POST /topics HTTP/1.1\r\n\r\n",
    "a TLS hello": TLS_HELLO,
    "a negative length": struct.pack(">i", -1),
    "a length of zero": struct.pack(">i", 0),
    "a length over socket.request.max.bytes": struct.pack(">i", REQUEST_MAX_BYTES + 1),
    "an unknown API": frame(1234, 0),
    "a negative API": frame(-5, 0),
    "a header that is cut off": struct.pack(">i", 3) + b"\0\x03\0",
    "a client id longer than its frame": struct.pack(">ihhih", 12, METADATA, 1, 7, 500) + b"xx",
    "a body that is cut off": frame(METADATA, 1, struct.pack(">i", 5) + string("one")),
    "an array longer than its frame": frame(METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "an array of negative length": frame(METADATA, 1, struct.pack(">i", -2)),
    "a string that is no UTF-8": frame(METADATA, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "a produce request that is cut off": frame(PRODUCE, 3, produce_body("bad-input", ONE)[:-9]),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_no_request_closes_its_connection(home: tuple[str, str], what: str) -> None:
    """Framing is lost or the API unknown: closed without an answer, at once."""
    with RawClient(home[1]) as wire:
        wire.send(FOREIGN[what])
        assert wire.is_closed()


def test_the_log_says_what_knocked_at_the_wrong_door(cluster: Cluster, home: tuple[str, str]) -> None:
    """A browser or a TLS client on a PLAINTEXT port is a common mistake, and its reason is in the node's log."""
    for what in ("an HTTP request", "a TLS hello"):
        with RawClient(home[1]) as wire:
            wire.send(FOREIGN[what])
            assert wire.is_closed()

    def reasons() -> set[str]:
        logged = [event for node_id in cluster.nodes for event in events(cluster, node_id)]
        return {str(event["reason"]) for event in logged if event["event"] == "framing_lost"}

    for name in ("HTTP", "TLS"):
        until(lambda name=name: any(name in each for each in reasons()), f"{name} is named", seen=reasons)


def test_a_frame_that_never_ends_is_let_go_with_its_connection(home: tuple[str, str]) -> None:
    """Half a frame and then silence; memory follows the received bytes, not the announced size."""
    wires = [RawClient(home[1]) for _ in range(40)]
    for wire in wires:
        wire.send(struct.pack(">i", REQUEST_MAX_BYTES) + frame(METADATA, 1)[4:])
    wires[0].finish()
    assert wires[0].is_closed()
    with RawClient(home[1]) as other:
        assert other.ask(METADATA, 1, struct.pack(">i", 0)).int32() == 3
    for wire in wires:
        wire.__exit__(None, None, None)


def test_answers_before_a_bad_frame_still_arrive(home: tuple[str, str]) -> None:
    """A good request and garbage behind it, in one segment: the answer, then the end."""
    with RawClient(home[1]) as wire:
        wire.send(frame(METADATA, 1, struct.pack(">i", 0)) + b"GET / HTTP/1.1\r\n\r\n")
        assert wire.receive()
        assert wire.is_closed()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(home: tuple[str, str]) -> None:
    """A v0 body with error 35 and this API's versions, so that newer clients find common ground (KIP-511)."""
    with RawClient(home[1]) as wire:
        answer = wire.ask(API_VERSIONS, 99, NO_TAGS)
        assert answer.int16() == UNSUPPORTED_VERSION
        ranges = {answer.int16(): (answer.int16(), answer.int16()) for _ in range(answer.int32())}
        assert ranges == {API_VERSIONS: (0, 5)}
        assert wire.ask(METADATA, 1, struct.pack(">i", 0)).int32() == 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_versions_are_advertised_but_refused(home: tuple[str, str], version: int) -> None:
    """Older librdkafka wants to see Produce v0; a client that uses it gets UNSUPPORTED_VERSION (KAFKA-18659)."""
    body = produce_body(home[0], ONE)[2:]  # without a transactional id
    with RawClient(home[1]) as wire:
        assert produced(wire.ask(PRODUCE, version, body))[0] == UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("api_key", "version"), [(METADATA, 99), (FETCH, 3), (PRODUCE, 14), (10, 50), (19, 1), (52, 0)]
)
def test_an_unsupported_version_is_refused_or_closes(
    home: tuple[str, str], api_key: int, version: int
) -> None:
    """UNSUPPORTED_VERSION where the API has a place for it, else the connection closes. Vote (52) is not built."""
    with RawClient(home[1]) as wire:
        wire.send(frame(api_key, version, bytes(40)))
        try:
            answer = wire.receive()
        except ConnectionClosed:
            return
    assert struct.pack(">h", UNSUPPORTED_VERSION) in answer


LIES = {
    "a CRC that does not hold": (rewritten(ONE, len(ONE) - 3, b"X", honest=False), CORRUPT_MESSAGE),
    "a record count that lies": (rewritten(TWO, 57, struct.pack(">i", 3)), INVALID_RECORD),
    "a negative record count": (rewritten(ONE, 57, struct.pack(">i", -1)), INVALID_RECORD),
    "a last offset delta that lies": (rewritten(TWO, 23, struct.pack(">i", 2**31 - 1)), INVALID_RECORD),
    "two batches": (ONE + ONE, INVALID_RECORD),
    "no batch": (b"", INVALID_RECORD),
    "null": (None, INVALID_RECORD),
    "half a batch": (ONE[:-10], INVALID_RECORD),
    "a batch length that lies": (rewritten(ONE, 8, struct.pack(">i", 2**31 - 1)), INVALID_RECORD),
    "a control batch": (rewritten(ONE, 22, b"\x20"), INVALID_RECORD),
    "an unknown codec": (rewritten(ONE, 22, b"\x07"), UNSUPPORTED_COMPRESSION_TYPE),
    "the broker's time type": (rewritten(ONE, 22, b"\x08"), INVALID_TIMESTAMP),
    "message format 1": (rewritten(ONE, 16, b"\x01", honest=False), INVALID_RECORD),
    "61 bytes that claim every offset": (claiming(2**31 - 1, timestamp=1), INVALID_RECORD),
    "a delete horizon": (rewritten(ONE, 22, b"\x40"), INVALID_RECORD),
    "one compressed record that claims to be 5,000": (
        with_payload(ONE, compress(LZ4, ONE[61:]), codec=LZ4, count=5_000),
        INVALID_RECORD,
    ),
    "one compressed record that claims to be 2,000,000,000": (
        with_payload(ONE, compress(GZIP, ONE[61:]), codec=GZIP, count=2 * 10**9),
        MESSAGE_TOO_LARGE,
    ),
    "a record of half a megabyte in a few hundred bytes": (
        with_payload(ONE, compress(GZIP, b"\xc0\x84\x3d" * 200_000), codec=GZIP, count=990),
        MESSAGE_TOO_LARGE,
    ),
    "a batch over max.message.bytes": (
        build_batch([new_record(None, bytes(1000), timestamp=1)]),
        MESSAGE_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused_and_the_connection_goes_on(home: tuple[str, str], lie: str) -> None:
    """The partition's own error code; the next batch on the same connection is taken."""
    records, expected = LIES[lie]
    topic, address = home
    with RawClient(address) as wire:
        assert produced(wire.ask(PRODUCE, 3, produce_body(topic, records)))[0] == expected
        assert produced(wire.ask(PRODUCE, 3, produce_body(topic, ONE)))[0] == 0


def test_a_batch_that_lies_leaves_no_trace_in_the_log(cluster: Cluster, home: tuple[str, str]) -> None:
    """A refused record takes no offset and is never served."""
    topic, address = home
    with RawClient(address) as wire:
        _, before = produced(wire.ask(PRODUCE, 3, produce_body(topic, ONE)))
        for records, _ in LIES.values():
            wire.ask(PRODUCE, 3, produce_body(topic, records))
        _, after = produced(wire.ask(PRODUCE, 3, produce_body(topic, ONE)))
    assert after == before + 1


def test_without_acknowledgement_a_refused_batch_closes_the_connection(home: tuple[str, str]) -> None:
    """acks=0: closing is the only sign that such a producer can see."""
    topic, address = home
    with RawClient(address) as wire:
        wire.send(frame(PRODUCE, 3, produce_body(topic, LIES["two batches"][0], acks=0)))
        assert wire.is_closed()


def test_other_mistakes_of_a_produce_request_have_their_codes(home: tuple[str, str]) -> None:
    """INVALID_REQUIRED_ACKS, UNKNOWN_TOPIC_OR_PARTITION for a partition, a topic, and a name that cannot be."""
    topic, address = home
    with RawClient(address) as wire:
        assert produced(wire.ask(PRODUCE, 3, produce_body(topic, ONE, acks=5)))[0] == INVALID_REQUIRED_ACKS
        for name, partition in ((topic, 99), (topic, -1), ("not-there", 0), ("not/legal", 0), ("", 0)):
            body = produce_body(name, ONE, partition=partition)
            assert produced(wire.ask(PRODUCE, 3, body))[0] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["has space", "sla/sh", "ünïcode", "..", "x" * 250, "colon:"])
def test_an_illegal_topic_name_is_refused_with_the_rule(cluster: Cluster, name: str) -> None:
    """INVALID_TOPIC_EXCEPTION, and a message from which one learns what is allowed."""
    client = Confluent(cluster.bootstrap_servers)
    with pytest.raises(ClientRefused) as refused:
        client.create_topic(name, 1, 1)
    client.close()
    assert refused.value.code == INVALID_TOPIC
    assert any(hint in refused.value.message for hint in ("only", "at most 249", "cannot be"))


def test_an_illegal_topic_name_is_not_created_by_asking_for_it(home: tuple[str, str]) -> None:
    """Metadata with auto-creation: INVALID_TOPIC_EXCEPTION."""
    with RawClient(home[1]) as wire:
        answer = wire.ask(METADATA, 4, struct.pack(">i", 1) + string("not legal") + b"\x01")
    tail = struct.pack(">h", INVALID_TOPIC) + string("not legal")
    assert tail in answer.data


def test_more_replicas_than_brokers_are_refused(cluster: Cluster, topic: str) -> None:
    """INVALID_REPLICATION_FACTOR, with both numbers in the message, and no topic."""
    client = Confluent(cluster.bootstrap_servers)
    with pytest.raises(ClientRefused) as refused:
        client.create_topic(topic, 1, 4)
    assert refused.value.code == INVALID_REPLICATION_FACTOR
    assert "4" in refused.value.message
    assert "3" in refused.value.message
    assert topic not in client.topics()
    client.close()


GARBAGE = {
    "ones": b"\xff" * 60,
    "huge counts": struct.pack(">i", 2**31 - 1) * 15,
    "huge varints": b"\xff\xff\xff\xff\x07" * 12,
    "zeros": bytes(60),
    "chance": random.Random(20_26).randbytes(60),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_any_api_is_answered_or_closes(home: tuple[str, str], garbage: str) -> None:
    """Every advertised API in its lowest and highest version: no node dies, grows or hangs of it."""
    with RawClient(home[1]) as wire:
        answer = wire.ask(API_VERSIONS, 0)
    assert answer.int16() == 0
    ranges = [(answer.int16(), answer.int16(), answer.int16()) for _ in range(answer.int32())]
    assert len(ranges) >= 25
    for api_key, lowest, highest in ranges:
        for version in {lowest, highest}:
            with RawClient(home[1]) as wire:
                wire.send(frame(api_key, version, GARBAGE[garbage]))
                wire.send(frame(METADATA, 1, struct.pack(">i", 0)))
                wire.finish()
                _read_to_the_end(wire)


def _read_to_the_end(wire: RawClient) -> None:
    """Read until the node closes, which it does since no more is sent. Raises TimeoutError."""
    try:
        while True:
            assert Reader(wire.receive()).int32() == 7
    except ConnectionClosed:
        return
