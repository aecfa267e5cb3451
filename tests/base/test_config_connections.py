"""raftlog.base.config.connections: limits of connections, of all listeners and per listener."""

from __future__ import annotations

import pytest

from raftlog.base.config import ConfigFaults, load_config, validate_broker_configs
from raftlog.base.config.connections import ListenerLimits
from raftlog.base.config.setting import INT_MAX
from raftlog.base.errors import InvalidConfig

NODE = {"listeners": "PLAINTEXT://:9092,EXTERNAL://:9094,CONTROLLER://:9093"}
NODE |= {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}


def fault_of(**settings: str) -> str:
    with pytest.raises(ConfigFaults) as refused:
        load_config(NODE | {name.replace("_", "."): value for name, value in settings.items()})
    return str(refused.value)


def test_a_listener_has_limits_of_its_own() -> None:
    """By its name in lower case; a listener without such settings has no limits of its own."""
    config = load_config(
        NODE
        | {
            "listener.name.external.max.connections": "100",
            "listener.name.external.max.connection.creation.rate": "5",
            "listener.name.plaintext.max.connections": "7",
        }
    )
    assert config.listener_limits == {
        "EXTERNAL": ListenerLimits(100, 5),
        "PLAINTEXT": ListenerLimits(7, INT_MAX),
    }


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("listener.name.external.max.connections", "many", "must be a number of at least 0"),
        ("listener.name.external.max.connection.creation.rate", "0", "must be a number of at least 1"),
        ("listener.name.external.max.connections", str(1 << 31), "must be a number"),
        ("listener.name.internal.max.connections", "5", "there is no listener INTERNAL"),
        ("max.connections.per.ip.overrides", "example.org:5", "not an IP address"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "must be ADDRESS:COUNT"),
        ("max.connections.per.ip.overrides", "10.0.0.1:-1", "must be ADDRESS:COUNT"),
        ("max.connection.creation.rate", "0", "must be at least 1"),
        ("quota.window.num", "0", "must be at least 1"),
    ],
)
def test_a_limit_that_makes_no_sense_is_named(name: str, value: str, says: str) -> None:
    """With the rule that it breaks."""
    said = fault_of(**{name.replace(".", "_"): value})
    assert name in said and says in said


def test_addresses_are_written_as_connections_have_them() -> None:
    """IPv6 with or without brackets; a running broker accepts changes."""
    config = load_config(NODE | {"max.connections.per.ip.overrides": "10.0.0.1:5,[::0:1]:7"})
    assert config.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 7}
    validate_broker_configs({"max.connections.per.ip.overrides": "10.0.0.1:6"}, cluster_wide=True)
    with pytest.raises(InvalidConfig):
        validate_broker_configs({"max.connections.per.ip.overrides": "nowhere:6"}, cluster_wide=True)
