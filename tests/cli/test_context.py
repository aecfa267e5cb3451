"""`raftlog context`: a cluster's addresses and login are saved once, and used by commands without an address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftlog.cli import contexts, exits
from raftlog.cli.broker import Left
from raftlog.cli.cluster_command import target_of
from raftlog.cli.context import VARIABLES
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import ADMIN_API, SCHEMA_REGISTRY, HttpApi, HttpEndpoint
from raftlog.cli.http_command import _api
from raftlog.testing.cluster import Cluster
from tests.cli.live import invoke


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test contexts of its own."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "raftlog"


def settings_of(context: str = "", bootstrap: str = "", file: Path | None = None) -> dict[str, str]:
    """Return the settings of a command that was given these options, with its servers."""
    given = {"context": context, "bootstrap": bootstrap, "file": file, "setting": None, "timeout": 1.0}
    target = target_of(given)
    return {**target.settings, "bootstrap.servers": target.servers}


def api_of(service: HttpEndpoint, token: str = "") -> HttpApi:
    """Return the API that a command without an address asks."""
    names = ("url", "bootstrap", "context", "user", "cacert", "certificate")
    return _api({**dict.fromkeys(names, ""), "file": None, "timeout": 1.0, "token": token}, service=service)


def test_the_first_context_is_used_and_another_can_be_chosen() -> None:
    """As rpk's profiles: add, use, list, delete."""
    code, out, _ = invoke("context", "add", "one", "-b", "one:9092")
    assert (code, out.splitlines()[0]) == (0, "context one saved")
    assert settings_of()["bootstrap.servers"] == "one:9092"
    assert invoke("context", "add", "two", "-b", "two:9092,three")[0] == 0
    assert settings_of()["bootstrap.servers"] == "one:9092"
    assert settings_of(context="two")["bootstrap.servers"] == "two:9092,three"
    assert invoke("context", "use", "two")[0] == 0
    assert settings_of()["bootstrap.servers"] == "two:9092,three"
    code, out, _ = invoke("context", "list", "-J")
    assert [(each["context"], each["current"]) for each in json.loads(out)] == [("one", False), ("two", True)]
    assert invoke("context", "delete", "two") == (0, "context two deleted\n", "")
    assert settings_of()["bootstrap.servers"] == "localhost:9092"
    assert invoke("context", "use", "one")[0] == 0 and invoke("context", "use", "--none")[0] == 0
    assert settings_of()["bootstrap.servers"] == "localhost:9092"


def test_a_given_address_is_never_sent_the_login_of_the_current_context() -> None:
    """The context that --context names is meant; the current one may be another cluster's."""
    login = ("-X", "sasl.username=ann", "-X", "sasl.password=hush")
    assert invoke("context", "add", "one", "-b", "one:9092", *login)[0] == 0
    assert settings_of(bootstrap="other:1") == {"bootstrap.servers": "other:1"}
    named = settings_of(context="one", bootstrap="other:1")
    assert (named["bootstrap.servers"], named["sasl.password"]) == ("other:1", "hush")


