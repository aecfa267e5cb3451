"""Claims about `raftlog user` and `raftlog acl` at a cluster with TLS, logins and rules, and about dev --secure."""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.cli import exits
from raftlog.client.errors import UNPROVEN
from raftlog.testing.secure_cluster import SecureCluster
from tests.cli.live import CommandLine, Ran, invoke
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, poll_until, until


class As:
    """The command line with the login of a user."""

    def __init__(self, cluster: SecureCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._raftlog = CommandLine(cluster.bootstrap_servers)

    def __call__(self, user: str, *arguments: str, password: str | None = None, stdin: bytes = b"") -> Ran:
        return self._raftlog(*arguments, "-F", str(self.settings(user, password)), stdin=stdin)

    def settings(self, user: str, password: str | None = None) -> Path:
        """Return a file with the login of a user."""
        settings = self.cluster.client_settings(user if user in self.cluster.passwords else "reader")
        settings |= {"sasl.username": user}
        settings |= {} if password is None else {"sasl.password": password}
        file = self._folder / "login.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file


@pytest.fixture(scope="module")
def secure_cluster() -> Iterator[SecureCluster]:
    with SecureCluster(1, settings=SMALL) as found:
        yield found


@pytest.fixture
def as_(secure_cluster: SecureCluster, tmp_path: Path) -> As:
    return As(secure_cluster, tmp_path)


def test_users_are_there_from_the_first_moment(as_: As) -> None:
    """The cluster has the credentials that lay beside the metadata log; no login was needed to create them."""
    ran = as_("admin", "user", "list", "-J")
    assert json.loads(ran.stdout) == [
        {"user": user, "mechanism": "SCRAM-SHA-512", "iterations": 4096}
        for user in ("admin", "reader", "writer")
    ]


def test_controllers_speak_tls_and_the_clusters_own_topics_are_made(secure_cluster: SecureCluster) -> None:
    """`create_topic` logs in as the cluster's admin; a controller refuses clients without a certificate."""
    secure_cluster.create_topic("made", partitions=2)
    assert len(secure_cluster.partitions("made")) == 2
    context = ssl.create_default_context(cafile=str(secure_cluster.certificates.ca))
    address = secure_cluster.addresses[1].host, secure_cluster.addresses[1].controller_port
    log = secure_cluster.nodes[1].log_path

    def is_logged() -> bool:
        """Handshakes that fail are logged every few seconds at most, so each look is an attempt."""
        with (
            socket.create_connection(address, timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=address[0]) as talking,
        ):
            assert talking.recv(1) == b""
        return "the client has no certificate" in log.read_text()

    until(is_logged, "the node says why")


def test_the_http_api_takes_the_users_passwords(secure_cluster: SecureCluster) -> None:
    """Over HTTPS, as curl -u sends them; a wrong password is refused."""
    context = ssl.create_default_context(cafile=str(secure_cluster.certificates.ca))
    statuses = []
    for password in (secure_cluster.passwords["admin"], "wrong"):
        login = base64.b64encode(f"admin:{password}".encode()).decode()
        asked = urllib.request.Request(
            f"{secure_cluster.admin_url()}/v3/clusters", headers={"Authorization": f"Basic {login}"}
        )
        try:
            with urllib.request.urlopen(asked, context=context, timeout=PATIENCE_S) as answer:
                statuses.append(answer.status)
        except urllib.error.HTTPError as refused:
            statuses.append(refused.code)
            refused.close()
    assert statuses == [200, 401]


def test_a_user_is_set_logs_in_is_removed_and_logs_in_no_more(as_: As, tmp_path: Path) -> None:
    """By a password from standard input, then by another password from a file; no output has either."""
    assert as_("admin", "user", "set", "alice", "--password-stdin", stdin=b"in wonderland\n").returncode == 0
    poll_until(
        lambda: as_("alice", "topic", "list", password="in wonderland").returncode == 0, "alice logs in"
    )
    (tmp_path / "password").write_text("through the looking-glass\n")
    ran = as_(
        "admin", "user", "set", "alice", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192",
        "--password-file", str(tmp_path / "password"),
    )  # fmt: skip
    assert ran.stdout == "alice can log in with SCRAM-SHA-512\n" and not ran.stderr
    rows = json.loads(as_("admin", "user", "list", "alice", "-J").stdout)
    assert [each["iterations"] for each in rows] == [4096, 8192]
    assert as_("alice", "topic", "list", password="in wonderland").returncode == exits.DENIED
    new = "through the looking-glass"
    assert as_("alice", "topic", "list", password=new).returncode == 0
    assert as_("admin", "user", "delete", "alice", "--mechanism", "SCRAM-SHA-256").returncode == 0
    assert as_("admin", "user", "delete", "alice").stdout == "alice deleted\n"
    refused = as_("alice", "topic", "list", password=new)
    assert refused.returncode == exits.DENIED
    assert "the user name or password is wrong" in refused.stderr and new not in refused.stderr
    assert as_("admin", "user", "delete", "alice").returncode == exits.NOT_FOUND


def test_wrong_words_about_users_are_refused_before_a_password_is_asked_for(as_: As) -> None:
    """Each with a line that says what to mend."""
    for arguments, code, said in (
        (("user", "set", "alice"), exits.USAGE, "--password-file FILE or --password-stdin"),
        (("user", "set", "alice", "--password-stdin"), exits.USAGE, "the password is empty"),
        (("user", "set", "alice", "--password-file", "/nowhere"), exits.USAGE, "/nowhere: No such file"),
        (("user", "set", "alice", "--iterations", "10", "--password-stdin"), exits.USAGE, "4096"),
        (("user", "set", "alice", "--mechanism", "PLAIN", "--password-stdin"), exits.USAGE, "SCRAM-SHA-512"),
        (("user", "set", "", "--password-stdin"), exits.USAGE, "a name is empty"),
        (("user", "list", "nobody"), exits.NOT_FOUND, "there is no user nobody"),
    ):
        ran = as_("admin", *arguments)
        assert (ran.returncode, ran.stdout) == (code, ""), arguments
        assert said in ran.stderr, ran.stderr


def test_rules_are_added_listed_in_force_and_removed(as_: As) -> None:
    """kafka-acls' words: --producer and --consumer are the rules that it makes; removal by the same words."""
    denied = as_("writer", "topic", "create", "orders")
    assert denied.returncode == exits.DENIED, denied.stderr
    words = ("--allow-principal", "User:writer", "--producer", "--topic", "orders")
    rows = json.loads(as_("admin", "acl", "add", *words, "--idempotent", "-J").stdout)
    assert {(each["resource"], each["name"], each["operation"]) for each in rows} == {
        ("TOPIC", "orders", "WRITE"),
        ("TOPIC", "orders", "DESCRIBE"),
        ("TOPIC", "orders", "CREATE"),
        ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
    }
    assert as_("writer", "topic", "create", "orders").returncode == 0
    assert as_("writer", "produce", "-t", "orders", stdin=b"one\n").returncode == 0
    read = ("consume", "-t", "orders", "-e")
    assert as_("reader", *read).returncode != 0
    as_("admin", "acl", "add", "--allow-principal", "User:reader", "--consumer", "--topic", "ord",
        "--group", "*", "--resource-pattern-type", "prefixed")  # fmt: skip
    as_("admin", "acl", "add", "--allow-principal", "User:reader", "--operation", "Read", "--group", "*")
    assert as_("reader", *read).stdout == "one\n"
    found = json.loads(
        as_("admin", "acl", "list", "--topic", "orders", "--resource-pattern-type", "match",
            "--principal", "User:reader", "-J").stdout
    )  # fmt: skip
    assert {(each["name"], each["pattern"], each["operation"]) for each in found} == {
        ("ord", "PREFIXED", "READ"),
        ("ord", "PREFIXED", "DESCRIBE"),
    }
    as_("admin", "acl", "add", "--deny-principal", "User:reader", "--operation", "read", "--topic", "orders")
    assert as_("reader", *read).returncode != 0
    gone = json.loads(as_("admin", "acl", "delete", *words, "--idempotent", "-J").stdout)
    assert len(gone) == 4
    assert as_("admin", "acl", "delete", "--topic", "orders").returncode == exits.USAGE
    assert len(json.loads(as_("admin", "acl", "delete", "--topic", "orders", "--force", "-J").stdout)) == 1
    assert as_("writer", "produce", "-t", "orders", stdin=b"two\n").returncode == exits.DENIED


def test_rules_about_tokens_and_users_are_added_listed_and_removed(as_: As) -> None:
    """librdkafka does not know these resources: alone, beside others, and in a list of everything."""
    resources = ("--delegation-token", "abc", "--user-principal", "User:alice")
    who = ("--allow-principal", "User:bob")
    as_("admin", "acl", "add", *who, "--operation", "Describe", "--delegation-token", "abc")
    added = as_(
        "admin", "acl", "add", *who, "--operation", "CreateTokens", "--user-principal", "User:alice", "-J"
    )
    assert [each["operation"] for each in json.loads(added.stdout)] == ["CREATE_TOKENS"], added.stderr
    rows = json.loads(as_("admin", "acl", "list", "--principal", "User:bob", "-J").stdout)
    assert {(each["resource"], each["name"]) for each in rows} == {
        ("DELEGATION_TOKEN", "abc"),
        ("USER", "User:alice"),
    }
    assert len(json.loads(as_("admin", "acl", "list", *resources, "-J").stdout)) == 2
    denied = as_("writer", "acl", "delete", *resources, "--force")
    assert (denied.returncode, denied.stdout) == (exits.DENIED, "")
    assert denied.stderr == "raftlog: not authorized: this needs ALTER of the cluster\n"
    assert len(json.loads(as_("admin", "acl", "delete", *resources, "--force", "-J").stdout)) == 2
    assert json.loads(as_("admin", "acl", "list", *resources, "-J").stdout) == []


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("quota", "list"),
        ("token", "list"),
        ("group", "list"),
        ("cluster", "health"),
        ("consume", "-t", "orders", "-e"),
        ("produce", "-t", "orders"),
    ],
)
def test_a_command_without_settings_learns_that_the_listener_speaks_tls(
    secure_cluster: SecureCluster, words: tuple[str, ...]
) -> None:
    """Not that no broker answers: the next thing to do is to name a file of settings."""
    ran = CommandLine(secure_cluster.bootstrap_servers)(*words)
    assert (ran.returncode, ran.stdout) == (exits.DENIED, "")
    where = f"raftlog: {secure_cluster.bootstrap_servers}: its listener uses TLS"
    assert ran.stderr.startswith(where) and "-F FILE" in ran.stderr, ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_refusal_names_the_operation_and_the_resource(as_: As, secure_cluster: SecureCluster) -> None:
    """In one form for all commands, whichever client library asked. A producer's refusal names its topic."""
    secure_cluster.create_topic("closed", partitions=1)
    as_("admin", "user", "set", "eve", "--password-stdin", stdin=b"a password\n")
    poll_until(lambda: as_("eve", "topic", "list", password="a password").returncode == 0, "eve logs in")
    as_(
        "admin",
        "acl",
        "add",
        "--allow-principal",
        "User:eve",
        "--operation",
        "Describe",
        "--topic",
        "closed",
    )
    login = ("-F", str(as_.settings("eve", "a password")))
    ran = CommandLine(secure_cluster.bootstrap_servers).process(
        "produce", "-t", "closed", *login, stdin=b"one\n"
    )
    said = "raftlog: topic closed: not authorized: this needs WRITE of the topic\n"
    assert (ran.returncode, ran.stderr) == (exits.DENIED, said)  # and no line of librdkafka's own
    as_("admin", "acl", "add", "--allow-principal", "User:eve", "--operation", "Describe", "--group", "g")
    for words, about, right in (
        (("topic", "create", "new"), "new: ", "CREATE of the topic"),
        (("topic", "delete", "closed"), "closed: ", "DELETE of the topic"),
        (("topic", "trim", "closed", "--offset", "end"), "closed 0: ", "DELETE of the topic"),
        (("topic", "describe", "closed"), "topic closed: ", "DESCRIBE_CONFIGS of the topic"),
        (("consume", "-t", "closed", "-e"), "closed 0: ", "READ of the topic"),
        (("partition", "elect", "closed:0"), "", "ALTER of the cluster"),
        (("partition", "reassignments"), "", "DESCRIBE of the cluster"),
        (("broker", "log-dirs"), "", "DESCRIBE of the cluster"),
        (("broker", "unregister", "9"), "", "ALTER of the cluster"),
        (("quota", "set", "--user", "x", "producer_byte_rate=1"), "", "ALTER_CONFIGS of the cluster"),
        (("group", "offsets", "other"), "other: ", "DESCRIBE of the group"),
        (("group", "delete", "g"), "g: ", "DELETE of the group"),
        (("quorum", "status"), "", "DESCRIBE of the cluster"),
    ):
        ran = as_("eve", *words, password="a password")
        assert (ran.returncode, ran.stdout) == (exits.DENIED, ""), (words, ran)
        assert ran.stderr == f"raftlog: {about}not authorized: this needs {right}\n"


