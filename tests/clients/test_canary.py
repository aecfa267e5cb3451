"""Claims about secrets: recognisable secrets are put into a cluster, every output is read, and none contains them.

This includes a wrong password, key or token that was typed.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.cli.client_settings import addresses_of, dialer_of
from raftlog.client.connection import Connection
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.security.sasl_client import Login
from raftlog.security.tokens import TokenKey
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.node_process import NodeProcess
from tests.cli.live import CommandLine
from tests.clients.nodes import events, told, violations
from tests.kit.certificates import HOST, Authority
from tests.kit.secret_forms import forms
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, until

SECRETS = {
    "the cluster's secret": "canary-cluster-secret-8Zq1",
    "the key of delegation tokens": "canary-token-key-5Wn4",
    "the password of the TLS key": "canary-tls-password-3Rk7",
    "the password of a user of PLAIN": "canary-plain-password-9Xt2",
    "the password of a user of SCRAM": "canary-scram-password-6Vb8",
    "the token of an operator": "canary-operator-token-2Mj5",
    "the token of a reader": "canary-reader-token-7Hc3",
    "a password that is wrong": "canary-wrong-password-4Lp6",
    "a bearer token that is wrong": "canary-wrong-token-1Df9",
    "a key that somebody tried to set": "canary-key-that-was-sent-0Gy8",
}
CLUSTER, TOKENS, TLS, PLAIN, SCRAM, OPERATOR, READER, WRONG, WRONG_TOKEN, SENT = SECRETS.values()


class Canary(NamedTuple):
    """Three nodes full of secrets, and all that came out of them, by where it did."""

    cluster: AdminCluster
    authority: Authority
    port: int
    key_texts: tuple[str, str]
    """A line of the TLS key, and a line of the same key under its password."""
    outputs: dict[str, str]

    def settings(self, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
        return {
            "bootstrap.servers": f"{HOST}:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.path),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def admin(self) -> AdminClient:
        return AdminClient(self.settings("admin", PLAIN))

    def came_out(self, where: str, what: Any) -> None:
        self.outputs[where] = self.outputs.get(where, "") + f"\n{what!s}\n{what!r}"


def _locked_key(authority: Authority) -> tuple[str, str, str]:
    """Return a certificate, its key under a password, and the key as its file would have it."""
    content = authority.issue("canary").read_bytes()
    key: Any = serialization.load_pem_private_key(content, None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    plain = key.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()
    locked = key.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(TLS.encode())).decode()
    chain = "".join(
        re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", content.decode(), re.S)
    )
    return chain, locked, plain


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    folder = tmp_path_factory.mktemp("canary")
    authority = Authority(folder)
    chain, locked, plain = _locked_key(authority)
    tokens = folder / "tokens"
    tokens.write_text(f"operator alice {OPERATOR}\nreader grafana {READER}\n")
    settings = {
        "raftlog.log.level": "debug",
        "raftlog.cluster.secret": CLUSTER,
        "raftlog.admin.tokens.file": str(tokens),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="{PLAIN}";'
        ),
        "delegation.token.secret.key": TOKENS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain.replace("\n", " "),
        "ssl.keystore.key": locked.replace("\n", " "),
        "ssl.key.password": TLS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.path),
        **SMALL,
    }
    cluster = AdminCluster(3, settings=settings)
    for node in cluster.nodes.values():
        written = node.config_path.read_text()
        more = rf"\1,CLIENTS://{HOST}:0"
        node.config_path.write_text(re.sub(r"(?m)^((?:advertised\.)?listeners=.*)$", more, written))
    with cluster:
        port = next(
            int(each["port"])
            for each in events(cluster, 1)
            if each["event"] == "listener_started" and each["listener"] == "CLIENTS"
        )
        key_texts = plain.splitlines()[1], locked.splitlines()[1]
        yield Canary(cluster, authority, port, key_texts, {})
        found = violations(cluster)
        assert not found, told(found)


def use_kafka(canary: Canary) -> None:
    """Log in with right and wrong credentials, produce, consume, describe, and try to change read-only settings."""
    admin = canary.admin()
    made = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SCRAM.encode()
    )
    for future in admin.alter_user_scram_credentials([made]).values():
        future.result(PATIENCE_S)
    canary.came_out(
        "users",
        {k: v.result(PATIENCE_S) for k, v in admin.describe_user_scram_credentials(["alice"]).items()},
    )
    producer = Producer(canary.settings("admin", PLAIN))
    producer.produce("canaries", b"x", on_delivery=lambda error, message: canary.came_out("delivery", error))
    producer.flush(PATIENCE_S)
    consumer = Consumer({**canary.settings("admin", PLAIN), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["canaries"])
    until(lambda: consumer.poll(0.1) is not None, "a record is read")
    consumer.close()
    for kind, name in ((ResourceType.BROKER, "1"), (ResourceType.TOPIC, "canaries")):
        (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
        for entry in future.result(PATIENCE_S).values():
            canary.came_out("DescribeConfigs", f"{entry.name}={entry.value} {entry.synonyms}")
    for name in ("delegation.token.secret.key", "ssl.keystore.key", "sasl.jaas.config", "no.such"):
        entry = ConfigEntry(name, SENT, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([resource]).values()
        with pytest.raises(KafkaException) as refused:
            future.result(PATIENCE_S)
        canary.came_out("IncrementalAlterConfigs", refused.value)


def use_logins(canary: Canary) -> str:
    """Log in by every mechanism, well and badly, and by a token; returns the token's password."""
    address = f"{HOST}:{canary.port}"
    for user, password, mechanism in (
        ("admin", PLAIN, "PLAIN"),
        ("alice", SCRAM, "SCRAM-SHA-512"),
        ("admin", WRONG, "PLAIN"),
        ("alice", WRONG, "SCRAM-SHA-512"),
        ("nobody", WRONG, "SCRAM-SHA-256"),
        (WRONG, WRONG, "PLAIN"),
    ):
        try:
            connected(address, canary.settings(user, password, mechanism)).close()
        except SaslAuthenticationFailed as refused:
            canary.came_out("a failed login", refused)
    make = request_builders(ApiKey.CREATE_DELEGATION_TOKEN, 3)
    with connected(address, canary.settings("admin", PLAIN)) as wire:
        asked = make.CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime=-1
        )
        token_id = wire.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, asked).token_id
    proof = base64.b64encode(TokenKey(TOKENS).hmac_of(token_id)).decode()
    tls = {**canary.settings("", ""), "security.protocol": "SSL"}
    for password in (proof, WRONG):
        with connected(address, tls) as wire:
            try:
                wire.log_in(Login("SCRAM-SHA-512", token_id, password, with_token=True))
            except SaslAuthenticationFailed as refused:
                canary.came_out("a failed login", refused.message)
    return proof