def test_secrets_are_kept_from_other_users_and_from_the_list(home: Path, tmp_path: Path) -> None:
    """Each file is 0600 in folders of 0700; the settings of -F are copied, with certificates by their whole path."""
    (tmp_path / "ca.pem").write_text("")
    file = tmp_path / "client.properties"
    file.write_text(
        f"sasl.username=ann\nsasl.password=hush-kafka\nssl.ca.location={tmp_path / 'ca.pem'}\nlinger.ms=5\n"
    )
    given = ("-b", "one", "-F", str(file), "--http", "http://one:9644", "--token", "hush-http")
    assert invoke("context", "add", "one", *given)[0] == 0
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600} and len(files) == 2
    assert home.stat().st_mode & 0o777 == (home / "contexts").stat().st_mode & 0o777 == 0o700
    for form in ("table", "json", "jsonl"):
        out = invoke("context", "list", "-o", form)[1]
        assert "ann" in out and "http://one:9644" in out and "hush" not in out
    found = settings_of()
    assert found["sasl.password"] == "hush-kafka" and contexts.HTTP_TOKEN not in found
    assert contexts.read_http(contexts.path_of("one"))[contexts.HTTP_TOKEN] == "hush-http"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "one"), exits.USAGE, "name the cluster's nodes"),
        (("add", "../one", "-b", "one"), exits.USAGE, "context '../one'"),
        (("add", "one", "-b", "one:x"), exits.USAGE, "the port must be a number"),
        (("add", "one", "-b", "one", "-X", "nonsense=1"), exits.USAGE, "nonsense: this command only knows"),
        (
            ("add", "one", "-b", "one", "-X", "ssl.ca.location=/nosuch.pem"),
            exits.USAGE,
            "/nosuch.pem: No such file",
        ),
        (("add", "there", "-b", "one"), exits.EXISTS, "context there exists; --replace replaces it"),
        (("add", "one", "-b", ","), exits.USAGE, "name the cluster's nodes"),
        (
            ("add", "one", "-b", "http://one:9092"),
            exits.USAGE,
            "-b http://one:9092: expected HOST:PORT of Kafka",
        ),
        (("add", "one", "-b", "PLAIN://one:9092"), exits.USAGE, "PLAIN is no protocol of Kafka's listeners"),
        (
            ("add", "one", "-X", "bootstrap.servers=one:x"),
            exits.USAGE,
            "-X bootstrap.servers one:x: the port",
        ),
        (("add", "one", "-b", "one", "--http", "one:9644"), exits.USAGE, "--http one:9644: expected http://"),
        (("add", "one", "-b", "one", "--http", "http://:9644"), exits.USAGE, "--http http://:9644: expected"),
        (("add", "one", "-b", "one", "--registry", "one:8081"), exits.USAGE, "--registry one:8081: expected"),
        (
            ("add", "one", "-b", "one", "--registry", "http://one:x"),
            exits.USAGE,
            "--registry http://one:x: Port",
        ),
        (
            ("add", "one", "-b", "one", "--cacert", "/nosuch.pem"),
            exits.USAGE,
            "--cacert: /nosuch.pem: No such",
        ),
        (("use", "nosuch"), exits.NOT_FOUND, "there is no context nosuch; the contexts are there"),
        (("use",), exits.USAGE, "name a context, or --none"),
        (("delete", "nosuch"), exits.NOT_FOUND, "there is no context nosuch"),
    ],
)
def test_what_cannot_be_saved_or_used_is_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    """The saved contexts stay as they were."""
    assert invoke("context", "add", "there", "-b", "there")[0] == 0
    found = invoke("context", *words)
    assert (found[0], found[1]) == (code, "") and said in found[2] and found[2].count("\n") == 1
    assert contexts.names() == ["there"]


def test_a_context_and_a_file_are_not_mixed(tmp_path: Path) -> None:
    """Both have logins. A named context that does not exist is refused."""
    with pytest.raises(Failure, match="--context and -F both name settings"):
        settings_of(context="one", file=tmp_path / "client.properties")
    with pytest.raises(Failure, match="see `raftlog context add`"):
        settings_of(context="one")


def test_errors_name_the_context_that_was_used() -> None:
    """Otherwise a forgotten current context looks like a cluster that lost its topics."""
    assert invoke("context", "add", "staging", "-b", "127.0.0.1:1", "--http", "http://127.0.0.1:1")[0] == 0
    for command in (("topic", "list", "-m", "0.1"), ("acl", "list", "-m", "0.1")):
        code, _, said = invoke(*command)
        assert code == exits.UNREACHABLE and said.endswith("(context staging)\n"), command
    assert "(context" not in invoke("topic", "list", "-b", "127.0.0.1:1", "-m", "0.1")[2]


def test_failure_that_names_its_context_keeps_its_kind() -> None:
    """Its caller may catch it by its class, and read more of it than words."""
    contexts.save("one", {})
    failure = Left("", 3)
    assert contexts.named(failure, contexts.path_of("one")) is failure and str(failure) == " (context one)"
    assert str(contexts.named(Failure("x"), Path("one.properties"))) == "x"


