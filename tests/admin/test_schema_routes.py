"""The reference page of the registry: its routes are the router's, its errors are seen, its clients are recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from raftlog.admin.route import Route
from raftlog.admin.schema_registry.answers import SchemaBody
from raftlog.admin.schema_registry.server import ROUTES
from raftlog.cli.http_api import SCHEMA_REGISTRY, HttpApi
from raftlog.tables.registry import Registry as TableRegistry
from raftlog.testing.cluster import Cluster
from tests.admin.recording_proxy import RecordingProxy, name_of, route_of
from tests.admin.test_schema_registry import USER, USER_AGED, USER_NAMELESS, ask, named
from tests.cli.live import CommandLine
from tests.house.source import ROOT

PAGE: Final = ROOT / "docs" / "pages" / "reference" / "schema-registry.md"
ROW: Final = re.compile(r"^\| `([A-Z]+ /\S*)` \|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)
PLAIN: Final = "plain HTTP"
CONNECT: Final = "Connect"
"""The client that tests/interop/test_java_avro_converter.py records."""
UNSERVED: Final = {
    "create_association",
    "delete_associations",
    "get_associations_by_resource_name",
}
"""Methods of confluent-kafka's client for which the registry has no route; the page says so."""
ASSOCIATIONS: Final = "GET /associations/"
"""Serializers look here for a subject, and take the topic's after a 404; the page says so."""
OWNED: Final = Metadata(tags=None, properties=MetadataProperties({"owner": "me"}), sensitive=None)
WITHOUT_REQUESTS: Final = {"clear_caches", "clear_latest_caches", "close", "config", "new_client"}


class Row(NamedTuple):
    """A row of the page."""

    summary: str
    errors: set[int]
    clients: set[str]


def rows() -> dict[str, Row]:
    """Return the rows of the page by route."""
    return {
        route: Row(summary.strip(), set(map(int, errors.split())), set(clients.strip().split(", ")))
        for route, summary, errors, clients in ROW.findall(PAGE.read_text())
    }


def test_the_page_has_the_routes_of_the_router() -> None:
    """A route that is added, or does something else, changes its row."""
    assert {route: row.summary for route, row in rows().items()} == {
        name_of(each): each.summary for each in ROUTES
    }


# Errors

ABSENT: Final = "routes-absent"
"""A subject that no test registers."""
FILLED, DELETED, READ_ONLY, REFERRED, GIVEN = (
    f"routes-{each}" for each in ("filled", "deleted", "read-only", "referred", "given")
)
TEXT: Final = {"schema": '"int"'}
SAID: Final = [
    ("POST", f"/subjects/{ABSENT}", TEXT, 40401),
    ("POST", f"/subjects/{FILLED}", {"schema": '"long"'}, 40403),
    ("DELETE", f"/subjects/{ABSENT}", None, 40401),
    ("DELETE", f"/subjects/{DELETED}", None, 40404),
    ("DELETE", f"/subjects/{FILLED}?permanent=true", None, 40405),
    ("DELETE", f"/subjects/{READ_ONLY}", None, 42205),
    ("DELETE", f"/subjects/{REFERRED}", None, 42206),
    ("GET", f"/subjects/{ABSENT}/metadata?key=owner&value=me", None, 40401),
    ("GET", f"/subjects/{FILLED}/metadata?key=owner&value=me", None, 40403),
    ("GET", f"/subjects/{ABSENT}/versions", None, 40401),
    ("POST", f"/subjects/{FILLED}/versions", {"schema": '"string"'}, 409),
    ("POST", f"/subjects/{READ_ONLY}/versions", {"schema": '"long"'}, 42205),
    ("POST", f"/subjects/{GIVEN}/versions", {**TEXT, "id": 100_000, "version": 1}, 42207),
    ("DELETE", f"/subjects/{DELETED}/versions/1", None, 40406),
    ("DELETE", f"/subjects/{FILLED}/versions/1?permanent=true", None, 40407),
    ("DELETE", f"/subjects/{READ_ONLY}/versions/1", None, 42205),
    ("DELETE", f"/subjects/{REFERRED}/versions/1", None, 42206),
    ("GET", "/schemas/ids/999999", None, 40403),
    ("GET", "/schemas/ids/999999/schema", None, 40403),
    ("GET", "/schemas/ids/999999/subjects", None, 40403),
    ("GET", "/schemas/ids/999999/versions", None, 40403),
    ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", None, 40403),
    ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000/ids", None, 40403),
    ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
    ("PUT", f"/config/{FILLED}", {"compatibility": "SIDEWAYS"}, 42203),
    ("GET", f"/config/{FILLED}", None, 40408),
    ("DELETE", f"/config/{FILLED}", None, 40401),
    ("PUT", "/mode", {"mode": "WRITEONLY"}, 42204),
    ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
    ("PUT", f"/mode/{FILLED}", {"mode": "WRITEONLY"}, 42204),
    ("PUT", f"/mode/{FILLED}", {"mode": "IMPORT"}, 42205),
    ("GET", f"/mode/{FILLED}", None, 40409),
]
BODIES: Final = {"ConfigBody": {"compatibility": "NONE"}, "Mode": {"mode": "READWRITE"}, "SchemaBody": TEXT}


