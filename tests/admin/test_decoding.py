"""Claims about decoded records: by the registry, JSON, MessagePack, text and bytes, and what does not parse."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

from raftlog.admin.native.record_contents import DECODED_MAX_BYTES
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.kit.waits import until

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": ["null", "long"], "default": None},
            {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
)
_numbers = itertools.count(1)


class Topic:
    """A topic with one partition, and what was written to it."""

    def __init__(self, cluster: AdminCluster) -> None:
        self.name = f"decoded-{next(_numbers)}"
        self.node = Api(cluster.admin_url(2))
        (found,) = self.node.get("/v3/clusters").body["data"]
        self.api = Api(cluster.admin_url(2), f"/v3/clusters/{found['cluster_id']}")
        wanted = {"topic_name": self.name, "partitions_count": 1, "replication_factor": 1}
        assert self.api.ask("POST", "/topics", wanted).status == 201
        until(lambda: self.node.get(f"/v1/topics/{self.name}/replicas").status == 200, "the topic is known")
        self.client = SchemaRegistryClient({"url": cluster.schema_registry_url(1)})

    def write(self, value: bytes, **headers: bytes) -> None:
        record = {
            "partition_id": 0,
            "value": {"type": "BINARY", "data": base64.b64encode(value).decode()},
            "headers": [
                {"name": name, "value": base64.b64encode(each).decode()} for name, each in headers.items()
            ],
        }
        assert self.api.ask("POST", f"/topics/{self.name}/records", record).body["error_code"] == 200

    def read(self, decode: str = "auto") -> list[Any]:
        answer = self.node.get(f"/v1/topics/{self.name}/records?start=0:earliest&decode={decode}")
        assert answer.status == 200, answer.body
        (found,) = answer.body["data"]
        assert found["unreadable"] == []
        return [each["value"] for each in found["records"]]

    @property
    def context(self) -> SerializationContext:
        return SerializationContext(self.name, MessageField.VALUE)

    def avro(self, value: dict[str, Any]) -> bytes:
        payload = AvroSerializer(self.client, USER)(value, self.context)
        assert payload is not None
        return payload


@pytest.fixture
def topic(cluster: AdminCluster) -> Topic:
    return Topic(cluster)


def test_avro_is_decoded_by_its_schema_and_names_it(topic: Topic) -> None:
    """As confluent-kafka's serializer wrote it: the subject, the version and the type are shown."""
    topic.write(topic.avro({"name": "Ada", "age": 2**40, "born": datetime.date(1815, 12, 10)}))
    (found,) = topic.read()
    assert json.loads(found["data"]) == {"name": "Ada", "age": 2**40, "born": "1815-12-10"}
    schema = found["schema"]
    assert (found["type"], found["decoder"], schema["type"]) == ("JSON", "registry", "AVRO")
    assert (schema["subject"], schema["version"]) == (f"{topic.name}-value", 1)


def test_protobuf_and_json_schema_are_decoded_too(topic: Topic) -> None:
    """A message is shown with its name; JSON keeps the digits that were written."""
    of_json = JSONSerializer('{"type": "object", "title": "Any"}', topic.client)(
        {"n": 12345678901234567890}, topic.context
    )
    topic.client.set_compatibility(f"{topic.name}-value", "NONE")
    of_protobuf = ProtobufSerializer(timestamp_pb2.Timestamp, topic.client)(
        timestamp_pb2.Timestamp(seconds=5), topic.context
    )
    for each in (of_json, of_protobuf):
        assert each is not None
        topic.write(each)
    first, second = topic.read()
    assert first["data"] == '{"n":12345678901234567890}'
    assert (first["schema"]["type"], first["schema"]["version"]) == ("JSON", 1)
    assert json.loads(second["data"]) == {"seconds": 5}
    assert (second["schema"]["type"], second["schema"]["message"]) == ("PROTOBUF", "Timestamp")


def test_json_value_that_does_not_fit_its_schema_says_why(topic: Topic) -> None:
    """It is shown all the same. A pattern that may take forever is not tried, and a large value is not decoded."""
    schema = {
        "type": "object",
        "properties": {"price": {"type": "number"}, "sku": {"pattern": "^(?=(a+)+$)"}},
        "required": ["price"],
    }
    wanted = Schema(json.dumps(schema), "JSON")
    prefix = b"\0" + topic.client.register_schema(f"{topic.name}-value", wanted).to_bytes(4, "big")
    values = ['{"price": 1.50}', '{"price": "x"}', json.dumps({"price": 1, "sku": "a" * 50 + "!"})]
    for each in (*values, json.dumps({"price": "x" * 700_000})):
        topic.write(prefix + each.encode())
    *found, large = topic.read()
    assert [each["data"] for each in found] == values
    assert [each["schema"].get("mismatch") for each in found] == [
        None,
        'at /price: "x" is not of type number',
        None,
    ]
    assert "not one that RE2 searches" in found[2]["schema"]["unchecked"]
    assert "of which at most 262144 are decoded" in large["problem"]


