"""Commands with a certificate alone at nodes that do not lead `_schemas`: they follow the redirect to the leader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from raftlog.cli.http_api import SCHEMA_REGISTRY, HttpApi
from raftlog.testing.probe import is_open
from raftlog.testing.secure_cluster import ADMIN, SecureCluster
from tests.cli.live import invoke
from tests.kit.settings import SMALL

pytestmark = pytest.mark.slow


class CertifiedCluster(SecureCluster):
    """Its HTTP ports accept certificates of users."""

    def settings_of(self, node_id: int) -> Mapping[str, str]:
        found = dict(super().settings_of(node_id))
        del found["raftlog.admin.ssl.certificate"]
        return found | {
            "raftlog.admin.security.protocol": "SSL",
            "raftlog.admin.ssl.client.auth": "requested",
            "raftlog.admin.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
        }


@pytest.fixture(scope="module")
def certified() -> Iterator[CertifiedCluster]:
    """Two nodes, of which one leads `_schemas`."""
    with CertifiedCluster(2, settings=SMALL) as cluster:
        cluster.certificates.make([], [ADMIN])
        places = [cluster.addresses[node_id] for node_id in cluster.nodes]
        cluster.wait_until(
            lambda: all(is_open(each.host, each.schema_port) for each in places), "the registries answer"
        )
        yield cluster


def test_a_caller_with_a_certificate_alone_is_answered_at_each_node(
    certified: CertifiedCluster, tmp_path: Path
) -> None:
    """One of the nodes does not lead, and passes no certificate on."""
    own, ca = (str(path) for path in (certified.certificates.user(ADMIN), certified.certificates.ca))
    schema = tmp_path / "int.avsc"
    schema.write_text('"int"')
    followed = 0
    for node_id in certified.nodes:
        url = certified.schema_registry_url(node_id)
        shared = ("--registry", url, "--cert", own, "--cacert", ca)
        code, _, said = invoke("schema", "register", f"orders-{node_id}", str(schema), *shared)
        assert (code, said) == (0, "")
        api = HttpApi(url, service=SCHEMA_REGISTRY, certificate=own, cacert=ca)
        assert f"orders-{node_id}" in api.ask("GET", "/subjects")
        followed += len(api._followed)
    assert followed == 1
