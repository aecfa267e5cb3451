"""Three real nodes with a listener of each kind, and the ways in: which door, by which mechanism, with what in hand."""

from __future__ import annotations

import re
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.testing.cluster import AdminCluster
from tests.clients.nodes import events, told, violations
from tests.kit.certificates import HOST, Authority
from tests.kit.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S

NODES = 3
ADMIN_PASSWORD = "admin's own"
PASSWORD = "in wonderland"
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_admin="{ADMIN_PASSWORD}" user_alice="{PASSWORD}";'
)
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "LOGINS": "SASL_PLAINTEXT", "SECURE": "SASL_SSL"}
"""Beside PLAINTEXT, by which the cluster itself is looked at."""

_REFUSALS = re.compile(
    r"^raftlog_(?:failed_logins|connections_closed)_total\{(.*(?:mechanism|tls_handshake_failed).*)\} (\d+)",
    re.MULTILINE,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


_ADMIN = b64encode(f"admin:{ADMIN_PASSWORD}".encode()).decode()


class Way(NamedTuple):
    """A way in, and its user."""

    listener: str
    mechanism: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.listener.lower(), self.mechanism.lower())))

    @property
    def protocol(self) -> str:
        """The security protocol, by Kafka's name."""
        return LISTENERS.get(self.listener, "PLAINTEXT")

    @property
    def speaks_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def user(self) -> str:
        return {"MUTUAL": "carol"}.get(self.listener, "alice" if self.mechanism else "ANONYMOUS")


WAYS = (
    Way("PLAINTEXT"),
    Way("TLS"),
    Way("MUTUAL"),
    *(Way(listener, mechanism) for listener in ("LOGINS", "SECURE") for mechanism in MECHANISMS),
)


class Hand(NamedTuple):
    """The credentials of one attempt. The right credentials are accepted; wrong credentials differ in one point."""

    protocol: str
    mechanism: str
    user: str
    password: str
    token: str
    authority: str
    """A file of PEM."""
    certificate: str
    """A file of PEM, with its key; empty: none."""


class FiveListeners:
    """The cluster, with a topic for each user, which only that user may write to."""

    def __init__(self, cluster: AdminCluster, folder: Path, provider: IdentityProvider) -> None:
        self.cluster = cluster
        self.provider = provider
        self._folder = folder
        self._strangers = IdentityProvider(provider.algorithm)
        self.authority, self.stranger = folder / "ca.pem", folder / "stranger.pem"
        self._ports = {
            (int(node_id), str(each["listener"])): int(each["port"])
            for node_id in cluster.nodes
            for each in events(cluster, node_id)
            if each["event"] == "listener_started"
        }

    def bootstrap(self, listener: str) -> str:
        return ",".join(f"{HOST}:{self._ports[node_id, listener]}" for node_id in self.cluster.nodes)

    def right(self, way: Way) -> Hand:
        """Return the credentials that let in."""
        return Hand(
            way.protocol,
            way.mechanism,
            way.user,
            PASSWORD,
            self.provider.token(way.user) if way.mechanism == "OAUTHBEARER" else "",
            str(self.authority) if way.speaks_tls else "",
            str(self._folder / "carol.pem") if way.listener == "MUTUAL" else "",
        )

    def wrong(self, way: Way) -> Hand:
        """Return some that do not: a guess, a token of a stranger's key, certificates that one end does not believe."""
        hand = self.right(way)
        if way.mechanism == "OAUTHBEARER":
            return hand._replace(token=self._strangers.token(way.user))
        if way.mechanism:
            return hand._replace(password="a guess")
        if way.listener == "MUTUAL":
            return hand._replace(certificate=str(self._folder / "mallory.pem"))
        if way.listener == "TLS":
            return hand._replace(authority=str(self.stranger))
        return hand._replace(protocol="SASL_PLAINTEXT", mechanism="PLAIN")

    def told(self, event: str) -> int:
        """Return how often the nodes logged an event."""
        return sum(
            each["event"] == event for node_id in self.cluster.nodes for each in events(self.cluster, node_id)
        )

    def refusals(self) -> Mapping[str, int]:
        """Return the counts of failed logins by mechanism and reason, and of failed handshakes, of all nodes."""
        counts: dict[str, int] = {}
        for node_id in self.cluster.nodes:
            url = f"{self.cluster.admin_url(node_id)}/metrics"
            asked = urllib.request.Request(url, headers={"Authorization": f"Basic {_ADMIN}"})
            text = urllib.request.urlopen(asked, timeout=PATIENCE_S).read().decode()
            for labels, count in _REFUSALS.findall(text):
                counts[labels] = counts.get(labels, 0) + int(count)
        return counts


