"""A real node with HTTPS: users by password and certificate, their rights by ACLs, and the audit log."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raftlog.admin.resources import ROUTES
from raftlog.admin.route import Route
from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.cli import exits
from raftlog.security.acls import Demanded, DemandedPerPart, Filtered, NoRights
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Answer
from tests.cli.live import invoke
from tests.kit.certificates import Authority
from tests.kit.waits import PATIENCE_S, log_lines, until

READER = "reader-token-0123456789"
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_carol="singing";'
PASSWORD = "in wonderland"


class Doors(NamedTuple):
    """One node and its callers: `root` shows a certificate and is a super user."""

    cluster: AdminCluster
    authority: Authority
    root: ssl.SSLContext

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> Answer:
        """Send a request over TLS as the given user."""
        sent = dict(headers or {})
        if user is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
        if body is not None:
            sent["Content-Type"] = "application/json"
        each = self.cluster.addresses[1]
        context = context or self.authority.client()
        connection = http.client.HTTPSConnection(
            each.host, each.admin_port, timeout=PATIENCE_S, context=context
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            text = answer.read()
            parsed = json.loads(text) if text and "json" in answer.headers["Content-Type"] else text.decode()
            return Answer(answer.status, answer.headers, parsed)
        finally:
            connection.close()

    def as_root(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask with root's certificate."""
        return self.ask(method, path, body, context=self.root)

    @property
    def at(self) -> str:
        """Return the path of the cluster."""
        (found,) = self.as_root("GET", "/v3/clusters").body["data"]
        return f"/v3/clusters/{found['cluster_id']}"

    def allow(
        self, operation: str, kind: str, name: str, user: str = "alice", permission: str = "ALLOW"
    ) -> None:
        rule = {
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": "LITERAL",
            "principal": f"User:{user}",
            "host": "*",
            "operation": operation,
            "permission": permission,
        }
        assert self.as_root("POST", f"{self.at}/acls", rule).status == 201

    def take_back(self, user: str = "alice") -> list[dict[str, Any]]:
        """Remove all rules about a user."""
        asked = "resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY"
        answer = self.as_root("DELETE", f"{self.at}/acls?{asked}&principal=User:{user}")
        assert answer.status == 200
        gone: list[dict[str, Any]] = answer.body["data"]
        return gone

    def log(self) -> list[dict[str, Any]]:
        """Return the node's log."""
        lines = self.cluster.nodes[1].log_path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    authority = Authority(folder)
    (folder / "tokens").write_text(f"reader grafana {READER}\n")
    settings = {
        "raftlog.cluster.secret": "a secret of this cluster alone",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.logins.plain.sasl.jaas.config": PLAIN_USERS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        "raftlog.admin.tokens.file": str(folder / "tokens"),
        "raftlog.admin.security.protocol": "SSL",
        **{
            f"raftlog.admin.{name}": value
            for name, value in authority.settings(
                authority.issue("node"),
                client_auth="requested",
                principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
            ).items()
        },
    }
    cluster = AdminCluster(1, settings=settings)
    node = cluster.nodes[1]
    lines = dict(line.split("=", 1) for line in node.config_path.read_text().splitlines())
    for name in ("listeners", "advertised.listeners"):
        lines[name] += ",LOGINS://127.0.0.1:0"
    node.config_path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    root = authority.client(authority.issue("root", "root@here", common_name="Root"))
    with cluster:
        found = Doors(cluster, authority, root)
        until(lambda: found.as_root("GET", "/v1/users").status == 200, "the node knows its rules")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            path = f"/v1/users/alice/credentials/{mechanism}"
            assert found.as_root("PUT", path, {"password": PASSWORD}).status == 204
        assert found.as_root("POST", f"{found.at}/topics", {"topic_name": "orders"}).status == 201
        assert found.as_root("POST", f"{found.at}/topics", {"topic_name": "hidden"}).status == 201
        yield found


ALICE = ("alice", PASSWORD)


