"""The schema registry of real nodes, as confluent-kafka's client and serializers, curl and the command line use it."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from raftlog import __version__
from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.kit.waits import PATIENCE_S

_numbers = count(1)
USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
USER_AGED = (
    '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":"int","default":0}]}'
)
USER_NAMELESS = '{"type":"record","name":"User","fields":[{"name":"key","type":"string"}]}'
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Said(NamedTuple):
    """A response."""

    status: int
    body: Any

    @property
    def code(self) -> int:
        return int(self.body["error_code"])


def ask(url: str, method: str, path: str, body: Any = None, *, content_type: str = MEDIA_TYPE) -> Said:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    try:
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, sent, {} if body is None else {"Content-Type": content_type})
        answer = connection.getresponse()
        return Said(answer.status, json.loads(answer.read()))
    finally:
        connection.close()


class Registry(NamedTuple):
    """The registry at its three nodes, and a subject that no other test has."""

    urls: list[str]
    subject: str

    def ask(self, method: str, path: str, body: Any = None) -> Said:
        """Ask the nodes in turn: each answers for all of them."""
        return ask(self.urls[next(_numbers) % len(self.urls)], method, path, body)

    def register(self, text: str, subject: str = "", **more: Any) -> Said:
        body = {"schema": text, **more}
        return self.ask("POST", f"/subjects/{quote(subject or self.subject, safe='')}/versions", body)

    def client(self, node: int = 0, **settings: Any) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.urls[node], **settings})


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[Registry]:
    urls = [cluster.schema_registry_url(each) for each in cluster.nodes]
    yield Registry(urls, f"topic{next(_numbers)}-value")


def named(name: str, *fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": "int"} for each in fields]}
    )


def test_avro_serializers_write_at_one_node_and_read_at_another(registry: Registry) -> None:
    """confluent-kafka's AvroSerializer registers, and its AvroDeserializer looks the id up."""
    context = SerializationContext(registry.subject.removesuffix("-value"), MessageField.VALUE)
    for node in range(3):
        writer, reader = registry.client(node), registry.client((node + 1) % 3)
        payload = AvroSerializer(writer, USER_AGED if node else USER)(
            {"name": "Ada Lovelace", "age": 36}, context
        )
        assert payload is not None and payload[:1] == b"\0"
        found = AvroDeserializer(reader)(payload, context)
        assert found == ({"name": "Ada Lovelace", "age": 36} if node else {"name": "Ada Lovelace"})
    assert registry.client().get_versions(registry.subject) == [1, 2]


def test_serializers_find_schemas_in_headers_and_the_latest_version(registry: Registry) -> None:
    """`use.latest.version` without `auto.register.schemas`, and ids in headers, which are guids."""
    client, topic = registry.client(), registry.subject.removesuffix("-value")
    client.register_schema(registry.subject, Schema(USER, "AVRO"))
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    context = SerializationContext(topic, MessageField.VALUE)
    assert AvroSerializer(client, USER, conf=latest)({"name": "Ada Lovelace"}, context)
    headers: dict[str, Any] = {}
    context = SerializationContext(topic, MessageField.VALUE, headers)
    in_header = {"schema.id.serializer": header_schema_id_serializer}
    payload = AvroSerializer(client, USER, conf=in_header)({"name": "Ada Lovelace"}, context)
    assert "__value_schema_id" in headers
    from_header = {"schema.id.deserializer": dual_schema_id_deserializer}
    read = AvroDeserializer(registry.client(1), conf=from_header)
    assert read(payload, context) == {"name": "Ada Lovelace"}


def test_the_client_sees_what_it_registered(registry: Registry) -> None:
    """Every question that confluent-kafka's client has for a subject."""
    client, subject = registry.client(2), registry.subject
    schema_id = client.register_schema(subject, Schema(USER, "AVRO"))
    assert client.register_schema(subject, Schema(USER, "AVRO")) == schema_id
    found = client.get_latest_version(subject)
    assert (found.schema_id, found.version, found.subject) == (schema_id, 1, subject)
    assert client.get_schema_by_guid(found.guid).schema_str == USER
    assert client.lookup_schema(subject, Schema(USER, "AVRO")).schema_id == schema_id
    assert client.get_version(subject, 1).schema.schema_str == USER
    assert subject in client.get_subjects()
    assert client.get_subjects_by_schema_id(schema_id) and client.get_schema_versions(schema_id)
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert client.test_compatibility(subject, Schema(USER_AGED, "AVRO"))
    assert not client.test_compatibility(subject, Schema(USER_NAMELESS, "AVRO"))
    assert client.test_compatibility_all_versions(subject, Schema(USER_AGED, "AVRO"))
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]
    with pytest.raises(SchemaRegistryError, check=lambda error: error.error_code == 40401):
        registry.client().get_latest_version(subject)  # another's cache is empty