def judge(here: FiveListeners, way: Way, attempt: Callable[[str, Hand, str], str | None]) -> None:
    """Try a way with right and wrong credentials. `attempt(bootstrap, hand, topic)` produces one record.

    It returns None once that is acknowledged, else what the client complains of.
    """
    bootstrap, topic = here.bootstrap(way.listener), topic_of(way.user)
    complaint = attempt(bootstrap, here.right(way), topic)
    assert complaint is None, f"the right credentials are refused: {complaint}"
    before = here.refusals()
    complaint = attempt(bootstrap, here.wrong(way), topic)
    assert complaint is not None, "the wrong credentials are taken"
    counted = _counted_as(way)
    if counted:
        assert here.refusals().get(counted, 0) > before.get(counted, 0), complaint


def _counted_as(way: Way) -> str:
    """Return the labels of the count that a wrong attempt adds to; empty: perhaps only the client notices."""
    if way.mechanism:
        reason = "bad_signature" if way.mechanism == "OAUTHBEARER" else "wrong_credentials"
        return f'mechanism="{way.mechanism}",reason="{reason}"'
    return 'reason="tls_handshake_failed"' if way.listener == "MUTUAL" else ""


def topic_of(user: str) -> str:
    """Return the name of the only topic that a user may write to."""
    return f"of-{user.lower()}"


@contextmanager
def five_listeners(folder: Path) -> Iterator[FiveListeners]:
    """Run the nodes; brokers reach each other over SASL_SSL; keys come from a file and from an address."""
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    keystores = {node_id: authority.issue(f"node-{node_id}") for node_id in range(1, NODES + 1)}
    authority.issue("carol", common_name="carol")
    stranger.issue("mallory", common_name="carol")
    provider = IdentityProvider("RS256")
    with provider.serving() as url:
        cluster = AdminCluster(
            NODES,
            settings=_settings(url, provider.write(folder / "jwks.json")),
            node_settings={node_id: authority.settings(path) for node_id, path in keystores.items()},
        )
        for node in cluster.nodes.values():
            more = "".join(f",{listener}://{HOST}:0" for listener in LISTENERS)
            written = re.sub(
                r"(?m)^((?:advertised\.)?listeners=.*)$", rf"\1{more}", node.config_path.read_text()
            )
            node.config_path.write_text(written)
        with cluster:
            here = FiveListeners(cluster, folder, provider)
            _make_users(here)
            yield here
            bad = violations(cluster)
            assert not bad, told(bad)


def _settings(url: str, file_url: str) -> dict[str, str]:
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | LISTENERS
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.logins.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.secure.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
        "sasl.oauthbearer.jwks.endpoint.url": file_url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.secure.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
        "raftlog.sasl.oauthbearer.allowed.urls": url,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        **SMALL,
    }


def _make_users(here: FiveListeners) -> None:
    """Make alice's SCRAM credentials, and a topic with a rule for each user."""
    admin = AdminClient(
        {
            "bootstrap.servers": here.bootstrap("LOGINS"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": ADMIN_PASSWORD,
        }
    )
    users = sorted({way.user for way in WAYS})
    made = [
        *admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
            ]
        ).values(),
        *admin.create_topics([NewTopic(topic_of(user), 1, NODES) for user in users]).values(),
        *admin.create_acls(
            [
                AclBinding(
                    ResourceType.TOPIC,
                    topic_of(user),
                    ResourcePatternType.LITERAL,
                    f"User:{user}",
                    "*",
                    AclOperation.WRITE,
                    AclPermissionType.ALLOW,
                )
                for user in users
            ]
        ).values(),
    ]
    for each in made:
        each.result(PATIENCE_S)
