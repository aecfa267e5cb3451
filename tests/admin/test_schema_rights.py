"""The schema registry with TLS, logins and ACLs: rights per subject, and logins that are forwarded to the leader."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from raftlog import __version__
from raftlog.base.config.files import format_properties
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.cli.acl.requests import create_rules
from raftlog.cli.acl.rules import Asked, rules
from raftlog.cli.dev_secure import ADMIN, settings_file
from raftlog.cli.target import Target
from raftlog.security.acls import Operation, PatternType
from raftlog.testing.secure_cluster import SecureCluster
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S

INT, LONG = Schema('"int"', "AVRO"), Schema('"long"', "AVRO")
ORDERS, PAYMENTS = "orders-value", "payments-value"
ON_NODE_1 = {
    "topic_name": SCHEMAS_TOPIC,
    "replicas_assignments": [{"partition_id": 0, "broker_ids": [1]}],
    "configs": [{"name": "cleanup.policy", "value": "compact"}],
}


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureCluster]:
    """Two nodes, of which one has `_schemas`: writer may register subjects of orders, and reader may read them."""
    with SecureCluster(2, settings=SMALL) as cluster:
        path = settings_file(cluster, ADMIN)
        path.parent.mkdir()
        path.write_text(format_properties(cluster.client_settings(ADMIN)))
        asked = [
            Asked(
                topics=("_schemas/orders-",),
                pattern_type=PatternType.PREFIXED,
                allow_principals=(f"User:{user}",),
                operations=(operation,),
            )
            for user, operation in (("writer", Operation.WRITE), ("reader", Operation.READ))
        ]
        wanted = [rule for each in asked for rule in rules(each)]
        assert [one for made in create_rules(Target(file=path), wanted) for one in made] == wanted
        (found,) = ask(cluster, ADMIN, "GET", "/v3/clusters")["data"]
        ask(cluster, ADMIN, "POST", f"/v3/clusters/{found['cluster_id']}/topics", ON_NODE_1)
        yield cluster


def client(cluster: SecureCluster, user: str, node: int) -> SchemaRegistryClient:
    return SchemaRegistryClient(
        {
            "url": cluster.schema_registry_url(node),
            "basic.auth.user.info": f"{user}:{cluster.passwords[user]}",
            "ssl.ca.location": str(cluster.certificates.ca),
            "max.retries": 0,
        }
    )


def refused(code: int) -> Any:
    return pytest.raises(SchemaRegistryError, check=lambda error: error.error_code == code)


@pytest.mark.parametrize("node", [1, 2])
def test_each_user_has_its_rights_at_each_node(secure: SecureCluster, node: int) -> None:
    """Also at the node that only forwards, with the user's own login over TLS."""
    writer, reader, admin = (client(secure, user, node) for user in ("writer", "reader", ADMIN))
    schema_id = writer.register_schema(ORDERS, INT)
    assert writer.lookup_schema(ORDERS, INT).schema_id == schema_id
    assert reader.get_latest_version(ORDERS).schema_id == schema_id
    assert reader.get_schema(schema_id).schema_str == '"int"'
    admin.register_schema(PAYMENTS, LONG)
    assert reader.get_subjects() == [ORDERS]
    assert sorted(admin.get_subjects()) == [ORDERS, PAYMENTS]
    for change in (
        lambda: reader.register_schema(ORDERS, LONG),
        lambda: writer.register_schema(PAYMENTS, INT),
        lambda: reader.get_latest_version(PAYMENTS),
        lambda: reader.get_schema(admin.lookup_schema(PAYMENTS, LONG).schema_id),
        lambda: writer.delete_subject(ORDERS),
        lambda: writer.set_compatibility(ORDERS, "NONE"),
        reader.get_compatibility,
    ):
        with refused(40301):
            change()


