"""Tokens of an identity provider at the HTTP API: it admits the same users as OAUTHBEARER at a broker, no others."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from raftlog.admin.auth import Authenticator
from raftlog.admin.identity_tokens import MAX_REMEMBERED, IdentityTokens
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.base.config.oauth import ListenerOauth
from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.base.env import Env
from raftlog.broker.network.token_keys import TokenKeys
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.security.bearer_tokens import TokenRefused
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Answer, Api
from tests.clients.nodes import events
from tests.kit.identity_provider import AUDIENCE, ISSUER, IdentityProvider, make_key, sign
from tests.kit.waits import PATIENCE_S, until

READER = "reader-token-0123456789"
DELAY_MS = 50
UNSIGNED = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0."


class Door(NamedTuple):
    """One node with a listener for tokens, its HTTP API, and the provider. Its user `root` is a super user."""

    cluster: AdminCluster
    provider: IdentityProvider
    api: Api

    def ask(self, token: str, method: str = "GET", path: str = "/v3/clusters", body: Any = None) -> Answer:
        """Send a request with a bearer token."""
        return self.api.ask(method, path, body, {"Authorization": f"Bearer {token}"})

    def principal(self, token: str) -> str:
        """Return the principal that the API gives to the bearer of a token."""
        answer = self.ask(token, path="/v1/whoami")
        assert answer.status == 200, answer
        return str(answer.body["name"])

    def lets_in_at_broker(self, token: str) -> bool:
        """Whether a stock client gets in at the listener with a token."""
        (port,) = (
            each["port"]
            for each in events(self.cluster, 1)
            if (each["event"], each.get("listener")) == ("listener_started", "LOGINS")
        )
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (token, time.time() + 3600),
            },
            logger=None,
        )
        try:
            admin.list_topics(timeout=3)
        except KafkaException:
            return False
        return True

    def refused(self) -> dict[str, int]:
        """Return how many bearers of tokens were refused, by reason."""
        counted = re.findall(
            r'raftlog_admin_failed_logins_total\{mechanism="bearer",reason="(\w+)"\} (\d+)',
            self.metrics(),
        )
        return {reason: int(count) for reason, count in counted}

    def metrics(self) -> str:
        connection = http.client.HTTPConnection(self.api.host, self.api.port, timeout=PATIENCE_S)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {READER}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return text


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"reader grafana {READER}\n")
    provider = IdentityProvider("RS256")
    with provider.serving() as url:
        settings = {
            "raftlog.cluster.secret": "a secret of this cluster alone",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "raftlog.sasl.oauthbearer.allowed.urls": url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "1",
            "connection.failed.authentication.delay.ms": str(DELAY_MS),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:root",
            "raftlog.admin.tokens.file": str(tokens),
        }
        cluster = AdminCluster(1, settings=settings)
        node = cluster.nodes[1]
        listeners = re.compile(r"(?m)^((?:advertised\.)?listeners=.*)$")
        node.config_path.write_text(listeners.sub(r"\1,LOGINS://127.0.0.1:0", node.config_path.read_text()))
        with cluster:
            found = Door(cluster, provider, Api(cluster.admin_url()))
            root = provider.token("root")
            until(lambda: found.ask(root, path="/v1/users").status == 200, "the node knows its rules")
            assert found.ask(root, "POST", f"{at(found)}/topics", {"topic_name": "orders"}).status == 201
            yield found


def at(door: Door) -> str:
    """Return the path of the cluster."""
    (found,) = door.ask(READER).body["data"]
    return f"/v3/clusters/{found['cluster_id']}"


def allow(door: Door, user: str, operation: str) -> None:
    rule = {
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "pattern_type": "LITERAL",
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission": "ALLOW",
    }
    assert door.ask(door.provider.token("root"), "POST", f"{at(door)}/acls", rule).status == 201


def take_back(door: Door, user: str) -> None:
    query = f"resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY&principal=User:{user}"
    assert door.ask(door.provider.token("root"), "DELETE", f"{at(door)}/acls?{query}").status == 200


def test_a_token_is_the_same_user_here_and_at_a_broker(door: Door) -> None:
    """And has that user's rights, which a rule gives and takes."""
    token = door.provider.token("alice")
    assert door.lets_in_at_broker(token)
    assert door.principal(token) == "User:alice"
    path = f"{at(door)}/topics/orders"
    assert door.ask(token, path=path).status == 403
    allow(door, "alice", "DESCRIBE")
    assert door.ask(token, path=path).status == 200
    take_back(door, "alice")
    assert door.ask(token, path=path).status == 403