def test_a_schema_refers_to_another_and_protects_it(registry: Registry) -> None:
    """Named types come from references; 42206 while they are needed."""
    client, money = registry.client(), f"{registry.subject}-money"
    client.register_schema(money, Schema(named("Money", "amount"), "AVRO"))
    order = '{"type":"record","name":"Order","fields":[{"name":"price","type":"Money"}]}'
    reference = SchemaReference("Money", money, 1)
    schema_id = client.register_schema(registry.subject, Schema(order, "AVRO", [reference]))
    assert client.get_referenced_by(money, 1) == [schema_id]
    with pytest.raises(SchemaRegistryError, check=lambda error: error.error_code == 42206):
        client.delete_subject(money)
    assert registry.register(order, f"{registry.subject}-alone").code == 42201
    found = registry.ask("GET", f"/schemas/ids/{schema_id}").body
    assert found["references"] == [{"name": "Money", "subject": money, "version": 1}]


def test_an_incompatible_schema_is_refused_with_its_reasons(registry: Registry) -> None:
    """409; a check without registering says the same."""
    assert registry.register(USER).status == 200
    refused = registry.register(USER_NAMELESS)
    assert (refused.status, refused.code) == (409, 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.body["message"]
    at = f"/compatibility/subjects/{registry.subject}/versions"
    for path in (f"{at}/latest", f"{at}/1", at):
        found = registry.ask("POST", f"{path}?verbose=true", {"schema": USER_NAMELESS}).body
        assert found["is_compatible"] is False
        assert "additionalInfo:'key'" in found["messages"][0]
        assert registry.ask("POST", path, {"schema": USER_AGED}).body == {"is_compatible": True}


def test_transitive_levels_look_at_all_versions(registry: Registry) -> None:
    """A field that comes back with a default reads its first version only as long as types agree."""
    texts = [
        named("R", "a"),
        named("R"),
        '{"type":"record","name":"R","fields":[{"name":"a","type":"string","default":""}]}',
    ]
    at = f"/config/{registry.subject}"
    for text in texts[:2]:
        assert registry.register(text).status == 200
    assert registry.ask("PUT", at, {"compatibility": "BACKWARD_TRANSITIVE"}).body == {
        "compatibility": "BACKWARD_TRANSITIVE"
    }
    assert registry.register(texts[2]).code == 409
    assert registry.ask("PUT", at, {"compatibility": "BACKWARD"}).status == 200
    assert registry.register(texts[2]).body["version"] == 3


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/{unknown}/versions", None, 40401),
        ("GET", "/subjects/{unknown}/versions/1", None, 40401),
        ("GET", "/subjects/{subject}/versions/9", None, 40402),
        ("GET", "/subjects/{subject}/versions/0", None, 42202),
        ("GET", "/subjects/{subject}/versions/newest", None, 42202),
        ("GET", "/subjects/{subject}/versions/99999999999", None, 42202),
        ("GET", "/schemas/ids/999999", None, 40403),
        ("GET", "/schemas/ids/999999/versions", None, 40403),
        ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", None, 40403),
        ("GET", "/schemas/guids/none", None, 422),
        ("POST", "/subjects/{subject}", {"schema": '"long"'}, 40403),
        ("POST", "/subjects/{unknown}", {"schema": '"long"'}, 40401),
        ("POST", "/subjects/{subject}/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/{subject}/versions", {"schema": '"int"', "schemaType": "XML"}, 42201),
        ("POST", "/subjects/{subject}/versions", {"schema": json.dumps("x" * 300_000)}, 42209),
        ("POST", "/subjects/{subject}/versions", {"schema": "[" * 300_000}, 42209),
        ("POST", "/subjects/{subject}/versions", {"schema": '"long"', "id": 77}, 42205),
        ("POST", "/subjects/{subject}/versions", {"schema": 5}, 422),
        ("POST", "/subjects/{subject}/versions", b"no json", 400),
        ("POST", "/subjects/:.other:x/versions", {"schema": '"int"'}, 42208),
        ("POST", "/subjects/{long}/versions", {"schema": '"int"'}, 42208),
        ("PUT", "/config/{subject}", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/config/{subject}", {}, 42203),
        ("PUT", "/config/{subject}", {"compatibility": "NONE", "compatibilityGroup": "x"}, 42203),
        ("GET", "/config/{subject}", None, 40408),
        ("DELETE", "/config/{subject}", None, 40401),
        ("PUT", "/mode/{subject}", {"mode": "WRITEONLY"}, 42204),
        ("PUT", "/mode/{subject}", {"mode": "IMPORT"}, 42205),
        ("GET", "/mode/{subject}", None, 40409),
        ("DELETE", "/subjects/{unknown}", None, 40401),
        ("DELETE", "/subjects/{subject}?permanent=true", None, 40405),
        ("DELETE", "/subjects/{subject}/versions/1?permanent=true", None, 40407),
        ("GET", "/nowhere", None, 404),
    ],
)
def test_each_error_has_its_code(registry: Registry, method: str, path: str, body: Any, code: int) -> None:
    """As in Confluent's API: the HTTP status is the first three digits."""
    assert registry.register('"int"', "errors").status == 200
    names = {"subject": "errors", "unknown": registry.subject, "long": "x" * 513}
    said = registry.ask(method, path.format(**names), body)
    assert (said.status, said.code) == (int(str(code)[:3]), code), said
    assert said.body["message"]