def requests() -> Iterator[tuple[str, str, Any, int]]:
    """Yield a request for each error of each route: those above, and what is wrong with a path or a schema."""
    yield from SAID
    for route in ROUTES:
        body = None if route.body is None else BODIES[route.body.__name__]
        path = route.template.replace("{version}", "1")
        if "{subject}" in path:
            yield route.method, path.replace("{subject}", ":.other:x"), body, 42208
        if "{version}" in route.template:
            of_version = route.template.replace("{subject}", FILLED)
            yield route.method, of_version.replace("{version}", "newest"), body, 42202
            yield route.method, of_version.replace("{subject}", FILLED).replace("{version}", "9"), body, 40402
            yield route.method, path.replace("{subject}", ABSENT), body, 40401
        if route.body is SchemaBody:
            path = path.replace("{subject}", FILLED)
            yield route.method, path, {"schema": "{"}, 42201
            yield route.method, path, {"schema": json.dumps("x" * 300_000)}, 42209


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.schema_registry_url(2)


def test_each_error_of_the_page_is_seen(url: str) -> None:
    """The page has the errors that requests to these routes get, and no others."""
    order = {
        "schema": '["null", "Routes"]',
        "references": [{"name": "Routes", "subject": REFERRED, "version": 1}],
    }
    for method, path, body in (
        ("POST", f"/subjects/{FILLED}/versions", TEXT),
        ("POST", f"/subjects/{DELETED}/versions", TEXT),
        ("DELETE", f"/subjects/{DELETED}", None),
        ("POST", f"/subjects/{READ_ONLY}/versions", TEXT),
        ("PUT", f"/mode/{READ_ONLY}", {"mode": "READONLY"}),
        ("POST", f"/subjects/{REFERRED}/versions", {"schema": named("Routes", "a")}),
        ("POST", f"/subjects/{REFERRED}-by/versions", order),
        ("PUT", f"/mode/{GIVEN}", {"mode": "IMPORT"}),
        ("POST", f"/subjects/{GIVEN}/versions", {"schema": named("Given"), "id": 100_000, "version": 1}),
    ):
        said = ask(url, method, path, body)
        assert said.status == 200, (path, said)
    seen: dict[str, set[int]] = {route: set() for route in rows()}
    for method, path, body, code in requests():
        said = ask(url, method, path, body)
        assert (said.status, said.code) == (int(str(code)[:3]), code), (method, path, said)
        seen[route_of(method, path)].add(code)
    found = rows()
    assert {name_of(each): found[name_of(each)].errors | implied(each) for each in ROUTES} == seen


def implied(route: Route) -> set[int]:
    """Return the errors that the page states for all routes of a kind, below its table."""
    return {
        *((42208,) if "{subject}" in route.path else ()),
        *((42202, 40401, 40402) if "{version}" in route.path else ()),
        *((42201, 42209) if route.body is SchemaBody else ()),
    }