def connected(address: str, settings: dict[str, str]) -> Connection:
    """Return a connection with these settings of a client. Raise SaslAuthenticationFailed."""
    return Connection(dialer_of(settings).connect(*addresses_of(address)[0], PATIENCE_S))


def use_http(canary: Canary) -> None:
    """Ask every path that the API documents, as all kinds of people, and a few that are none."""
    url = canary.cluster.admin_url()
    cluster_id = json.loads(_fetch(url, "/v3/clusters", OPERATOR).text)["data"][0]["cluster_id"]
    names = {
        "cluster_id": cluster_id,
        "topic_name": "canaries",
        "broker_id": "1",
        "consumer_group_id": "g",
        "name": "delegation.token.secret.key",
    }
    settings = f"/v3/clusters/{cluster_id}/broker-configs"
    for name in ("delegation.token.secret.key", "raftlog.cluster.secret", "no.such"):
        told = _fetch(url, f"{settings}/{name}", OPERATOR, method="PUT", body={"value": SENT})
        assert told.status in (400, 404, 422), told
        canary.came_out("PUT of a config", told)
    documented = _fetch(url, "/openapi.json", OPERATOR)
    canary.came_out("/openapi.json", documented)
    answered = 0
    for path in (*json.loads(documented.text)["paths"], "/metrics", "/nowhere"):
        filled = re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "0"), path)
        for node_id in canary.cluster.nodes:
            told = _fetch(canary.cluster.admin_url(node_id), filled, OPERATOR)
            answered += told.status == 200
            canary.came_out(path, told)
        canary.came_out(path, _fetch(url, filled, READER))
        canary.came_out(path, _fetch(url, filled, ""))
    assert answered > 90, answered
    for path in ("/v3/clusters", "/metrics", settings):
        told = _fetch(url, path, WRONG_TOKEN)
        assert told.status == 401, told
        canary.came_out("a wrong token", told)