def bad_tokens(provider: IdentityProvider) -> dict[str, str]:
    """Return a token for each reason of a refusal."""
    stranger = IdentityProvider(provider.algorithm)
    now_s = int(time.time())
    return {
        "expired": provider.token("root", now_s=now_s - 700, lasts_s=600),
        "not_yet_valid": provider.token("root", nbf=now_s + 600),
        "wrong_issuer": provider.token("root", iss="https://elsewhere.test"),
        "wrong_audience": provider.token("root", aud="another program"),
        "no_subject": provider.token(""),
        "bad_signature": stranger.token("root"),
        "unknown_key": sign(make_key("ES256", "made up"), "ES256", {"sub": "root"}),
        "algorithm": UNSIGNED,
        "malformed": provider.token("root", scope=[1]),
    }


def test_tokens_that_a_broker_refuses_are_refused_alike_slowly_and_counted(door: Door) -> None:
    """The response gives no reason; the audit log has the reason, but not the token."""
    before, answers = door.refused(), []
    bad = bad_tokens(door.provider)
    for token in bad.values():
        began_at = time.monotonic()
        answers.append(door.ask(token))
        assert time.monotonic() - began_at >= DELAY_MS / 1000
    assert {each.status for each in answers} == {401}
    assert len({json.dumps(each.body) for each in answers}) == 1
    after = door.refused()
    assert {reason: after[reason] - before.get(reason, 0) for reason in bad} == dict.fromkeys(bad, 1)
    assert not door.lets_in_at_broker(bad["wrong_audience"])
    log = door.cluster.nodes[1].log_path.read_text()
    failed = [each for each in events(door.cluster, 1) if each["event"] == "admin_login_failed"]
    assert any(ISSUER in each.get("advice", "") for each in failed)
    assert not [part for token in bad.values() for part in token.split(".") if part in log if part]


def test_a_token_that_is_no_jwt_means_what_it_did(door: Door) -> None:
    """A token from the tokens file has its role; any other token is unknown."""
    assert door.principal(READER) == "grafana"
    before = door.refused().get("unknown_token", 0)
    assert door.ask("another-token-0123456789").status == 401
    assert door.refused()["unknown_token"] == before + 1


def test_the_audit_log_has_one_login_for_each_token(door: Door) -> None:
    """However often it is sent: a monitor asks every few seconds."""
    for token in (door.provider.token("carol"), door.provider.token("carol", jti="another")):
        assert {door.principal(token) for _ in range(3)} == {"User:carol"}

    def logins() -> list[str]:
        wanted = ("admin_login_succeeded", "User:carol")
        found = (each for each in events(door.cluster, 1) if (each["event"], each.get("principal")) == wanted)
        return [each["mechanism"] for each in found]

    until(lambda: len(logins()) >= 2, "both logins are in the log", seen=logins)
    assert logins() == ["bearer"] * 2


def test_a_new_key_of_the_provider_is_fetched_when_a_token_names_it(door: Door) -> None:
    """And a token of the key that is gone is refused from then on, as at a broker."""
    former, before = door.provider.token("alice"), door.provider.keys
    try:
        door.provider.change_key("next")
        assert door.principal(door.provider.token("alice")) == "User:alice"
        assert door.ask(former).status == 401
    finally:
        door.provider.keys = before
        until(lambda: door.ask(former).status == 200, "the former key is fetched again")


class Stream:
    """A stream of records over HTTP, and the reports that came back."""

    def __init__(self, door: Door, token: str) -> None:
        self._connection = http.client.HTTPConnection(door.api.host, door.api.port, timeout=PATIENCE_S)
        self._connection.putrequest("POST", f"{at(door)}/topics/orders/records")
        self._connection.putheader("Authorization", f"Bearer {token}")
        self._connection.putheader("Content-Type", "application/json")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        self._answer: http.client.HTTPResponse | None = None

    def send(self) -> Any:
        """Send a record, and return its report; None at the end."""
        text = b'{"value": {"data": 1}}'
        self._connection.send(b"%x\r\n%s\r\n" % (len(text), text))
        if self._answer is None:
            self._answer = self._connection.getresponse()
        line = self._answer.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self._connection.close()