def test_a_variable_that_takes_precedence_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else commands go to another cluster than the user believes."""
    assert invoke("context", "add", "one", "-b", "one")[0] == 0
    monkeypatch.setenv("RAFTLOG_BOOTSTRAP", "other:9092")
    assert "RAFTLOG_BOOTSTRAP is set here, and takes precedence" in invoke("context", "use", "one")[2]


@pytest.mark.parametrize(
    ("registry", "is_sent"),
    [
        ("https://two:8081", True),
        ("https://api:8081", True),
        ("https://registry.example.com", False),
        ("http://127.0.0.1:8081", False),
    ],
)
@pytest.mark.parametrize("login", [("-X", "sasl.password=hush"), ("--token", "hush"), ("-u", "ann:hush")])
def test_only_a_registry_of_the_cluster_gets_the_login(
    registry: str, is_sent: bool, login: tuple[str, str]
) -> None:
    """A context may name a registry of others, which must not learn a password of Kafka. Options count for each."""
    cluster = ("-b", "one:9092,TWO", "--http", "https://api:9644")
    assert invoke("context", "add", "one", *cluster, "--registry", registry, *login)[0] == 0
    api = api_of(SCHEMA_REGISTRY)
    assert (api.url, "hush" in api.user + api.token) == (registry, is_sent)
    assert api_of(SCHEMA_REGISTRY, token="mine").token == "mine"
    admin = api_of(ADMIN_API)
    assert admin.url == "https://api:9644" and "hush" in admin.user + admin.token


def test_a_registry_on_this_machine_gets_the_login() -> None:
    """The names of loopback are the same host."""
    login = ("-u", "ann:hush", "--registry", "http://localhost:8081")
    assert invoke("context", "add", "one", "-b", "127.0.0.1:9092", *login)[0] == 0
    assert api_of(SCHEMA_REGISTRY).user == "ann:hush"


def test_a_context_keeps_the_address_of_a_registry() -> None:
    """Without it, a node is asked. A command that finds no registry names every way to give its address."""
    url = "http://127.0.0.1:1"
    assert invoke("context", "add", "one", "-b", "127.0.0.1:1", "--registry", url)[0] == 0
    (shown,) = json.loads(invoke("context", "list", "-J")[1])
    assert (shown["registry"], shown["http"]) == (url, None)
    code, _, said = invoke("schema", "list")
    assert code == exits.UNREACHABLE and said.startswith(f"raftlog: no answer at {url} (")
    for way in ("--registry http://HOST:PORT", "RAFTLOG_REGISTRY", "`raftlog context add`", "-b HOST:PORT"):
        assert way in said
    code, _, said = invoke("schema", "list", "-b", "127.0.0.1:1", "-m", "0.1")
    assert code == exits.UNREACHABLE and "no broker answers at 127.0.0.1:1" in said
    assert invoke("context", "add", "copy", "-F", str(contexts.path_of("one")))[0] == 0
    assert contexts.read(contexts.path_of("copy")) == contexts.read(contexts.path_of("one"))


@pytest.mark.slow
def test_commands_over_kafka_and_http_use_the_context(cluster: Cluster) -> None:
    """Without -b and --http; `node wait-safe` is about this machine, and takes no context."""
    url = cluster.admin_url(1)
    assert invoke("context", "add", "here", "-b", cluster.bootstrap_servers)[0] == 0
    assert invoke("cluster", "describe")[0] == 0
    assert invoke("cluster", "health")[0] in (0, exits.UNHEALTHY)
    code, _, said = invoke("topic", "delete", "nosuch")
    assert code == exits.NOT_FOUND and said.endswith("raftlog: the cluster is that of context here\n")
    assert invoke("context", "add", "http", "-b", "127.0.0.1:1", "--http", url)[0] == 0
    assert invoke("broker", "restart-risks", "1", "--context", "http")[0] in (0, exits.UNHEALTHY)
    assert (
        invoke("broker", "restart-risks", "1", "--context", "http", "-b", "127.0.0.1:1", "-m", "0.2")[0]
        == exits.UNREACHABLE
    )
    assert invoke("node", "wait-safe", "--context", "http")[0] == exits.USAGE