def test_user_of_scram_calls_with_the_right_password_only(doors: Doors) -> None:
    """A wrong password, an unknown user and half a header get one answer; no answer shows a secret."""
    assert doors.ask("GET", "/v3/clusters", user=ALICE).status == 200
    refused = [
        doors.ask("GET", "/v3/clusters", user=user)
        for user in (("alice", "a guess"), ("nobody", PASSWORD), ("carol", PASSWORD))
    ]
    refused.append(doors.ask("GET", "/v3/clusters", headers={"Authorization": "Basic %%%"}))
    refused.append(doors.ask("GET", "/v3/clusters"))
    assert {each.status for each in refused} == {401}
    assert len({each.body["message"] for each in refused}) == 1
    assert "Basic" in refused[0].headers["WWW-Authenticate"]


def test_user_of_plain_calls_with_its_password(doors: Doors) -> None:
    """The users in the settings of a Kafka listener are users here too."""
    assert doors.ask("GET", "/v3/clusters", user=("carol", "singing")).status == 200


def test_bearer_of_a_token_keeps_its_role(doors: Doors) -> None:
    """A reader's token reads everything, whatever the ACLs say, and changes no state."""
    bearer = {"Authorization": f"Bearer {READER}"}
    assert doors.ask("GET", f"{doors.at}/topics/hidden", headers=bearer).status == 200
    assert doors.ask("DELETE", f"{doors.at}/topics/hidden", headers=bearer).status == 403


def test_script_that_asks_gets_no_form_of_the_browser(doors: Doors) -> None:
    """A page has a form of its own; a challenge for Basic would put up another over it."""
    answer = doors.ask("GET", "/v3/clusters", headers={"X-Requested-With": "XMLHttpRequest"})
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_caller_sees_the_rights_that_acls_give_it(doors: Doors) -> None:
    """Its rights on the requested topic, whether or not the topic exists. A reader's token may not change it."""
    doors.allow("DESCRIBE", "TOPIC", "orders")
    try:
        me = doors.ask("GET", "/v1/whoami?topic=orders&group=g", user=ALICE).body
        assert (me["name"], me["changes"], me["cluster"]) == ("User:alice", True, [])
        assert (me["topic"], me["group"]) == (["DESCRIBE"], [])
    finally:
        doors.take_back()
    reader = doors.ask("GET", "/v1/whoami", headers={"Authorization": f"Bearer {READER}"}).body
    assert (reader["name"], reader["role"], reader["changes"]) == ("grafana", "reader", False)


def test_right_that_is_given_and_taken_decides(doors: Doors) -> None:
    """An ACL is in force as soon as the response arrives. A missing topic looks like a forbidden topic."""
    path = f"{doors.at}/topics/orders"
    before = doors.ask("GET", path, user=ALICE)
    missing = doors.ask("GET", f"{doors.at}/topics/nothing", user=ALICE)
    assert (before.status, missing.status, before.body["error_code"]) == (403, 403, 40301)
    assert before.body["message"].replace("orders", "nothing") == missing.body["message"]
    doors.allow("DESCRIBE", "TOPIC", "orders")
    try:
        assert doors.ask("GET", path, user=ALICE).status == 200
        listed = doors.ask("GET", f"{doors.at}/topics", user=ALICE).body["data"]
        assert [each["topic_name"] for each in listed] == ["orders"]
        assert doors.ask("DELETE", path, user=ALICE).status == 403
    finally:
        assert [each["operation"] for each in doors.take_back()] == ["DESCRIBE"]
    assert doors.ask("GET", path, user=ALICE).status == 403