class Told(NamedTuple):
    """An answer of the HTTP API."""

    status: int
    headers: str
    text: str


def _fetch(url: str, path: str, token: str, *, method: str = "GET", body: Any = None) -> Told:
    """Return the response. Of a stream of events, which does not end by itself, return the first event."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {**headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        is_endless = answer.headers.get_content_type() == "text/event-stream"
        text = b"".join(iter(answer.readline, b"\n")) if is_endless else answer.read()
        return Told(answer.status, str(answer.headers), text.decode(errors="replace"))
    finally:
        connection.close()


def use_commands(canary: Canary, folder: Path) -> None:
    """Show settings by the command line, and start a node with invalid files."""
    client = folder / "admin.properties"
    client.write_text("".join(f"{name}={value}\n" for name, value in canary.settings("admin", PLAIN).items()))
    run = CommandLine(f"{HOST}:{canary.port}")
    for words in (
        ("config", "get", "broker", "1", "-o", "json"),
        ("cluster", "describe"),
        ("token", "list"),
        ("config", "set", "broker", "1", f"ssl.keystore.key={SENT}"),
        ("token", "list", "-X", f"sasl.password={WRONG}"),
        ("topic", "list", "-X", f"no.such.setting={SENT}"),
    ):
        canary.came_out(f"raftlog {' '.join(words[:2])}", run(*words, "-F", str(client)))
    use_wrong_files(canary, folder)


def use_wrong_files(canary: Canary, folder: Path) -> None:
    """Start a node alone, with secrets that cannot be used."""
    written = canary.cluster.nodes[1].config_path.read_text()
    lines = dict(line.split("=", 1) for line in written.splitlines())
    alone = {
        name: text for name, text in lines.items() if name.startswith(("ssl.", "listener.name.", "sasl."))
    }
    alone |= {
        "raftlog.cluster.secret": CLUSTER,
        "listeners": f"CLIENTS://{HOST}:0,CONTROLLER://{HOST}:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "log.dirs": str(folder / "data"),
    }
    wrongs: tuple[dict[str, str], ...] = (
        {"ssl.key.password": WRONG},
        {"ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {SENT} -----END PRIVATE KEY-----"},
        {"listener.name.clients.plain.sasl.jaas.config": f'org.example.Module required user_x="{SENT}";'},
        {"listener.name.clients.plain.sasl.jaas.config": f"{SENT}"},
        {"sasl.oauthbearer.assertion.private.key.passphrase": SENT},
        {"raftlog.cluster.secret": SENT[:15]},
    )
    for number, wrong in enumerate(wrongs):
        node = NodeProcess(1, folder / f"wrong-{number}", settings=alone | wrong, port=canary.port)
        node.forked = True
        node.start()
        assert node.wait() != 0
        said = node.log_path.read_text()
        assert next(iter(wrong)) in said, said
        canary.came_out("raftlog server of a wrong file", said)


def test_no_secret_comes_out_of_any_door(canary: Canary, tmp_path: Path) -> None:
    """Neither in answers, metrics, documentation and messages nor in logs of level debug or files of nodes."""
    until(lambda: canary.admin().list_topics(timeout=PATIENCE_S).brokers, "the cluster lets us in")
    use_kafka(canary)
    proof = use_logins(canary)
    use_http(canary)
    use_commands(canary, tmp_path)
    for node in canary.cluster.nodes.values():
        canary.came_out("the log of a node", node.log_path.read_text(errors="replace"))
        for path in node.config_path.parent.rglob("*"):
            if path.is_file() and path not in (node.config_path, node.log_path):
                canary.came_out("the files of a node", path.read_bytes().decode("latin-1"))
    assert len(canary.outputs) > 30, sorted(canary.outputs)
    assert "authentication_failed" in canary.outputs["the log of a node"]
    text, locked = canary.key_texts
    secrets = {
        **SECRETS,
        "a secret that is too short": SENT[:15],
        "a delegation token": proof,
        "a key": text,
        "a key under its password": locked,
    }
    leaks = [
        f"{name} came out of {where}"
        for where, what in canary.outputs.items()
        for name, secret in secrets.items()
        for form in forms(secret)
        if form in what
    ]
    assert not leaks, "\n".join(leaks)
