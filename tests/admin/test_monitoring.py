"""Claims about deploy/monitoring: dashboard and alerts query metrics of nodes, and a real Prometheus agrees."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raftlog.testing.cluster import AdminCluster
from tests.kit import prometheus
from tests.kit.settings import SMALL
from tests.kit.waits import until

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
METRIC = re.compile(r"\b(?:raftlog|kafka|process)_\w+")
SELECTED = re.compile(r"\b(?:raftlog|kafka|process)_\w+|\bup\b")
"""Names of metrics, each of which has labels behind it."""
GRAFANA = {"$cluster": "", "$__rate_interval": "10s", "$node": ".*", "$job": ".*", "$topic": ".*"}

needs_prometheus = pytest.mark.skipif(not prometheus.INSTALLED, reason="no prometheus and promtool here")


@pytest.fixture(scope="module")
def dashboard() -> Iterator[list[str]]:
    """The expressions of the dashboard, from its table."""
    sys.path.insert(0, str(MONITORING))
    try:
        import make_dashboard

        assert make_dashboard.DASHBOARD.read_text() == make_dashboard.make_dashboard()
        yield make_dashboard.expressions()
    finally:
        sys.path.remove(str(MONITORING))


@pytest.fixture(scope="module")
def alerts() -> list[str]:
    """The expressions of the alerts."""
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def watched_cluster() -> Iterator[AdminCluster]:
    """Three nodes, a topic, records, a group that has read them, and a share group with a worker."""
    from confluent_kafka import Consumer, Producer, ShareConsumer

    with AdminCluster(3, settings=SMALL) as cluster:
        cluster.create_topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(30):
            producer.produce("orders", str(number))
        producer.commit_transaction()
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        assert consumer.poll(60) is not None
        consumer.commit(asynchronous=False)
        worker = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "work"})
        worker.subscribe(["orders"])

        def took() -> bool:
            producer.begin_transaction()
            producer.produce("orders", "a job")
            producer.commit_transaction()
            return bool(worker.poll(1))

        until(took, "the worker got a job")
        worker.poll(1)
        yield cluster
        worker.close()
        consumer.close()


def plain(expression: str) -> str:
    """Return an expression without Grafana's variables."""
    for variable, value in GRAFANA.items():
        expression = expression.replace(variable, value)
    return expression


@pytest.mark.clients
def test_every_metric_that_is_queried_is_exported(watched_cluster, dashboard, alerts):
    """A renamed metric would leave a panel empty, and an alert silent."""
    told = set()
    for node_id in watched_cluster.nodes:
        with urllib.request.urlopen(watched_cluster.admin_url(node_id) + "/metrics", timeout=60) as response:
            told |= set(METRIC.findall(response.read().decode()))
    asked = {name for each in (*dashboard, *alerts) for name in METRIC.findall(each)}
    assert len(asked) > 30
    assert asked - told == set()


@pytest.mark.clients
@needs_prometheus
def test_a_real_prometheus_gives_every_panel_something(watched_cluster, dashboard, alerts, tmp_path):
    """Expressions are valid, labels are there, and no alert rings in a cluster that is well."""
    targets = [
        watched_cluster.admin_url(node_id).removeprefix("http://") for node_id in watched_cluster.nodes
    ]
    with prometheus.running_prometheus(tmp_path, targets, {}) as scraper:
        scraper.wait_for("sum(up) == 3")
        for each in dashboard:
            scraper.wait_for(plain(each))
        ringing = {each: found for each in alerts if (found := scraper.ask(plain(each)))}
    assert ringing == {}


def test_dashboard_shows_one_cluster_at_a_time(dashboard):
    """Two clusters side by side would show two controllers, and would mix their offline partitions.

    Targets of a lone cluster have no label `cluster`: then the variable is empty, as in kubernetes-mixin.
    """
    for each in dashboard:
        for found in SELECTED.finditer(each):
            labels = each[found.end() :].partition("}")[0]
            assert labels.startswith("{") and 'cluster="$cluster"' in labels, each


@needs_prometheus
@pytest.mark.parametrize("command", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_promtool_is_content_with_the_alerts(command):
    """`alerts_test.yml` has an example of each alert."""
    ended = subprocess.run(
        ["promtool", *command], cwd=MONITORING, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_prometheus
@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-compose.yml", "prometheus-secure.yml"])
def test_promtool_is_content_with_each_config(name, tmp_path):
    """The token and the authority are of a container; promtool looks for the files, so they are here."""
    text = (MONITORING / name).read_text().replace("/run/raftlog-metrics", str(tmp_path))
    (tmp_path / name).write_text(text)
    (tmp_path / "alerts.yml").write_text((MONITORING / "alerts.yml").read_text())
    for file in ("token", "ca.pem"):
        (tmp_path / file).write_text("")
    ended = subprocess.run(
        ["promtool", "check", "config", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SUCCESS: 1 rule files found" in ended.stdout


def test_the_configs_of_compose_scrape_every_node():
    """TLS is the only difference between them; the alerts select the job by its name."""
    plain, secure = (
        yaml.safe_load((MONITORING / f"prometheus-{each}.yml").read_text()) for each in ("compose", "secure")
    )
    (job,), (secure_job,) = plain["scrape_configs"], secure["scrape_configs"]
    assert (secure_job.pop("scheme"), secure_job.pop("tls_config")) == (
        "https",
        {"ca_file": "/run/raftlog-metrics/ca.pem"},
    )
    assert secure == plain
    targets = {each.partition(":")[0] for group in job["static_configs"] for each in group["targets"]}
    services = yaml.safe_load((MONITORING.parents[1] / "docker-compose.yml").read_text())["services"]
    nodes = {name for name, each in services.items() if "RAFTLOG_NODE_ID" in each.get("environment", {})}
    assert targets | set(job["dns_sd_configs"][0]["names"]) == nodes
    assert job["job_name"] == "raftlog"


def test_grafana_is_provisioned_in_its_documented_shape():
    """Grafana's image is not at hand everywhere; so its files are held against what its documentation asks for."""
    provisioning = MONITORING / "grafana" / "provisioning"
    (source,) = _provisioned(provisioning / "datasources", "datasources")
    assert {"name", "type", "access", "url"} <= source.keys()
    assert (source["type"], source["access"], source["isDefault"]) == ("prometheus", "proxy", True)
    (provider,) = _provisioned(provisioning / "dashboards", "providers")
    services = yaml.safe_load((MONITORING.parents[1] / "docker-compose.yml").read_text())["services"]
    host, port = urllib.parse.urlsplit(source["url"]).netloc.split(":")
    assert services["prometheus"]["ports"] == [f"127.0.0.1:19090:{port}"] and host == "prometheus"
    mounts = dict(each.split(":")[1::-1] for each in services["grafana"]["volumes"])
    assert (
        provider["type"] == "file"
        and mounts[provider["options"]["path"]] == "./deploy/monitoring/grafana/dashboards"
    )
    assert mounts["/etc/grafana/provisioning"] == "./deploy/monitoring/grafana/provisioning"
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.removeprefix(provider["options"]["path"] + "/") in {
        each.name for each in (MONITORING / "grafana" / "dashboards").iterdir()
    }


def _provisioned(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the entries of the one file of a folder."""
    (file,) = folder.iterdir()
    found = yaml.safe_load(file.read_text())
    assert found["apiVersion"] == 1
    return list(found[kind])


def test_each_alert_has_an_example():
    """An alert that was never seen to fire may never fire."""
    tests = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
    shown = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each["exp_alerts"]}
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    assert shown == {rule["alert"] for group in groups for rule in group["rules"]}