def test_commands_over_http_take_the_login_of_a_kafka_client(as_: As, secure_cluster: SecureCluster) -> None:
    """-F alone suffices for a user that may see brokers' settings: servers, authority, user and password are in the
    file.
    """
    ran = as_("admin", "transaction", "list", "-J")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")
    where = ("--http", secure_cluster.admin_url())
    file = ("-F", str(as_.settings("writer")))
    code, _, said = invoke("cluster", "health", *where, *file)
    assert (code, said) == (exits.DENIED, "raftlog: User:writer may not DESCRIBE the cluster\n")
    said = as_("writer", "cluster", "health").stderr
    assert said.startswith(
        "raftlog: not authorized: this needs DESCRIBE_CONFIGS of the cluster, to find the HTTP"
    )
    file = ("-F", str(as_.settings("admin", "wrong")))
    assert "the user name or password is wrong" in invoke("cluster", "health", *where, *file)[2]
    authority = ("--cacert", str(secure_cluster.certificates.ca))
    assert "add -F FILE, --user NAME or --token TOKEN" in invoke("cluster", "health", *where, *authority)[2]
    plain = secure_cluster.admin_url().replace("https", "http")
    assert f"use --http {secure_cluster.admin_url()}" in invoke("cluster", "health", "--http", plain)[2]
    assert invoke("cluster", "health", *where, *authority, "--user", "admin")[0] == exits.USAGE


