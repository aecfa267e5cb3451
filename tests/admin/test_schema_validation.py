"""Topics with schema validation: their leaders refuse records by the registry's schemas, and name the record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from raftlog.testing.cluster import Cluster
from tests.kit.waits import PATIENCE_S

_numbers = count(1)
USER = '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"name","type":"string"}]}'
VALUES = {"confluent.value.schema.validation": "true"}
INVALID_RECORD = 87


class Place(NamedTuple):
    """A cluster, the registry's client, and a producer."""

    cluster: Cluster
    registry: SchemaRegistryClient
    producer: Producer

    def topic(self, **configs: str) -> str:
        name = f"checked-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.create_topics([NewTopic(name, 3, 3, config=configs)])[name].result(PATIENCE_S)
        return name

    def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, partition: int = 0, **more: Any
    ) -> str:
        """Send a record; return "" or the error."""
        said: list[Any] = []
        self.producer.produce(
            topic, value, key, partition, on_delivery=lambda error, _: said.append(error), **more
        )
        self.producer.flush(PATIENCE_S)
        (error,) = said
        if error is None:
            return ""
        assert error.code() == INVALID_RECORD, error
        return str(error.str())


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[Place]:
    registry = SchemaRegistryClient({"url": cluster.schema_registry_url(1)})
    yield Place(cluster, registry, Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}))


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def test_records_need_an_id_of_their_subject(place: Place) -> None:
    """At each leader, also at nodes that do not lead `_schemas`; a tombstone passes."""
    topic = place.topic(**VALUES)
    serialize = AvroSerializer(place.registry, USER)
    for partition in range(3):
        value = serialize({"name": "Ada"}, SerializationContext(topic, MessageField.VALUE))
        assert place.send(topic, value, partition=partition) == ""
        assert place.send(topic, None, key=b"k", partition=partition) == ""
        assert place.send(topic, b"Ada", partition=partition)
        assert place.send(topic, framed(999_999, b""), partition=partition)
    other = place.registry.register_schema(f"{topic}-other-value", Schema('"long"', "AVRO"))
    assert place.send(topic, framed(other, b"\x02"))


def test_a_schema_is_known_as_soon_as_it_is_registered(place: Place) -> None:
    """However often it evolves, and whichever node registered it."""
    topic = place.topic(**VALUES)
    for version in range(5):
        fields = "".join(f',{{"name":"f{each}","type":"int","default":0}}' for each in range(version))
        schema = USER.replace("}]}", f"}}{fields}]}}")
        registry = SchemaRegistryClient({"url": place.cluster.schema_registry_url(1 + version % 3)})
        schema_id = registry.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
        for partition in range(3):
            assert (
                place.send(topic, framed(schema_id, b"\x06Ada" + b"\0" * version), partition=partition) == ""
            )


def test_keys_and_headers_are_checked_too(place: Place) -> None:
    """`confluent.key.schema.validation`, and guids in headers."""
    topic = place.topic(**{**VALUES, "confluent.key.schema.validation": "true"})
    conf = {"schema.id.serializer": header_schema_id_serializer}
    headers: dict[str, Any] = {}
    value = AvroSerializer(place.registry, USER, conf=conf)(
        {"name": "Ada"}, SerializationContext(topic, MessageField.VALUE, headers)
    )
    assert place.send(topic, value, headers=headers) == ""
    assert place.send(topic, value, key=b"plain", headers=headers)
    key_id = place.registry.register_schema(f"{topic}-key", Schema('"string"', "AVRO"))
    assert place.send(topic, value, key=framed(key_id, b"\x02k"), headers=headers) == ""


@pytest.mark.parametrize(
    ("strategy", "subject"), [("RecordName", "shop.User"), ("TopicRecordName", "{topic}-shop.User")]
)
def test_subjects_are_called_as_the_topic_says(place: Place, strategy: str, subject: str) -> None:
    """Confluent's three strategies."""
    name = f"io.confluent.kafka.serializers.subject.{strategy}Strategy"
    topic = place.topic(**{**VALUES, "confluent.value.subject.name.strategy": name})
    schema_id = place.registry.register_schema(subject.format(topic=topic), Schema(USER, "AVRO"))
    assert place.send(topic, framed(schema_id, b"\x06Ada")) == ""
    wrong = place.registry.register_schema(f"{topic}-value", Schema('"double"', "AVRO"))
    assert place.send(topic, framed(wrong, b"\0" * 8))


def test_payloads_are_parsed_where_the_topic_says_so(place: Place) -> None:
    """`raftlog.schema.payload.validation`; without it only the id counts."""
    strict = place.topic(**{**VALUES, "raftlog.schema.payload.validation": "true"})
    lenient = place.topic(**VALUES)
    for topic, is_refused in ((strict, True), (lenient, False)):
        schema_id = place.registry.register_schema(f"{topic}-value", Schema(USER, "AVRO"))
        assert place.send(topic, framed(schema_id, b"\x06Ada")) == ""
        for wrong in (b"\x06Ad", b"\x06Ada!", b""):
            assert bool(place.send(topic, framed(schema_id, wrong))) is is_refused


def test_a_strategy_that_does_not_exist_is_refused(place: Place) -> None:
    """When the topic is created."""
    with pytest.raises(KafkaException, match=r"confluent\.value\.subject\.name\.strategy"):
        place.topic(**{"confluent.value.subject.name.strategy": "MyStrategy"})
