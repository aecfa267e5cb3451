"""The limits of docker-compose.yml for each container, read without an engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from raftlog.base.config import load_config
from raftlog.node import CONTROLLED_SHUTDOWN_S
from raftlog.process import STOP_S
from tests.house.source import ROOT

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
ONLOOKERS = ("grafana", "prometheus")
"""The services of the profile `monitoring`, with images of other projects."""
NODES = sorted(set(SERVICES) - {"secrets", *ONLOOKERS})
SECURE: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy/secure.yml").read_text())["services"]
"""The services as deploy/secure.env changes them."""


@pytest.mark.parametrize("name", [*SERVICES, "users"])
def test_every_container_has_limits_of_memory_processes_and_logs(name: str) -> None:
    """A service that leaks memory, forks or logs without end uses up its own share of the machine, and no more."""
    service = SERVICES.get(name) or SECURE[name]
    assert service["mem_limit"] == service["memswap_limit"]
    assert 0 < service["pids_limit"] <= 256
    assert service["logging"]["driver"] == "json-file"
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


@pytest.mark.parametrize("name", NODES)
def test_every_node_has_files_for_its_logs_and_leaves_no_core(name: str) -> None:
    """Half of the descriptors are for segments; a core dump would hold the secret."""
    assert SERVICES[name]["ulimits"] == {"nofile": 20_000, "core": 0}


@pytest.mark.parametrize("name", NODES)
def test_every_node_has_the_time_to_stop_in_order(name: str) -> None:
    """Otherwise `docker compose down` kills it while it hands over its leaderships, and its logs are checked again."""
    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > CONTROLLED_SHUTDOWN_S + STOP_S


@pytest.mark.parametrize("name", NODES)
def test_a_nodes_settings_are_a_config_that_starts_and_its_ports_are_this_machines_only(name: str) -> None:
    """As `docker compose up` gives them; the admin API's tokens are never sent beyond this machine in the clear."""
    service = SERVICES[name]
    config = load_config(environment=_environment(service["environment"]))
    assert config.admin_tokens_without_tls and config.admin_tokens_file
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", NODES)
def test_a_secure_node_speaks_tls_at_every_port(name: str) -> None:
    """As deploy/secure.env gives the settings: clients log in, all speak TLS, rules decide."""
    environment = _environment(SERVICES[name]["environment"] | SECURE[name]["environment"])
    config = load_config(environment=environment | {"RAFTLOG_CLUSTER_SECRET": "s" * 32})
    protocols = {each.name: each.security_protocol for each in config.listeners}
    controllers = {"CONTROLLER": "SSL"} if "CONTROLLER" in environment["RAFTLOG_LISTENERS"] else {}
    assert protocols == {"INTERNAL": "SASL_SSL", "HOST": "SASL_SSL"} | controllers
    assert config.authorizer_class_name and config.super_users == ("User:admin",)
    assert config.admin_ssl_certificate.endswith(f"/{name}.pem") and not config.admin_tokens_without_tls
    assert name == "broker6" or "--add-scram" in SECURE[name]["command"][-1]


@pytest.mark.parametrize("name", ONLOOKERS)
def test_an_onlooker_has_no_rights_and_no_secret_but_a_readers_token(name: str) -> None:
    """It is no root, writes to its own volume only, and is reached from this machine only."""
    service = SERVICES[name]
    assert service["profiles"] == ["monitoring"]
    assert int(service["user"].partition(":")[0]) > 0
    assert service["read_only"] and service["tmpfs"] == ["/tmp"]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    writable = [each for each in service["volumes"] if not each.endswith(":ro")]
    assert [each.partition(":")[0] for each in writable] == [name]
    assert not any(each.startswith("secrets:") for each in service["volumes"])


@pytest.mark.parametrize("name", ONLOOKERS)
def test_an_onlooker_is_given_files_that_exist(name: str) -> None:
    """Docker would make empty folders of what is missing. Commands name files as they are mounted."""
    places = [each.split(":")[:2] for each in SERVICES[name]["volumes"] if each.startswith("./")]
    assert places
    for here, _ in places:
        assert any((ROOT / here).iterdir()), here
    for service in (SERVICES[name], SECURE.get(name, {})):
        for option in service.get("command", ()):
            flag, _, file = option.partition("=")
            if flag == "--config.file":
                ((here, there),) = places
                assert (ROOT / here / Path(file).relative_to(there)).is_file()


def test_the_secrets_group_may_read_the_readers_token() -> None:
    """`secrets` runs as the user of the image. Prometheus is in its group; the folder is the volume's first content."""
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    (gid,) = re.findall(r"--gid (\d+) raftlog", dockerfile)
    assert SERVICES["prometheus"]["user"] == f"65534:{gid}"
    assert "-m 0750 /var/lib/raftlog /run/raftlog /run/raftlog-metrics" in dockerfile
    for service in (SERVICES["secrets"], SECURE["secrets"]):
        assert "install -m 440 metrics.token /run/raftlog-metrics/token" in service["command"][-1]
        assert "reader metrics $$(cat metrics.token)" in service["command"][-1]
    assert "metrics-token:/run/raftlog-metrics" in SERVICES["secrets"]["volumes"]


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """Return a node's environment variables as compose sets them by default."""
    return {
        key: value.partition(":-")[2].rstrip("}") if value.startswith("${") else value
        for key, value in settings.items()
        if not key.endswith("_SECRET_FILE")
    }