def test_soft_deleted_schemas_stay_readable_by_their_ids(registry: Registry) -> None:
    """Records with the id are still there."""
    text = named("Gone", f"f{next(_numbers)}")
    schema_id = registry.register(text).body["id"]
    at = f"/subjects/{registry.subject}"
    assert registry.ask("DELETE", f"{at}/versions/1").body == 1
    assert registry.ask("DELETE", f"{at}/versions/1").code == 40406
    assert registry.ask("GET", f"{at}/versions").code == 40401
    assert registry.ask("GET", f"{at}/versions?deleted=true").body == [1]
    assert registry.ask("GET", f"{at}/versions/1?deleted=true").body["deleted"] is True
    assert registry.ask("GET", f"/schemas/ids/{schema_id}").body["schema"] == text.replace(" ", "")
    assert registry.ask("GET", f"/schemas/ids/{schema_id}/versions").body == []
    assert registry.subject not in registry.ask("GET", "/subjects").body
    assert registry.subject in registry.ask("GET", "/subjects?deletedOnly=true").body
    assert registry.register(text).body["version"] == 2


def test_lists_have_pages_and_prefixes(registry: Registry) -> None:
    """`offset`, `limit`, `subjectPrefix`, `latestOnly`."""
    for number in range(3):
        assert registry.register(USER, f"{registry.subject}/{number}").status == 200
    assert registry.register(USER_AGED, f"{registry.subject}/0").status == 200
    asked = f"subjectPrefix={registry.subject}"
    names = [f"{registry.subject}/{number}" for number in range(3)]
    assert registry.ask("GET", f"/subjects?{asked}").body == names
    assert registry.ask("GET", f"/subjects?{asked}&offset=1&limit=1").body == names[1:2]
    found = registry.ask("GET", f"/schemas?{asked}").body
    assert [(each["subject"], each["version"]) for each in found] == [
        (names[0], 1), (names[0], 2), (names[1], 1), (names[2], 1)
    ]  # fmt: skip
    assert len(registry.ask("GET", f"/schemas?{asked}&latestOnly=true").body) == 3


