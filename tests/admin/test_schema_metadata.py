"""Metadata and rules of schemas, as confluent-kafka's client and serializers use them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleContext, RuleError, RuleExecutor
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from raftlog.testing.cluster import Cluster
from tests.admin.test_schema_registry import USER, USER_AGED, ask

ADA, AGED = {"name": "Ada Lovelace"}, {"name": "Ada Lovelace", "age": 36}


def owned_by(owner: str, **more: str) -> Metadata:
    return Metadata(
        tags=MetadataTags({"**.name": ["PII", "NAME"]}),
        properties=MetadataProperties({"owner": owner, **more}),
        sensitive=None,
    )


@pytest.fixture
def topic() -> str:
    return f"described-{uuid4().hex[:8]}"


@pytest.fixture
def client(cluster: Cluster) -> SchemaRegistryClient:
    """A client of a node, which may forward."""
    return SchemaRegistryClient({"url": cluster.schema_registry_url(2)})


def test_a_serializer_uses_the_latest_version_with_metadata(client: SchemaRegistryClient, topic: str) -> None:
    """`use.latest.with.metadata`: though a newer version is there, which another owner has.

    confluent-kafka 2.16 encodes the mail's @ twice.
    """
    subject, mail = f"{topic}-value", "shop@example.org"
    client.register_schema(subject, Schema(USER, "AVRO", metadata=owned_by(mail, area="eu")))
    client.register_schema(subject, Schema(USER_AGED, "AVRO", metadata=owned_by("bank")))
    context = SerializationContext(topic, MessageField.VALUE)
    conf = {"auto.register.schemas": False, "use.latest.with.metadata": {"owner": mail}}
    payload = AvroSerializer(client, USER_AGED, conf=conf)(AGED, context)
    assert AvroDeserializer(client)(payload, context) == ADA
    found = client.get_latest_with_metadata(subject, {"owner": mail, "area": "eu"})
    assert (found.version, found.schema.metadata.properties.properties["area"]) == (1, "eu")
    assert found.schema.metadata.tags.tags == {"**.name": ["NAME", "PII"]}
    with pytest.raises(SchemaRegistryError, check=lambda error: error.error_code == 40403):
        client.get_latest_with_metadata(subject, {"owner": "none"})
    client.delete_version(subject, 1)
    client.clear_caches()
    assert client.get_latest_with_metadata(subject, {"owner": mail}, deleted=True).version == 1


def test_a_serializer_that_registers_its_text_alone_finds_the_version_with_metadata(
    client: SchemaRegistryClient, topic: str
) -> None:
    """Each start of a producer would else add a version without it. The order of tags does not count."""
    subject = f"{topic}-value"
    registered = client.register_schema(subject, Schema(USER, "AVRO", metadata=owned_by("shop")))
    client.clear_caches()
    assert AvroSerializer(client, USER)(ADA, SerializationContext(topic, MessageField.VALUE))
    reordered = Metadata(
        tags=MetadataTags({"**.name": ["NAME", "PII", "NAME"]}),
        properties=MetadataProperties({"owner": "shop"}),
        sensitive=[],
    )
    client.clear_caches()
    found = client.lookup_schema(subject, Schema(USER, "AVRO", metadata=reordered))
    assert (found.schema_id, client.get_versions(subject)) == (registered, [1])
    other = client.register_schema(subject, Schema(USER, "AVRO", metadata=owned_by("bank")))
    assert (other != registered, client.get_versions(subject)) == (True, [1, 2])


class UpperCase(RuleExecutor):
    """Carries out a rule of a type that no library has."""

    def type(self) -> str:
        return "UPPER"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        return {name: str(value).upper() for name, value in message.items()}


def test_clients_carry_out_the_rules_that_the_registry_keeps(
    client: SchemaRegistryClient, topic: str
) -> None:
    """A serializer without the executor of a rule fails."""
    rule = Rule(
        name="upper",
        doc=None,
        kind=RuleKind.TRANSFORM,
        mode=RuleMode.WRITE,
        type="UPPER",
        tags=None,
        params=None,
        expr=None,
        on_success=None,
        on_failure=None,
        disabled=False,
    )
    rules = RuleSet(migration_rules=None, domain_rules=[rule])
    client.register_schema(f"{topic}-value", Schema(USER, "AVRO", rule_set=rules))
    context = SerializationContext(topic, MessageField.VALUE)
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    with pytest.raises(SerializationError, check=lambda error: isinstance(error.__cause__, RuleError)):
        AvroSerializer(client, USER, conf=conf, rule_registry=RuleRegistry())(ADA, context)
    executors = RuleRegistry()
    executors.register_executor(UpperCase())
    payload = AvroSerializer(client, USER, conf=conf, rule_registry=executors)(ADA, context)
    assert AvroDeserializer(client, rule_registry=executors)(payload, context) == {"name": "ADA LOVELACE"}


@pytest.mark.parametrize(
    "field", ["defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet", "alias"]
)
def test_a_config_for_all_versions_is_refused_by_name(cluster: Cluster, topic: str, field: str) -> None:
    """It would have no effect."""
    value: Any = "other" if field == "alias" else {"properties": {"owner": "shop"}}
    said = ask(cluster.schema_registry_url(1), "PUT", f"/config/{topic}", {field: value})
    assert (said.code, field in said.body["message"]) == (42203, True)


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({"properties": {"owner": 1}}, "$.metadata.properties"),
        ({"tags": {"a": "PII"}}, "$.metadata.tags"),
        ({"sensitive": "owner"}, "$.metadata.sensitive"),
        (["owner"], "$.metadata"),
    ],
)
def test_metadata_of_another_shape_is_refused_where_it_is_wrong(
    cluster: Cluster, topic: str, metadata: Any, place: str
) -> None:
    """Status 422."""
    body = {"schema": USER, "metadata": metadata}
    said = ask(cluster.schema_registry_url(1), "POST", f"/subjects/{topic}/versions", body)
    assert (said.status, place in said.body["message"]) == (422, True)


def test_keys_and_values_are_pairs(cluster: Cluster, topic: str) -> None:
    """A key without a value is a mistake of the client, not a version that is not there."""
    said = ask(cluster.schema_registry_url(1), "GET", f"/subjects/{topic}/metadata?key=a&key=b&value=c")
    assert (said.status, "2 times key, and 1 times value" in said.body["message"]) == (400, True)
    said = ask(
        cluster.schema_registry_url(1), "GET", f"/subjects/{topic}/metadata?deleted=true&deleted=false"
    )
    assert (said.status, "deleted is given more than once" in said.body["message"]) == (400, True)
