"""Which login a command sends to an address that it is given: that of a context goes only to the context's cluster."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raftlog.cli import contexts, exits
from raftlog.cli.cluster_command import target_of
from raftlog.cli.consume import _decoder
from raftlog.cli.context import VARIABLES
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import ADMIN_API, SCHEMA_REGISTRY, HttpApi, HttpEndpoint
from raftlog.cli.http_command import api_of
from raftlog.cli.kcat.format import Record
from raftlog.cli.target import Target
from raftlog.tables.registry import Registry
from tests.cli.http_server import HttpServer, Response
from tests.cli.live import invoke

LOGINS = [("-X", "sasl.password=hush"), ("--token", "hush"), ("-u", "ann:hush")]
CLUSTER = ("-b", "one:9092", "--http", "https://api:9644")
RECORD = Record(b"orders", 0, 0, None, b"\0\0\0\0\x01\x04", (), 0, 0, 1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test contexts of its own."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A registry with one schema, which is not of the context's cluster."""

    def answer(path: str) -> Response:
        if path.startswith("/schemas"):
            return Response([] if "?" in path else {"schema": '"long"'})
        return Response({"message": "no"}, status=500)

    with HttpServer(answer) as started:
        yield started


def target(context: str = "") -> Target:
    return target_of({"context": context, "bootstrap": "", "file": None, "setting": None, "timeout": 1.0})


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def consume(url: str) -> None:
    decoder = _decoder(target(), url, (None, "registry"))
    assert decoder is not None and decoder.decoded(RECORD).value == b"2"


def table(url: str) -> None:
    assert Registry(url, lambda _: None).schema(1) is not None


DOORS: list[Callable[[str], object]] = [
    consume,
    lambda url: invoke("schema", "list", "--registry", url),
    lambda url: invoke("schema", "list", "--registry", url, "--context", "one"),
    lambda url: invoke("cluster", "health", "--http", url),
    lambda url: invoke("cluster", "health", "--http", url, "--context", "one"),
    table,
]


@pytest.mark.parametrize("door", DOORS, ids=["consume", "schema", "schema-", "http", "http-", "table"])
@pytest.mark.parametrize("login", LOGINS)
def test_an_address_beside_a_context_does_not_get_its_login(
    server: HttpServer, door: Callable[[str], object], login: tuple[str, str]
) -> None:
    """Whichever command it is given to. A login in the address itself is sent."""
    assert invoke("context", "add", "one", *CLUSTER, *login)[0] == 0
    door(server.url)
    assert server.asked and set(server.logins) == {None}
    server.logins.clear()
    door(server.with_login("bob:p%40ss"))
    assert set(server.logins) == {basic("bob:p@ss")}


def test_the_variable_is_an_address_as_the_option_is(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell's environment may be another cluster's."""
    assert invoke("context", "add", "one", *CLUSTER, "--token", "hush")[0] == 0
    monkeypatch.setenv("RAFTLOG_REGISTRY", server.url)
    assert invoke("schema", "list", "--context", "one")[0] == 0
    assert server.logins == [None]


@pytest.mark.parametrize("url", ["https://one:8081", "https://API"])
@pytest.mark.parametrize("login", LOGINS)
def test_an_address_of_the_contexts_cluster_gets_its_login(url: str, login: tuple[str, str]) -> None:
    """The same test as for an address that is saved."""
    assert invoke("context", "add", "one", *CLUSTER, *login)[0] == 0
    api = api_of(target(), 1.0, service=SCHEMA_REGISTRY, url=url)
    assert "hush" in api.user + api.token


@pytest.mark.parametrize("service", [ADMIN_API, SCHEMA_REGISTRY])
@pytest.mark.parametrize("login", LOGINS)
def test_a_saved_login_crosses_no_network_in_the_clear(service: HttpEndpoint, login: tuple[str, str]) -> None:
    """Also not to the cluster itself. A login of an option does, since it was given for this address."""
    saved = ("-b", "one:9092", "--http", "http://one:9644", "--registry", "http://one:8081")
    assert invoke("context", "add", "one", *saved, *login)[0] == 0
    with pytest.raises(Failure, match=r"http://one:\d+ is not HTTPS: the saved login") as refused:
        api_of(target(), 1.0, service=service).ask("GET", "/")
    assert refused.value.code == exits.USAGE
    with pytest.raises(Failure, match="http://one:8081 is not HTTPS"):
        _decoder(target(), "http://one:8081", (None, "registry"))
    HttpApi("http://one:9644", "mine").check_tls("http://one:9644")


def test_a_server_that_gets_no_saved_login_and_asks_for_one_is_explained(server: HttpServer) -> None:
    """Otherwise the user looks for a fault in the login."""
    assert invoke("context", "add", "one", *CLUSTER, "--token", "hush")[0] == 0
    server.answer = lambda _: Response({}, status=401)
    code, _, said = invoke("schema", "list", "--registry", server.url, "--context", "one")
    assert code == exits.DENIED and "the saved login is only for hosts of its cluster" in said


def test_a_login_in_a_saved_address_is_used_and_not_shown(server: HttpServer) -> None:
    """It goes to that address only, whatever else the context has."""
    registry = server.with_login("al:secretpw")
    assert invoke("context", "add", "one", *CLUSTER, "--token", "hush", "--registry", registry)[0] == 0
    assert invoke("schema", "list")[0] == 0 and set(server.logins) == {basic("al:secretpw")}
    shown = invoke("context", "list", "-J")[1]
    assert server.url in shown and "secretpw" not in shown
    server.answer = lambda _: Response({}, status=401)
    code, _, said = invoke("schema", "list")
    assert code == exits.DENIED and "secretpw" not in said and server.url in said
    assert api_of(target(), 1.0).token == "hush"
    contexts.save("one", contexts.read(contexts.path_of("one")) | {contexts.REGISTRY_URL: "http://al:pw@far"})
    with pytest.raises(Failure, match="http://far is not HTTPS: the saved login"):
        _decoder(target(), "", (None, "registry"))


@pytest.mark.parametrize(
    "url",
    [
        "http://al:secretpw@127.0.0.1:1",
        "http://al:secretpw@h:0",
        "ftp://al:secretpw@h",
        "al:secretpw@h:80",
        "http://al:secretpw#@h",
        "http://al:1/secretpw@h",
        "http://al:1#secretpw@h",
        "http://al:x@1/secretpw@h",
    ],
)
def test_no_message_has_the_password_of_an_address(url: str) -> None:
    """No server answers at the first, and the others are invalid: a raw / or # ends a host inside of the password."""
    for words in (
        ("schema", "list", "--registry", url),
        ("cluster", "health", "--http", url),
        ("context", "add", "one", "-b", "127.0.0.1:1", "--registry", url, "--replace"),
        ("schema", "list", "--context", "one"),
    ):
        said = "".join(map(str, invoke(*words)))
        assert "secretpw" not in said, words