FILTERED = {
    "list_topics",
    "list_groups",
    "list_group_lines",
    "list_kafka_share_groups",
    "list_share_groups",
    "list_broker_replicas",
    "list_topic_lines",
    "list_topic_measures",
    "list_all_topic_configs",
    "list_transactions",
    "find_hanging_transactions",
}
OPEN = {
    "get_index",
    "get_live",
    "get_ready",
    "get_caught_up",
    "get_own_restart_risks",
    "list_clusters",
    "get_cluster",
    "list_brokers",
    "get_broker",
    "get_caller",
}
ASKED_BY_HANDLER = {"create_topic", "explain", "stream_events"}
QUERIES = {
    "explain": "?principal=User:bob&operation=READ&resource=topic:orders",
    "stream_events": "?samples=true",
    "get_content": "?offset=0",
}
BODIES: dict[str, Any] = {
    "create_topic": {"topic_name": "new"},
    "resend_record": {"offset": 0, "topic_name": "orders"},
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_user_without_rights_gets_nothing_from_any_route(doors: Doors, route: Route) -> None:
    """Each route names the right that it needs, or shows what the user may see. Its resources need not exist."""
    cluster_id = doors.at.rpartition("/")[2]
    known = {"cluster_id": cluster_id, "topic_name": "orders", "broker_id": "1"}
    path = route.template
    for name, kind in route.parameters.items():
        path = path.replace(f"{{{name}}}", known.get(name, "0" if kind is int else "x"))
    path += QUERIES.get(route.name, "")
    answer = doors.ask(route.method, path, BODIES.get(route.name), user=ALICE)
    if route.name in OPEN:
        assert isinstance(route.rights, NoRights)
        assert answer.status == 200
    elif route.name in FILTERED:
        assert isinstance(route.rights, Filtered)
        assert (answer.status, answer.body["data"]) == (200, [])
    else:
        kind = DemandedPerPart if route.name in ASKED_BY_HANDLER else Demanded
        assert isinstance(route.rights, kind)
        assert (answer.status, answer.body["error_code"]) == (403, 40301)


def test_record_is_sent_again_only_where_its_sender_may_write(doors: Doors) -> None:
    """It needs READ of the one topic, and WRITE of the other."""
    at = "/v1/topics/orders/partitions/0/resend"
    to_hidden, to_itself = ({"offset": 0, "topic_name": each} for each in ("hidden", "orders"))
    doors.allow("READ", "TOPIC", "orders")
    try:
        assert doors.ask("POST", at, to_hidden, user=ALICE).status == 403
        assert doors.ask("POST", at, to_itself, user=ALICE).status == 403
        doors.allow("WRITE", "TOPIC", "orders")
        assert doors.ask("POST", at, to_hidden, user=ALICE).status == 403
        assert doors.ask("POST", at, to_itself, user=ALICE).status == 404  # there is no record
    finally:
        doors.take_back()


def test_explanation_names_the_rule(doors: Doors) -> None:
    """Yes and no, in words, with the rule that decided."""
    doors.allow("READ", "TOPIC", "orders")
    doors.allow("WRITE", "TOPIC", "orders", permission="DENY")
    try:
        ask = "/v1/explain?principal=User:alice&host=10.0.0.1&resource=topic:orders&operation="
        reads, writes, deletes = (
            doors.as_root("GET", ask + each).body for each in ("READ", "write", "DELETE")
        )
        assert (reads["allowed"], reads["reason"]) == (True, "allowed by a rule")
        assert reads["rule"] == "ALLOW User:alice READ from * on TOPIC LITERAL orders"
        assert (writes["allowed"], writes["rule"].split()[0]) == (False, "DENY")
        assert (deletes["allowed"], deletes["reason"], deletes["rule"]) == (False, "no rule matches", None)
        assert "User:alice may not DELETE TOPIC orders" in deletes["message"]
        for query in (
            "principal=alice&resource=topic:a&operation=READ",
            "principal=User:a&resource=x:a&operation=READ",
        ):
            assert doors.as_root("GET", f"/v1/explain?{query}").status == 400
        assert doors.as_root("GET", ask + "IDEMPOTENT_WRITE").status == 400
    finally:
        doors.take_back()


def test_users_may_ask_about_themselves_only(doors: Doors) -> None:
    """By name, or without a name. A reader's token, which may see all ACLs, can ask about every user."""
    ask = "/v1/explain?resource=topic:orders&operation=READ"
    own = doors.ask("GET", ask, user=ALICE)
    assert own.status == 200 and own.body["message"].startswith("User:alice may not READ TOPIC orders")
    assert doors.ask("GET", f"{ask}&principal=User:alice", user=ALICE).body == own.body
    of_others = doors.ask("GET", f"{ask}&principal=User:bob", user=ALICE)
    assert (of_others.status, of_others.body["error_code"]) == (403, 40301)
    bearer = {"Authorization": f"Bearer {READER}"}
    assert doors.ask("GET", f"{ask}&principal=User:bob", headers=bearer).status == 200
    assert doors.ask("GET", ask, headers=bearer).status == 400  # it is no user


def test_rules_are_created_listed_and_deleted_as_in_rest_v3(doors: Doors) -> None:
    """Several at once; a filter by resource with MATCH finds prefixes; a deletion must say what it is about."""
    rule = {
        "resource_type": "GROUP",
        "resource_name": "bill",
        "pattern_type": "PREFIXED",
        "principal": "User:bob",
        "host": "127.0.0.1",
        "operation": "READ",
        "permission": "ALLOW",
    }
    other = {**rule, "resource_name": "pay", "permission": "DENY"}
    acls = f"{doors.at}/acls"
    assert doors.as_root("POST", f"{acls}:batch", {"data": [rule, other]}).status == 201
    found = doors.as_root("GET", f"{acls}?resource_type=GROUP&resource_name=billing&pattern_type=MATCH").body
    assert [{name: each[name] for name in rule} for each in found["data"]] == [rule]
    assert found["kind"] == "KafkaAclList"
    assert doors.as_root("DELETE", f"{acls}?principal=User:bob").status == 400
    assert doors.as_root("POST", acls, {**rule, "operation": "FLY"}).status == 422
    refused = doors.as_root("POST", acls, {**rule, "host": "a.name"})
    assert (refused.status, refused.body["error_code"]) == (400, 40002)
    assert len(doors.take_back("bob")) == 2


def test_audit_has_denials_and_failed_logins_without_secrets(doors: Doors) -> None:
    """Lines have the user, the request and the address; /metrics counts them."""
    doors.ask("GET", "/v3/clusters", user=("alice", "a wrong guess"))
    doors.ask("DELETE", f"{doors.at}/topics/orders", user=("carol", "singing"))
    log_lines(doors.cluster.nodes[1], "User:carol may not DELETE TOPIC orders")
    denied = [
        each for each in doors.log() if each["event"] == "admin_denied" and each["caller"] == "User:carol"
    ]
    assert (denied[-1]["operation"], denied[-1]["address"]) == ("delete_topic", "127.0.0.1")
    assert "may not DELETE TOPIC orders" in denied[-1]["outcome"]
    failed = [each for each in doors.log() if each["event"] == "admin_login_failed"]
    assert {"wrong_password", "unknown_user", "malformed"} & {each["reason"] for each in failed}
    succeeded = [each for each in doors.log() if each["event"] == "admin_login_succeeded"]
    assert "User:carol" in {each["principal"] for each in succeeded} <= {"User:alice", "User:carol"}
    text = doors.cluster.nodes[1].log_path.read_text()
    assert not [each for each in (PASSWORD, "singing", "a wrong guess", READER) if each in text]
    metrics = doors.as_root("GET", "/metrics").body
    assert 'raftlog_admin_failed_logins_total{mechanism="basic",reason="wrong_password"}' in metrics
    assert 'raftlog_denials_total{door="http",operation="delete_topic"}' in metrics


def test_history_has_the_principal(doors: Doors) -> None:
    """The principal of the caller travels with the request to the controller."""
    why = doors.as_root("GET", "/v1/topics/orders/partitions/0/why").body
    assert any("User:root created the topic" in each["because"] for each in why["events"])


def test_certificate_is_renewed_while_the_node_runs(doors: Doors, tmp_path: Path) -> None:
    """The next connection gets the new certificate."""
    keystore = doors.authority.path.parent / "node.pem"

    def serial() -> str:
        each = doors.cluster.addresses[1]
        return ssl.get_server_certificate((each.host, each.admin_port))

    before = serial()
    doors.authority.renew(keystore)
    until(lambda: serial() != before, "the new certificate is shown")
    assert serial().strip() in keystore.read_text()


def test_command_line_asks_over_https_as_a_user_or_with_a_certificate(doors: Doors) -> None:
    """`--cacert`, `--user` and `--cert`; for an untrusted certificate the error says what to do."""
    each = doors.cluster.addresses[1]
    at = ("transactions", "list", "--http", f"https://{each.host}:{each.admin_port}", "--json")
    cacert = ("--cacert", str(doors.authority.path))
    code, out, err = invoke(*at, *cacert, "--cert", str(doors.authority.path.parent / "root.pem"))
    assert (code, json.loads(out)) == (0, []), err
    assert invoke(*at, *cacert, "--user", ":".join(ALICE))[0] == 0
    code, _, err = invoke(*at, *cacert, "--user", "alice:a guess")
    assert code == exits.DENIED
    assert "a guess" not in err
    code, _, err = invoke(*at, "--user", ":".join(ALICE))
    assert code == exits.DENIED and "--cacert" in err