# Clients


class Use(NamedTuple):
    """What a client works with."""

    url: str
    """The registry's, which records."""
    direct: str
    subject: str
    folder: Path


def use_client(use: Use) -> None:
    """Call every method of confluent-kafka's client."""
    subject, other = use.subject, f"{use.subject}-refers"
    user = Schema(USER, "AVRO")
    client = SchemaRegistryClient({"url": use.url})
    found = client.register_schema_full_response(subject, user)
    described = f"{subject}-described"
    client.register_schema(described, Schema(USER, "AVRO", metadata=OWNED))
    refers = Schema('["null", "User"]', "AVRO", [SchemaReference("User", subject, 1)])
    level = ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD)
    calls = [
        ("register_schema", subject, user),
        ("register_schema_full_response", other, refers),
        ("get_schema", found.schema_id),
        ("get_schema_by_guid", found.guid),
        ("get_schema_types",),
        ("get_subjects_by_schema_id", found.schema_id),
        ("get_schema_versions", found.schema_id),
        ("lookup_schema", subject, user),
        ("get_subjects",),
        ("get_latest_version", subject),
        ("get_version", subject, 1),
        ("get_versions", subject),
        ("get_latest_with_metadata", described, {"owner": "me"}),
        ("get_referenced_by", subject, 1),
        ("test_compatibility", subject, user),
        ("test_compatibility_all_versions", subject, user),
        ("set_compatibility", subject, "FULL"),
        ("get_compatibility", subject),
        ("set_config", subject, level),
        ("get_config", subject),
        ("delete_config", subject),
        ("set_compatibility", None, "BACKWARD"),
        ("get_compatibility",),
        ("set_config", None, level),
        ("get_config",),
        ("delete_config",),
        ("update_mode", subject, "READWRITE"),
        ("get_mode", subject),
        ("delete_mode", subject),
        ("update_global_mode", "READWRITE"),
        ("get_global_mode",),
        ("get_contexts",),
        ("delete_version", other, 1),
        ("delete_subject", other, True),
    ]
    for name, *arguments in calls:
        client.clear_caches()
        getattr(client, name)(*arguments)
    public = {each for each in dir(SchemaRegistryClient) if not each.startswith("_")}
    assert public - UNSERVED - WITHOUT_REQUESTS == {name for name, *_ in calls}


def use_serializers(use: Use) -> None:
    """Write and read Avro, JSON Schema and Protobuf, by ids before the data, in headers, and of the latest version."""
    context = SerializationContext(use.subject, MessageField.VALUE, {})
    json_text = json.dumps({"title": "T", "type": "object", "properties": {"a": {"type": "integer"}}})
    registry = SchemaRegistryClient({"url": use.url})

    def client() -> SchemaRegistryClient:
        registry.clear_caches()
        return registry

    latest = {"auto.register.schemas": False, "use.latest.version": True}
    in_header = {"schema.id.serializer": header_schema_id_serializer}
    from_header = {"schema.id.deserializer": dual_schema_id_deserializer}
    avro: dict[str, Any] = {"name": "Ada Lovelace"}
    owned = {"auto.register.schemas": False, "use.latest.with.metadata": {"owner": "me"}}
    for conf in ({}, {"auto.register.schemas": False}, latest, in_header):
        payload = AvroSerializer(client(), USER, conf=conf)(avro, context)
        assert AvroDeserializer(client(), conf=from_header)(payload, context) == avro
    other = SerializationContext(f"{use.subject}-owned", MessageField.VALUE)
    client().register_schema(f"{use.subject}-owned-value", Schema(USER, "AVRO", metadata=OWNED))
    payload = AvroSerializer(client(), USER, conf=owned)(avro, other)
    assert AvroDeserializer(client())(payload, other) == avro
    other = SerializationContext(f"{use.subject}-json", MessageField.VALUE)
    payload = JSONSerializer(json_text, client())({"a": 1}, other)
    assert JSONDeserializer(None, schema_registry_client=client())(payload, other) == {"a": 1}
    other = SerializationContext(f"{use.subject}-proto", MessageField.VALUE)
    order = _order()
    payload = ProtobufSerializer(order, client())(order(id="x"), other)
    read = ProtobufDeserializer(order, schema_registry_client=client())
    assert read(payload, other).id == "x"