@pytest.mark.parametrize("node", [1, 2])
def test_a_wrong_password_is_refused_where_it_arrives(secure: SecureCluster, node: int) -> None:
    """It is not forwarded: the leader would count it against another node's address."""
    stranger = SchemaRegistryClient(
        {
            "url": secure.schema_registry_url(node),
            "basic.auth.user.info": "writer:wrong",
            "ssl.ca.location": str(secure.certificates.ca),
            "max.retries": 0,
        }
    )
    with refused(40101):
        stranger.get_subjects()


@pytest.mark.parametrize("node", [1, 2])
def test_a_reference_needs_the_right_to_read_its_subject(secure: SecureCluster, node: int) -> None:
    """Errors and checks would otherwise show what a subject has to users without a right on it."""
    writer, admin = (client(secure, user, node) for user in ("writer", ADMIN))
    admin.register_schema("payments-money", Schema('{"type":"record","name":"Money","fields":[]}', "AVRO"))
    order = Schema('["null","Money"]', "AVRO", [SchemaReference("Money", "payments-money", 1)])
    for request in (writer.register_schema, writer.lookup_schema, writer.test_compatibility):
        with refused(40301):
            request("orders-refers", order)
    assert admin.register_schema("orders-refers", order)


def ask(cluster: SecureCluster, user: str, method: str, path: str, body: Any = None) -> Any:
    """Return the answer of the second node's admin API."""
    login = base64.b64encode(f"{user}:{cluster.passwords[user]}".encode()).decode()
    request = urllib.request.Request(
        cluster.admin_url(2) + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        method=method,
    )
    context = ssl.create_default_context(cafile=str(cluster.certificates.ca))
    with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
        return json.loads(answer.read())


def test_records_are_decoded_only_by_schemas_that_their_reader_may_see(secure: SecureCluster) -> None:
    """A user with READ of a topic sees the bytes of its records, decoded only by schemas that it may describe.

    The node that decodes has no replica of `_schemas`.
    """
    (partition,) = ask(secure, ADMIN, "GET", f"/v1/topics/{SCHEMAS_TOPIC}/replicas")["data"]
    assert [each["broker_id"] for each in partition["replicas"]] == [1]
    admin = client(secure, ADMIN, 1)
    own, other = admin.register_schema(ORDERS, INT), admin.register_schema("payments-amount", LONG)
    (found,) = ask(secure, ADMIN, "GET", "/v3/clusters")["data"]
    at = f"/v3/clusters/{found['cluster_id']}/topics"
    ask(secure, ADMIN, "POST", at, {"topic_name": "orders", "partitions_count": 1})
    for schema_id in (own, other):
        payload = b"\0" + schema_id.to_bytes(4, "big") + b"\x54"
        value = {"type": "BINARY", "data": base64.b64encode(payload).decode()}
        assert ask(secure, ADMIN, "POST", f"{at}/orders/records", {"value": value})["error_code"] == 200
    wanted = [
        *rules(Asked(topics=("orders",), allow_principals=("User:reader",), operations=(Operation.READ,)))
    ]
    list(create_rules(Target(file=settings_file(secure, ADMIN)), wanted))
    path = "/v1/topics/orders/partitions/0/records?decode=auto"
    seen, hidden = (each["value"] for each in ask(secure, "reader", "GET", path)["records"])
    assert (seen["data"], seen["schema"]["subject"]) == ("42", ORDERS)
    assert (hidden["decoder"], "may not read schema" in hidden["problem"]) == ("hex", True)
    every = [each["value"]["data"] for each in ask(secure, ADMIN, "GET", path)["records"]]
    assert every == ["42", "42"]


def test_version_of_another_node_is_known_over_tls_with_a_login(secure: SecureCluster) -> None:
    """The console's page of brokers asks each node's HTTP API with the caller's own login."""
    for broker_id in (1, 2):
        found = ask(secure, ADMIN, "GET", f"/v1/brokers/{broker_id}/facts")
        assert found["process"]["version"] == __version__, found["process_unknown"]