def test_a_certificate_of_an_unknown_authority_is_reported_by_address(
    as_: As, secure_cluster: SecureCluster, tmp_path: Path
) -> None:
    """Instead of OpenSSL's words; the address is the broker's, which may come from an advertised listener."""
    assert invoke("certs", str(tmp_path / "other"), "--host", "node1")[0] == 0
    mine, other = str(secure_cluster.certificates.ca), str(tmp_path / "other" / "ca.pem")
    file = as_.settings("admin")
    file.write_text(file.read_text().replace(mine, other))
    for words in (("topic", "list"), ("token", "list")):
        ran = invoke(*words, "-F", str(file))
        assert ran == (exits.DENIED, "", f"raftlog: {secure_cluster.bootstrap_servers}: {UNPROVEN}\n")


def test_a_password_of_a_file_does_not_leave_the_machine_in_the_clear(as_: As, tmp_path: Path) -> None:
    """It is that of Kafka's listeners. --user says it for this API."""
    file = tmp_path / "of-another-machine.properties"
    file.write_text(
        re.sub(
            "(?m)^bootstrap.servers=.*$",
            "bootstrap.servers=198.51.100.7:9092",
            as_.settings("admin").read_text(),
        )
    )
    code, _, said = invoke(
        "cluster", "health", "--http", "http://198.51.100.7:9644", "-m", "1", "-F", str(file)
    )
    assert code == exits.USAGE and "is not HTTPS" in said


