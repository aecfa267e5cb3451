"""Claims about all routes at once, from requests that schemathesis makes of /openapi.json; `make api` has many more."""

from __future__ import annotations

import pytest

from raftlog.admin.resources import ROUTES
from raftlog.admin.schema_registry.server import ROUTES as REGISTRY_ROUTES
from raftlog.testing.cluster import AdminCluster
from tests.admin.fuzz import OF_REGISTRY, failures_in_logs, judge, populate, populate_registry


@pytest.mark.taste
@pytest.mark.nightly
def test_every_answer_is_what_the_document_says() -> None:
    """Right and wrong requests to each operation: no server error, no undocumented status, no other body."""
    with AdminCluster(3) as own_cluster:  # no other test finds what the requests leave behind
        url = own_cluster.admin_url(1)
        populate(url)
        verdict = judge(url, "--phases=fuzzing", "--max-examples=2")
        assert verdict.clean, verdict.text
        assert verdict.cases >= len(ROUTES)
        registry = own_cluster.schema_registry_url(2)
        populate_registry(registry)
        verdict = judge(registry, "--phases=fuzzing", "--max-examples=2", config=OF_REGISTRY)
        assert verdict.clean, verdict.text
        assert verdict.cases >= len(REGISTRY_ROUTES)
        assert not failures_in_logs(own_cluster)
