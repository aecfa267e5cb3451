"""Claims about the records screen in a real browser: decoded records, pages, search, downloads, records sent again."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import write
from tests.kit.waits import until

HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;</script><script>alert(2)</script>"
_numbers = itertools.count(1)


class Records:
    """A topic on the screen."""

    def __init__(self, page: Any, cluster: AdminCluster, api: Api, partitions: int) -> None:
        self.page, self.api, self.cluster = page, api, cluster
        self.node = Api(cluster.admin_url(1))
        self.name = f"shown-{next(_numbers)}"
        wanted = {"topic_name": self.name, "partitions_count": partitions, "replication_factor": 3}
        assert api.ask("POST", "/topics", wanted).status == 201
        until(lambda: self.node.get(f"/v1/topics/{self.name}/replicas").status == 200, "the topic is known")

    def write(self, value: bytes | str, **more: Any) -> None:
        data = value.encode() if isinstance(value, str) else value
        content = {"type": "BINARY", "data": base64.b64encode(data).decode()}
        write(self.api, self.name, content, **{"partition_id": 0, **more})

    def avro(self, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        """Return a payload whose schema is registered."""
        client = SchemaRegistryClient({"url": self.cluster.schema_registry_url(1)})
        context = SerializationContext(self.name, MessageField.VALUE)
        payload = AvroSerializer(client, json.dumps(schema))(value, context)
        assert payload is not None
        return payload

    def open(self) -> None:
        self.page.goto(f"{self.cluster.admin_url(1)}/#/topics/{self.name}/records")
        self.page.get_by_role("status").filter(has_text="record").first.wait_for()

    def row(self, text: str) -> Any:
        return self.page.get_by_role("row").filter(has_text=text).first


@pytest.fixture
def records(page: Any, own_cluster: AdminCluster, api: Api) -> Records:
    return Records(page, own_cluster, api, 1)


def test_avro_record_is_shown_decoded_with_its_schema(records: Records) -> None:
    """In the list, in the dialog as a tree, and as its bytes if the user wants them."""
    schema = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
    records.write(records.avro(schema, {"customer": "Ada Lovelace"}))
    records.open()
    row = records.row("Ada Lovelace")
    assert "Avro v1" in row.inner_text()
    row.click()
    dialog = records.page.get_by_role("dialog")
    dialog.get_by_text(f"Avro by {records.name}-value version 1").wait_for()
    assert dialog.locator(".leaf").inner_text() == 'customer: "Ada Lovelace"'
    dialog.get_by_label("Show the value as").select_option("hex")
    dialog.get_by_text("41 64 61").wait_for()