def test_records_are_read_without_a_right_to_any_group(as_: As, secure_cluster: SecureCluster) -> None:
    """Without -G no offset is committed; librdkafka asks for a coordinator, and ignores the refusal."""
    secure_cluster.create_topic("alone", partitions=1)
    rule = ("--allow-principal", "User:writer", "--operation", "Read", "--operation", "Write")
    as_("admin", "acl", "add", *rule, "--topic", "alone")
    assert as_("writer", "produce", "-t", "alone", stdin=b"one\n").returncode == 0
    ran = as_("writer", "consume", "-t", "alone", "-e")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "one\n", "")
    ran = as_("writer", "consume", "-G", "g", "-e", "alone")
    assert ran.stderr == "raftlog: not authorized: this needs READ of the group\n"


def test_security_commands_report_a_missing_right(as_: As) -> None:
    """librdkafka would show no rules, wait for ever, or end its process."""
    for arguments in (
        ("user", "list"),
        ("user", "set", "bob", "--password-stdin"),
        ("acl", "list"),
        ("acl", "add", "--allow-principal", "User:writer", "--cluster"),
        ("acl", "delete", "--cluster", "--force"),
    ):
        ran = as_("writer", *arguments, stdin=b"a password\n")
        assert (ran.returncode, ran.stdout) == (exits.DENIED, ""), arguments
        assert "not authorized: this needs" in ran.stderr


def test_commands_that_use_another_client_log_in_too(as_: As) -> None:
    """kafka-python gets librdkafka's settings of the login."""
    ran = as_("admin", "broker", "log-dirs", "-J")
    assert [each["broker"] for each in json.loads(ran.stdout)] == [1]
    assert as_("admin", "group", "delete", "nothing").returncode == exits.NOT_FOUND


def test_nodes_show_no_secret_in_their_logs(as_: As, secure_cluster: SecureCluster) -> None:
    """Passwords, tokens and keys are in files of their own, and nowhere else."""
    log = secure_cluster.nodes[1].log_path.read_text()
    token = secure_cluster.token_file.read_text().split()[2]
    assert not [each for each in (*secure_cluster.passwords.values(), token) if each in log]
    assert "PRIVATE KEY" not in log
    for path in (
        secure_cluster.directory / "users.json",
        secure_cluster.token_file,
        secure_cluster.certificates.node("127.0.0.1"),
    ):
        assert path.stat().st_mode & 0o777 == 0o600