def test_schema_may_be_named_in_a_header(topic: Topic) -> None:
    """confluent-kafka's serializers can write the guid there, and the bare value."""
    headers: dict[str, Any] = {}
    context = SerializationContext(topic.name, MessageField.VALUE, headers)
    serializer = AvroSerializer(
        topic.client, USER, conf={"schema.id.serializer": header_schema_id_serializer}
    )
    payload = serializer({"name": "Ada", "born": datetime.date(1815, 12, 10)}, context)
    assert payload is not None
    topic.write(payload, **headers)
    (found,) = topic.read()
    assert (found["decoder"], json.loads(found["data"])["name"]) == ("registry", "Ada")


PACKED = msgspec.msgpack.encode({"id": 7, "raw": b"\xff"})


@pytest.mark.parametrize(
    ("value", "choice", "decoder", "data"),
    [
        (b'{"id": 1.50}', "auto", "json", '{"id": 1.50}'),
        (b"{id}", "auto", "text", "{id}"),
        (b"plain", "auto", "text", "plain"),
        (PACKED, "auto", "msgpack", '{"id":7,"raw":"/w=="}'),
        (b"\xff\xfe", "auto", "hex", "//4="),
        (b"", "auto", "text", ""),
        (b'{"id": 1}', "text", "text", '{"id": 1}'),
        (b"abc", "hex", "hex", "YWJj"),
        (b"\x07", "msgpack", "msgpack", "7"),
        (b"7", "json", "json", "7"),
        (b"a\xff", "text", "text", "a\ufffd"),
    ],
)
def test_each_decoder_says_that_it_was_used(
    topic: Topic, value: bytes, choice: str, decoder: str, data: str
) -> None:
    """The first that fits, or the chosen one."""
    topic.write(value)
    (found,) = topic.read(choice)
    assert (found["decoder"], found["data"], found["size"]) == (decoder, data, len(value))
    assert "problem" not in found


def test_payload_that_does_not_parse_shows_its_bytes_and_why(topic: Topic) -> None:
    """An id of nobody, a cut payload, and formats that it is not of."""
    payload = topic.avro({"name": "Ada", "born": datetime.date(1815, 12, 10)})
    topic.write(payload[:-1])
    topic.write(b"\0\x7f\xff\xff\xff\xff")
    cut, unknown = topic.read()
    assert base64.b64decode(cut["data"]) == payload[:-1]
    assert f"{topic.name}-value version 1" in cut["problem"] and "1 bytes are expected" in cut["problem"]
    assert (unknown["decoder"], "no schema with id 2147483647" in unknown["problem"]) == ("hex", True)
    assert "is not JSON" in topic.read("json")[0]["problem"]
    assert "is not MessagePack" in topic.read("msgpack")[0]["problem"]
    topic.write(b"plain")
    plain = topic.read("registry")[2]
    assert (plain["type"], plain["data"]) == ("STRING", "plain")
    assert "does not begin with the id" in plain["problem"]


def test_huge_record_is_cut_and_says_so(topic: Topic) -> None:
    """More than is decoded: its first bytes are shown, and the cut is not within a character."""
    settings = {"data": [{"name": "max.message.bytes", "value": "10000000"}]}
    assert topic.api.ask("POST", f"/topics/{topic.name}/configs:alter", settings).status == 204
    topic.write(b"a" + "é".encode() * 350_000)
    topic.write(b"{}")
    large, small = topic.read()
    assert (large["size"], large["is_cut"]) == (700_001, True)
    assert large["data"] == "a" + "é" * ((DECODED_MAX_BYTES - 1) // 2)
    assert f"at most {DECODED_MAX_BYTES}" in large["problem"]
    assert small["data"] == "{}"


def test_search_finds_what_only_the_schema_shows(topic: Topic) -> None:
    """A date is a number in the bytes of Avro."""
    for day in (10, 11):
        topic.write(topic.avro({"name": "Ada", "born": datetime.date(1815, 12, day)}))
    lines = topic.node.get(f"/v1/topics/{topic.name}/records/scan?value=1815-12-11").body
    found = [each for each in lines if each["event"] == "record"]
    assert [each["offset"] for each in found] == [1]
    assert found[0]["value"]["decoder"] == "registry"
