"""The limits of docker-compose.yml for each container, read without an engine."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from raftlog.base.config import load_config
from tests.house.source import ROOT

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
NODES = sorted(set(SERVICES) - {"secrets"})


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_limits_of_memory_processes_and_logs(name: str) -> None:
    """One that leaks, forks or talks for ever takes its own share of the machine, and no other's."""
    service = SERVICES[name]
    assert service["mem_limit"] == service["memswap_limit"]
    assert 0 < service["pids_limit"] <= 256
    assert service["logging"]["driver"] == "json-file"
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


@pytest.mark.parametrize("name", NODES)
def test_every_node_has_files_for_its_logs_and_leaves_no_core(name: str) -> None:
    """Half of the descriptors are for segments; a core dump would hold the secret."""
    assert SERVICES[name]["ulimits"] == {"nofile": 20_000, "core": 0}


@pytest.mark.parametrize("name", NODES)
def test_a_nodes_settings_are_a_config_that_starts_and_its_ports_are_this_machines_only(name: str) -> None:
    """As `docker compose up` gives them; the admin API's tokens are never sent beyond this machine in the clear."""
    service = SERVICES[name]
    environment = {
        key: value.partition(":-")[2].rstrip("}") if value.startswith("${") else value
        for key, value in service["environment"].items()
        if not key.endswith("_SECRET_FILE")
    }
    config = load_config(environment=environment)
    assert config.admin_tokens_without_tls and config.admin_tokens_file
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
