"""`python -m tests.admin.fuzz` (`make api`): sends requests generated from /openapi.json to a real cluster of three, to
the admin API and to the schema registry.

Schemathesis generates valid and invalid requests, the same for the same seed, and checks each response against the
document.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.kit.waits import PATIENCE_S, run

HERE = Path(__file__).parent
OF_REGISTRY = "schemathesis_registry.toml"
GENERATED = re.compile(r"(\d+) generated")


class Verdict(NamedTuple):
    """The findings of a run of schemathesis."""

    clean: bool
    cases: int
    text: str
    """Its output."""


def populate(url: str) -> None:
    """Create data for the API to show: a topic with records, a topic config, and a group config."""
    (cluster,) = Api(url).get("/v3/clusters").body["data"]
    api = Api(url, f"/v3/clusters/{cluster['cluster_id']}")
    api.ask("POST", "/topics", {"topic_name": "rides", "partitions_count": 2, "replication_factor": 2})
    api.ask("PUT", "/topics/rides/configs/retention.ms", {"value": "600000"})
    api.ask("PUT", "/consumer-groups/riders/configs/consumer.session.timeout.ms", {"value": "50000"})
    entries = [{"id": str(n), "value": {"data": n}} for n in range(5)]
    api.ask("POST", "/topics/rides/records:batch", {"entries": entries})


def populate_registry(url: str) -> None:
    """Register schemas for the registry to show: two versions, a reference, a level and a mode of a subject."""
    registry = Api(url)
    for fields in ([], [{"name": "f", "type": "long", "default": 0}]):
        schema = json.dumps({"type": "record", "name": "Ride", "fields": fields})
        assert (
            registry.ask("POST", "/subjects/rides-value/versions", {"schema": schema}).status == HTTPStatus.OK
        )
    reference = {"name": "Ride", "subject": "rides-value", "version": 1}
    body = {"schema": '{"type": "array", "items": "Ride"}', "references": [reference]}
    registry.ask("POST", "/subjects/all-value/versions", body)
    registry.ask("PUT", "/config/rides-value", {"compatibility": "FULL"})
    registry.ask("PUT", "/mode/rides-value", {"mode": "READWRITE"})


def judge(url: str, *options: str, seed: int = 1, config: str = "schemathesis.toml") -> Verdict:
    """Have the API at a URL tried."""
    with tempfile.TemporaryDirectory(prefix="raftlog-api-") as folder:
        ran = run(
            [
                str(Path(sys.executable).with_name("schemathesis")),
                f"--config-file={HERE / config}",
                "run",
                f"{url}/openapi.json",
                "--checks=all",
                f"--seed={seed}",
                "--generation-database=none",
                "--suppress-health-check=all",
                "--warnings=off",
                f"--request-timeout={PATIENCE_S:g}",
                "--no-color",
                *options,
            ],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parents[1]),
            },
            text=True,
        )
    found = GENERATED.search(ran.stdout)
    text = "\n".join(line[:2000] for line in (ran.stdout + ran.stderr).splitlines())
    return Verdict(ran.returncode == 0, int(found[1]) if found else 0, text)


def failures_in_logs(cluster: AdminCluster) -> list[str]:
    """Return what the nodes' logs say of requests that met no ApiError but a bug."""
    return [
        line
        for node in cluster.nodes.values()
        for line in node.log_path.read_text().splitlines()
        if "admin_request_failed" in line
    ]


def main() -> int:
    """Run once; 0 if all was well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=25, help="for each operation")
    options = parser.parse_args()
    with AdminCluster(3) as cluster:
        admin, registry = cluster.admin_url(1), cluster.schema_registry_url(2)
        populate(admin)
        populate_registry(registry)
        most = f"--max-examples={options.examples}"
        verdicts = [
            judge(admin, most, seed=options.seed),
            judge(registry, most, seed=options.seed, config=OF_REGISTRY),
        ]
        failures = failures_in_logs(cluster)
    print(*(each.text for each in verdicts), *failures, sep="\n")
    return 0 if all(each.clean for each in verdicts) and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
