"""Claims about addresses in the config: both halves are judged before a node starts."""

from __future__ import annotations

import re

import pytest

from raftlog.base.config import ConfigFaults, load_config
from raftlog.base.config.network import format_address, is_host, parse_address

NO_HOSTS = (
    "172.17.0.3 172.21.0.2",
    "${HOSTNAME}",
    "_{HOSTNAME_COMMAND}",
    "<host>",
    "/localhost",
    "user@host",
    "local host",
    "kafka..local",
    "-kafka",
    "kafka-",
    "256.1.1.1",
    "10.0.1",
    "1.2.3.4.5",
    "bücher",
    "a" * 64,
    ".".join(["a" * 60] * 5),
)
"""Leftovers of templates that were not filled in, and names that no client could look up."""

SETTINGS = {
    "listeners": "PLAINTEXT://{}:9092,CONTROLLER://localhost:9093",
    "advertised.listeners": "PLAINTEXT://{}:9092",
    "controller.quorum.voters": "1@{}:9093",
    "controller.quorum.bootstrap.servers": "{}:9093",
    "raftlog.admin.listener": "{}:9644",
}


@pytest.mark.parametrize("host", NO_HOSTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_host_that_cannot_be_one_is_refused_by_name(name: str, host: str) -> None:
    """Kafka refuses most of them too: "Unable to parse ... to a broker endpoint". No client could connect."""
    given = {"controller.quorum.voters": "1@localhost:9093"} | {name: SETTINGS[name].format(host)}
    with pytest.raises(ConfigFaults) as found:
        load_config(given)
    (fault,) = found.value.faults
    assert fault.name == name
    assert repr(host) in str(fault) and "neither a host name nor an IP address" in str(fault)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "my_kafka",
        "a.b-c.example.",
        "0.0.0.0",
        "127.0.0.1",
        "1a",
        "xn--bcher-kva",
        "a" * 63,
        "k.1",
    ],
)
def test_names_and_addresses_of_machines_and_containers_are_hosts(host: str) -> None:
    """Underscores are no part of RFC 1123, and containers' names have them."""
    assert is_host(host)
    assert parse_address(f"{host}:1") == (host, 1)


@pytest.mark.parametrize("host", ["::1", "::", "fe80::1%eth0", "2001:db8::10.0.0.1"])
def test_an_ipv6_address_stands_in_brackets_once(host: str) -> None:
    """Without brackets the end of the address could not be separated from a port."""
    assert parse_address(format_address(host, 9092)) == (host, 9092)
    for wrong in (f"{host}:9092", f"[[{host}]]:9092", f"[{host}:9092", f"{host}]:9092"):
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            parse_address(wrong)


@pytest.mark.parametrize("text", ["[kafka]:9092", "[127.0.0.1]:9092", "[1::2::3]:9092", "[]:9092", "host:٩"])
def test_what_is_in_brackets_is_an_ipv6_address(text: str) -> None:
    """And a port has the digits of ASCII."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_address(text)


def test_no_host_is_every_interface() -> None:
    """A listener may leave it out."""
    assert parse_address(":9092") == ("", 9092)
