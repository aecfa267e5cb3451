"""Confluent's AvroConverter in a worker of Kafka Connect, at raftlog's schema registry: a source and a sink.

The converter is at Confluent's own repository only. Maven Central has it, unchanged, inside of a sink for Snowflake.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from raftlog.base.config.files import parse_properties
from raftlog.testing.cluster import AdminCluster
from tests.admin.recording_proxy import RecordingProxy
from tests.admin.test_schema_routes import CONNECT, rows
from tests.clients.nodes import checked_logs
from tests.interop.member_kinds import JAVA
from tests.interop.test_java_connect import CONNECTOR, PROPERTIES, STRINGS, Worker, add_lines
from tests.kit.settings import SMALL
from tests.kit.waits import until

pytestmark = pytest.mark.java

JAR = JAVA / "target" / "converter" / "snowflake-kafka-connector.jar"
"""Fetched by `make interop-java`."""
EXAMPLE = PROPERTIES.with_name("avro.properties")
LINES = 200
WITH_NUMBER = """{"type": "record", "name": "ConnectDefault", "namespace": "io.confluent.connect.avro", "fields": [
    {"name": "line", "type": "string"}, {"name": "number", "type": "int", "default": 7}]}"""
SINK = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "topics": "lines",
    "transforms": "text",
    "transforms.text.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.text.field": "line",
}
AS_RECORD = {
    "transforms": "record",
    "transforms.record.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.record.field": "line",
}


def install_converter(folder: Path) -> None:
    """Make the plugin's folder, with the file by which Connect finds a converter as in Confluent's own."""
    assert JAR.is_file(), "make interop-java fetches it"
    folder.mkdir(parents=True)
    (folder / JAR.name).symlink_to(JAR)
    with zipfile.ZipFile(folder / "services.jar", "w") as jar:
        jar.writestr(
            "META-INF/services/org.apache.kafka.connect.storage.Converter",
            "io.confluent.connect.avro.AvroConverter",
        )


def test_a_source_and_a_sink_convert_with_the_registry(tmp_path: Path) -> None:
    """Python reads what the source wrote, and the sink reads what Python wrote with a second version."""
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    add_lines(path, range(LINES))
    install_converter(tmp_path / "plugins" / "avro")
    with (
        AdminCluster(3, settings=SMALL) as cluster,
        checked_logs(cluster),
        RecordingProxy(cluster.schema_registry_url(2)) as proxy,
    ):
        avro = parse_properties(EXAMPLE.read_text())
        avro["value.converter.schema.registry.url"] = proxy.url
        worker = Worker(cluster, tmp_path, {**STRINGS, **avro})
        try:
            worker.connect("lines", CONNECTOR | AS_RECORD | {"file": str(path)})
            found = cluster.read("lines", LINES)
            client = SchemaRegistryClient({"url": cluster.schema_registry_url(1)})
            context = SerializationContext("lines", MessageField.VALUE)
            read = AvroDeserializer(client)
            assert [read(each.value, context) for each in found] == [
                {"line": str(number)} for number in range(LINES)
            ]
            write = AvroSerializer(client, WITH_NUMBER)
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            producer.produce("lines", write({"line": "from Python", "number": 8}, context))
            producer.flush()
            assert client.get_versions("lines-value") == [1, 2]
            worker.connect("copies", SINK | {"file": str(out)})
            until(
                lambda: out.exists() and len(out.read_text().splitlines()) > LINES,
                "the sink writes all lines",
            )
        finally:
            worker.kill()
    assert {*out.read_text().splitlines()} == {*map(str, range(LINES)), "from Python"}
    assert proxy.called == {route for route, row in rows().items() if CONNECT in row.clients}