def test_a_read_only_subject_takes_no_schema(registry: Registry) -> None:
    """42205, until its mode is reset."""
    assert registry.register(USER).status == 200
    at = f"/mode/{registry.subject}"
    assert registry.ask("PUT", at, {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert registry.register(USER_AGED).code == 42205
    assert registry.register(USER).status == 200
    assert registry.ask("GET", f"{at}").body == {"mode": "READONLY"}
    assert registry.ask("DELETE", at).body == {"mode": "READONLY"}
    assert registry.ask("GET", f"{at}?defaultToGlobal=true").body == {"mode": "READWRITE"}
    assert registry.register(USER_AGED).status == 200


def test_the_registry_says_what_it_is(registry: Registry) -> None:
    """The routes that clients ask first."""
    assert registry.ask("GET", "/").body == {}
    assert registry.ask("GET", "/contexts").body == ["."]
    assert registry.ask("GET", "/v1/metadata/version").body["version"] == __version__
    scope = registry.ask("GET", "/v1/metadata/id").body["scope"]
    assert scope["clusters"]["kafka-cluster"]
    assert registry.ask("GET", "/config").body == {"compatibilityLevel": "BACKWARD"}
    assert registry.ask("GET", "/mode").body == {"mode": "READWRITE"}


def test_a_body_may_have_any_of_the_registries_types(registry: Registry) -> None:
    """Clients send Confluent's media type, JSON, or bytes; a text is refused."""
    at, body = f"/subjects/{registry.subject}/versions", {"schema": USER}
    for content_type in (MEDIA_TYPE, "application/json", "application/octet-stream"):
        assert ask(registry.urls[0], "POST", at, body, content_type=content_type).status == 200
    assert ask(registry.urls[0], "POST", at, body, content_type="text/plain").status == 415


def test_the_command_line_registers_checks_shows_and_deletes(
    registry: Registry, cluster: Cluster, tmp_path: Path
) -> None:
    """`raftlog schema`, which finds the registry by any broker."""
    command = CommandLine(cluster.bootstrap_servers)
    user, aged, nameless = (tmp_path / f"{name}.avsc" for name in ("user", "aged", "nameless"))
    for path, text in ((user, USER), (aged, USER_AGED), (nameless, USER_NAMELESS)):
        path.write_text(text)
    subject = registry.subject
    ran = command("schema", "register", subject, str(user), "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["version"] == 1
    assert command("schema", "check", subject, str(aged)).stdout == f"{subject}: compatible\n"
    refused = command("schema", "check", subject, str(nameless))
    line = "field key: one schema has it, without a default, and the other lacks it"
    head = f"raftlog: {nameless} is incompatible with an earlier version of {subject}"
    assert (refused.returncode, refused.stderr) == (1, f"{head}\n  {line}\n")
    refused = command("schema", "register", subject, str(nameless))
    assert (refused.returncode, refused.stderr) == (1, f"{head} (compatibility BACKWARD)\n  {line}\n")
    unknown = f"{subject}-unknown has no versions, so any schema may be its first"
    check = ("schema", "check", f"{subject}-unknown", str(user))
    assert command(*check, "--new").stdout == f"{unknown}\n"
    ran = command(*check)
    assert (ran.returncode, ran.stdout) == (3, "") and unknown in ran.stderr
    assert (
        command("schema", "register", subject, "-", "--type", "avro", stdin=USER_AGED.encode()).returncode
        == 0
    )
    assert f"{subject}" in command("schema", "list", "--prefix", subject).stdout
    shown = command("schema", "get", subject).stdout
    assert '"default": 0\n' in shown
    assert "version  2" in shown and "\\n" not in shown
    assert json.loads(command("schema", "get", str(found["id"]), "--json").stdout)["schema"] == USER
    assert [
        each["version"] for each in json.loads(command("schema", "versions", subject, "--json").stdout)
    ] == [1, 2]
    assert command("schema", "compatibility", subject, "--set", "full").stdout == "FULL\n"
    assert command("schema", "delete", subject, "--version", "1").stdout == f"{subject} version 1 deleted\n"
    missing = command("schema", "get", f"{subject}-unknown")
    assert (missing.returncode, "not found" in missing.stderr) == (3, True)
    for words in (("get", subject), ("check", subject, str(user)), ("delete", subject)):
        missing = command("schema", *words, "--version", "9")
        assert missing.returncode == 3, missing.stderr
        assert f"subject {subject} has no version 9: it has 2" in missing.stderr
    nameless.write_text('{"type": "recrd", "name": "R"}')
    for verb in ("register", "check"):
        invalid = command("schema", verb, subject, str(nameless))
        assert invalid.returncode == 1 and f"{nameless}: the schema is invalid" in invalid.stderr
    nameless.write_bytes(b'"\xff"')
    assert (
        f"{nameless}: it is not text: byte 1 does"
        in command("schema", "check", subject, str(nameless)).stderr
    )
    wrong = command("schema", "register", subject, str(user.rename(tmp_path / "user.txt")))
    assert wrong.returncode == 2 and "--type" in wrong.stderr


def test_json_serializers_write_and_read(registry: Registry) -> None:
    """confluent-kafka's JSONSerializer; evolution by the stated rules, across nodes."""
    text = json.dumps(
        {"title": "T", "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    )
    context = SerializationContext(registry.subject.removesuffix("-value"), MessageField.VALUE)
    payload = JSONSerializer(text, registry.client())({"a": 1}, context)
    assert JSONDeserializer(text, schema_registry_client=registry.client(1))(payload, context) == {"a": 1}
    assert registry.register(text.replace("integer", "string"), schemaType="JSON").code == 409
    assert registry.register(text.replace("integer", "number"), schemaType="JSON").body["version"] == 2
    assert registry.register("[]", schemaType="JSON").code == 42201
    assert registry.register('{"$ref": "http://127.0.0.1:1/x"}', schemaType="JSON").code == 42201
    assert registry.register('"int"').code == 409  # of another type


def test_protobuf_serializers_write_and_read(registry: Registry) -> None:
    """confluent-kafka's ProtobufSerializer, which registers descriptors, beside texts as Java's sends them."""
    described = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    described.message_type.add(name="Order").field.add(name="id", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    context = SerializationContext(registry.subject.removesuffix("-value"), MessageField.VALUE)
    payload = ProtobufSerializer(order, registry.client())(order(id="x"), context)
    read = ProtobufDeserializer(order, schema_registry_client=registry.client(1))
    assert read(payload, context).id == "x"
    compatible = 'syntax = "proto3"; package shop; message Order { string id = 1; int32 count = 2; }'
    assert registry.register(compatible, schemaType="PROTOBUF").body["version"] == 2
    text = 'syntax = "proto3"; message M { int32 a = 1; }'
    other = f"{registry.subject}-text"
    for changed, status in ((text, 200), (text.replace("int32 a", "string a"), 409), ("message", 422)):
        assert registry.register(changed, other, schemaType="PROTOBUF").status == status


MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message Refund { string reason = 1; }
message Order {
  enum Status { NEW = 0; PAID = 1; }
  message Line { string article = 1; optional uint32 count = 2; }
  string id = 1;
  Money price = 2;
  google.protobuf.Timestamp at = 3;
  repeated Line lines = 4;
  map<string, Money> discounts = 5;
  Status status = 6;
  oneof receiver { string name = 7; Order parent = 8; }
}
"""


def test_a_protobuf_schema_of_java_is_read_by_python(registry: Registry) -> None:
    """Java registers texts. Python's deserializer asks for `format=serialized`, with references, by id and by guid."""
    money = registry.register(MONEY, f"{registry.subject}-money", schemaType="PROTOBUF").body
    references = [
        {"name": "money.proto", "subject": f"{registry.subject}-money", "version": money["version"]}
    ]
    found = registry.register(ORDER, schemaType="PROTOBUF", references=references).body
    paths = (
        f"/schemas/ids/{found['id']}",
        f"/schemas/guids/{found['guid']}",
        f"/subjects/{registry.subject}/versions/latest",
    )
    (text,) = {registry.ask("GET", f"{path}?format=serialized").body["schema"] for path in paths}
    assert registry.ask("GET", paths[0]).body["schema"] == ORDER
    described = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    assert list(described.dependency) == ["google/protobuf/timestamp.proto", "money.proto"]
    _refund, order_type = described.message_type
    assert order_type.field[1].type_name == ".shop.Money"  # as protoc writes it, for strict readers
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    shop = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    shop.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    pool.Add(shop)
    pool.Add(described)
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    sent = order(
        id="x", price={"cents": 7}, lines=[{"article": "a", "count": 0}], status=1, parent={"id": "y"}
    )
    sent.discounts["new"].cents = 3
    payload = (
        b"\0" + found["id"].to_bytes(4, "big") + b"\x02\x02" + sent.SerializeToString()
    )  # its second message
    read = ProtobufDeserializer(order, schema_registry_client=registry.client(1))
    context = SerializationContext(registry.subject.removesuffix("-value"), MessageField.VALUE)
    assert read(payload, context) == sent


def test_the_registry_has_a_document_of_its_routes(registry: Registry) -> None:
    """OpenAPI, from the same table as the dispatch."""
    found = registry.ask("GET", "/openapi.json").body
    assert found["info"]["title"] == "raftlog schema registry"
    assert "/subjects/{subject}/versions" in found["paths"]
    assert set(found["paths"]["/config/{subject}"]) >= {"get", "put", "delete"}
