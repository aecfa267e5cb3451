"""The schema registry with TLS, logins and ACLs: rights per subject, and logins that are forwarded to the leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from raftlog.base.config.files import format_properties
from raftlog.cli.acl.requests import create_rules
from raftlog.cli.acl.rules import Asked, rules
from raftlog.cli.dev_secure import ADMIN, settings_file
from raftlog.cli.target import Target
from raftlog.security.acls import Operation, PatternType
from raftlog.testing.secure_cluster import SecureCluster
from tests.kit.settings import SMALL

INT, LONG = Schema('"int"', "AVRO"), Schema('"long"', "AVRO")
ORDERS, PAYMENTS = "orders-value", "payments-value"


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureCluster]:
    """Two nodes, of which one leads: writer may register subjects of orders, and reader may read them."""
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