def _order() -> Any:
    """Return the class of a message in a file that imports another."""
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    shop = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.append(money.name)
    fields = shop.message_type.add(name="Order").field
    fields.add(name="id", number=1, type=9, label=1)
    fields.add(name="price", number=2, type=11, label=1, type_name=".shop.Money")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(money)
    pool.Add(shop)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def use_command_line(use: Use) -> None:
    """Every form of `raftlog schema`, and the look that `-b` takes at a registry that it finds."""
    files = [use.folder / f"{number}.avsc" for number in (1, 2, 3)]
    for path, text in zip(files, (USER, USER_AGED, USER_NAMELESS), strict=True):
        path.write_text(text)
    command, subject = CommandLine(""), use.subject
    for code, *words in (
        (0, "register", subject, str(files[0])),
        (0, "register", subject, str(files[1])),
        (0, "check", subject, str(files[1])),
        (1, "check", subject, str(files[2]), "--version", "1"),
        (0, "list", "--prefix", subject),
        (0, "versions", subject),
        (0, "get", subject),
        (0, "compatibility"),
        (0, "compatibility", "--set", "backward"),
        (0, "compatibility", "--reset"),
        (0, "compatibility", subject, "--set", "full"),
        (0, "compatibility", subject, "--reset"),
        (0, "delete", subject, "--version", "1"),
        (0, "delete", subject),
    ):
        ran = command("schema", *words, "--registry", use.url)
        assert ran.returncode == code, ran.stderr
    (listed,) = json.loads(
        command("schema", "list", "--prefix", subject, "--deleted", "--json", "--registry", use.url).stdout
    )
    assert command("schema", "get", str(listed["id"]), "--registry", use.url).returncode == 0
    assert HttpApi(use.url, service=SCHEMA_REGISTRY).cluster_at(use.url)


def use_tables(use: Use) -> None:
    """`raftlog table` and the pipeline read a schema by its id, with what it refers to."""
    client = SchemaRegistryClient({"url": use.direct})
    client.register_schema(use.subject, Schema(USER, "AVRO"))
    refers = Schema('["null", "User"]', "AVRO", [SchemaReference("User", use.subject, 1)])
    found = TableRegistry(use.url, lambda pause_s: None).schema(
        client.register_schema(f"{use.subject}-refers", refers)
    )
    assert found is not None and found.references


def use_plainly(use: Use) -> None:
    """Request the routes that no other client calls; each answers."""
    about = ask(use.direct, "POST", f"/subjects/{use.subject}/versions", {"schema": named("Plain", "a")}).body
    given = {"subject": use.subject, "version": 1, "id": about["id"], "guid": about["guid"]}
    for route, row in rows().items():
        if row.clients == {PLAIN}:
            method, path = route.format(**given).split(" ")
            said = ask(use.url, method, path)
            assert said.status == 200, (route, said)


CLIENTS: Final[Mapping[str, Callable[[Use], None]]] = {
    "client": use_client,
    "serializers": use_serializers,
    "CLI": use_command_line,
    "tables": use_tables,
    PLAIN: use_plainly,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_calls_the_routes_of_the_page(url: str, name: str, tmp_path: Path) -> None:
    """No row names a client that does not call its route, and none leaves a client out."""
    with RecordingProxy(url) as proxy:
        CLIENTS[name](Use(proxy.url, url, f"routes-{list(CLIENTS).index(name)}", tmp_path))
    called = {each for each in proxy.called if not each.startswith(ASSOCIATIONS)}
    assert {route for route, row in rows().items() if name in row.clients} == called


def test_every_route_has_a_client_that_is_recorded() -> None:
    """The other clients of the page are recorded elsewhere."""
    assert {each for row in rows().values() for each in row.clients} == {*CLIENTS, CONNECT}