def test_a_stream_ends_when_its_token_expires(door: Door) -> None:
    """The record that comes then is not written, and its report says why."""
    allow(door, "erin", "WRITE")
    stream = Stream(door, door.provider.token("erin", lasts_s=2))
    try:
        reports = [stream.send()]
        ends_at = time.monotonic() + PATIENCE_S
        while reports[-1]["error_code"] == 200 and time.monotonic() < ends_at:
            reports.append(stream.send())
        assert (reports[-1]["error_code"], reports[0]["error_code"]) == (40101, 200)
        assert "expired" in reports[-1]["message"]
    finally:
        stream.close()
        take_back(door, "erin")


def test_a_stream_of_events_ends_when_its_token_expires(door: Door) -> None:
    """At that moment, news or not, and its last event says why."""
    connection = http.client.HTTPConnection(door.api.host, door.api.port, timeout=PATIENCE_S)
    try:
        token = door.provider.token("erin", lasts_s=2)
        connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
        events = connection.getresponse().read().decode().split("\n\n")
        assert events[0].startswith("event: metadata\n")
        assert events[-2].startswith('event: end\ndata: {"error_code":40101,')
    finally:
        connection.close()


def test_a_stream_ends_when_its_user_loses_the_right(door: Door) -> None:
    """With the next record, as a producer of Kafka's protocol is refused."""
    allow(door, "dave", "WRITE")
    stream = Stream(door, door.provider.token("dave"))
    try:
        assert stream.send()["error_code"] == 200
        take_back(door, "dave")
        report = stream.send()
        assert (report["error_code"], "may not WRITE" in report["message"]) == (40301, True)
    finally:
        stream.close()


# --- without a node


def keys_of(provider: IdentityProvider, url: str) -> TokenKeys:
    oauth = ListenerOauth(
        oauth_jwks_url=url, oauth_expected_issuer=ISSUER, oauth_expected_audience=(AUDIENCE,)
    )
    return TokenKeys(oauth, Env(), time.monotonic)


async def test_each_listeners_tokens_let_in_and_no_other_provider_is_asked_for_keys(tmp_path: Path) -> None:
    """A node may have listeners for tokens of two providers; each token is tried with all keys that are there."""
    one, other = IdentityProvider(), IdentityProvider("EdDSA")
    with one.serving() as url:
        keys = {"A": keys_of(one, url), "B": keys_of(other, other.write(tmp_path / "keys.json"))}
        await keys["B"].open()
        tokens = IdentityTokens(keys)
        assert (await tokens.log_in(other.token("alice"))).principal == "User:alice"
        with pytest.raises(TokenRefused) as refused:
            await tokens.log_in(other.token("alice", iss="https://elsewhere.test"))
        assert refused.value.reason == "wrong_issuer"
        assert one.fetches == 0


async def test_memory_of_tokens_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes; its next login counts as new."""
    monkeypatch.setattr("raftlog.admin.identity_tokens.MAX_REMEMBERED", 1)
    assert MAX_REMEMBERED > 1
    provider = IdentityProvider()
    keys = keys_of(provider, provider.write(tmp_path / "keys.json"))
    await keys.open()
    tokens = IdentityTokens({"A": keys})
    one, other = provider.token("alice"), provider.token("bob")
    assert [(await tokens.log_in(each)).is_new for each in (one, one, other, one)] == [
        True,
        False,
        True,
        True,
    ]


async def test_a_wrong_token_is_refused_even_where_loopback_needs_none(tmp_path: Path) -> None:
    """A valid token logs its user in, and an invalid token is refused. A text that is no JWT is ignored, as before."""
    provider = IdentityProvider()
    keys = keys_of(provider, provider.write(tmp_path / "keys.json"))
    await keys.open()
    config = load_config(
        flags={"raftlog.admin.listener": "127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}
    )

    def authenticator(**more: Any) -> Authenticator:
        return Authenticator(NodeView(config, lambda: EMPTY_IMAGE, list, lambda: 0.0, **more), None)

    async def name(token: str, **more: Any) -> str | None:
        bearer = {"Authorization": f"Bearer {token}"}
        found = await authenticator(**more).caller(bearer, "127.0.0.1", "User:ANONYMOUS")
        return None if found is None else found.name

    with_keys = {"token_verifiers": {"A": keys}}
    assert await name(provider.token("alice"), **with_keys) == "User:alice"
    assert await name(UNSIGNED, **with_keys) is None
    assert await name("something", **with_keys) == "anonymous"
    assert await name(provider.token("alice")) == "anonymous"
