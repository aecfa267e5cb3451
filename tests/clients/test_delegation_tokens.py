"""Claims about delegation tokens on real nodes, through `raftlog token` and the protocol (KIP-48, KIP-373).

No client library of Python logs in with a token. Java's does, in tests/interop/test_java_security.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.cli import exits
from raftlog.client.connection import Connection, Dialer
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.security.sasl_client import Login
from tests.cli.live import CommandLine, Ran
from tests.clients.closed_cluster import PASSWORDS, SETTINGS, ClosedCluster, closed_cluster
from tests.kit.waits import PATIENCE_S, until

METADATA_VERSION = 13
TOKEN_KEY = SETTINGS["delegation.token.secret.key"]


@pytest.fixture(scope="module")
def closed() -> Iterator[ClosedCluster]:
    with closed_cluster() as found:
        yield found


class Person:
    """`raftlog token …` as a user with settings in a file."""

    def __init__(self, closed: ClosedCluster, folder: Path, user: str) -> None:
        self._run = CommandLine(closed.bootstrap_servers)
        self._file = folder / f"{user}.properties"
        self._file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nlinger.ms=5\n"
            f"sasl.username={user}\nsasl.password={PASSWORDS[user]}\n"
        )

    def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        return self._run("token", *words, "-F", str(self._file), stdin=stdin)

    def rows(self, *words: str) -> Any:
        ran = self(*words, "-o", "json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


@pytest.fixture
def people(closed: ClosedCluster, tmp_path: Path) -> dict[str, Person]:
    return {user: Person(closed, tmp_path, user) for user in PASSWORDS}


def addresses(closed: ClosedCluster) -> list[str]:
    return closed.bootstrap_servers.split(",")


def connected(address: str, made: dict[str, str], mechanism: str = "SCRAM-SHA-512") -> Connection:
    """Return a connection of a token's client to one broker. Raises SaslAuthenticationFailed."""
    host, port = address.split(":")
    wire = Connection(Dialer().connect(host, int(port), PATIENCE_S))
    wire.log_in(Login(mechanism, made["token_id"], made["hmac"], with_token=True))
    return wire


def topics(wire: Connection) -> set[str]:
    metadata = request_builders(ApiKey.METADATA, METADATA_VERSION)
    asked = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return {each.name for each in wire.ask(ApiKey.METADATA, METADATA_VERSION, asked).topics}


def refused(address: str, made: dict[str, str]) -> bool:
    try:
        connected(address, made).close()
    except SaslAuthenticationFailed:
        return True
    return False


def test_a_token_logs_its_owner_in_at_every_broker(closed: ClosedCluster, people: dict[str, Person]) -> None:
    """With the owner's rights, by both mechanisms, until the token is ended, which ends its connections too."""
    closed.create_topic("claims")
    closed.allow(
        AclBinding(
            ResourceType.TOPIC,
            "claims",
            ResourcePatternType.LITERAL,
            "User:bob",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
    )
    made = people["bob"].rows("create", "--renewer", "alice")
    wires = []
    for address, mechanism in zip(addresses(closed), ("SCRAM-SHA-256", "SCRAM-SHA-512") * 2, strict=False):
        until(lambda address=address: not refused(address, made), "the broker knows the token")  # type: ignore[misc]
        wires.append(connected(address, made, mechanism))
    for wire in wires:
        until(lambda wire=wire: topics(wire) == {"claims"}, "the owner's rule is in force")  # type: ignore[misc]
    ended = people["alice"]("delete", "-", stdin=made["hmac"].encode())
    assert (ended.returncode, ended.stdout) == (0, "deleted\n"), ended.stderr
    for address, wire in zip(addresses(closed), wires, strict=True):
        until(lambda address=address: refused(address, made), "no broker knows the token")  # type: ignore[misc]
        with pytest.raises(OSError):
            topics(wire)
    closed.take_back("bob")


def test_tokens_are_listed_renewed_and_shortened(closed: ClosedCluster, people: dict[str, Person]) -> None:
    """As a person does it; what logs in is shown on demand only."""
    made = people["bob"].rows("create", "--max-lifetime", "1000", "--renewer", "User:alice")
    (row,) = people["alice"].rows("list", "--owner", "bob")
    assert (row["token_id"], row["owner"], row["renewers"]) == (made["token_id"], "User:bob", ["User:alice"])
    assert "hmac" not in row
    shown = people["bob"].rows("list", "--show-hmacs")
    assert [each["hmac"] for each in shown if each["token_id"] == made["token_id"]] == [made["hmac"]]
    assert made["hmac"] not in people["bob"]("list").stdout
    renewed = people["alice"]("renew", made["hmac"], "--for", "600")
    assert renewed.returncode == 0 and "expires at" in renewed.stdout
    shortened = people["bob"]("delete", made["hmac"], "--in", "60")
    assert shortened.returncode == 0 and "expires at" in shortened.stdout
    assert people["bob"]("delete", made["hmac"]).returncode == 0
    again = people["bob"]("renew", made["hmac"])
    assert (again.returncode, again.stderr) == (
        exits.NOT_FOUND,
        "raftlog: there is no token with this HMAC\n",
    )


def test_a_refused_token_request_says_why(closed: ClosedCluster, people: dict[str, Person]) -> None:
    """In words, with the exit code of a refusal."""
    other = people["bob"]("create", "--owner", "alice")
    assert other.returncode == exits.DENIED and "CREATE_TOKENS" in other.stderr
    stranger = CommandLine(closed.cluster.bootstrap_servers)("token", "list")
    assert stranger.returncode == exits.DENIED and "log in" in stranger.stderr
    made = people["admin"].rows("create", "--owner", "bob")
    assert made["owner"] == "User:bob"
    mismatch = people["alice"]("renew", made["hmac"])
    assert mismatch.returncode == exits.DENIED and "renewers" in mismatch.stderr
    assert people["bob"]("renew", "no base64!").returncode == exits.USAGE
    assert people["bob"]("list", "-X", "linger.ms=5").returncode == exits.USAGE
    wrong = people["bob"]("list", "-X", "sasl.password=a guess")
    assert wrong.returncode == exits.DENIED and "a guess" not in wrong.stderr


def test_tokens_outlive_the_nodes_and_are_in_no_file(
    closed: ClosedCluster, people: dict[str, Person]
) -> None:
    """They are metadata, of which the HMAC is no part: neither journal nor log of a node has it, or the key."""
    made = people["bob"].rows("create")
    for node_id in closed.cluster.nodes:
        closed.cluster.restart(node_id)
    for address in addresses(closed):
        until(lambda address=address: not refused(address, made), "the broker knows the token")  # type: ignore[misc]
    for node in closed.cluster.nodes.values():
        for path in node.config_path.parent.rglob("*"):
            if path.is_file() and path != node.config_path:
                content = path.read_bytes()
                assert made["hmac"].encode() not in content and TOKEN_KEY.encode() not in content, path
